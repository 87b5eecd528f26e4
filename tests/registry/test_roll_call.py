"""The roll call: which expected hosts report, and that these do not expire."""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from registry.store.protocol import Member, Row
from tests.support.registry.in_process import (
    NO_LIMITS,
    WEB_HOSTS,
    InProcessRegistry,
    ManualClocks,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore

DAY = 86_400
OLD = (1_000_000_000, 1_000_000_000)  # of a file that was not just written
FLEET = """# the fleet
WEB-1.
web-2   # renamed
web-3
laptop away
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "expected"


@pytest.fixture
async def fleet(file: Path) -> AsyncIterator[InProcessRegistry]:
    """Yield a registry that expects four hosts, of which one reports, and one other does."""
    write(file, FLEET)
    async with expecting(file) as registry:
        await registry.post("web-1")
        await registry.post("new-2")
        yield registry


def expecting(
    file: Path,
    *,
    store: MemoryStore | None = None,
    clock: ManualClocks | None = None,
    warm_up_seconds: int = 0,
    expire_at_most_percent: int = 0,
) -> AbstractAsyncContextManager[InProcessRegistry]:
    """Return a registry that expects the hosts of the file."""
    limits = msgspec.structs.replace(
        NO_LIMITS,
        expected=str(file),
        warm_up_seconds=warm_up_seconds,
        expire_at_most_percent=expire_at_most_percent,
    )
    return in_process_registry(limits=limits, store=store, clock=clock)


def write(file: Path, text: str | None) -> None:
    """Replace the file by a rename, as one of long ago; None removes it."""
    if text is None:
        file.unlink(missing_ok=True)
        return
    new = file.with_suffix(".new")
    new.write_text(text)
    os.utime(new, OLD)
    new.replace(file)


async def settle(registry: InProcessRegistry) -> None:
    """Let the registry see the file, and see that it does not change."""
    for _ in range(2):
        await registry.components.expected_file.look()
        registry.clock.pass_seconds(2)
    await registry.components.expected_file.look()
    await registry.components.call_roll()


def missing(hostname: str, last_seen: int | None = None, rejected: str | None = None) -> object:
    return {"hostname": hostname, "last_seen": last_seen, "rejected": rejected}


async def expire(registry: InProcessRegistry) -> set[str]:
    """Let expired nodes go; return the nodes that are left."""
    while registry.components.nodes.update_some_ages():
        pass
    return {node["hostname"] for node in await registry.get("/nodes")}


async def metrics(registry: InProcessRegistry) -> list[str]:
    text = (await registry.ask("GET", "/metrics")).body.decode()
    names = ("rollcall_registry_host", "rollcall_registry_expected", "rollcall_registry_nodes_away")
    return [line for line in text.splitlines() if line.startswith(names)]


async def test_each_host_is_in_its_list(fleet: InProcessRegistry) -> None:
    start = int(fleet.clock.wall)
    await fleet.post("web-2")
    await fleet.post("laptop")
    assert (await fleet.post("web-3", ["\0"], key=WEB_HOSTS)).status == 400
    fleet.clock.pass_seconds(100)
    await fleet.post("WEB-1")

    call = await fleet.get("/roll-call")

    [absent] = call.pop("absent")
    assert (absent["hostname"], absent["last_seen"]) == ("web-3", None)  # never seen, but rejected
    assert "control characters" in absent["rejected"]
    assert call == {
        "expected": 4,
        "present": 1,
        "stale": [missing("web-2", start)],
        "away": ["laptop"],
        "unexpected": ["new-2"],
    }


async def test_a_host_that_is_deleted_is_absent(fleet: InProcessRegistry) -> None:
    await fleet.ask("DELETE", "/nodes/web-1")

    call = await fleet.get("/roll-call")

    assert (call["present"], call["absent"][0]) == (0, missing("web-1"))


async def test_expected_hosts_do_not_expire_and_are_absent_when_others_would(
    fleet: InProcessRegistry,
) -> None:
    seen = int(fleet.clock.wall)
    fleet.clock.pass_seconds(2 * DAY)

    assert await expire(fleet) == {"web-1"}
    call = await fleet.get("/roll-call")
    assert call["absent"] == [missing("web-1", seen), missing("web-2"), missing("web-3")]
    assert (await fleet.get("/status"))["nodes"]["held"] == 0


async def test_a_host_that_leaves_the_list_expires_once_it_had_the_time_to_be_restored(
    fleet: InProcessRegistry, file: Path
) -> None:
    await fleet.post("web-2")
    fleet.clock.pass_seconds(2 * DAY)
    assert await expire(fleet) == {"web-1", "web-2"}

    write(file, "web-2\nweb-9\n")
    await settle(fleet)
    assert await expire(fleet) == {"web-1", "web-2"}
    fleet.clock.pass_seconds(90)
    await fleet.components.expected_file.look()

    assert await expire(fleet) == {"web-2"}


async def test_a_host_that_is_due_and_joins_the_list_stays(file: Path) -> None:
    write(file, "web-1\n")
    async with expecting(file, expire_at_most_percent=10) as registry:
        for name in ("old-1", "old-2", "old-3"):
            await registry.post(name)
        registry.clock.pass_seconds(2 * DAY)
        await registry.post("web-1")
        assert len(await expire(registry)) == 4
        assert (await registry.get("/status"))["nodes"]["held"] == 3

        write(file, "web-1\nold-1\nold-2\n")
        await settle(registry)

        # Of the nodes that may expire, one alone is due: as one, it goes.
        assert await expire(registry) == {"web-1", "old-1", "old-2"}
        assert (await registry.get("/status"))["nodes"]["held"] == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no host"),
        ("# none\n", "names no host"),
        ("web-1\nweb 2\n", "line 2: '2' follows web; a line is a hostname"),
        ("web-1\n-$-\n", "line 2: '-$-' is no hostname"),
        ("web-1\nWEB-1 away\n", "line 2: web-1 is also named with the other state"),
        (None, "cannot be read: No such file or directory"),
    ],
)
async def test_a_file_that_cannot_be_used_keeps_the_list_of_before(
    fleet: InProcessRegistry, file: Path, text: str | None, why: str
) -> None:
    write(file, text)
    await settle(fleet)

    assert (await fleet.get("/roll-call"))["expected"] == 4
    assert why in (await fleet.get("/status"))["expected"]["problem"]
    assert "rollcall_registry_expected_unusable 1.0" in await metrics(fleet)
    write(file, FLEET)
    await settle(fleet)
    assert (await fleet.get("/status"))["expected"]["problem"] == ""
    assert "rollcall_registry_expected_unusable 0.0" in await metrics(fleet)


async def test_a_file_that_is_being_written_is_read_once_it_is_whole(
    fleet: InProcessRegistry, file: Path
) -> None:
    lines = [f"web-{number}\n" for number in range(10)]
    with file.open("w") as half:
        for line in lines:
            half.write(line)
            half.flush()
            await fleet.components.expected_file.look()
            fleet.clock.pass_seconds(1)
            assert (await fleet.get("/roll-call"))["expected"] == 4
    await settle(fleet)

    assert (await fleet.get("/roll-call"))["expected"] == 10


@pytest.mark.parametrize("text", [None, "", FLEET])
async def test_until_a_list_was_read_nothing_expires_and_there_is_no_roll_call(
    file: Path, text: str | None
) -> None:
    clock = ManualClocks()
    write(file, text)
    if text is not None:
        os.utime(file)  # just written, so it may be half of it
    rows = [Row(name, b'{"labels":[],"kv":{}}', 1, "", age=9 * DAY) for name in ("a", "web-1")]
    store = MemoryStore(rows, monotonic=lambda: clock.uptime)
    async with expecting(file, store=store, clock=clock) as registry:
        clock.pass_seconds(8 * DAY)
        assert await expire(registry) == {"a", "web-1"}
        answer = await registry.ask("GET", "/roll-call")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        assert "no list of expected hosts was read" in answer.json()["message"]
        status = await registry.get("/status")
        assert status["expected"]["roll_call"] is None
        assert not [line for line in await metrics(registry) if "_hosts{" in line]
        assert "rollcall_registry_expected_unusable 1.0" in await metrics(registry)

        write(file, FLEET)
        await settle(registry)

        assert (await registry.get("/roll-call"))["expected"] == 4
        assert await expire(registry) == {"web-1"}


async def test_without_the_setting_there_is_no_roll_call() -> None:
    async with in_process_registry() as registry:
        answer = await registry.ask("GET", "/roll-call")
        assert answer.status == 404
        assert "`nodes.expected` is not set" in answer.json()["message"]
        assert (await registry.get("/status"))["expected"]["file"] is None


async def test_while_the_registry_warms_up_there_is_no_roll_call(file: Path) -> None:
    write(file, FLEET)
    store = MemoryStore(continues=False)
    async with expecting(file, warm_up_seconds=60, store=store) as registry:
        answer = await registry.ask("GET", "/roll-call")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "60")
        assert not [line for line in await metrics(registry) if "_hosts{" in line]
        registry.clock.pass_seconds(60)
        assert len((await registry.get("/roll-call"))["absent"]) == 3


async def test_metrics_and_the_status_count_the_hosts(fleet: InProcessRegistry) -> None:
    await fleet.post("laptop")
    fleet.clock.pass_seconds(100)
    await fleet.get("/nodes")
    await fleet.components.call_roll()

    assert await metrics(fleet) == [
        'rollcall_registry_hosts{state="present"} 0.0',
        'rollcall_registry_hosts{state="stale"} 1.0',
        'rollcall_registry_hosts{state="absent"} 2.0',
        'rollcall_registry_hosts{state="away"} 1.0',
        'rollcall_registry_hosts{state="unexpected"} 1.0',
        'rollcall_registry_host_absent{host="web-2"} 1.0',
        'rollcall_registry_host_absent{host="web-3"} 1.0',
        "rollcall_registry_nodes_away 1.0",
        "rollcall_registry_expected_unusable 0.0",
        "rollcall_registry_expected_differs 0.0",
    ]
    assert (await fleet.get("/status"))["expected"]["roll_call"] == {
        "expected": 4,
        "present": 0,
        "stale": 1,
        "absent": 2,
        "away": 1,
        "unexpected": 1,
    }


async def test_pages_run_over_the_four_lists_by_hostname(fleet: InProcessRegistry) -> None:
    pages, path = [], "/roll-call?limit=2"
    while path:
        answer = await fleet.ask("GET", path)
        pages.append(answer.json())
        path = answer.headers.get("Link", "").partition(">")[0].replace("<", "/")

    assert [(page["away"], page["unexpected"]) for page in pages] == [
        (["laptop"], ["new-2"]),
        ([], []),
    ]
    assert pages[1]["absent"] == [missing("web-2"), missing("web-3")]
    assert {(page["expected"], page["present"]) for page in pages} == {(4, 1)}
    assert (await fleet.ask("GET", "/roll-call?limit=0")).status == 400


async def test_a_long_list_is_read_whole_and_its_first_absent_hosts_are_named(
    fleet: InProcessRegistry, file: Path
) -> None:
    names = [f"h-{number:05}" for number in range(10_000)]
    write(file, "\n".join(reversed(names)))
    await settle(fleet)

    call = await fleet.get("/roll-call")
    assert [each["hostname"] for each in call["absent"]] == names
    assert call["unexpected"] == ["new-2", "web-1"]
    named = [line for line in await metrics(fleet) if "host_absent" in line]
    assert (len(named), named[-1]) == (100, 'rollcall_registry_host_absent{host="h-00099"} 1.0')


async def test_a_denied_host_is_in_no_list(fleet: InProcessRegistry) -> None:
    await fleet.components.deny(["web-*"])

    call = await fleet.get("/roll-call")

    assert call == {
        "expected": 1, "present": 0, "stale": [], "absent": [], "away": ["laptop"],
        "unexpected": ["new-2"],
    }  # fmt: skip


async def test_while_registries_have_different_lists_nothing_expires(
    fleet: InProcessRegistry, file: Path
) -> None:
    own = fleet.store.expected
    fleet.store.members = members = [
        Member(name=name, run=name, own=name == "here", seen_seconds=0, expected=digest)
        for name, digest in (("here", own), ("same", own), ("other", ""))
    ]
    fleet.clock.pass_seconds(8 * DAY)

    assert await expire(fleet) == {"new-2", "web-1"}
    assert (await fleet.get("/status"))["expected"]["differs_from"] == ["other"]
    assert "rollcall_registry_expected_differs 1.0" in await metrics(fleet)
    fleet.store.members = members[:2]
    assert await expire(fleet) == {"web-1"}
    write(file, FLEET.upper().replace("AWAY", "away"))  # the same hosts
    await settle(fleet)
    assert fleet.store.expected == own
