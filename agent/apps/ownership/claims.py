"""How an agent finds out on one engine whether another one lives, and takes over what it left.

All that agents on one engine surely share is the engine's API. They may be in different mount, pid
and network namespaces, or in containers to which only the socket was given, and their users cannot
write beside it. So what would be a lock file is a labelled volume:

- Who wants to take over an identity makes a volume with the label `rollcall.claim=IDENTITY`.
- A living agent looks for claims every few seconds, and removes those on its own identities.
- Of several who want the same identity, the last one has the claim: the engine makes one volume of
  a name, which says whose it is.
- A claim that stands for long enough is granted: a volume with `rollcall.adopted=IDENTITY` takes
  its place, and stays. An agent that comes back finds there that its apps are another's.

So an agent that lives writes nothing, nothing depends on clocks, and a crash leaves no lock behind.
"""

from collections.abc import Mapping
from typing import TypeAlias

from agent.apps.ownership.labels import AGENT_LABEL
from agent.engine.protocol import Engine

CLAIM_LABEL = "rollcall.claim"
ADOPTED_LABEL = "rollcall.adopted"
LOOK_SECONDS = 3.0
# An agent may take this long to answer while it recovers or its engine is busy.
CLAIM_SECONDS = 15.0
VolumeLabels: TypeAlias = Mapping[str, Mapping[str, str]]


async def withdraw_claims(
    engine: Engine, own: frozenset[str], *, names: frozenset[str]
) -> list[str]:
    """Remove the claims that others make on the identities that are ours; return who made them.

    ``names`` are those that this agent itself has or had. Raises EngineError.
    """
    found = await engine.volumes(label=CLAIM_LABEL)
    claimants = list[str]()
    for name, labels in found.items():
        claimant = labels.get(AGENT_LABEL, "")
        if labels[CLAIM_LABEL] in own and claimant not in names:
            await engine.remove_volume(name)
            claimants.append(claimant)
    return claimants


def adopted_by_others(volumes: VolumeLabels, *, names: frozenset[str]) -> dict[str, str]:
    """Return the identities that other agents have adopted, with the agent that did.

    ``names`` are those that this agent itself has or had.
    """
    return {
        labels[ADOPTED_LABEL]: labels.get(AGENT_LABEL, "")
        for labels in volumes.values()
        if ADOPTED_LABEL in labels and labels.get(AGENT_LABEL) not in names
    }


async def make_claim(engine: Engine, identity: str, *, agent: str) -> str:
    """Claim an identity for ``agent``; return the name of the volume. Raises EngineError."""
    name = _name("claim", identity)
    # A claim that broke off may have left the volume, which would stay as it is.
    await engine.remove_volume(name)
    await engine.create_volume(name, {CLAIM_LABEL: identity, AGENT_LABEL: agent})
    return name


async def claimant(engine: Engine, claim: str) -> str | None:
    """Return whose a claim or a mark is, None if there is none. Raises EngineError."""
    labels = await engine.volume_labels(claim)
    return None if labels is None else labels.get(AGENT_LABEL, "")


async def grant_claim(engine: Engine, claim: str, identity: str, *, agent: str) -> str | None:
    """Put the lasting mark in the place of a claim, if that is still the agent's.

    Return who has the claim, None if it was withdrawn. Raises EngineError.
    """
    mark = _name("adopted", identity)
    await engine.remove_volume(mark)
    await engine.create_volume(mark, {ADOPTED_LABEL: identity, AGENT_LABEL: agent})
    holder = await claimant(engine, claim)
    if holder == agent:
        await engine.remove_volume(claim)
    elif await claimant(engine, mark) == agent:  # not that of one who has adopted it meanwhile
        await engine.remove_volume(mark)
    return holder


def _name(kind: str, identity: str) -> str:
    # An identity is a UUID or a hexadecimal number: what else a label holds is no name of a volume.
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in identity)
    return f"rollcall-{kind}-{plain}"
