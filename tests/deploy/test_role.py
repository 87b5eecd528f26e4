"""The role for Ansible: what it makes of settings."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons, TlsOptions
from tests.support.e2e.commands import change_settings
from tests.support.e2e.fleet.fleet_folder import make
from tests.support.pages import TOP
from tests.support.requirements import need_root
from tests.support.run.release import some_of

ROLES = TOP / "deploy/ansible/roles"
VARIABLES = ROLES / "rollcall/vars/main.yml"
DEFAULTS = yaml.safe_load((ROLES / "rollcall/defaults/main.yml").read_text())
SECRET = "the-text-of-a-key"
OLD, NEW = "/etc/rollcall/node-secret", "/etc/rollcall/node-secret-2"
# Its file has been copied, so that the package could be installed. The mounts end with the command.
WITHOUT_PYTHON3_APT = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-euc"),
    """
    mount -t tmpfs tmpfs /usr/lib/python3/dist-packages
    mount -t tmpfs tmpfs /var/cache
    install -m 644 "$1" /var/cache/rollcall.deb
    shift
    exec "$@"
    """,
    "sh",
)
# A host with the user of the registry, and with a program that checks whether it can read the key.
WITH_A_REGISTRY = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-euc"),
    """
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/new /mnt/work /mnt/bin
    mount -t overlay -o lowerdir=/etc,upperdir=/mnt/new,workdir=/mnt/work overlay /etc
    mkdir /etc/rollcall
    echo rollcall-registry:x:64001:64001::/:/bin/false >>/etc/passwd
    echo rollcall-registry:x:64001: >>/etc/group
    install -m "$1" /dev/null /etc/rollcall/ops
    printf '#!/bin/sh\\ncat "$2" /etc/rollcall/ops\\n' >/mnt/bin/rollcall-registry
    chmod 755 /mnt/bin/rollcall-registry
    export PATH="/mnt/bin:$PATH"
    shift
    "$@"
    stat -c '%n %a %G' /etc/rollcall/*
    """,
    "sh",
)
# What Python 3.13 made the default. Ansible may run on an earlier one here.
STRICT = """\
import ssl

def strict(*arguments, default=ssl.create_default_context, **options):
    context = default(*arguments, **options)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context

ssl.create_default_context = strict
"""


def evaluated(expression: str, cases: Sequence[Mapping[str, Any]], folder: Path) -> list[Any]:
    """Return what an expression is by the role's variables, some of which each case gives."""
    names = [f"case_{number}" for number in range(len(cases))]
    # To set a fact takes no process on the host, unlike the copy of a file.
    tasks: list[Mapping[str, Any]] = [
        {"ansible.builtin.set_fact": {name: f"{{{{ {expression} }}}}"}, "vars": dict(case)}
        for name, case in zip(names, cases, strict=True)
    ]
    file = folder / "evaluated.json"
    content = f"{{{{ [{', '.join(names)}] | to_json }}}}"
    copy = {"content": content, "dest": str(file), "mode": "0600"}
    done = played([*tasks, {"ansible.builtin.copy": copy}], {}, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[Any] = json.loads(file.read_text())
    return found


def played(
    tasks: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run tasks on this host, with the role's variables, some of which are given.

    The folder is the home of whoever runs it, with programs in ``bin``.
    """
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(VARIABLES)],
        "tasks": list(tasks),
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "given.yml").write_text(yaml.safe_dump(dict(variables)))
    given = f"--extra-vars=@{folder / 'given.yml'}"
    return run_playbook(folder, "--inventory=localhost,", given, "play.yml")


def run_playbook(
    folder: Path, *arguments: str | Path, within: Sequence[str | Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a playbook by a command that starts the one which follows it; the folder is the home."""
    (folder / "sitecustomize.py").write_text(STRICT)
    program = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [*within, program, *arguments],
        cwd=folder,
        env={
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": str(folder),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_ROLES_PATH": str(ROLES),
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_no_secret_that_is_in_use_counts_as_old(tmp_path: Path) -> None:
    settings: list[tuple[Any, set[str]]] = [
        ([{"file": NEW}, {"file": OLD}], {NEW, OLD}),
        ({"file": NEW}, {NEW}),
        ({"file": "node-secret-2"}, {NEW}),
        ([{"value": "s" * 32}], set()),
        (None, set()),
    ]
    cases = [
        {"rollcall_settings": {"node_secret": setting}, "rollcall_node_secrets": former}
        for setting, _ in settings
        for former in ([], [{"file": OLD}])
    ]

    found = [set(each) for each in evaluated("rollcall_named_secrets", cases, tmp_path)]

    assert found == [names for _, named in settings for names in (named, {*named, OLD})]


@pytest.mark.slow
def test_a_later_build_of_one_version_is_installed(tmp_path: Path) -> None:
    builds = [
        ("0.2.0~dev20270101000000.000000000000-1", "0.2.0~dev20261231235959.ffffffffffff-1", False),
        ("0.2.0-1", "0.2.0~dev20270101000000.000000000000-1", False),
        ("0.2.0~dev20270101000000.000000000000-1", "0.2.0~dev20270101000000.000000000000-1", True),
    ]
    cases = [
        {"rollcall_versions": {"stdout_lines": [given, installed, "installed"]}}
        for given, installed, _ in builds
    ]

    assert evaluated("rollcall_unpacked", cases, tmp_path) == [is_there for *_, is_there in builds]


@pytest.mark.slow
def test_why_keys_cannot_be_placed_is_reported_without_what_they_hold(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key", "ops"):
        (tmp_path / name).write_text(SECRET)
    (tmp_path / "no-folder").touch()
    place = {"name": "rollcall", "tasks_from": "files"}
    variables = {
        "rollcall_daemon": "registry",
        "rollcall_source": str(tmp_path),
        "rollcall_etc": str(tmp_path / "no-folder/rollcall"),
        "rollcall_keys": ["ops"],
        "rollcall_registry_host": "localhost",
    }

    done = played([{"ansible.builtin.include_role": place}], variables, tmp_path)

    assert done.returncode != 0
    assert "Certificates and keys cannot be placed: mkdir: cannot create directory" in done.stdout
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.real("unshare")
def test_all_hosts_of_the_inventory_are_expected_whatever_a_run_is_limited_to(
    tmp_path: Path,
) -> None:
    need_root()
    (tmp_path / "registry").mkdir()
    for name in ("ca.crt", "tls.crt", "tls.key", "ops", "scraper", "node-secret"):
        (tmp_path / "registry" / name).write_text(SECRET)
    list_, before = "/etc/rollcall/expected", "/etc/rollcall/before"
    role = {"name": "rollcall", "tasks_from": "files"}
    old = f"echo old >{list_}; ln {list_} {before}"
    kept = f"cat {before} {list_} >{tmp_path}/found"
    play = {
        "hosts": "rollcall_registry",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.command": {"argv": ["sh", "-c", old]}},
            {"ansible.builtin.include_role": role},
            {"ansible.builtin.command": {"argv": ["sh", "-c", kept]}},
        ],
        "vars": {
            "ansible_python_interpreter": "/usr/bin/python3",
            "rollcall_daemon": "registry",
            "rollcall_folder": str(tmp_path),
        },
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    agents = {"web-1.test": None, "web-2.test": {"rollcall_away": True}, "web-3.test": None}
    inventory = {
        "rollcall_registry": {"hosts": {"reg.test": {"ansible_connection": "local"}}},
        "rollcall_agents": {"hosts": agents},
    }
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))

    done = run_playbook(
        tmp_path,
        "--inventory=inventory.yml",
        "--limit=reg.test",
        "play.yml",
        within=(*WITH_A_REGISTRY, "644"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    old_list, comment, *hosts = (tmp_path / "found").read_text().splitlines()
    assert (old_list, comment[0]) == (
        "old",
        "#",
    )  # whoever reads it meanwhile has the one of before
    assert hosts == ["web-1.test", "web-2.test away", "web-3.test"]
    assert f"{list_} 644 root\n" in done.stdout


@pytest.mark.real("unshare")
@pytest.mark.parametrize(("mode", "reads"), [("600", False), ("644", True)])
def test_settings_replace_those_of_before_if_the_daemon_can_read_what_they_name(
    tmp_path: Path, mode: str, *, reads: bool
) -> None:
    need_root()
    role = {"name": "rollcall", "tasks_from": "settings"}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": role}],
        "vars": {
            "ansible_python_interpreter": "/usr/bin/python3",
            "rollcall_daemon": "registry",
            "rollcall_settings": {"listen": "127.0.0.1:7655"},
            "rollcall_settings_may_fail": False,
        },
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))

    done = run_playbook(
        tmp_path, "--inventory=localhost,", "play.yml", within=(*WITH_A_REGISTRY, mode)
    )

    assert (done.returncode == 0) == reads, done.stdout + done.stderr
    assert ("/etc/rollcall/ops: Permission denied" in done.stdout) != reads, done.stdout
    in_place = "/etc/rollcall/registry.yml 640 rollcall-registry\n"
    assert done.stdout.endswith(f"/etc/rollcall/ops 644 root\n{in_place}") == reads


def key_plans(secrets: Sequence[Any], folder: Path) -> list[Any]:
    """Return the machines, keys and files that the role makes of each setting of secrets here."""
    common = {
        "rollcall_daemon": "agent",
        "rollcall_registry_host": "registry.test",
        "rollcall_node_secrets": DEFAULTS["rollcall_node_secrets"],
        "rollcall_etc": str(folder / "fleet/localhost"),
    }
    names = ("rollcall_agent_port", "rollcall_labels", "rollcall_registry_port")
    common |= {each: DEFAULTS[each] for each in names}
    parts = "[rollcall_machines, rollcall_agent_yml['keys'], rollcall_keys]"
    return evaluated(parts, [common | {"rollcall_agent_secrets": each} for each in secrets], folder)


def give_keys(agent: Daemon, plan: Any, folder: Path) -> list[str]:
    """Give an agent the keys of a plan; return the files of its folder."""
    machines, keys, files = plan
    done = make(folder / "fleet", *machines)
    assert done.returncode == 0, done.stderr
    agent.terminate()
    change_settings(agent, keys=keys)
    agent.start()
    return sorted(files)


def allowed(agent: Daemon, host: Path, name: str) -> Any:
    """Return what an agent allows a key in a file, None if it does not know it."""
    key = (host / name).read_text().strip()
    answer = agent.ask("GET", "/access", headers={"Authorization": f"Bearer {key}"})
    return answer.json()["allow"] if answer.status_code == 200 else None


@pytest.mark.real("openssl")
def test_a_secret_of_agents_is_replaced_without_a_gap_and_readers_have_one_of_their_own(
    daemons: Daemons, tmp_path: Path
) -> None:
    agent, host = daemons.agent(), tmp_path / "fleet/localhost"
    ops, viewers = {"name": "ops"}, {"name": "viewers", "allow": ["read"]}
    secrets = (
        DEFAULTS["rollcall_agent_secrets"],
        [{"name": "ops-2"}, ops, viewers],
        [{"name": "ops-2"}, viewers],
    )
    plans = key_plans(secrets, tmp_path)
    assert give_keys(agent, plans[0], tmp_path) == ["agents.key", "ops"]
    assert allowed(agent, host, "ops") == ["read", "write"]
    old = (host / "ops").read_text()

    both = give_keys(agent, plans[1], tmp_path)
    assert both == ["agents.key", "ops", "ops-2", "viewers"]
    assert (host / "ops").read_text() == old
    for name in ("ops", "ops-2"):
        assert allowed(agent, host, name) == ["read", "write"]
    assert allowed(agent, host, "viewers") == ["read"]

    after = give_keys(agent, plans[2], tmp_path)
    assert after == ["agents.key", "ops-2", "viewers"]
    assert allowed(agent, host, "ops") is None
    assert allowed(agent, host, "ops-2") == ["read", "write"]
    held = {path.name for path in host.iterdir()}
    assert not [each for each in held if "secret" in each]


def checked_here(
    folder: Path, package: Path, *within: str | Path
) -> subprocess.CompletedProcess[str]:
    """Check what the playbook would change, with this host as the registry's, without a folder."""
    inventory = {
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "rollcall_package": str(package),
            "rollcall_folder": str(folder / "fleet"),
        },
        "children": {"rollcall_registry": {"hosts": {"localhost": {}}}},
    }
    (folder / "inventory.yml").write_text(yaml.safe_dump({"all": inventory}))
    return run_playbook(
        folder, "--check", "--inventory=inventory.yml", ROLES.parent / "site.yml", within=within
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package with the name of ours, and nothing in it."""
    control = tmp_path / "tree/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.parent.chmod(0o755)
    control.write_text(
        "Package: rollcall\nVersion: 0.2.0-1\nArchitecture: all\nMaintainer: Tests\n"
        "Description: nothing\n"
    )
    file = tmp_path / "rollcall.deb"
    subprocess.run(
        ["dpkg-deb", "--build", tmp_path / "tree", file], stdout=subprocess.DEVNULL, check=True
    )
    return file


@pytest.mark.real("dpkg-deb", "unshare")
def test_a_check_passes_on_a_host_that_has_the_file_but_neither_the_package_nor_python3_apt(
    tmp_path: Path, package: Path
) -> None:
    need_root()

    done = checked_here(tmp_path, package, *WITHOUT_PYTHON3_APT, package)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Install the package\] \*+\nskipping: ", done.stdout), done.stdout
    assert "Copy certificates and keys" not in done.stdout


@pytest.mark.release("the playbook in check mode once more")
@pytest.mark.real("dpkg-deb")
def test_a_check_passes_where_the_package_is_installed_and_the_folder_not_made(
    tmp_path: Path, package: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name, lines in (("dpkg-deb", "0.2.0-1"), ("dpkg-query", "0.2.0-1\\ninstalled")):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\nprintf '{lines}\\n'\n")
        program.chmod(0o755)

    done = checked_here(tmp_path, package)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "End here in check mode" in done.stdout
    assert "Copy certificates and keys" not in done.stdout
    assert not (tmp_path / "fleet").exists()


def fleet(folder: Path, *, lax: bool = False) -> Authority:
    """Make the folder of a fleet, of which the operator has a certificate; return its CA."""
    authority = Authority(folder, lax=lax)
    operator = authority.issue("operator", stem="tls")
    (folder / "operator").mkdir()
    for file in (operator.certificate, operator.key):
        shutil.copy(file, folder / "operator")
    return authority


def registry_of(daemons: Daemons, authority: Authority, issuer: Authority) -> Daemon:
    """Start a registry for hosts of a CA, with a certificate that another one may have issued."""
    own, client = issuer.issue("127.0.0.1"), authority.issue("test")
    files = {"certificate": own.certificate, "key": own.key, "client_ca": authority.ca}
    trust: TlsOptions = (str(issuer.ca), (str(client.certificate), str(client.key)))
    return daemons.registry(tls={each: str(files[each]) for each in files}, trust=trust)


def agent_of(daemons: Daemons, authority: Authority, registry: Daemon) -> Daemon:
    """Start an agent that reports this host, as Ansible calls it, over TLS."""
    own = authority.issue("localhost")
    files = {
        "key_file": registry.key_path,
        "ca": authority.ca,
        "certificate": own.certificate,
        "certificate_key": own.key,
    }
    line = {"url": registry.base_url} | {each: str(files[each]) for each in files}
    agent = daemons.agent(node={"hostname": "localhost"})
    agent.terminate()
    change_settings(agent, registries=[line])
    agent.start()
    return agent


def checked(
    registry: Daemon, folder: Path, *parts: str, wait: int = 60
) -> subprocess.CompletedProcess[str]:
    """Run parts of the role that ask a registry as the operator."""
    check = {"name": "rollcall", "tasks_from": "{{ item }}"}
    variables = {
        "rollcall_folder": str(folder / "fleet"),
        "rollcall_registry_url": registry.base_url,
        "rollcall_wait_seconds": wait,
        "rollcall_applied": {"stdout_lines": ["0"]},
    }
    return played([{"ansible.builtin.include_role": check, "loop": list(parts)}], variables, folder)


@pytest.mark.real("curl")
@pytest.mark.parametrize(
    "lax", some_of([False, True], True, reason="the same with the other kind of CA")
)
def test_the_registry_is_asked_over_tls_with_a_ca_of_either_kind(
    daemons: Daemons, tmp_path: Path, *, lax: bool
) -> None:
    authority = fleet(tmp_path / "fleet", lax=lax)
    registry = registry_of(daemons, authority, authority)
    (tmp_path / "fleet/operator/header").write_text(f"Authorization: Bearer {registry.key}\n")
    agent = agent_of(daemons, authority, registry)
    program = tmp_path / "bin/rollcall-agent"
    program.parent.mkdir()
    installed = Path(sys.executable).with_name(program.name)
    program.write_text(f'#!/bin/sh\nexec {installed} --config {agent.config_path} "$@"\n')
    program.chmod(0o755)

    done = checked(registry, tmp_path, "check_registry", "check_agent")

    assert done.returncode == 0, done.stdout


@pytest.mark.real("curl")
def test_a_registry_with_a_certificate_of_a_foreign_ca_is_not_asked_whatever_curlrc_says(
    daemons: Daemons, tmp_path: Path
) -> None:
    registry = registry_of(daemons, fleet(tmp_path / "fleet"), Authority(tmp_path / "foreign"))
    (tmp_path / ".curlrc").write_text("insecure\n")

    done = checked(registry, tmp_path, "check_registry", wait=1)

    assert done.returncode != 0
    assert "curl: (60)" in done.stdout
