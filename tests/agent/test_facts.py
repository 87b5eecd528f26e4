import os

from agent.facts import host_facts, system_hostname
from registry.heartbeat import normalise_hostname


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
