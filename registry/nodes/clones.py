"""Which hosts are rejected: those that are denied, and those with the hostname of another."""

import re
from collections.abc import Iterable
from fnmatch import translate
from hashlib import blake2b, sha256

from clients.message import Heartbeat
from registry.errors import CloneRejected
from registry.nodes.changes import Source
from registry.nodes.context import RegistryContext
from registry.nodes.directory import AGENT_ID, AGENT_INSTANCE, KnownNode, abbreviated

DIGEST_CHARACTERS = 16
# Enough to recognise each of several clones that restart in turn.
MAX_REPLACED = 8
DIGEST_BYTES = 8


class DeniedHosts:
    """Hostnames and patterns of hostnames that are denied; they can be replaced.

    ``digest`` is the same for each registry with the same list, and empty for an empty one.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.replace(patterns)

    def replace(self, patterns: Iterable[str]) -> None:
        """Deny these hosts instead."""
        self.patterns = _normalised(patterns)
        self.digest = _list_digest(self.patterns) if self.patterns else ""
        self._match = re.compile("|".join(map(translate, self.patterns))).match

    def would_change(self, patterns: Iterable[str]) -> bool:
        """Return whether these deny other hosts."""
        return _normalised(patterns) != self.patterns

    def __contains__(self, hostname: str) -> bool:
        """Return whether a hostname, which is normalised already, is denied."""
        return bool(self.patterns) and self._match(hostname) is not None


def _normalised(patterns: Iterable[str]) -> list[str]:
    return sorted({pattern.lower().removesuffix(".") for pattern in patterns})


def _list_digest(patterns: Iterable[str]) -> str:
    return sha256("\n".join(patterns).encode()).hexdigest()[:DIGEST_CHARACTERS]


class Clones:
    """Rejects hosts that use the hostname of another one that is fresh.

    Another host has another identity (kv `agent.id`). A machine that was cloned with its state has
    the same one, but an instance of the agent (kv `agent.instance`) of its own. Each instance
    replaces the one before, as a restart does. If one that was replaced posts again, both run.
    """

    def __init__(self, context: RegistryContext) -> None:
        self._stale_after = context.settings.freshness.stale_after
        self._monotonic = context.clocks.monotonic
        # Digests of the instances that were replaced since the registry's start, by hostname.
        self._replaced: dict[str, tuple[bytes, ...]] = {}

    def check(
        self, known: KnownNode, heartbeat: Heartbeat, source: Source, *, operator: bool
    ) -> None:
        """Raise CloneRejected if the hostname belongs to another host that is not stale.

        A heartbeat without an identity is rejected as well, except an operator's: otherwise the
        identity would be lost, and the next host would be accepted. So is one of an instance that
        another one has replaced.
        """
        seconds = self._monotonic() - known.heard
        if seconds >= self._stale_after:
            return
        claimed, held = heartbeat.kv.get(AGENT_ID), known.text(AGENT_ID)
        if held is not None and claimed != held and not (claimed is None and operator):
            this = "none" if claimed is None else abbreviated(claimed)
            raise CloneRejected(
                f"{known.hostname} is the host with {AGENT_ID} {abbreviated(held)}, last seen"
                f" {seconds:.0f} s ago from {known.address}; this one has {this}. Give one of them"
                " another hostname; if the first is gone, wait until it is stale or delete it"
            )
        instance = heartbeat.kv.get(AGENT_INSTANCE)
        if instance is not None and self._was_replaced(known.hostname, instance):
            raise CloneRejected(
                f"{known.hostname} runs twice with the same {AGENT_ID} {abbreviated(held)}: another"
                f" instance of its agent replaced this one, which posts from {source.address}, and"
                f" was last seen {seconds:.0f} s ago from {known.address}. One machine is a copy of"
                " the other: give it another hostname and another /etc/machine-id"
            )

    def note_change(self, before: KnownNode | None, after: KnownNode) -> None:
        """Remember which instance was replaced, if the change of a node is by a new one."""
        old = before.text(AGENT_INSTANCE) if before is not None else None
        if old is None:
            return
        new = after.text(AGENT_INSTANCE)
        if new is None or old == new:
            return
        hostname, gone = after.hostname, {_digest(old), _digest(new)}
        others = [digest for digest in self._replaced.get(hostname, ()) if digest not in gone]
        self._replaced[hostname] = (*others, _digest(old))[-MAX_REPLACED:]

    def forget(self, hostname: str) -> None:
        """Forget all instances of a host that is no longer known."""
        self._replaced.pop(hostname, None)

    def _was_replaced(self, hostname: str, instance: str) -> bool:
        replaced = self._replaced.get(hostname)
        return replaced is not None and _digest(instance) in replaced


def _digest(instance: str) -> bytes:
    return blake2b(instance.encode(), digest_size=DIGEST_BYTES).digest()
