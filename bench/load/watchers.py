"""Watches the nodes of a registry over many connections, until standard input ends.

    python bench/load/watchers.py --port 7655 --key KEY --last-id ID --connections 1000

The last line of its output is the number of events of each connection, and of the connections that
the registry ended.
"""

import argparse
import asyncio
import sys

EVENT = b"\nevent: node\n"


class Watcher(asyncio.Protocol):
    """A connection that counts the changes of nodes."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._end = b""
        self.events = 0
        self.is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to watch."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count; an event may come in two pieces."""
        data = self._end + data
        self.events += data.count(EVENT)
        self._end = data[-len(EVENT) + 1 :]

    def connection_lost(self, _error: Exception | None) -> None:
        """Record that the registry has ended it."""
        self.is_ended = True


async def watch(options: argparse.Namespace) -> None:
    """Watch until standard input ends, and print the counts."""
    loop = asyncio.get_running_loop()
    request = (
        "GET /nodes?watch=true HTTP/1.1\r\nHost: registry\r\n"
        f"Authorization: Bearer {options.key}\r\nLast-Event-ID: {options.last_id}\r\n\r\n"
    )
    made = [
        (await loop.create_connection(lambda: Watcher(request.encode()), "127.0.0.1", options.port))
        for _ in range(options.connections)
    ]
    print("watching", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    watchers = [watcher for _, watcher in made]
    events = sum(watcher.events for watcher in watchers) // len(watchers)
    print(events, sum(watcher.is_ended for watcher in watchers), flush=True)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--last-id", required=True)
    parser.add_argument("--connections", type=int, default=1000)
    asyncio.run(watch(parser.parse_args()))


if __name__ == "__main__":
    main()
