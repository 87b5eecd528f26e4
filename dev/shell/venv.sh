#!/bin/sh
# Make .venv and install the given locks into it, then this project.
# All that is downloaded has its hash in a lock: builds download nothing. So the first lock has to be
# the one of what builds the project, and what others have as source alone.
set -eu

fail() {
    echo "rollcall: $*" >&2
    exit 1
}

if [ ! -x .venv/bin/pip ]; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "needs Python 3.11 or newer as python3"
    rm -rf .venv
    python3 -m venv .venv || {
        rm -rf .venv
        fail "python3 cannot make a virtual environment (Debian: apt-get install python3-venv)"
    }
fi

echo "rollcall: installing the locked dependencies into .venv"
pip=".venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input install"
for lock in "$@"; do
    $pip --require-hashes --no-build-isolation -r "$lock"
done
$pip --no-deps --no-build-isolation --no-index --editable .
