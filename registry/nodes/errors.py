"""Why a question or a heartbeat is turned down."""

from registry.message import Heartbeat
from registry.nodes.directory import Entry

AGENT_ID = "agent.id"


class NodeNotFound(Exception):
    """No such host is known."""


class HostnameMismatch(Exception):
    """The body speaks of another host than the path."""


class CloneRefused(Exception):
    """Another machine, alive, goes by this hostname."""


class NotLoaded(Exception):
    """The nodes are still being read from the store."""

    retry_after_seconds = 1


def check_clone(known: Entry, heartbeat: Heartbeat, *, seconds: float, operator: bool) -> None:
    """See to it that a fresh host, heard of so many seconds ago, stays the machine that it is.

    Only an operator may leave the identity out: without it, the next machine would be let in.
    Raises CloneRefused.
    """
    claimed, held = heartbeat.kv.get(AGENT_ID), known.agent_id()
    if held is None or claimed == held or (claimed is None and operator):
        return
    this = "none" if claimed is None else ascii(claimed)
    raise CloneRefused(
        f"{known.hostname} is the host with {AGENT_ID} {held!a}, heard of {seconds:.0f} s ago from"
        f" {known.address}; this one has {this}. Give one of them another hostname; if the"
        " first is gone, wait until it is stale or delete it"
    )
