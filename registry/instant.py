"""What the registry answers in the moment that it is asked: the two requests that never end."""

import msgspec

from httpd.bodies import decode
from httpd.errors import BadInput
from httpd.instant import Question, Reply
from registry.access import may_report
from registry.api import SCRAPER, STATUSES, source_of
from registry.consumers import Consumers
from registry.heartbeat import Heartbeat, normalise_hostname, surely_unique
from registry.nodes import Nodes
from registry.representation import tag
from registry.scrape_index import ScrapeIndex

REFUSALS: tuple[type[Exception], ...] = (BadInput, *STATUSES)


class InstantAnswers:
    """Heartbeats, and targets that did not change since they were last given.

    All else, and every error, is for the ordinary handlers of the same routes.
    """

    def __init__(self, *, nodes: Nodes, index: ScrapeIndex, consumers: Consumers) -> None:
        self._nodes = nodes
        self._index = index
        self._consumers = consumers
        self._heartbeats = msgspec.json.Decoder(Heartbeat)

    def heartbeat(self, question: Question) -> Reply | None:
        """Take a heartbeat."""
        caller, address, name, _, body = question
        if self._nodes.trouble is not None:
            return None
        try:
            hostname = normalise_hostname(name)
            if not may_report(caller, hostname):
                return None
            source = source_of(caller, address)
            refreshed = self._nodes.refresh(hostname, body, source)
            if refreshed is not None:
                return Reply(refreshed)
            heartbeat = decode(body, self._heartbeats, unique=surely_unique)
            operator = "write" in caller.allow
            taken = self._nodes.take(hostname, heartbeat, body, source, operator=operator)
        except REFUSALS:
            return None
        return Reply(taken.answer, after=taken.durable)

    def targets(self, question: Question) -> Reply | None:
        """Give a service's targets."""
        caller, _, service, headers, _ = question
        if self._nodes.trouble is not None or "read" not in caller.allow:
            return None
        self._nodes.readable()
        found = self._index.at_once(service, "flat" if SCRAPER in headers else "nested")
        if found is None:
            return None
        self._consumers.fetched(caller.name, headers.get("User-Agent", ""))
        lines = f"ETag: {tag(found.digest)}\r\nVary: {SCRAPER}, Accept-Encoding\r\n"
        return Reply(found.body(), lines.encode())
