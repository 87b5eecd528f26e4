"""What the registry answers in the moment that it is asked: the two requests that never end."""

from httpd.instant import Question, Reply
from registry.access import may_report
from registry.api import SCRAPER, source_of
from registry.consumers import Consumers
from registry.nodes import Nodes
from registry.representation import tag
from registry.scrape_index import ScrapeIndex


class InstantAnswers:
    """Heartbeats that change nothing, and targets that did not change since they were last given.

    All else, and every error, is for the ordinary handlers of the same routes.
    """

    def __init__(self, *, nodes: Nodes, index: ScrapeIndex, consumers: Consumers) -> None:
        self._nodes = nodes
        self._index = index
        self._consumers = consumers

    def heartbeat(self, question: Question) -> Reply | None:
        """Take a heartbeat that is, byte for byte, the last one of a known host."""
        caller, address, hostname, _, body = question
        if self._nodes.trouble is not None or not may_report(caller, hostname):
            return None
        answer = self._nodes.refresh(hostname, body, source_of(caller, address))
        return Reply(answer) if answer is not None else None

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
