#!/bin/sh
# Install from Debian what `make $1` needs and this machine lacks ($1: lint, run, deb, test, bench).
# Not root, or not Debian: say it in one line and go on; what is missing then shows where it is used.
# Of `make run`, that is the place that says it, with the command that helps.
set -eu

missing=
need() { missing="$missing $1"; }
have() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

# The first file of a static busybox names no loader; Debian's dynamic one does.
static_busybox() {
    for file in /bin/busybox /bin/busybox.static; do
        [ -f "$file" ] && ! head -c 4096 "$file" | grep -q '/ld-' && return
    done
    return 1
}

# venv.sh makes the environment of the system's Python, if there is one.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
"$python" -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
if [ "$1" = deb ] || [ "$1" = test ]; then
    have dpkg-deb || need dpkg
    have x86_64-linux-gnu-strip || need binutils-x86-64-linux-gnu
    have aarch64-linux-gnu-strip || need binutils-aarch64-linux-gnu
fi
if [ "$1" != lint ] && [ "$1" != deb ]; then
    have curl || need curl
    [ -n "${DOCKER_HOST:-}" ] || [ -S /var/run/docker.sock ] || have dockerd || need docker.io
    have iptables || need iptables
    have ps || need procps # the engine asks it for the processes of an app
    static_busybox || need busybox-static
fi
if [ "$1" = test ]; then
    have lintian || need lintian
    have git || need git
    have chromium-headless-shell || need chromium-headless-shell
    have man || need man-db
    have pipx || need pipx
    have zsh || need zsh
    have fish || need fish
    have nginx || need nginx
    have haproxy || need haproxy
fi
if [ "$1" = test ] || [ "$1" = bench ]; then
    have wrk || need wrk
    have etcd || need etcd-server
    have prometheus || need prometheus
    have mmdebstrap || need mmdebstrap
    have docker-registry || need docker-registry
    have systemd-analyze || need systemd
    have ip || need iproute2
    have openssl || need openssl
    have mkfs.ext4 || need e2fsprogs
    have faketime || need faketime
    have ssh || need openssh-client
    have jq || need jq
    have xz || need xz-utils
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! have apt-get; then
    [ "$1" = run ] || echo "rollcall: missing here, so please install (these are Debian's names):$missing" >&2
    exit 0
fi

# Services are not to start, now or at the next boot, just because a test wants their program.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

mkdir -p var
echo "rollcall: installing$missing (log: var/apt.log)"
export DEBIAN_FRONTEND=noninteractive
if ! {
    apt-get -q -o DPkg::Lock::Timeout=300 update &&
        # shellcheck disable=SC2086 # a list of names
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing
} >var/apt.log 2>&1 </dev/null; then
    tail -n 5 var/apt.log >&2
    echo "rollcall: apt-get could not install:$missing (all it said: var/apt.log)" >&2
fi

if [ -d /run/systemd/system ]; then
    for name in $missing; do
        case $name in prometheus | docker-registry | etcd-server | nginx | haproxy)
            systemctl disable -q "${name%-server}" || true ;;
        esac
    done
fi
