# Completion of rollcall for fish: a file in ~/.config/fish/completions.

function __rollcall_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l found (rollcall complete-words fish -- $words "$current" 2> /dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end

complete -c rollcall -f -a '(__rollcall_complete)'
