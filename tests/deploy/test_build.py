"""What is in the package."""

import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from deploy.deb.environment import merge, remove_debug_information
from deploy.deb.package import Release, debian_version, lay_out, remove_other_versions
from deploy.deb.wheels import ARCHITECTURES, Architecture, BuildError, pinned
from tests.support.e2e.packages import (
    ARCHIVED_VERSION,
    VERSION,
    Packages,
    machine_architecture,
)
from tests.support.pages import dead_links

TOP = Path(__file__).parents[2]
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
LIB = "/opt/rollcall/environment/lib"
MODULES = f"{LIB}/modules/site-packages"
# The checks of lintian that look at fields and libraries. All other files are as in this machine's.
OF_ANOTHER_BUILD = pytest.mark.release("a second build, for another architecture")
OF_ARCHITECTURE = ",".join(
    (
        *("fields/architecture", "files/architecture", "binaries/architecture"),
        *("binaries/architecture/other", "binaries/corrupted", "binaries/location"),
        *("binaries/rpath", "binaries/static", "libraries/embedded", "libraries/debug-symbols"),
        *("libraries/shared/links", "libraries/shared/stack", "libraries/shared/relocation"),
        *("libraries/shared/file-permissions", "libraries/shared/soname/missing", "md5sums"),
    )
)


@pytest.mark.parametrize(
    ("version", "debian"),
    [
        ("1.2.0", "1.2.0-1"),
        ("1.2.0.dev0", "1.2.0~dev0-1"),
        ("1.2.0.dev20270131120000+8d29d061ac89", "1.2.0~dev20270131120000.8d29d061ac89-1"),
    ],
)
def test_a_version_has_a_form_of_debian(version: str, debian: str) -> None:
    assert debian_version(version) == debian


@pytest.mark.real("dpkg")
def test_dpkg_finds_each_later_build_newer_and_the_release_newer_than_its_builds() -> None:
    in_order = [
        "0.1.0",
        *(
            debian_version(version)
            for version in (
                "0.2.0.dev0",
                "0.2.0.dev20261231235959+ffffffffffff",
                "0.2.0.dev20270101000000+000000000000a",
                "0.2.0.dev20270101000001+8d29d061ac89",
                "0.2.0",
                "0.2.1.dev20270101000002+8d29d061ac89",
            )
        ),
    ]
    for older, newer in pairwise(in_order):
        done = subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=False)
        assert done.returncode == 0, (older, newer)


def test_other_versions_for_the_same_architecture_are_removed(tmp_path: Path) -> None:
    names = ("rollcall_0.9.0_amd64.deb", "rollcall_1.0.0_amd64.deb", "rollcall_0.9.0_arm64.deb")
    for name in (*names, "other_0.9.0_amd64.deb"):
        (tmp_path / name).touch()

    remove_other_versions(tmp_path / names[1])

    assert {each.name for each in tmp_path.iterdir()} == {*names[1:], "other_0.9.0_amd64.deb"}


def test_files_of_two_pythons_come_together(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"x/one.py": "1", "x/m.cpython-311.so": "a", "x.dist-info/WHEEL": "a"})
    _write(tmp_path / "b", {"x/one.py": "1", "x/m.cpython-312.so": "b", "x.dist-info/WHEEL": "b"})
    for part in ("a", "b"):
        merge(tmp_path / part, tmp_path / "all")
    files = {each.name for each in (tmp_path / "all").rglob("*") if each.is_file()}
    assert files == {"one.py", "m.cpython-311.so", "m.cpython-312.so"}


def test_files_that_differ_between_pythons_are_rejected(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"x/one.py": "1"})
    _write(tmp_path / "b", {"x/one.py": "2"})
    merge(tmp_path / "a", tmp_path / "all")
    with pytest.raises(BuildError, match=r"x/one\.py: not the same for each Python"):
        merge(tmp_path / "b", tmp_path / "all")


def test_a_machine_that_cannot_strip_libraries_is_reported_which_package_does(
    tmp_path: Path,
) -> None:
    with pytest.raises(BuildError, match=r"pdp_11-linux-gnu-strip is missing .*binutils-pdp-11-"):
        remove_debug_information(tmp_path, Architecture("pdp11", "pdp_11"))


def test_a_package_has_the_same_modes_under_any_umask(tmp_path: Path) -> None:
    program = tmp_path / "root/opt/program"
    program.parent.mkdir(parents=True)
    program.touch()
    before = os.umask(0o077)
    try:
        program.chmod(0o700)
        lay_out(tmp_path / "root", Release(TOP, ARCHITECTURES["amd64"], 0))
    finally:
        os.umask(before)

    files = {each.relative_to(tmp_path / "root").as_posix(): each for each in tmp_path.rglob("*")}
    modes = {
        name: stat.S_IMODE(file.stat().st_mode)
        for name, file in files.items()
        if not file.is_symlink()
    }
    folders = {modes[name] for name in modes if files[name].is_dir()}
    assert folders == {0o755}
    programs = {"opt/program", *(f"DEBIAN/{name}" for name in SCRIPTS)}
    settings = {"etc/rollcall/agent.yml", "etc/rollcall/registry.yml"}
    for name, mode in modes.items():
        if files[name].is_file():
            others = 0o640 if name in settings else 0o644
            assert mode == (0o755 if name in programs else others), name


@pytest.mark.slow
def test_no_wheel_comes_from_a_folder_in_the_settings_of_pip(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    _write_wheel(wheels, "strange")
    (tmp_path / "pip.conf").write_text(f"[install]\nfind-links = {wheels}\n")

    for name, value in (("PIP_FIND_LINKS", wheels), ("PIP_CONFIG_FILE", tmp_path / "pip.conf")):
        online, offline = tmp_path / f"{name}-online", tmp_path / f"{name}-offline"
        _install_with("run_pip", {name: value}, online)
        said = _install_with("run_pip_offline", {name: value}, offline)
        assert (online / "strange.py").exists()
        assert not (offline / "strange.py").exists()
        assert "pip install failed" in said


def _install_with(function: str, settings: Mapping[str, Path], target: Path) -> str:
    """Install the wheel by a function of the build, and return the error that it wrote."""
    code = f"import sys; from deploy.deb.wheels import {function} as run; run(*sys.argv[1:])"
    arguments = ["install", "--no-deps", "--target", str(target), "strange"]
    if function == "run_pip":
        arguments.append("--no-index")
    environment = {name: each for name, each in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=TOP,
        env={**environment, **{name: str(each) for name, each in settings.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


def test_no_link_of_the_pages_is_dead_and_what_names_a_page_names_one_of_them(
    tmp_path: Path,
) -> None:
    lay_out(tmp_path, Release(TOP, ARCHITECTURES["amd64"], 0))

    assert dead_links(tmp_path / "opt/rollcall") == []
    units = (tmp_path / "usr/lib/systemd/system").iterdir()
    for file in (*units, tmp_path / "DEBIAN/postinst"):
        named = re.findall(r"/opt/rollcall/[\w/]+\.md", file.read_text())
        assert named
        assert [page for page in named if not (tmp_path / page[1:]).is_file()] == []


def _write_wheel(folder: Path, name: str) -> None:
    """Write a wheel with one empty module."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        tags = "Root-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\n{tags}")
        wheel.writestr(f"{info}/RECORD", "")


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def tree(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the package."""
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", packages.present, folder], check=True)
    return folder


@pytest.mark.release("half a minute of a processor for the rules of an archive of packages")
@pytest.mark.long(2)
@pytest.mark.real("dpkg-deb", "lintian")
def test_lintian_finds_nothing(packages: Packages) -> None:
    _check_with_lintian(packages.present)


@OF_ANOTHER_BUILD
@pytest.mark.long(2)
@pytest.mark.real("dpkg-deb", "lintian")
def test_lintian_finds_nothing_in_what_is_of_another_architecture(foreign_package: Path) -> None:
    _check_with_lintian(foreign_package, "--check-part", OF_ARCHITECTURE)


def _check_with_lintian(package: Path, *options: str) -> None:
    done = subprocess.run(
        ["lintian", "--fail-on", "error,warning", *options, package],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


@pytest.mark.real("dpkg-deb")
def test_the_version_is_that_of_the_project(packages: Packages) -> None:
    assert _field(packages.present, "Version") == debian_version(VERSION)
    assert _field(packages.present, "Architecture") == machine_architecture()
    assert "python3 (>= 3.11), python3 (<< 3.15)" in _field(packages.present, "Depends")


@OF_ANOTHER_BUILD
@pytest.mark.long(2)
@pytest.mark.real("dpkg-deb", "git")
def test_a_package_built_in_an_archive_without_git_has_the_version_of_the_commit(
    foreign_package: Path,
) -> None:
    assert ARCHIVED_VERSION.fullmatch(_field(foreign_package, "Version"))


@pytest.mark.real("dpkg-deb")
def test_it_states_its_licence_and_holds_that_of_each_library(tree: Path) -> None:
    stated = (tree / "usr/share/doc/rollcall/copyright").read_text()
    assert "Files: *\nCopyright: 2026 The Rollcall authors\nLicense: Apache-2.0\n" in stated
    assert "/web/vendor/*\nCopyright: 2022-2025 Leon Sorokin\nLicense: Expat\n" in stated
    named = re.findall(r"^ (opt/\S+)$", stated, re.MULTILINE)
    assert [name for name in named if not list(tree.glob(name))] == []
    (ours,) = (tree / MODULES[1:]).glob("rollcalld-*.dist-info")
    assert (ours / "licenses/LICENSE").read_bytes() == (TOP / "LICENSE").read_bytes()
    licence = re.compile(r"(LICEN[CS]E|COPYING|NOTICE).*", re.IGNORECASE)
    for folder in (tree / MODULES[1:]).glob("*.dist-info"):
        names = [each.name for each in folder.rglob("*")]
        assert "METADATA" in names
        assert any(licence.fullmatch(each) for each in names), folder.name


@pytest.mark.real("dpkg-deb")
def test_it_holds_each_locked_dependency_for_each_python(packages: Packages) -> None:
    names = _names(packages.present)
    assert {f"{LIB}/python3.{minor}" for minor in (11, 12, 13, 14)} <= names
    for pin in pinned(TOP / "requirements-nats.txt"):
        name, _, version = pin.partition("==")
        folder = f"{MODULES}/{name.replace('-', '_')}-{version}.dist-info/METADATA"
        assert folder in names, pin
    compiled = [re.search(r"\.cpython-(3\d+)-[a-z0-9_]+-linux-gnu\.so$", each) for each in names]
    of_each = [found[1] for found in compiled if found]
    assert set(of_each) == {"311", "312", "313", "314"}
    assert {of_each.count(each) for each in of_each} == {of_each.count("311")}
    assert of_each.count("311") > 10
    assert f"{MODULES}/agent/swagger.yml" in names


@pytest.mark.real("dpkg-deb")
def test_it_holds_no_key_nothing_compiled_by_python_no_tests_and_nothing_for_debuggers(
    tree: Path,
) -> None:
    names = [str(each) for each in tree.rglob("*")]
    assert not [each for each in names if each.endswith((".key", ".secret", ".pyc"))]
    assert list(tree.glob(f"{MODULES[1:]}/*/tests")) == []
    for name in ("rollcall", "rollcall-agent", "rollcall-registry"):
        script = (tree / f"opt/rollcall/environment/bin/{name}").read_text()
        assert script.startswith("#!/opt/rollcall/venv/bin/python\n")
        link = tree / f"usr/bin/{name}"
        assert str(link.readlink()) == f"/opt/rollcall/venv/bin/{name}"
    assert _with_debug_information(tree) == []


@pytest.mark.real("man")
def test_it_holds_a_manual_page_of_each_program_and_the_completion_of_each_shell(
    tmp_path: Path,
) -> None:
    lay_out(tmp_path, Release(TOP, ARCHITECTURES["amd64"], 0))

    assert "rollcall nodes --stale" in _manual(tmp_path, "rollcall")
    agent = _manual(tmp_path, "rollcall-agent")
    assert "rollcall-agent - runs this host's apps" in agent
    assert "settings (default: /etc/rollcall/agent.yml)" in agent
    assert "   rollcall-agent deregister [--force] [--wait SECONDS]\n" in agent
    registry = _manual(tmp_path, "rollcall-registry")
    assert "   rollcall-registry delete host [host ...]\n" in registry
    assert "FROM   the store that has the nodes\n" in registry
    for name in (
        "bash-completion/completions/rollcall",
        "zsh/vendor-completions/_rollcall",
        "fish/vendor_completions.d/rollcall.fish",
    ):
        assert "complete-words" in (tmp_path / "usr/share" / name).read_text()


def _manual(root: Path, name: str) -> str:
    """Return a manual page as `man` shows it; fail if `man` warns of anything in it."""
    page = root / f"usr/share/man/man1/{name}.1.gz"
    shown = subprocess.run(
        ["man", "--warnings", "--local-file", page],
        env={
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "MANWIDTH": "100",
            "MAN_KEEP_FORMATTING": "",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    return shown.stdout


@pytest.mark.real("dpkg-deb")
def test_both_settings_are_conffiles_with_each_default_and_the_keys_of_the_host(
    packages: Packages, tree: Path
) -> None:
    info = _output(["dpkg-deb", "--info", str(packages.present), "conffiles"])
    assert info.split() == ["/etc/rollcall/agent.yml", "/etc/rollcall/registry.yml"]
    for name in ("agent", "registry"):
        shipped = yaml.safe_load((TOP / f"config/{name}.yml").read_text())
        text = (tree / f"etc/rollcall/{name}.yml").read_text()
        packaged = yaml.safe_load(text)
        assert set(shipped) <= set(packaged)
        ops = {"agent": "agent-ops.key", "registry": "ops.key"}[name]
        assert packaged["keys"][0] == {"name": "ops", "file": ops, "allow": ["read", "write"]}
        assert packaged["store"] == f"sqlite:///var/lib/rollcall-{name}/{name}.db"


@OF_ANOTHER_BUILD
@pytest.mark.long(2)
@pytest.mark.real("dpkg-deb")
def test_the_package_of_another_architecture_has_the_same_libraries_for_that_one(
    packages: Packages, foreign_package: Path, tmp_path: Path
) -> None:
    architecture = _field(foreign_package, "Architecture")
    assert {architecture, machine_architecture()} == {"amd64", "arm64"}
    machines = {"amd64": 62, "arm64": 183}  # e_machine of ELF

    here, there = _compiled(packages.present), _compiled(foreign_package)
    assert here == there
    subprocess.run(["dpkg-deb", "--extract", foreign_package, tmp_path], check=True)
    files = [each for each in tmp_path.rglob("*.so*") if each.is_file()]
    heads = {each.name: each.read_bytes()[:20] for each in files}
    assert len(heads) > 30
    assert {head[18] for head in heads.values()} == {machines[architecture]}
    assert _with_debug_information(tmp_path) == []


def _with_debug_information(folder: Path) -> list[str]:
    """Return the names of compiled modules that have symbols for debuggers."""
    files = (each for each in folder.rglob("*.so*") if each.is_file())
    return [each.name for each in files if b".debug_info" in each.read_bytes()]


def _compiled(package: Path) -> set[str]:
    """Return the compiled modules in a package, without the names of architectures."""
    names = {each for each in _names(package) if each.endswith(".so")}
    return {re.sub(r"(cpython-3\d+)-.*\.so$", r"\1.so", each) for each in names}


def _names(package: Path) -> set[str]:
    """Return the paths of all files in a package."""
    lines = _output(["dpkg-deb", "--contents", str(package)]).splitlines()
    return {line.split(maxsplit=5)[5].partition(" -> ")[0].removeprefix(".") for line in lines}


def _field(package: Path, name: str) -> str:
    return _output(["dpkg-deb", "--field", str(package), name]).strip()


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
