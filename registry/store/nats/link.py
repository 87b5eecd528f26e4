"""A connection to one of the servers, for as long as it works; names are looked up in threads."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from random import SystemRandom
from threading import Thread
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from nats import errors
from nats.aio.client import Client, RawCredentials

from clients.tls import client_context
from registry.store.options import NatsLogin
from runtime.share import JoinedCalls

LookUp: TypeAlias = Callable[[str], list[str]]


T = TypeVar("T")
CONNECT_SECONDS = 3.0
# Of several addresses, the next one is tried after so long (RFC 8305).
STAGGER_SECONDS = 0.25
CLOSE_SECONDS = 1.0
PING_SECONDS = 2
# What the library says if a server does not accept the login, or has no good certificate.
LOGIN_REJECTED_TEXTS = (
    "Authorization Violation",
    "certificate verify failed",
    "CERTIFICATE_REQUIRED",
)
DENIED = "permissions violation"
TLS_HINT = "with `nats.tls`, a server needs `handshake_first: auto` in its `tls` section"


def look_up(host: str) -> list[str]:
    """Return the addresses of a host, the preferred ones first. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part of it is empty or too long
        raise OSError(f"{host} is no name of a host") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def run_in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Return the future result of a call, which is made in a thread of its own.

    Neither the event loop nor the process waits for the thread when it ends, as they do for those
    of an executor.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(outcome: Callable[[], None]) -> None:
        if not future.done():  # it may be cancelled
            outcome()

    def run() -> None:
        try:
            outcome = partial(future.set_result, call())
        except Exception as error:
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, outcome)

    Thread(target=run, name="call", daemon=True).start()
    return future


class NoConnection(Exception):
    """There is no connection to a server, or it ended; the text says why."""


class LoginRejected(NoConnection):
    """The servers do not accept the login, or the registry not their certificates."""


class _Client(Client):
    """The library's client; without `nats.tls`, it trusts the system's CAs as our others do."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Return the context to connect with; asked for only if the server wants TLS."""
        return self.options.get("tls") or client_context()


class Link:
    """A connection, and whether it is lost. It is not made again: that is up to the caller.

    `denied` is what the server said last of a missing permission, if it did.
    """

    def __init__(self) -> None:
        self.client: Client = _Client()
        self.lost = asyncio.Event()
        self.reason = "the server closed the connection"
        self.denied = ""

    async def note_error(self, error: Exception) -> None:
        """Keep an error: the last one says why the connection is lost."""
        self.reason = str(error) or type(error).__name__
        if DENIED in self.reason.lower():
            self.denied = self.reason

    async def note_closed(self) -> None:
        """Record that the connection is lost."""
        self.lost.set()

    async def close(self) -> None:
        """Close the connection, whatever its state is."""
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.client.close()


class Connector:
    """Connects to one of the servers, time and again."""

    def __init__(
        self, servers: Sequence[str], login: NatsLogin, *, look_up: LookUp = look_up
    ) -> None:
        self._servers = servers
        self._login = login
        self._look_up = look_up
        self._lookups = JoinedCalls[str, list[str]]()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Link]:
        """Connect to one of the servers, drawn at random.

        Raises NoConnection if none answers, LoginRejected if all reject the login. If the caller
        raises NoConnection, and the login lacked a permission, LoginRejected says so instead.
        """
        reasons: list[str] = []
        rejected = 0
        for server in SystemRandom().sample(self._servers, len(self._servers)):
            try:
                link = await self._connect(server)
            except NoConnection as error:
                reasons.append(f"{server}: {error}")
                rejected += isinstance(error, LoginRejected)
                continue
            try:
                yield link
            except NoConnection as error:
                if link.denied:
                    raise LoginRejected(f"{error}: {link.denied}") from error
                raise
            finally:
                await link.close()
            return
        kind = LoginRejected if rejected == len(self._servers) else NoConnection
        raise kind("; ".join(reasons))

    async def _connect(self, server: str) -> Link:
        """Return a connection to one of a server's addresses. Raises NoConnection."""
        running: set[asyncio.Task[Link]] = set()
        failures: list[NoConnection] = []
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                host = urlsplit(server).hostname or ""
                # Where a DNS server is silent, a look-up takes up to minutes.
                look_up = partial(self._look_up, host)
                found = await self._lookups.get(host, lambda: run_in_thread(look_up))
                urls = _urls(server, found)
                attempts = [partial(_connect, url, host, self._login) for url in urls]
                return await _first(attempts, running, failures)
        except TimeoutError as error:
            silence = _failure(f"no answer within {CONNECT_SECONDS:.0f} s", self._login)
            raise NoConnection(_reasons([*failures, silence])) from error
        except OSError as error:  # of the name
            raise _failure(str(error) or type(error).__name__, self._login) from error
        finally:
            await _discard(running)


@asynccontextmanager
async def connected(servers: Sequence[str], login: NatsLogin) -> AsyncIterator[Link]:
    """Connect once; see Connector."""
    async with Connector(servers, login).connected() as link:
        yield link


async def _first(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, Link]]],
    running: set["asyncio.Task[Link]"],
    failures: list[NoConnection],
) -> Link:
    """Return the connection that is made first; the other attempts stay in `running`.

    Each attempt begins when the one before it has failed, or has taken some time. What failed is
    added to `failures`. Raises NoConnection if all fail, LoginRejected if that is why.
    """
    left = deque(attempts)
    while left or running:
        if left:
            running.add(asyncio.create_task(left.popleft()()))
        done, _ = await asyncio.wait(
            running,
            timeout=STAGGER_SECONDS if left else None,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in done:
            running.discard(task)
            try:
                return task.result()
            except NoConnection as error:
                failures.append(error)
    is_rejected = all(isinstance(error, LoginRejected) for error in failures)
    kind = LoginRejected if is_rejected else NoConnection
    raise kind(_reasons(failures))


def _reasons(failures: Iterable[NoConnection]) -> str:
    """Return what several failures say, each text once."""
    return "; ".join(dict.fromkeys(map(str, failures)))


async def _discard(attempts: Iterable["asyncio.Task[Link]"]) -> None:
    """End attempts, also those that have just made a connection."""
    for task in attempts:
        task.cancel()
    for made in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(made, Link):
            await made.close()


async def _connect(url: str, host: str, login: NatsLogin) -> Link:
    """Return a connection to an address of a host. Raises NoConnection."""
    async with AsyncExitStack() as stack:
        link = Link()
        stack.push_async_callback(link.close)
        await _open(link, url, host, login)
        stack.pop_all()
        return link


async def _open(link: Link, url: str, host: str, login: NatsLogin) -> None:
    credentials = None if login.credentials is None else RawCredentials(login.credentials)
    try:
        await link.client.connect(
            url,
            tls_hostname=host,
            name="rollcall-registry",
            error_cb=link.note_error,
            closed_cb=link.note_closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=int(CONNECT_SECONDS),
            ping_interval=PING_SECONDS,
            user=login.user,
            password=login.password,
            nkeys_seed_str=login.nkey,
            user_credentials=credentials,
            tls=login.tls,
            # Else the server says in clear whether it wants TLS, and anybody between could say
            # that it does not, and read the password.
            tls_handshake_first=login.tls is not None,
        )
    except errors.NoServersError as error:
        raise _failure(link.reason, login) from error
    except (OSError, errors.Error) as error:
        raise _failure(str(error) or type(error).__name__, login) from error
    except Exception as error:
        what = f"{type(error).__name__} {error}".rstrip()
        if login.nkey is None and credentials is None:
            raise _failure(f"that is no NATS server: {what}", login) from error
        raise LoginRejected(f"the nkey or the credentials cannot be used: {what}") from error


def _failure(reason: str, login: NatsLogin) -> NoConnection:
    if any(text in reason for text in LOGIN_REJECTED_TEXTS):
        return LoginRejected(reason)
    return NoConnection(reason if login.tls is None else f"{reason} ({TLS_HINT})")


def _urls(server: str, addresses: Iterable[str]) -> list[str]:
    """Return a server's URL for each of its addresses: the library looks up no name then."""
    url = urlsplit(server)
    return [
        f"{url.scheme}://{f'[{address}]' if ':' in address else address}:{url.port}"
        for address in addresses
    ]
