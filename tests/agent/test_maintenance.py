"""What ``rollcall-agent status`` prints."""

import msgspec
import pytest

from agent.apps.ownership.adopt import AdoptionResult
from agent.maintenance import StatusView, adoption_outcome, format_text, is_registered
from agent.model import ForeignObject
from agent.reporting.status import RegistryStatus
from clients.message import Heartbeat

NOW = 1_000_000.0
URL = "https://registry:7655"


def view(
    *registry_statuses: RegistryStatus,
    pid: int | None = 42,
    left: bool = False,
    foreign: tuple[ForeignObject, ...] = (),
) -> StatusView:
    return StatusView(
        hostname="web-1",
        agent_id="id-1",
        pid=pid,
        started_at=NOW - 7200,
        left=left,
        heartbeat=Heartbeat(labels=["service:web"], kv={"rack": "r12", "host.cpus": "2"}),
        left_out=["label 'x': too long"],
        unhealthy=["shop"],
        registries=list(registry_statuses),
        foreign=list(foreign),
    )


def taken(seconds_ago: float) -> RegistryStatus:
    then = NOW - seconds_ago
    return RegistryStatus(url=URL, state="taken", tried_at=then, taken_at=then)


FAILING = RegistryStatus(
    url="https://other:7655",
    state="wrong_key",
    reason="401: a valid key is needed",
    tried_at=NOW - 4,
    taken_at=NOW - 3 * 3600,
    failing_since=NOW - 2 * 3600,
)


def test_it_is_all_on_one_page() -> None:
    assert list(format_text(view(taken(12)), now=NOW)) == [
        "host        web-1",
        "identity    id-1",
        "agent       running, pid 42, started 2 h ago (1970-01-12 11:46:40 UTC)",
        "labels",
        "  service:web",
        "kv",
        "  host.cpus  2",
        "  rack       r12",
        "left out    label 'x': too long",
        "unhealthy   shop",
        "registries",
        f"  {URL}",
        "    taken 12 s ago (1970-01-12 13:46:28 UTC)",
    ]


def test_an_engine_that_cannot_be_asked_is_shown_with_the_reason() -> None:
    problem = "the container engine cannot be reached: its socket does not exist"
    unreachable = msgspec.structs.replace(view(taken(1)), docker_problem=problem)

    assert f"engine      {problem}" in list(format_text(unreachable, now=NOW))


def test_a_registry_that_does_not_take_it_has_the_reason_and_the_times() -> None:
    assert list(format_text(view(FAILING), now=NOW))[-3:] == [
        "    NOT TAKEN (wrong_key): 401: a valid key is needed",
        "    last taken 3 h ago (1970-01-12 10:46:40 UTC)",
        "    last tried 4 s ago (1970-01-12 13:46:36 UTC), failing since 1970-01-12 11:46:40 UTC",
    ]


def test_what_never_was_is_said_so() -> None:
    new = RegistryStatus(url=URL, state="unreachable", reason="no", tried_at=NOW, failing_since=NOW)

    assert "    never taken" in list(format_text(view(new), now=NOW))
    assert "    not tried yet" in list(format_text(view(RegistryStatus(url=URL)), now=NOW))
    assert "registries  none is configured" in list(format_text(view(), now=NOW))


@pytest.mark.parametrize("good", [view(taken(70)), view(taken(1), taken(2)), view()])
def test_all_is_well_if_every_registry_took_it_lately(good: StatusView) -> None:
    assert is_registered(good, now=NOW, fresh_seconds=75)


def alternative(status: RegistryStatus, *, current: bool, others: list[str]) -> RegistryStatus:
    return msgspec.structs.replace(status, current=current, alternatives=others)


def test_of_a_group_the_registry_in_use_counts() -> None:
    used = alternative(taken(12), current=True, others=[FAILING.url])
    other = alternative(FAILING, current=False, others=[URL])

    assert is_registered(view(other, used), now=NOW, fresh_seconds=75)
    lines = list(format_text(view(other, used), now=NOW))
    assert f"  {FAILING.url} (alternative)" in lines
    assert f"  {URL} (in use)" in lines


def test_a_group_whose_registry_in_use_fails_is_not_well_whatever_the_others_took_before() -> None:
    used = alternative(FAILING, current=True, others=[URL])
    other = alternative(taken(12), current=False, others=[FAILING.url])

    assert not is_registered(view(used, other), now=NOW, fresh_seconds=75)


@pytest.mark.parametrize(
    "bad",
    [
        view(taken(80)),
        view(taken(1), FAILING),
        view(
            RegistryStatus(url=URL, state="busy", tried_at=NOW, taken_at=NOW - 1, failing_since=NOW)
        ),
        view(taken(1), pid=None),
        view(taken(1), left=True),
        view(RegistryStatus(url=URL)),
    ],
)
def test_all_is_not_well_if_one_did_not_or_nobody_speaks(bad: StatusView) -> None:
    assert not is_registered(bad, now=NOW, fresh_seconds=75)


def test_foreign_containers_and_volumes_are_reported_with_the_way_out() -> None:
    objects = (
        ForeignObject(kind="container", name="web", app="web", agent="other-id"),
        ForeignObject(kind="volume", name="rollcall-old", app="old", agent=None),
    )
    lines = list(format_text(view(taken(1), foreign=objects), now=NOW))

    assert "  container web of app web, agent other-id" in lines
    assert "  volume rollcall-old of app old, no agent named" in lines
    assert any("rollcall-agent adopt" in line for line in lines)
    assert "foreign" not in "".join(format_text(view(taken(1)), now=NOW))


HOSTILE = "x\n  rollcall-agent adopt --all\n\x1b[2J; reboot"


def test_labels_of_containers_make_no_lines_and_control_no_terminal() -> None:
    """Anybody who uses the engine writes them."""
    foreign = ForeignObject(kind="container", name="shop", app=HOSTILE, agent=HOSTILE)
    plain = len(list(format_text(view(taken(12)), now=NOW)))
    results = [
        AdoptionResult(identity=HOSTILE, apps=(HOSTILE,), done=True),
        AdoptionResult(identity=HOSTILE, apps=(HOSTILE,), done=False),
        AdoptionResult(identity=HOSTILE, apps=(HOSTILE,), done=False, rival=HOSTILE),
    ]

    lines = list(format_text(view(taken(12), foreign=(foreign,)), now=NOW))
    outcomes = list(map(adoption_outcome, results))

    assert len(lines) == plain + 2
    for line in [*lines, *outcomes]:
        assert line.isprintable()
        assert line.count("reboot") == line.count(r"\x1b[2J; reboot'")


def test_no_text_of_an_app_or_a_registry_changes_how_a_line_is_shown() -> None:
    hostile = "app:\u202egolb\u2028\xe9"
    shown = msgspec.structs.replace(
        view(msgspec.structs.replace(FAILING, reason=hostile)),
        heartbeat=Heartbeat(labels=[hostile], kv={"rack": hostile}),
    )

    lines = list(format_text(shown, now=NOW))

    assert all(line.isprintable() for line in lines)
    assert sum(r"app:\u202egolb\u2028é" in line for line in lines) == 3
