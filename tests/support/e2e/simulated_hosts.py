"""Machines that are folders: ssh, scp and systemctl that do to them what the real ones do.

``ssh root@NAME COMMAND`` runs the command with NAME's folder as its file system, as far as
/etc/rollcall and /var/lib go; ``systemctl`` in it starts, stops, restarts and reloads our daemons
as processes, if what they need is readable for their unit's group, and their store in the one
folder under /var/lib that their unit may write. Since all machines share 127.0.0.1, each daemon is
given a port of its own.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

SSH = """\
#!/bin/bash
set -eu
name="${1#root@}"; shift
export MACHINE="$MACHINES/$name"
mkdir -p "$MACHINE"
PATH="$TOOLS/on-machine:$PATH"
eval "$@"
"""
SCP = """\
#!/bin/bash
set -eu
[ "$1" = -r ] && shift
target="${@: -1}"; name="${target%%:*}"; name="${name#root@}"; folder="${target#*:}"
mkdir -p "$MACHINES/$name$folder"
cp -r "${@:1:$#-1}" "$MACHINES/$name$folder"
"""
SYSTEMCTL = """\
#!/bin/bash
set -eu
what="$1"; unit="${@: -1}"; pid="$MACHINE/$unit.pid"
if [ "$(cat "$MACHINE/group")" != "$unit" ] || find "$MACHINE/etc/rollcall" ! -perm -g=r | grep .
then echo "the user $unit could not read that" >&2; exit 1; fi
grep -q "^store: sqlite:///var/lib/$unit/" "$MACHINE/etc/rollcall/${unit#rollcall-}.yml"
stop() {
  kill "$(cat "$pid")"
  tail --pid="$(cat "$pid")" -f /dev/null
  rm "$pid"
}
start() {  # returns when the daemon is ready, as with Type=notify
  "$unit" < /dev/null > "$MACHINE/$unit.log" 2>&1 &
  echo $! > "$pid"
  until grep -q listening "$MACHINE/$unit.log"; do kill -0 "$(cat "$pid")"; sleep 0.05; done
}
case "$what" in
  enable) start ;;
  disable) stop ;;
  restart) stop; start ;;
  reload) "$unit" --check; kill -HUP "$(cat "$pid")" ;;
esac
"""
PROGRAM = """\
#!/bin/bash
# Puts the machine's own places into its settings, and uses those.
set -eu
name="$(basename "$0")"
kind="${name#rollcall-}"
sed -e "s|^listen:.*|listen: 127.0.0.1:$(cat "$MACHINE/port")|" \\
  -e "s|sqlite:///var/lib/|sqlite:///$MACHINE/var/lib/|" \
  "$MACHINE/etc/rollcall/$kind.yml" > "$MACHINE/etc/rollcall/local.yml"
mkdir -p "$MACHINE/var/lib/$name"
exec "$PROGRAMS/$name" --config "$MACHINE/etc/rollcall/local.yml" "$@"
"""
CHGRP = """\
#!/bin/bash
set -eu
[ "$1 $3" = "-R /etc/rollcall" ]
echo "$2" > "$MACHINE/group"
"""
# On a machine, paths are those of its folder.
IN_FOLDER = """\
#!/bin/bash
exec "/bin/$(basename "$0")" "${@/#\\/etc/$MACHINE/etc}"
"""


class SimulatedHosts:
    """Folders for machines, and the environment in which ssh, scp and systemctl reach them."""

    def __init__(self, folder: Path, *, programs: Path, ports: Mapping[str, int]) -> None:
        self._folder = folder / "machines"
        self._tools = folder / "tools"
        self._programs = programs
        for name, port in ports.items():
            (self._folder / name).mkdir(parents=True)
            (self._folder / name / "port").write_text(str(port))
        self._write("ssh", SSH)
        self._write("scp", SCP)
        self._write("on-machine/systemctl", SYSTEMCTL)
        self._write("on-machine/chgrp", CHGRP)
        for program in ("chmod", "rm"):
            self._write(f"on-machine/{program}", IN_FOLDER)
        for program in ("rollcall-agent", "rollcall-registry"):
            self._write(f"on-machine/{program}", PROGRAM)

    def _write(self, name: str, text: str) -> None:
        path = self._tools / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    @property
    def programs(self) -> Path:
        """Where a machine's own programs are."""
        return self._tools / "on-machine"

    def environment(self) -> dict[str, str]:
        """Return the environment of the one who sits at the work machine."""
        path = f"{self._tools}:{self._programs}:{os.environ['PATH']}"
        mine = {"MACHINES": self._folder, "TOOLS": self._tools, "PROGRAMS": self._programs}
        return {**os.environ, **{name: str(at) for name, at in mine.items()}, "PATH": path}

    def log(self, machine: str, unit: str) -> str:
        """Return what a daemon wrote since its last start."""
        return (self._folder / machine / f"{unit}.log").read_text()

    def close(self) -> None:
        """End every daemon that was left."""
        for file in self._folder.glob("*/*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)
