"""`top`: what the apps of all hosts use, beside their limits."""

import msgspec
import pytest

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, StartAgent
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
UNTIL = 1_793_000_000


def use(agent: FakeAgent, **apps: tuple[float | None, int | None]) -> None:
    """Let an agent say what its apps used last; each has half a core and 64 MiB."""
    records = [APP_RECORD | {"name": name, "cpu": 50, "memory": 64} for name in apps]
    agent.answers["GET", "/v1/apps"] = records
    agent.answers["GET", "/v1/usage"] = {
        "step_seconds": 60,
        "until": UNTIL,
        "apps": [
            {"name": name, "cpu_percent": [99.0, cpu], "memory_bytes": [MIB, memory]}
            for name, (cpu, memory) in apps.items()
        ],
    }


@pytest.fixture
async def fleet(registry: InProcessRegistry, agent: FakeAgent, fake_agent: StartAgent) -> None:
    other = await fake_agent()
    await registry.post("web-2", ["service:web"], kv={"agent.url": other.url})
    use(agent, shop=(12.34, 60 * MIB), new=(None, None))
    use(other, blog=(40.0, 8 * MIB))


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("cpu", ["web-2/blog", "web-1/shop", "web-1/new"]),
        ("memory", ["web-1/shop", "web-2/blog", "web-1/new"]),
        ("used", ["web-1/shop", "web-2/blog", "web-1/new"]),
        ("app", ["web-1/shop", "web-1/new", "web-2/blog"]),
    ],
)
async def test_the_largest_come_first(rollcall: Rollcall, sort: str, names: list[str]) -> None:
    ran = await rollcall("top", "--sort", sort)

    assert ran.status == 0, ran
    assert [row[0] for row in ran.rows()] == names
    rows = {row[0]: row[1:] for row in ran.rows()}
    assert " ".join(rows["web-1/shop"]) == "running 12.3 50 60.0 MiB 64.0 MiB 93.8 -"
    assert " ".join(rows["web-1/new"]) == "running - 50 - 64.0 MiB - -"


@pytest.mark.usefixtures("fleet")
async def test_an_app_that_is_down_uses_nothing(rollcall: Rollcall, agent: FakeAgent) -> None:
    agent.answers["GET", "/v1/apps"] = [
        APP_RECORD | {"name": "shop", "cpu": 50, "memory": 64, "state": "exited"}
    ]

    ran = await rollcall("top", "web-1")

    assert [" ".join(row) for row in ran.rows()] == ["web-1/shop exited - 50 - 64.0 MiB - -"]


@pytest.mark.usefixtures("fleet")
async def test_programs_get_numbers_and_each_host_that_fails(
    rollcall: Rollcall, agent: FakeAgent
) -> None:
    del agent.answers["GET", "/v1/usage"]

    ran = await rollcall("top", "-o", "json")
    chosen = await rollcall("top", "--label", "service:web", "-o", "json")

    blog, failed = msgspec.json.decode(ran.out)
    assert (ran.status, chosen.status) == (1, 0)
    assert msgspec.json.decode(chosen.out) == [blog]
    assert blog == {
        "app": "web-2/blog",
        "host": "web-2",
        "name": "blog",
        "state": "running",
        "cpu_percent": 40.0,
        "cpu_limit_percent": 50,
        "memory_bytes": 8 * MIB,
        "memory_limit_bytes": 64 * MIB,
        "memory_percent": 12.5,
        "measured_at": UNTIL,
        "error": None,
    }
    assert failed["app"] == "web-1/"
    assert "there is no such app" in failed["error"]


async def test_nothing_was_measured_yet(rollcall: Rollcall, agent: FakeAgent) -> None:
    agent.answers["GET", "/v1/apps"] = []
    agent.answers["GET", "/v1/usage"] = {"step_seconds": 60, "until": None, "apps": []}

    ran = await rollcall("top")

    assert (ran.status, ran.out, ran.err) == (0, "", "these hosts run no apps\n")
