#!/bin/sh
# Run a command as root with processes, a loopback network, /run and /var/lib/docker of its own, so
# that it may start a Docker Engine beside others. When the command ends, or whoever started it,
# all its processes are killed, and its mounts are gone.
# Its descriptors 8 and 9 are the network and the mounts from which it was started (see nsenter).
set -eu

export ROLLCALL_ISOLATED=1
# Nothing outside can be reached, and aiohttp reads all authorities when it is imported: that would
# be a fifth of the processor time of each command.
export ROLLCALL_SSL_CERT_FILE="${SSL_CERT_FILE:-}" SSL_CERT_FILE=/dev/null
exec 8</proc/self/ns/net 9</proc/self/ns/mnt
mkdir -p /var/lib/docker
# The shell stays as process 1 of the namespace: it waits for every process that loses its parent.
exec setpriv --pdeathsig KILL \
    unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private sh -euc '
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/lock
    mount -t tmpfs tmpfs /var/lib/docker
    PATH="$PATH:/usr/sbin:/sbin" ip link set lo up
    status=0
    "$@" || status=$?
    exit "$status"
' sh "$@"
