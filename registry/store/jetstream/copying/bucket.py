"""A bucket that is read and written by a copy, over one connection after the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple, TypeVar

from nats import errors

from registry.errors import StoreOpenError
from registry.store.jetstream.connection.api import JetStreamApi
from registry.store.jetstream.connection.bucket import BucketState, find_bucket, open_bucket
from registry.store.jetstream.connection.bucket_address import BucketAddress
from registry.store.jetstream.connection.delivery import Delivery
from registry.store.jetstream.connection.link import (
    Connector,
    Link,
    LoginRefused,
    NoConnection,
)
from registry.store.jetstream.connection.publish_results import (
    Acknowledged,
    Conflict,
    PublishResult,
    Refusal,
    Retry,
    publish_result,
)
from registry.store.jetstream.connection.servers import check_servers
from registry.store.jetstream.copying.contents import BucketContents
from registry.store.jetstream.format.messages import (
    EXPECTED,
    HEADERS_BYTES,
    MAX_VALUE_BYTES,
    deletion_headers,
)
from registry.store.protocol import StoreName

ACKNOWLEDGED_WITHIN_SECONDS = 5.0
END_SECONDS = 1.0
PAUSE_SECONDS = 1.0
# Time limits for servers that fail during a copy, and at its start.
PATIENCE_SECONDS = 60.0
START_SECONDS = 10.0

WRITTEN_AT_ONCE = 128
# A copy itself reads the bucket, too.
CONSUMERS = 1
# Markers of deleted keys expire after this time.
REMOVAL_SECONDS = 60

T = TypeVar("T")


class BucketMessage(NamedTuple):
    """A message to be written to the bucket, in the place of what was delivered for its key."""

    key: str
    value: bytes
    headers: Mapping[str, str] = {}


def removal(key: str) -> BucketMessage:
    """Return the message that removes a key."""
    return BucketMessage(key, b"", deletion_headers(REMOVAL_SECONDS))


class OpenBucket:
    """A bucket over one connection, which follows what the bucket holds.

    Every method raises NoConnection when the connection fails, or a message has to be written again
    on the ground of what the bucket holds then.
    """

    def __init__(
        self,
        place: BucketAddress,
        link: Link,
        created: str,
        contents: BucketContents,
        delivery: Delivery,
    ) -> None:
        self._place = place
        self._link = link
        self._api = JetStreamApi(link)
        self._delivery = delivery
        self.created = created
        self.has_written = False
        self.contents = contents

    @property
    def name(self) -> StoreName:
        """Return what messages call it, and what tells it from any other bucket."""
        return StoreName(str(self._place), f"bucket made at {self.created}")

    @property
    def max_value(self) -> int:
        """How many bytes a value may have that holds many nodes."""
        return min(MAX_VALUE_BYTES, self._room)

    @property
    def _room(self) -> int:
        return self._link.client.max_payload - HEADERS_BYTES

    async def state(self) -> BucketState:
        """Return the state of the bucket, with all messages up to its last in `contents`."""
        state = await find_bucket(self._api, self._place.bucket)
        if state is None or state.created != self.created:
            raise StoreOpenError(f"{self._place} was deleted while it was copied")
        await self._delivery.until_passed(state.last)
        return state

    async def write(self, messages: Sequence[BucketMessage]) -> None:
        """Write messages durably, and wait until `contents` has them. Raises StoreOpenError."""
        left = iter(messages)

        async def write_some() -> int:
            last = 0
            for message in left:
                last = max(last, await self._write(message))
            return last

        writers = [write_some() for _ in range(min(WRITTEN_AT_ONCE, len(messages)))]
        await self._delivery.until_passed(max(await asyncio.gather(*writers), default=0))

    async def _write(self, message: BucketMessage) -> int:
        """Write a message; return its sequence."""
        if len(message.value) > self._room:
            raise StoreOpenError(
                f"{message.key} takes {len(message.value)} bytes, the NATS servers accept"
                f" {self._room}"
                " (max_payload in their settings)"
            )
        expected = str(self.contents.sequences.get(message.key, 0))
        try:
            reply = await self._link.client.request(
                f"$KV.{self._place.bucket}.{message.key}",
                message.value,
                timeout=ACKNOWLEDGED_WITHIN_SECONDS,
                headers={**message.headers, EXPECTED: expected},
            )
        except errors.NoRespondersError as error:
            raise NoConnection("the bucket has no leader now") from error
        except (TimeoutError, errors.TimeoutError) as error:
            reason = f": {self._link.denied}" if self._link.denied else ""
            raise NoConnection(f"a message was not confirmed in time{reason}") from error
        except (OSError, errors.Error) as error:
            raise NoConnection(str(error) or type(error).__name__) from error
        sequence = _sequence_of(message.key, publish_result(reply))
        self.has_written = True
        return sequence


def _sequence_of(key: str, result: PublishResult) -> int:
    """Return the sequence of a message that is stored.

    Raises NoConnection if it may be stored later, StoreOpenError if it is refused for good.
    """
    match result:
        case Acknowledged(sequence):
            return sequence
        case Conflict(actual):
            raise NoConnection(f"{key} was changed meanwhile, by message {actual}")
        case Retry():
            raise NoConnection(f"the NATS servers cannot store {key} now")
        case Refusal(reason, is_full=True):
            raise StoreOpenError(f"the NATS servers have no room: {reason}")
        case Refusal(reason):
            raise StoreOpenError(f"the NATS servers refuse {key}: {reason}")


class Bucket:
    """A bucket that is connected to again after a fault. With `make`, it is made if there is none.

    Its servers then have to keep what they acknowledge, as a registry requires it.
    """

    def __init__(self, place: BucketAddress, *, make: bool) -> None:
        self._place = place
        self._connector = Connector(place.servers, place.options.login)
        self._make = make
        self._stack = AsyncExitStack()
        self._open: OpenBucket | None = None

    def __str__(self) -> str:
        return str(self._place)

    async def perform(
        self, work: Callable[[OpenBucket], Awaitable[T]], *, patience: float = PATIENCE_SECONDS
    ) -> T:
        """Do some work; after a fault, do it again over another connection, with what is there.

        Raises StoreOpenError, also once it has failed for `patience` seconds and written nothing.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            try:
                if self._open is None:
                    self._open = await self._stack.enter_async_context(
                        _opened(self._place, self._connector, make=self._make)
                    )
                return await work(self._open)
            except NoConnection as error:
                if self._open is not None and self._open.has_written:
                    end = loop.time() + patience
                await self.close()
                if loop.time() > end or isinstance(error, LoginRefused):
                    raise StoreOpenError(f"{self._place} cannot be reached: {error}") from error
            await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """Disconnect."""
        self._open = None
        await self._stack.aclose()


@asynccontextmanager
async def _opened(
    place: BucketAddress, connector: Connector, *, make: bool
) -> AsyncIterator[OpenBucket]:
    """Read a bucket, and follow it. Raises NoConnection, StoreOpenError."""
    async with connector.connected() as link:
        api = JetStreamApi(link)
        state = await (open_bucket(api, place) if make else find_bucket(api, place.bucket))
        if state is None:
            raise StoreOpenError(f"{place} does not exist")
        if make:
            await check_servers(state.servers, place.servers, place.options, link)
        contents = BucketContents()
        delivery = Delivery(link, place.bucket, contents.take)
        try:
            await delivery.begin(1)
            await delivery.until_caught_up()
            yield OpenBucket(place, link, state.created, contents, delivery)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await delivery.end()
