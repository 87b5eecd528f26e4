"""Asks the HTTP port of an app whether it is healthy."""

from http import HTTPStatus

import aiohttp
from yarl import URL

# The address at which a port is asked that is bound to all addresses.
LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class HttpProbe:
    """Sends GET requests to ports of this host."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def failure(self, address: str, port: int, path: str, *, seconds: float) -> str | None:
        """Return why a GET failed: no answer in ``seconds``, or neither 2xx nor 3xx; else None.

        ``address`` is the one that the port is bound to, of IPv4 or IPv6. A redirection is not
        followed, and no body is read.
        """
        host = LOOPBACK.get(address, address)
        origin = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        url = URL(f"{origin}{path}", encoded=True)
        try:
            async with self._open_session().get(
                url, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=seconds)
            ) as response:
                status = response.status
        except TimeoutError:
            return f"GET {path} was not answered within {seconds:g} s"
        except (aiohttp.ClientError, OSError, ValueError):
            return f"GET {path} was not answered: the connection failed"
        if HTTPStatus.OK <= status < HTTPStatus.BAD_REQUEST:
            return None
        return f"GET {path} was answered with {status}"

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:  # a session can be made only while the event loop runs
            self._session = aiohttp.ClientSession(
                # A connection that is kept would outlive what it was to find out.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "rollcall-agent"},
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
