#!/bin/sh
# Make .venv and install the given locks into it, then this project.
# All that is downloaded has its hash in a lock: builds download nothing. So the first lock has to be
# the one of what builds the project, and what others have as source alone.
# Without a lock, it installs this project alone, whose version has changed.
set -eu

fail() {
    echo "rollcall: $*" >&2
    exit 1
}

for folder in . .venv; do
    [ ! -e "$folder" ] || [ -w "$folder" ] ||
        fail "$PWD belongs to $(stat -c %U "$folder"), and $(id -un) is not allowed to write there; use a clone of your own"
done

serves() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if [ ! -x .venv/bin/pip ]; then
    # The system's first: the daemons on hosts run on it, and Debian's is built to be fast.
    python=/usr/bin/python3
    serves "$python" || python=python3
    serves "$python" ||
        fail "needs Python 3.11 or newer as python3, with venv (Debian: sudo apt-get install python3-venv)"
    rm -rf .venv
    "$python" -m venv .venv || {
        rm -rf .venv
        fail "$python cannot make a virtual environment"
    }
fi

[ $# = 0 ] || echo "rollcall: installing the locked dependencies into .venv"
pip=".venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input install"
for lock in "$@"; do
    $pip --require-hashes --no-build-isolation -r "$lock"
done
# A line with this folder instead of a finder for each package, which is half the time of a start.
$pip --no-deps --no-build-isolation --no-index --config-settings editable_mode=compat --editable .
