#!/bin/sh
# Write each file that is not as asked for, and print its path. A line on standard input has a path,
# USER:GROUP, an octal mode, and the content in base64. With --check, nothing is written.
# A task for each file would start two programs on the host for each, even if nothing has changed.
set -eu
umask 077

while read -r file owners mode content; do
    [ -n "$file" ] || continue
    if [ "$(stat -c '%U:%G %a' "$file" 2>/dev/null)" = "$owners $mode" ] &&
        echo "$content" | base64 -d | cmp -s - "$file"; then
        continue
    fi
    echo "$file"
    [ "${1:-}" != --check ] || continue
    [ -d "${file%/*}" ] || mkdir -m 755 "${file%/*}"
    echo "$content" | base64 -d >"$file.new"
    chown "$owners" "$file.new"
    chmod "$mode" "$file.new"
    mv "$file.new" "$file"
done
