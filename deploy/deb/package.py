"""The tree of the package, and the file that dpkg-deb makes of it."""

import gzip
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from agent.main import command_line as agent_line
from cli.commands.scripts import manual
from cli.main import command_line
from deploy.deb.environment import PROGRAMS, make_environment
from deploy.deb.manual import daemon_manual
from deploy.deb.wheels import PYTHONS, Architecture, BuildError
from deploy.version import version
from registry.main import command_line as registry_line

HERE = Path(__file__).parent
MAINTAINER = "Rollcall <rollcall@rollcall.invalid>"
# The environment itself, and the path by which it is used: scripts/functions.sh says why.
ENVIRONMENT = "opt/rollcall/environment"
USED_ENVIRONMENT = "/opt/rollcall/venv"
LINES = {"agent": agent_line, "registry": registry_line}
DAEMONS = tuple(LINES)
SETTINGS = tuple(f"etc/rollcall/{name}.yml" for name in DAEMONS)
UNITS = ("rollcall-agent.service", "rollcall-registry.service", "rollcall-registry@.service")
# What the pages link to, beside the folder `docs`.
LINKED = (
    "CHANGELOG.md",
    "config/agent.yml",
    "config/registry.yml",
    "deploy/monitoring/dashboard.json",
    "deploy/monitoring/rules.yml",
    "systemd/README.md",
)
COMPLETIONS = {
    "rollcall.bash": "bash-completion/completions/rollcall",
    "_rollcall": "zsh/vendor-completions/_rollcall",
    "rollcall.fish": "fish/vendor_completions.d/rollcall.fish",
}
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
CONTROL = """\
Package: rollcall
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kibibytes}
Depends: python3 (>= {oldest}), python3 (<< {too_new}), libc6 (>= 2.28), mount, systemd
Recommends: ca-certificates
Suggests: docker.io | docker-ce
Section: admin
Priority: optional
Description: agent that runs containerised apps, and registry of hosts
 The agent runs apps in containers on a host, and reports the host to a
 registry. The registry lists the hosts, and serves Prometheus the targets to
 scrape. This package has both: a host enables the one that it needs.
 .
 The libraries of both are in this package, for Python {oldest} to {newest}.
"""
CHANGELOG = """\
rollcall ({version}) stable; urgency=medium

  * This release: /opt/rollcall/CHANGELOG.md.

 -- {maintainer}  {date}
"""


@dataclass(frozen=True)
class Release:
    """What is built, and for whom.

    Attributes:
        source: the tree of this project.
        architecture: the one of the package.
        epoch: when it was made, in seconds; no file in it is younger.

    """

    source: Path
    architecture: Architecture
    epoch: int

    def version(self) -> str:
        """Return Debian's form of the tree's version."""
        return debian_version(version(self.source))


def debian_version(of_python: str) -> str:
    """Return Debian's form of a version, in which a tilde sorts builds before their release."""
    return f"{of_python.replace('.dev', '~dev').replace('+', '.')}-1"


def build(release: Release, *, wheels: Path, folder: Path, work: Path) -> Path:
    """Build a package into a folder and return its file; ``work`` is an empty folder.

    Raises:
        BuildError: the text says why.

    """
    root = work / "root"
    make_environment(
        root / ENVIRONMENT,
        place=USED_ENVIRONMENT,
        source=release.source,
        wheels=wheels,
        architecture=release.architecture,
    )
    lay_out(root, release)
    file = folder / f"rollcall_{release.version()}_{release.architecture.debian}.deb"
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--threads-max=2", "-Zxz", "-z1", "--build", root, file],
        env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(release.epoch)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"dpkg-deb failed: {done.stderr.strip()}")
    return file


def remove_other_versions(file: Path) -> None:
    """Remove the packages of other versions for the same architecture that are beside one."""
    architecture = file.stem.rpartition("_")[2]
    for each in file.parent.glob(f"rollcall_*_{architecture}.deb"):
        if each != file:
            each.unlink()


def lay_out(root: Path, release: Release) -> None:
    """Put all files but those of the environment in their places, and set the modes of all."""
    _put_files(root, release)
    _describe(root, release)
    _set_modes(root)


def _set_modes(root: Path) -> None:
    """Let each user of a host read all but settings, whatever the umask of the build is."""
    for path in (root, *root.rglob("*")):
        if path.is_symlink():
            continue
        if path.relative_to(root).as_posix() in SETTINGS:
            path.chmod(0o640)
        else:
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _put_files(root: Path, release: Release) -> None:
    source, systemd = release.source, release.source / "systemd"
    put = _putter(root)
    for unit in UNITS:
        put(f"usr/lib/systemd/system/{unit}", (systemd / unit).read_bytes())
    put("usr/lib/sysusers.d/rollcall.conf", (systemd / "sysusers.conf").read_bytes())
    for name in DAEMONS:
        put(f"etc/rollcall/{name}.yml", _settings(source, name))
    (root / "etc/rollcall/labels.d").mkdir()
    (root / "usr/bin").mkdir()
    for script in PROGRAMS:
        (root / "usr/bin" / script).symlink_to(f"{USED_ENVIRONMENT}/bin/{script}")
    for name, page in _manuals().items():
        put(f"usr/share/man/man1/{name}.1.gz", gzip.compress(page.encode(), mtime=0))
    for name, place in COMPLETIONS.items():
        put(f"usr/share/{place}", (source / "cli" / "shells" / name).read_bytes())
    shutil.copytree(source / "docs", root / "opt/rollcall/docs")
    for name in LINKED:
        put(f"opt/rollcall/{name}", (source / name).read_bytes())
    date = formatdate(release.epoch)
    text = CHANGELOG.format(version=release.version(), maintainer=MAINTAINER, date=date)
    put("usr/share/doc/rollcall/changelog.Debian.gz", gzip.compress(text.encode(), mtime=0))
    put("usr/share/doc/rollcall/copyright", (HERE / "copyright").read_bytes())
    put("usr/share/lintian/overrides/rollcall", (HERE / "lintian-overrides").read_bytes())


def _manuals() -> dict[str, str]:
    """Return the manual page of each program."""
    daemons = {f"rollcall-{name}": daemon_manual(line()) for name, line in LINES.items()}
    return {"rollcall": manual(command_line()), **daemons}


def _settings(source: Path, name: str) -> bytes:
    """Return the settings that a new host starts from."""
    command = ["sh", str(source / "systemd" / "settings.sh"), name]
    return subprocess.run(command, capture_output=True, check=True).stdout


def _describe(root: Path, release: Release) -> None:
    """Write what dpkg reads: fields, sums, the scripts."""
    put = _putter(root / "DEBIAN")
    files = [each for each in sorted(root.rglob("*")) if each.is_file() and not each.is_symlink()]
    put("conffiles", "".join(f"/{each}\n" for each in SETTINGS).encode())
    names = ((each, each.relative_to(root).as_posix()) for each in files)
    sums = [f"{_md5(each)}  {name}\n" for each, name in names if name not in SETTINGS]
    put("md5sums", "".join(sums).encode())
    put("triggers", (HERE / "scripts" / "triggers").read_bytes())
    size = sum(each.stat().st_size for each in files)
    fields = CONTROL.format(
        version=release.version(),
        architecture=release.architecture.debian,
        maintainer=MAINTAINER,
        kibibytes=-(-size // 1024),
        oldest=PYTHONS[0],
        newest=PYTHONS[-1],
        too_new=_following(PYTHONS[-1]),
    )
    put("control", fields.encode())
    functions = (HERE / "scripts" / "functions.sh").read_text("utf-8")
    for script in SCRIPTS:
        text = (HERE / "scripts" / script).read_text("utf-8").replace("@FUNCTIONS@\n", functions)
        put(script, text.replace("@VERSION@", release.version()).encode(), 0o755)


def _following(python: str) -> str:
    """Return the Python after one, such as 3.15 after 3.14."""
    major, minor = python.split(".")
    return f"{major}.{int(minor) + 1}"


def _md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def _putter(root: Path) -> Callable[..., None]:
    """Return a function that writes files below a folder."""

    def put(name: str, data: bytes, mode: int = 0o644) -> None:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)

    return put
