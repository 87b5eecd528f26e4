"""Rollouts over hosts that are played: batches, checks, failures, the stop and what is left."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import pytest

from cli.errors import WrongUsage
from cli.reach.contexts import Context, state_folder
from cli.rollout.execution import Runner
from cli.rollout.rollout import (
    AppNow,
    Bounds,
    HostFailed,
    HostProgress,
    NotBegun,
    Rollout,
    RolloutChange,
    StateFile,
)

REBUILD = RolloutChange(action="rebuild", app="shop")
ONE_BY_ONE = Bounds()


class PlayedHosts:
    """Hosts of which some fail at the change or at the check; it writes down what it is asked."""

    def __init__(self, *, reject: Collection[str] = (), unwell: Collection[str] = ()) -> None:
        self.asked: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._reject = reject
        self._unwell = unwell

    async def change(self, progress: HostProgress) -> None:
        host = progress.host
        self.asked.append(f"change {host}")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0)
        self._at_once -= 1
        if host in self._reject:
            raise HostFailed("no such image")

    async def check(self, host: HostProgress) -> None:
        self.asked.append(f"check {host.host}")
        if host.host in self._unwell:
            raise HostFailed("it is not healthy")


def rollout(count: int, bounds: Bounds = ONE_BY_ONE) -> Rollout:
    hosts = [HostProgress(host=f"web-{number}") for number in range(1, count + 1)]
    return Rollout(change=REBUILD, bounds=bounds, hosts=hosts)


def states(of: Rollout) -> list[str]:
    return [each.state for each in of.hosts]


async def run(
    one: Rollout,
    hosts: PlayedHosts,
    *,
    sleep: Callable[[float], Awaitable[None]] | None = None,
) -> None:
    pause = sleep or asyncio.sleep
    await Runner(
        one, change=hosts.change, check=hosts.check, changed=lambda _host: None, sleep=pause
    ).run()


async def test_hosts_are_changed_and_checked_one_after_the_other() -> None:
    one, hosts = rollout(3), PlayedHosts()

    await run(one, hosts)

    assert one.is_done
    assert hosts.asked == [
        f"{step} web-{number}" for number in (1, 2, 3) for step in ("change", "check")
    ]


async def test_a_batch_is_changed_at_once_with_a_pause_after_it() -> None:
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    one, hosts = rollout(5, Bounds(batch=2, pause_seconds=10)), PlayedHosts()

    await run(one, hosts, sleep=sleep)

    assert one.is_done
    assert (hosts.most_at_once, pauses) == (2, [10, 10])


@pytest.mark.parametrize("kind", ["reject", "unwell"])
async def test_it_stops_once_too_many_have_failed(kind: str) -> None:
    one, hosts = (
        rollout(6, Bounds(batch=2, max_failures=1)),
        PlayedHosts(**{kind: {"web-2", "web-4"}}),
    )

    await run(one, hosts)

    assert states(one) == ["done", "failed", "done", "failed", "waiting", "waiting"]
    assert [each.message for each in one.hosts if each.message] == (
        ["no such image"] * 2 if kind == "reject" else ["it is not healthy"] * 2
    )
    assert "change web-5" not in hosts.asked


async def test_what_a_host_has_is_not_known_once_its_change_begins() -> None:
    one, seen = rollout(1), []
    one.hosts[0].now = AppNow(image="shop:1", revision=3, state="running")

    def look_at(host: HostProgress) -> None:
        if host.state == "changing":
            seen.append((host.is_touched, host.now))

    hosts = PlayedHosts()
    await Runner(one, change=hosts.change, check=hosts.check, changed=look_at).run()

    assert seen == [(True, None)]


async def test_a_host_whose_change_was_not_begun_is_as_it_was_before() -> None:
    class Unreachable(PlayedHosts):
        async def change(self, progress: HostProgress) -> None:
            raise NotBegun(f"{progress.host}: connection refused")

    one = rollout(2, Bounds(batch=2))
    one.hosts[1].is_touched, one.hosts[1].now = True, AppNow(image="s:1", revision=3, state="up")
    before = [(each.is_touched, each.now) for each in one.hosts]

    await run(one, Unreachable())

    assert states(one) == ["failed", "failed"]
    assert [(each.is_touched, each.now) for each in one.hosts] == before


async def test_a_stop_lets_the_batch_end_and_begins_no_other() -> None:
    one, hosts = rollout(4, Bounds(batch=2)), PlayedHosts()

    def stop_at(host: HostProgress) -> None:
        if host.host == "web-1" and host.state == "changing":
            runner.stop()

    runner = Runner(one, change=hosts.change, check=hosts.check, changed=stop_at)
    await runner.run()

    assert states(one) == ["done", "done", "waiting", "waiting"]


async def test_a_stop_ends_a_pause() -> None:
    one, hosts = rollout(2, Bounds(pause_seconds=3600)), PlayedHosts()

    async def sleep(seconds: float) -> None:
        runner.stop()
        await asyncio.sleep(seconds)

    runner = Runner(
        one, change=hosts.change, check=hosts.check, changed=lambda _host: None, sleep=sleep
    )
    await runner.run()

    assert states(one) == ["done", "waiting"]


@pytest.mark.parametrize("why", ["failures", "stop"])
async def test_no_pause_begins_where_no_batch_follows(why: str) -> None:
    one = rollout(2, Bounds(pause_seconds=3600))
    hosts = PlayedHosts(unwell={"web-1"} if why == "failures" else ())

    def stop_at(host: HostProgress) -> None:
        if why == "stop" and host.state == "done":
            runner.stop()

    async def sleep(_seconds: float) -> None:
        raise AssertionError("it pauses")

    runner = Runner(one, change=hosts.change, check=hosts.check, changed=stop_at, sleep=sleep)
    await runner.run()

    assert one.hosts[1].state == "waiting"


async def test_what_is_not_done_goes_on_from_the_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "a", "shop")
    with pytest.raises(WrongUsage, match="no rollout"):
        file.load()
    one = rollout(4)
    with file.locked():
        played = PlayedHosts(unwell={"web-2"})
        await Runner(
            one, change=played.change, check=played.check, changed=lambda _host: file.save(one)
        ).run()
    assert states(file.load()) == ["done", "failed", "waiting", "waiting"]
    assert file.summary() == "rebuild shop; 1 of 4 hosts are done"

    again, hosts = file.load().resumed({}), PlayedHosts()
    await Runner(
        again, change=hosts.change, check=hosts.check, changed=lambda _host: file.save(again)
    ).run()

    assert again.is_done
    assert [each for each in hosts.asked if each.startswith("change")] == [
        "change web-2",
        "change web-3",
        "change web-4",
    ]
    assert not file.path.exists()


def test_the_question_about_a_rollout_names_its_fields_and_no_value_of_them(tmp_path: Path) -> None:
    file, fields = StateFile(tmp_path, "shop"), {"image": "shop:2", "env": {"KEY": "secret"}}
    change = RolloutChange(action="update", app="shop", fields=fields)
    file.save(Rollout(change=change, bounds=ONE_BY_ONE, hosts=[HostProgress(host="web-1")]))

    assert file.summary() == "update shop, image, env; 0 of 1 hosts are done"

    file.path.write_text("broken")
    assert file.summary() == "its file cannot be read"


def test_two_rollouts_of_an_app_do_not_run_at_once(tmp_path: Path) -> None:
    with StateFile(tmp_path, "shop").locked():
        with pytest.raises(WrongUsage, match="another rollout of shop runs"):
            StateFile(tmp_path, "shop").locked().__enter__()
        with StateFile(tmp_path, "other").locked():
            pass
    with StateFile(tmp_path, "shop").locked():
        pass


def test_a_file_that_holds_no_rollout_is_rejected_and_kept(tmp_path: Path) -> None:
    file = StateFile(tmp_path, "shop")
    file.path.write_text('{"hosts": 7}')

    with pytest.raises(WrongUsage, match="cannot be used"):
        file.load()

    assert file.path.exists()


def test_each_context_has_a_folder_of_its_own() -> None:
    lab, other = (Context(registry=f"https://{each}.example.com") for each in ("lab", "other"))
    folder = state_folder("rollouts", {"XDG_STATE_HOME": "/s"}, "lab", lab)

    assert folder.parent == Path("/s/rollcall/rollouts/lab")
    assert folder != state_folder("rollouts", {"XDG_STATE_HOME": "/s"}, "lab", other)
    home = Path.home() / ".local/state/rollcall/rollouts/lab"
    assert state_folder("rollouts", {}, "lab", lab).parent == home
