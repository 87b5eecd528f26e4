"""An adoption that is interrupted at any of its calls to the engine is completed by another one."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import docker
import pytest

from agent.apps.labels import AGENT_LABEL
from agent.apps.ownership.adopt import Adopter, AdoptionResult
from agent.apps.ownership.claims import ADOPTED_LABEL, CLAIM_LABEL
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.state.identity import Identity
from tests.support.agent.in_process import identity_of
from tests.support.agent.kills.engine_proxy import (
    ANSWERS,
    KILLS,
    Call,
    EngineProxy,
    Fault,
    Moment,
)
from tests.support.run.release import some_of

pytestmark = pytest.mark.real
# Of the claim and of the mark, a former volume is removed and one is made; then the claim goes.
CALLS = [Call(name, n) for n in (1, 2) for name in ("DELETE /volumes/ID", "POST /volumes/create")]
CALLS += [Call("DELETE /volumes/ID", 3)]
TIMEOUT_SECONDS = 4
CLAIM_SECONDS = 0.5


@pytest.fixture
def former(docker_client: docker.APIClient) -> Iterator[str]:
    """Yield the identity of an agent that is gone, of which adoptions have left claim and mark."""
    identity = secrets.token_hex(8)
    for label in (CLAIM_LABEL, ADOPTED_LABEL):
        name, labels = f"{label}-{identity}", {label: identity, AGENT_LABEL: "another"}
        docker_client.create_volume(name, labels=labels)
    yield identity
    for label in (CLAIM_LABEL, ADOPTED_LABEL):
        for name in volumes(docker_client, label, identity):
            docker_client.remove_volume(name)


@pytest.fixture
def proxy(tmp_path: Path, engine_url: str) -> Iterator[EngineProxy]:
    with EngineProxy(path=tmp_path / "engine", engine_url=engine_url) as proxy:
        yield proxy


def volumes(client: docker.APIClient, label: str, identity: str) -> list[str]:
    """Return the names of the volumes with this label for an identity."""
    found = client.volumes(filters={"label": [f"{label}={identity}"]})["Volumes"] or ()
    return [each["Name"] for each in found]


@asynccontextmanager
async def adopter(url: str, identity: Identity) -> AsyncIterator[Adopter]:
    engine = Engine(url=url, timeout_seconds=TIMEOUT_SECONDS)
    try:
        yield Adopter(engine=engine, identity=identity, claim_seconds=CLAIM_SECONDS)
    finally:
        await engine.close()


@pytest.mark.parametrize("moment", some_of([*KILLS, *ANSWERS], "after", reason="every kill point"))
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.name} {call.number}")
async def test_an_adoption_that_is_interrupted_is_completed_by_the_next(
    tmp_path: Path,
    proxy: EngineProxy,
    docker_client: docker.APIClient,
    former: str,
    call: Call,
    moment: Moment,
) -> None:
    identity, loop = identity_of(tmp_path, "heir"), asyncio.get_running_loop()
    async with adopter(proxy.url, identity) as first:
        adopting = asyncio.create_task(first.adopt([former]))

        def strike() -> None:
            loop.call_soon_threadsafe(adopting.cancel)

        watch = proxy.watch(Fault(call, moment), strike)
        with suppress(EngineError, asyncio.CancelledError):
            await adopting
        assert await asyncio.to_thread(watch.struck.wait, 30)
    assert former not in identity_of(tmp_path, "heir").all
    proxy.watch()

    async with adopter(proxy.url, identity_of(tmp_path, "heir")) as second:
        results = await second.adopt([former])

    assert results == [AdoptionResult(identity=former, apps=(), done=True)]
    assert former in identity_of(tmp_path, "heir").all
    assert volumes(docker_client, CLAIM_LABEL, former) == []
    assert len(volumes(docker_client, ADOPTED_LABEL, former)) == 1
