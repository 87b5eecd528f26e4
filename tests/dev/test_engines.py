"""The engines of `make engines` are newer ones, and run containers."""

from collections.abc import Iterator

import pytest

from dev.engines import NEWER_ENGINES, NewerEngine, programs
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.real("mmdebstrap", "dockerd", "unshare", "ip"),
    pytest.mark.long(1),  # the tree is made
    pytest.mark.release("two newer engines, which `make engines` uses"),
]
NEWER = 28


@pytest.fixture(params=NEWER_ENGINES, ids=lambda newer: newer.name)
def newer_engine(request: pytest.FixtureRequest) -> Iterator[tuple[NewerEngine, Dockerd]]:
    """Yield a running engine of the later Debian."""
    need_root()
    with Dockerd() as dockerd:
        dockerd.start(programs=programs(request.param))
        yield request.param, dockerd


def test_a_newer_engine_runs_containers_from_the_image_store_that_it_is_named_after(
    newer_engine: tuple[NewerEngine, Dockerd],
) -> None:
    newer, dockerd = newer_engine
    dockerd.build()
    client = dockerd.client()
    container = client.create_container(IMAGE, ["/bin/sh", "-c", "echo it runs"])
    client.start(container)
    client.wait(container)

    assert int(client.version()["Version"].partition(".")[0]) >= NEWER
    stores = dict(client.info()["DriverStatus"]).get("driver-type", "")
    assert ("containerd" in stores) == ("containerd" in newer.name)
    assert client.logs(container) == b"it runs\n"
    client.close()
