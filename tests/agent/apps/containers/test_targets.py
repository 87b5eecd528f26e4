"""Which ports of the container an app's ports lead to."""

import msgspec
import pytest

from agent.apps.containers.spec import find_targets
from agent.apps.defaults import AppDefaults
from agent.engine.models import Image
from agent.model import App

APP = App(name="web", image="i", ssh_port=1, http_port=2, cpu=1, memory=6, created_at="")
LABELS = {"rollcall.http_port": "3000", "rollcall.ssh_port": "2222"}


@pytest.mark.parametrize(
    ("asked", "labels", "exposed", "ssh", "http"),
    [
        ({}, {}, set(), 22, 8000),
        ({}, {}, {22}, 22, 8000),
        ({}, {}, {22, 3000}, 22, 3000),
        ({}, {}, {3000}, 22, 3000),
        ({"ssh_target": 3000}, {}, {3000}, 3000, 8000),
        ({}, LABELS, {9000, 9001}, 2222, 3000),
        ({}, {"rollcall.http_port": "70000"}, {9000}, 22, 9000),
        ({"http_target": 4000, "ssh_target": 4001}, LABELS, {9000, 9001}, 4001, 4000),
    ],
)
def test_the_app_names_the_ports_else_its_image_else_the_settings(
    asked: dict[str, int], labels: dict[str, str], exposed: set[int], ssh: int, http: int
) -> None:
    image = Image(id="i", labels=labels, tcp_ports=frozenset(exposed), env={}, local=True)

    targets = find_targets(msgspec.structs.replace(APP, **asked), image, AppDefaults())

    assert (targets.ssh, targets.http, targets.note) == (ssh, http, "")


@pytest.mark.parametrize("exposed", [{22, 3000, 9000}, {3000, 8000}])
def test_where_several_others_are_exposed_the_note_says_which_was_taken(exposed: set[int]) -> None:
    image = Image(id="i", labels={}, tcp_ports=frozenset(exposed), env={}, local=True)

    targets = find_targets(APP, image, AppDefaults())

    others = " and ".join(map(str, sorted(exposed - {22})))
    assert targets.http == 8000
    assert f"exposes the ports {others}, and `http_port` leads to 8000" in targets.note


def noted(tcp: set[int], udp: set[int]) -> str:
    image = Image(
        id="i",
        labels={},
        tcp_ports=frozenset(tcp),
        udp_ports=frozenset(udp),
        env={},
        local=True,
    )
    return find_targets(APP, image, AppDefaults()).note


def test_udp_ports_are_noted_as_not_published() -> None:
    assert noted({3000}, {53}) == "the image exposes the UDP port 53; only TCP is published"
    assert noted({3000, 9000}, {53, 443}).startswith("the image exposes the UDP ports 53 and 443;")


def test_of_many_ports_the_note_names_a_few() -> None:
    note = noted(set(range(1, 65536)), set(range(1, 65536)))

    assert "1, 2, 3, 4, 5, 6, 7, 8 and 65526 more" in note
    assert len(note) < 300
