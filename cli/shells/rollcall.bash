# Completion of rollcall for bash: source it, or put it into the folder of bash-completion.

_rollcall() {
    local line=${COMP_LINE:0:COMP_POINT} prefix= value words=()
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local current=${words[${#words[@]} - 1]}
    # Bash replaces only what follows the last colon.
    [[ $current == *:* && $COMP_WORDBREAKS == *:* ]] && prefix=${current%"${current##*:}"}
    COMPREPLY=()
    while IFS= read -r value; do
        COMPREPLY+=("${value#"$prefix"}")
    done < <("$1" complete-words bash -- "${words[@]:1}" 2> /dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace 2> /dev/null
    return 0
}

complete -o default -F _rollcall rollcall
