"""What JetStream answers to requests."""

import msgspec
import pytest
from nats.aio.msg import Msg

from registry.store.nats.bucket import JetStreamApi, Refused
from registry.store.nats.link import NoConnection, connected
from registry.store.options import NatsLogin
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("code", "error"),
    [(10008, NoConnection), (10009, NoConnection), (10076, NoConnection), (10059, Refused)],
)
async def test_what_passes_is_no_refusal(
    code: int, error: type[Exception], server: NatsCluster
) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(
            msgspec.json.encode({"error": {"err_code": code, "description": "not now"}})
        )

    async with connected([f"nats://{server.servers[0].address}"], NatsLogin()) as link:
        await link.client.subscribe("$JS.API.TEST", cb=answer)

        with pytest.raises(error, match="not now"):
            await JetStreamApi(link).ask("TEST")
