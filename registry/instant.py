"""What the registry answers in the moment that it is asked: the two requests that never end."""

import msgspec

from httpd.bodies import decode
from httpd.errors import BadInput
from httpd.instant import Question, Reply
from registry.api.access import may_report
from registry.api.nodes import SCRAPER, source_of
from registry.api.representation import entity_tag
from registry.errors import STATUS_BY_ERROR
from registry.message import Heartbeat, has_unique_keys, normalise_hostname
from registry.nodes.nodes import Nodes
from registry.prometheus.index import TargetIndex
from registry.prometheus.scrapers import Scrapers

REFUSALS: tuple[type[Exception], ...] = (BadInput, *STATUS_BY_ERROR)


class InstantAnswers:
    """Heartbeats, and targets that did not change since they were last given.

    All else, and every error, is for the ordinary handlers of the same routes.
    """

    def __init__(self, *, nodes: Nodes, index: TargetIndex, scrapers: Scrapers) -> None:
        self._nodes = nodes
        self._index = index
        self._scrapers = scrapers
        self._heartbeats = msgspec.json.Decoder(Heartbeat)

    def heartbeat(self, question: Question) -> Reply | None:
        """Take a heartbeat."""
        caller, address, name, _, body = question
        if self._nodes.unavailable_reason is not None:
            return None
        try:
            hostname = normalise_hostname(name)
            if not may_report(caller, hostname):
                return None
            source = source_of(caller, address)
            refreshed = self._nodes.accept_unchanged(hostname, body, source)
            if refreshed is not None:
                return Reply(refreshed)
            heartbeat = decode(body, self._heartbeats, has_unique_keys=has_unique_keys)
            operator = "write" in caller.allow
            taken = self._nodes.accept(hostname, heartbeat, body, source, operator=operator)
        except REFUSALS:
            return None
        return Reply(taken.response, after=taken.durable)

    def targets(self, question: Question) -> Reply | None:
        """Give a service's targets."""
        caller, _, service, headers, _ = question
        if self._nodes.unavailable_reason is not None or "read" not in caller.allow:
            return None
        self._nodes.require_readable()
        found = self._index.at_once(service, "flat" if SCRAPER in headers else "nested")
        if found is None:
            return None
        self._scrapers.record_fetch(caller.name, headers.get("User-Agent", ""))
        lines = f"ETag: {entity_tag(found.digest)}\r\nVary: {SCRAPER}, Accept-Encoding\r\n"
        return Reply(found.body(), lines.encode())
