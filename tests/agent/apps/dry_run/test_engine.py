"""The engine of a dry run shows what would be there, and passes nothing on to the real one."""

import msgspec
import pytest

from agent.apps.dry_run.engine import DryEngine
from agent.engine.errors import ObjectNotFound
from agent.engine.models import ContainerSpec
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine

LABEL = "rollcall.app"


def spec(name: str, volume: str) -> ContainerSpec:
    return ContainerSpec(
        name=name,
        image=IMAGE,
        labels={LABEL: name},
        env={},
        ports=((8000, 21000),),
        bind="127.0.0.1",
        cpu=100,
        memory=64,
        pids=16,
        log_mib=1,
        stop_seconds=1,
        volumes={"/srv": volume},
        init=False,
        no_new_privileges=True,
        command=(),
    )


async def names(engine: DryEngine, label: str | None = None) -> set[str]:
    return {each.name for each in await engine.containers(label=label)}


async def users(engine: DryEngine, volume: str) -> set[str]:
    return {each.name for each in await engine.volume_users(volume)}


async def test_lists_show_containers_as_they_would_be() -> None:
    real = FakeEngine()
    await real.create_volume("data", {LABEL: "old"})
    old = await real.create(spec("old", "data"))
    await real.create(spec("other", "data"))
    before = msgspec.to_builtins(real.state)
    dry = DryEngine(real)

    made = await dry.create(spec("new", "data"))
    await dry.rename(made, "newer")
    assert await names(dry) == await users(dry, "data") == {"old", "other", "newer"}
    assert await names(dry, f"{LABEL}=new") == {"newer"}
    assert await names(dry, "elsewhere") == set()

    await dry.start(old)
    states = {each.name: each.state for each in await dry.containers(label=LABEL)}
    assert states == {"old": "running", "other": "created", "newer": "created"}

    await dry.remove(old)
    await dry.remove(made)
    assert await names(dry) == await users(dry, "data") == {"other"}
    with pytest.raises(ObjectNotFound):
        await dry.inspect(made)
    assert msgspec.to_builtins(real.state) == before


async def test_lists_show_volumes_as_they_would_be() -> None:
    real = FakeEngine()
    await real.create_volume("data", {LABEL: "old"})
    dry = DryEngine(real)

    await dry.create_volume("more", {LABEL: "new"})
    await dry.create_volume("data", {LABEL: "another"})
    assert await dry.volumes(label=LABEL) == {"data": {LABEL: "old"}, "more": {LABEL: "new"}}
    assert await dry.volumes(label=f"{LABEL}=new") == {"more": {LABEL: "new"}}

    await dry.remove_volume("data")
    assert await dry.volumes() == {"more": {LABEL: "new"}}
    assert await real.volumes() == {"data": {LABEL: "old"}}
