#!/bin/sh
# Become the dockerd of another Debian, whose tree is $1, called with the rest of the arguments.
# It has this machine's kernel, network, processes, /run, /tmp and /var/lib/docker, and keeps the
# process id. Its mounts are its own. chroot would not do: the engine makes roots of its own.
set -eu

# shellcheck disable=SC2016 # the inner shell expands them
exec unshare --mount --propagation slave sh -euc '
    tree=$1
    shift
    mount --bind "$tree" "$tree"
    for folder in /proc /sys /dev /run /tmp /var/lib/docker "${TMPDIR:-/tmp}"; do
        mkdir -p "$tree$folder"
        mount --rbind "$folder" "$tree$folder"
    done
    cd "$tree"
    # The old root is mounted over the new one, and taken away.
    pivot_root . .
    umount --lazy .
    exec /usr/sbin/dockerd "$@"
' sh "$@"
