import os
from pathlib import Path

import pytest

from agent.reporting.facts import host_facts, system_hostname
from clients.message import normalise_hostname


def test_the_facts_are_those_of_this_machine_and_do_not_change() -> None:
    facts = host_facts()

    assert facts.keys() == {
        "host.os",
        "host.kernel",
        "host.arch",
        "host.cpus",
        "host.memory_mib",
    }
    assert facts["host.kernel"] == os.uname().release
    assert facts["host.cpus"] == str(os.cpu_count())
    assert int(facts["host.memory_mib"]) > 64
    assert facts == host_facts()


def test_the_systems_name_is_one_that_a_registry_takes() -> None:
    assert normalise_hostname(system_hostname())


@pytest.mark.parametrize(
    ("name", "hosts", "expected"),
    [
        ("web-1", "127.0.0.1 localhost\n127.0.1.1\tweb-1.example.com web-1\n", "web-1.example.com"),
        ("web-1", "10.0.0.5 web-1 www web-1.example.com # ours", "web-1.example.com"),
        ("web-1", "127.0.0.1 localhost web-1\n::1 web-1.example.com web-1", "web-1.example.com"),
        ("web-1", "10.0.0.5 web-10.example.com web-10\n10.0.0.6 web-1.example.com", "web-1"),
        ("web-1", "# 10.0.0.5 web-1.example.com web-1\n\nweb-1\n", "web-1"),
        ("web-1.example.org", "10.0.0.5 web-1.example.com web-1", "web-1.example.org"),
    ],
)
def test_the_systems_name_is_qualified_by_the_file_of_hosts(
    tmp_path: Path, name: str, hosts: str, expected: str
) -> None:
    (tmp_path / "hosts").write_text(hosts)

    assert system_hostname(name, hosts=tmp_path / "hosts") == expected
    assert system_hostname(name, hosts=tmp_path / "nowhere") == name
