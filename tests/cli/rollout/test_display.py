"""The overview of a rollout over more hosts than a terminal has lines."""

from io import StringIO

import msgspec
from rich.console import Console

from cli.rollout.report import overview
from cli.rollout.rollout import Bounds, HostProgress, Rollout, RolloutChange

HEIGHT = 10
DOMAIN = ".r12.example.com"
LONG = "the image registry.example.com/shop/web:1.4.2-20261126 cannot be had"


def printed(
    *states: str, width: int = 80, domain: str = "", message: str = "no such image"
) -> list[str]:
    hosts = [
        {
            "host": f"web-{number}{domain}",
            "state": state,
            "message": message if state == "failed" else None,
        }
        for number, state in enumerate(states)
    ]
    progress = msgspec.convert(hosts, list[HostProgress])
    rollout = Rollout(
        change=RolloutChange(action="rebuild", app="shop"), bounds=Bounds(), hosts=progress
    )
    text = StringIO()
    console = Console(file=text, width=width, height=HEIGHT)
    console.print(overview(rollout, console.size))
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


def test_on_a_narrow_terminal_names_and_states_are_whole() -> None:
    narrow = printed("failed", "checking", width=60, domain=DOMAIN, message=LONG)

    assert narrow[1].split() == ["HOST", "STATE", "HEALTH", "MESSAGE"]
    assert narrow[2].split() == [f"web-1{DOMAIN}", "checking", "-", "-"]
    assert narrow[3].split()[:3] == [f"web-0{DOMAIN}", "failed", "-"]
    assert max(map(len, narrow)) <= 60
    assert printed("failed", "checking", width=30, domain=DOMAIN)[1:5] == [
        f"HOST     web-1{DOMAIN}",
        "STATE    checking",
        "HEALTH   -",
        "MESSAGE  -",
    ]
