"""The overview of a rollout over more hosts than a terminal has lines."""

from io import StringIO

import msgspec
from rich.console import Console

from cli.rollout.display import overview
from cli.rollout.model import Bounds, Change, HostProgress, Rollout

HEIGHT = 10
FAILURES = {"failed": "no such image"}


def printed(*states: str) -> list[str]:
    hosts = [
        {"host": f"web-{number}", "state": state, "message": FAILURES.get(state)}
        for number, state in enumerate(states)
    ]
    progress = msgspec.convert(hosts, list[HostProgress])
    rollout = Rollout(change=Change(action="rebuild", app="shop"), bounds=Bounds(), hosts=progress)
    text = StringIO()
    Console(file=text, width=80, height=HEIGHT).print(overview(rollout, height=HEIGHT))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_hosts_that_wait_and_that_are_done_are_counted() -> None:
    lines = printed(*["done"] * 300, "failed", "changing", *["waiting"] * 300)

    assert lines == [
        "300 waiting, 1 changing, 300 done, 1 failed",
        "HOST     STATE     HEALTH  MESSAGE",
        "web-301  changing  -       -",
        "web-300  failed    -       no such image",
    ]


def test_it_is_no_higher_than_the_terminal() -> None:
    lines = printed(*["failed"] * 100, "checking")

    assert len(lines) == HEIGHT
    assert lines[2].split() == ["web-100", "checking", "-", "-"]


def test_before_the_first_change_there_are_numbers_alone() -> None:
    assert printed("waiting", "waiting") == ["2 waiting"]
