"""Measures the processor time of NATS servers by the number of registries that read a bucket.

Each registry is a consumer as the store has it, in this process; the messages are as large as those
by which a registry of a large fleet reports to the others which nodes it has seen. The figures are
processor time, so other work on the machine changes them little. The run ends by itself.

    python bench/nats_consumers.py --consumers 3 12 48 --rate 20 --kib 17
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jetstream_bench import pids_of
from processes import cpu_seconds, unused_port

from registry.store.nats.bucket import BucketAddress, open_bucket
from registry.store.nats.delivery import Delivery, Message
from registry.store.nats.link import Link, NoConnection, connected
from registry.store.options import NatsLogin
from tests.support.registry.nats.servers import NatsCluster
from tests.support.waiting import async_until

SERVERS = 3
KEYS = 600  # a registry writes to as many keys in turn
SETTLE_SECONDS = 2.0
START_SECONDS = 60.0


class Consumers:
    """Registries that read a bucket, each over a connection of its own."""

    def __init__(self, servers: NatsCluster, place: BucketAddress) -> None:
        self._servers = servers
        self._place = place
        self._stack = AsyncExitStack()
        self.delivered = 0
        self.count = 0

    async def grow(self, count: int) -> None:
        """Add consumers until there are so many, evenly over the servers."""
        while self.count < count:
            server = self._servers.servers[self.count % SERVERS]
            urls = [f"nats://{server.address}"]
            link = await self._stack.enter_async_context(connected(urls, NatsLogin()))
            if not self.count:
                await async_until(partial(self._is_made, link), START_SECONDS)
            await async_until(partial(self._is_read, link), START_SECONDS)
            self.count += 1

    async def until_delivered(self, count: int) -> None:
        """Wait until so many messages were delivered."""

        async def reached() -> bool:
            return self.delivered >= count

        await async_until(reached, START_SECONDS)

    async def close(self) -> None:
        """Disconnect them all."""
        await self._stack.aclose()

    async def _is_made(self, link: Link) -> bool:
        """Make the bucket; return whether the servers, which have just started, could do that."""
        try:
            await open_bucket(link, self._place)
        except NoConnection:
            return False
        return True

    async def _is_read(self, link: Link) -> bool:
        """Begin to read the bucket; return whether servers, which may be busy, answered in time."""
        try:
            await Delivery(link, self._place.bucket, self._take).begin(1)
        except NoConnection:
            return False
        return True

    def _take(self, _message: Message) -> None:
        self.delivered += 1


async def publish(servers: NatsCluster, bucket: str, options: argparse.Namespace) -> int:
    """Write messages at the rate for so many seconds; return how many."""
    value = bytes(options.kib * 1024)
    loop, numbers = asyncio.get_running_loop(), itertools.count()
    async with connected([f"nats://{servers.servers[0].address}"], NatsLogin()) as link:
        end = loop.time() + options.seconds
        while loop.time() < end:
            key = f"$KV.{bucket}.bench.{next(numbers) % KEYS}"
            await link.client.request(key, value, timeout=30)
            await asyncio.sleep(1 / options.rate)
    return next(numbers)


async def measure(servers: NatsCluster, options: argparse.Namespace) -> None:
    """Print a line for each number of consumers."""
    place = BucketAddress.from_url(servers.url("bench"), servers.options())
    assert place is not None
    consumers, pids = Consumers(servers, place), pids_of(servers)
    try:
        for count in sorted(options.consumers):
            await consumers.grow(count)
            await asyncio.sleep(SETTLE_SECONDS)
            before = spent(pids)
            await asyncio.sleep(options.seconds)
            idle, delivered = spent(pids) - before, consumers.delivered
            published = await publish(servers, place.bucket, options)
            await consumers.until_delivered(delivered + count * published)
            busy = spent(pids) - before - 2 * idle
            print(
                f"{count} consumers: {published} messages, {consumers.delivered - delivered}"
                f" delivered; of all servers {busy / published * 1e6:.0f} us for each message,"
                f" and {idle / options.seconds:.1%} of a core while idle",
                flush=True,
            )
    finally:
        await consumers.close()


def spent(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used, in seconds."""
    return sum(cpu_seconds(pid) for pid in pids)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--consumers", type=int, nargs="+", default=[3, 12, 48])
    parser.add_argument("--rate", type=float, default=20, help="messages a second, at most")
    parser.add_argument("--kib", type=int, default=17, help="of a message")
    parser.add_argument("--seconds", type=float, default=10, help="for each number of consumers")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        NatsCluster(folder=Path(folder, "nats"), free_port=unused_port, size=SERVERS) as servers,
    ):
        asyncio.run(measure(servers, options))


if __name__ == "__main__":
    main()
