#!/bin/sh
# Install both daemons under /opt/rollcall, their units and settings to start from. Run as root,
# from the top of a clone; run again, it renews the program and the units and leaves settings and
# keys alone. With DESTDIR it only lays out the files there, for a package or an image.
set -eu
umask 022 # the daemons' users read the program

dest=${DESTDIR:-}
opt=/opt/rollcall
etc=$dest/etc/rollcall
venv=$dest$opt/venv
python=${PYTHON:-/usr/bin/python3} # the system's: one in somebody's home is out of the daemons' reach
units="rollcall-agent.service rollcall-registry.service rollcall-registry@.service"

if [ -z "$dest" ] && [ "$(id -u)" != 0 ]; then
    echo "rollcall: be root to install on this host, or set DESTDIR" >&2
    exit 1
fi

# The package's files would be replaced behind dpkg's back. The settings of one that was removed
# still are dpkg's: it deletes them when the package is purged.
if [ -z "$dest" ] && command -v dpkg-query >/dev/null; then
    status=$(dpkg-query --show --showformat '${db:Status-Status}' rollcall 2>/dev/null) || status=
    case $status in
    '' | not-installed) ;;
    config-files)
        echo "rollcall: this host has what the removed package rollcall left: install the package again," >&2
        echo "rollcall: or remove the rest, with all settings, keys and state: apt-get purge rollcall" >&2
        exit 1
        ;;
    *)
        echo "rollcall: this host has the package rollcall ($status): install its new version instead" >&2
        exit 1
        ;;
    esac
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "rollcall: needs Python 3.11 or newer; name one with PYTHON=/path/of/python3" >&2
    exit 1
}

# Exchange two folders at once: between two moves there would be no program.
exchange() {
    "$python" -c '
import ctypes, os, sys
AT_FDCWD, RENAME_EXCHANGE = -100, 2
first, second = map(os.fsencode, sys.argv[1:])
sys.exit(ctypes.CDLL(None).renameat2(AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE))
' "$1" "$2" 2>/dev/null
}

# One more copy of it all, put in place at the end: a running daemon never sees half of it, and an
# installation that is cut off leaves a whole program.
mkdir -p "$dest$opt" "$etc/labels.d"
source=$(mktemp -d)
trap 'rm -rf "$source" "$venv.new"' EXIT # a full disk is not left full
rm -rf "$venv.new"
"$python" -m venv --prompt rollcall "$venv.new" || {
    echo "rollcall: $python cannot make a virtual environment (Debian: python3-venv)" >&2
    exit 1
}
pip="$venv.new/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input"
# The second has the client of NATS: `store` in registry.yml chooses, not the installation. The first
# one builds what the second has as source alone, so that nothing comes without its hash.
for lock in requirements-build.txt requirements-nats.txt; do
    $pip install --no-compile --no-build-isolation --require-hashes -r "$lock"
done
version=$("$python" deploy/version.py)
cp -R pyproject.toml LICENSE agent cli clients config httpd registry runtime web "$source" # the build leaves files behind
install -D -m 644 deploy/version.py "$source/deploy/version.py"
echo "Version: $version" >"$source/PKG-INFO"
$pip install --no-compile --no-deps --no-build-isolation --no-index "$source"
find "$venv.new" -name __pycache__ -type d -prune -exec rm -rf {} +
grep -rlI --exclude-dir=site-packages "$venv.new" "$venv.new" |
    while read -r file; do sed -i "s|$venv.new|$opt/venv|g" "$file"; done
trap 'rm -rf "$source"' EXIT
if [ ! -e "$venv" ]; then
    mv "$venv.new" "$venv"
elif exchange "$venv.new" "$venv"; then
    rm -rf "$venv.new"
else # the file system cannot
    rm -rf "$venv.old"
    mv "$venv" "$venv.old"
    mv "$venv.new" "$venv"
    rm -rf "$venv.old"
fi
[ -n "$dest" ] || "$venv/bin/python" -m compileall -q "$venv"
rm -rf "$dest$opt/docs" "$dest$opt/share" # the latter is of earlier versions
cp -R docs "$dest$opt/docs"
chmod -R go=rX "$dest$opt/docs" # a clone may be its owner's alone
# What the pages link to.
for file in CHANGELOG.md config/agent.yml config/registry.yml deploy/monitoring/dashboard.json \
    deploy/monitoring/rules.yml systemd/README.md; do
    install -D -m 644 "$file" "$dest$opt/$file"
done

install -D -m 644 systemd/sysusers.conf "$dest/usr/lib/sysusers.d/rollcall.conf"
for unit in $units; do
    install -D -m 644 "systemd/$unit" "$dest/etc/systemd/system/$unit"
done

# Settings hold no secret unless somebody writes one into them: then only its daemon may read it.
if [ -z "$dest" ]; then
    systemd-sysusers /usr/lib/sysusers.d/rollcall.conf
fi
for name in agent registry; do
    if [ ! -e "$etc/$name.yml" ]; then
        sh systemd/settings.sh "$name" >"$source/$name.yml"
        install -m 640 "$source/$name.yml" "$etc/$name.yml"
    fi
    [ -n "$dest" ] || chgrp "rollcall-$name" "$etc/$name.yml"
done

# systemd hands these to the daemons as credentials: root alone reads the files.
umask 077
for name in ops.key agent-ops.key prometheus.key scraper.key node.secret; do
    [ -n "$dest" ] || [ -s "$etc/$name" ] || od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$etc/$name"
done
[ -n "$dest" ] || [ -e "$etc/node.key" ] || : >"$etc/node.key"

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # One after the other: where several registries share an address, one always answers. A reload
    # lets the new program check the settings before the old process ends.
    systemctl list-units --plain --no-legend --state active \
        rollcall-agent.service rollcall-registry.service 'rollcall-registry@*.service' |
        while read -r unit _; do
            if systemctl reload "$unit"; then
                systemctl try-restart "$unit"
            else
                echo "rollcall: $unit runs on with the earlier program" >&2
            fi
        done
fi
echo "rollcall: installed in ${dest:-}$opt; next: $dest$opt/systemd/README.md"
