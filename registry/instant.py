"""Heartbeats that are answered at once, without aiohttp's request."""

import msgspec

from httpd.bodies import decode
from httpd.errors import BadInput
from httpd.instant import Question, Reply
from registry.api.access import may_report
from registry.api.nodes import source_of
from registry.errors import STATUS_BY_ERROR
from registry.message import Heartbeat, has_unique_keys, normalise_hostname
from registry.nodes.nodes import Nodes

REFUSALS: tuple[type[Exception], ...] = (BadInput, *STATUS_BY_ERROR)


class InstantAnswers:
    """Takes heartbeats. All else, and every error, is for the ordinary handler of the route."""

    def __init__(self, *, nodes: Nodes) -> None:
        self._nodes = nodes
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
