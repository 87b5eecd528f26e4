"""Heartbeats, as the lane before aiohttp answers them."""

from functools import partial
from hashlib import sha256

import msgspec

from clients.message import (
    MAX_BODY_BYTES,
    Heartbeat,
    HostnameInvalid,
    has_unique_keys,
    normalise_hostname,
)
from httpd.auth import Caller
from httpd.bodies import decode
from httpd.errors import BadInput
from httpd.server.lane import Endpoint, LaneResponse, Peer, Respond
from registry.api.access import may_report, source_of
from registry.errors import STATUS_BY_ERROR
from registry.nodes.heartbeats import Report
from registry.nodes.limits import MAX_BYTES_AT_ONCE
from registry.nodes.nodes import Nodes

# Every error with a status: the handler meets it again, and answers.
LEFT_TO_HANDLER: tuple[type[Exception], ...] = (BadInput, *STATUS_BY_ERROR)


def heartbeat_endpoint(nodes: Nodes) -> Endpoint:
    """Return the endpoint of heartbeats; the handler behind it answers what it does not take."""
    return Endpoint("/nodes/{hostname}", MAX_BODY_BYTES, _Heartbeats(nodes).accept)


class _Heartbeats:
    """Takes heartbeats for the lane."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._decoder = msgspec.json.Decoder(Heartbeat)

    def accept(self, name: str, caller: Caller) -> Respond | None:
        """Return what takes this host's heartbeats; None where the key may not report it."""
        known = self._nodes.directory.entries.get(name)
        if known is not None:
            hostname = known.hostname
        else:
            try:
                hostname = normalise_hostname(name)
            except HostnameInvalid:
                return None
        denied = self._nodes.denied
        if (denied.patterns and hostname in denied) or not may_report(caller, hostname):
            return None
        return partial(self._report, hostname, caller)

    def _report(
        self, hostname: str, caller: Caller, peer: Peer, body: bytes
    ) -> LaneResponse | None:
        """Take a heartbeat, or return None before anything has changed."""
        nodes = self._nodes
        # The answer to a large body is large as well, and the handler sends it in pieces.
        if len(body) > MAX_BYTES_AT_ONCE or nodes.writes.unavailable_error is not None:
            return None
        if peer.names is not None and hostname not in peer.names:
            return None
        source, operator = source_of(caller, peer.address), "write" in caller.allow
        report = Report(hostname, sha256(body).digest(), source, operator)
        unchanged = nodes.heartbeats.accept_unchanged(report)
        if unchanged is not None:
            return LaneResponse(unchanged)
        if not nodes.writes.is_current:
            return None
        try:
            heartbeat = decode(body, self._decoder, has_unique_keys=has_unique_keys)
            result = nodes.heartbeats.accept(report, heartbeat)
        except LEFT_TO_HANDLER:  # the handler may repeat it: at most, the host counts as heard
            return None
        return LaneResponse(result.response, result.durable)
