"""Which port the agent picks where none is asked for."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from agent.apps.admission.ports import HostPorts, Ports
from agent.apps.defaults import AppDefaults
from agent.apps.errors import NoFreePort
from agent.engine import decode
from agent.engine.engine import Engine
from agent.engine.models import Container
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer

OTHER = Container(
    id="1",
    name="other",
    image="i",
    image_id="2",
    state="running",
    labels={},
    ports={103: "0.0.0.0"},
)


@dataclass(frozen=True, kw_only=True)
class OneBusyPort(HostPorts):
    """A kernel that lends some ports to outgoing connections, and has one that is busy."""

    bind: str = "127.0.0.1"
    busy: int

    def can_listen(self, port: int) -> bool:
        return port != self.busy


def ports(folder: Path, *, ephemeral: range, busy: int, engine: Engine | None = None) -> Ports:
    defaults = AppDefaults(ports=range(100, 105))
    context = context_of(engine or FakeEngine(), folder, defaults=defaults)
    return Ports(context, OneBusyPort(ephemeral=ephemeral, busy=busy))


class StaleList(FakeEngine):
    """An engine whose list has a container as running that has ended."""

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        del label, seconds
        return [OTHER, msgspec.structs.replace(OTHER, id="gone", name="gone")]


async def test_a_container_that_is_listed_as_running_and_has_ended_holds_no_port(
    tmp_path: Path,
) -> None:
    engine = StaleList()
    ended = FakeContainer(
        id=OTHER.id,
        name=OTHER.name,
        image=OTHER.image,
        labels={},
        env={},
        ports=list(OTHER.ports),
        volumes={},
        cpu=100,
        memory=64,
        image_id=OTHER.image_id,
        state="exited",
    )
    engine.state.containers[ended.id] = ended
    free = ports(tmp_path, ephemeral=range(0), busy=104, engine=engine)
    held = ports(tmp_path, ephemeral=range(0), busy=103, engine=engine)

    assert free.holder("app", 103, await free.published(), None) is None
    assert held.holder("app", 103, await held.published(), None) == "container `other`"


async def test_a_port_is_picked_that_nobody_holds_or_may_get_for_an_outgoing_connection(
    tmp_path: Path,
) -> None:
    picking = ports(tmp_path, ephemeral=range(90, 102), busy=104)

    assert {picking.pick("app", [OTHER], []) for _ in range(50)} == {102}
    with pytest.raises(NoFreePort, match=r"102-104.*apps\.ports"):
        picking.pick("app", [OTHER], [102])


async def test_where_all_may_be_lent_any_that_is_free_is_picked(tmp_path: Path) -> None:
    picking = ports(tmp_path, ephemeral=range(90, 200), busy=104)

    assert {picking.pick("app", [OTHER], []) for _ in range(50)} == {100, 101, 102}


def test_a_port_of_udp_is_not_held_for_tcp() -> None:
    answer = (
        b'[{"Id": "a", "Image": "i", "ImageID": "i", "State": "running", "Ports": ['
        b'{"PrivatePort": 53, "PublicPort": 53, "Type": "udp"},'
        b'{"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"},'
        b'{"IP": "::", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"}]}]'
    )

    (container,) = decode.containers(answer)

    assert container.ports == {8080: "0.0.0.0"}
