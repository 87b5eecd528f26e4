"""How an agent finds out on one engine whether another one lives, and takes over what it left.

All that agents on one engine surely share is the engine's API. They may be in different mount, pid
and network namespaces, or in containers to which only the socket was given, and their users cannot
write beside it. So what would be a lock file is a labelled volume:

- An agent that takes over an identity removes the claims on it, which may be of adoptions that were
  interrupted, and makes a volume with the label `rollcall.claim=IDENTITY`.
- A living agent looks for claims every few seconds, and removes those on its own identities.
- Of several who want the same identity, the last one has the claim; of those who claim it in the
  same moment, the one whose volume's name comes first, unless another has adopted it since.
- A claim that stands for long enough is granted: a volume with `rollcall.adopted=IDENTITY` takes
  its place, and stays. An agent that comes back finds there that its apps are another's.

No two volumes ever have the same name, so nobody removes one that was made since it looked.
So an agent that lives writes nothing, nothing depends on clocks, and a crash leaves no lock behind.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from agent.apps.labels import AGENT_LABEL
from agent.engine.engine import Engine

CLAIM_LABEL = "rollcall.claim"
ADOPTED_LABEL = "rollcall.adopted"
# Stands for the agent of a claim or a mark that names none; no agent makes one.
UNNAMED = "(unnamed)"
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
        agent = _agent(labels)
        if labels[CLAIM_LABEL] in own and agent not in names:
            await engine.remove_volume(name)
            claimants.append(agent)
    return claimants


def adopted_by_others(volumes: VolumeLabels, *, names: frozenset[str]) -> dict[str, str]:
    """Return the identities that other agents have adopted, with the agent that did.

    ``names`` are those that this agent itself has or had.
    """
    return {
        labels[ADOPTED_LABEL]: _agent(labels)
        for labels in volumes.values()
        if ADOPTED_LABEL in labels and _agent(labels) not in names
    }


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of ``agent`` on an identity, for which there were these ``marks`` before."""

    identity: str
    agent: str
    volume: str
    marks: frozenset[str]


async def make_claim(engine: Engine, identity: str, *, agent: str) -> Claim:
    """Claim an identity for ``agent``. Raises EngineError."""
    for former in await _volumes(engine, CLAIM_LABEL, identity):
        await engine.remove_volume(former)
    marks = frozenset(await _volumes(engine, ADOPTED_LABEL, identity))
    volume = await _make(engine, CLAIM_LABEL, identity, agent)
    return Claim(identity=identity, agent=agent, volume=volume, marks=marks)


async def claimant(engine: Engine, claim: Claim) -> str | None:
    """Return who has the claim, or has adopted the identity since; None if it was withdrawn.

    Raises EngineError.
    """
    # In this order: whoever's claim is granted has a mark before the claim goes.
    claims = await _volumes(engine, CLAIM_LABEL, claim.identity)
    marks = await _volumes(engine, ADOPTED_LABEL, claim.identity)
    heirs = {_agent(marks[name]) for name in marks.keys() - claim.marks} - {claim.agent}
    if heirs:
        return min(heirs)
    return _agent(claims[min(claims)]) if claims else None


async def grant_claim(engine: Engine, claim: Claim) -> str | None:
    """Put the lasting mark in the place of a claim, if the agent still has it.

    Return who has it, None if the claim was withdrawn. Raises EngineError.
    """
    holder = await claimant(engine, claim)
    if holder == claim.agent:
        for former in claim.marks:
            await engine.remove_volume(former)
        mark = await _make(engine, ADOPTED_LABEL, claim.identity, claim.agent)
        holder = await claimant(engine, claim)
        if holder != claim.agent:
            await engine.remove_volume(mark)
    await engine.remove_volume(claim.volume)
    return holder


async def _volumes(engine: Engine, label: str, identity: str) -> VolumeLabels:
    return await engine.volumes(label=f"{label}={identity}")


async def _make(engine: Engine, label: str, identity: str, agent: str) -> str:
    # An identity is a UUID or a hexadecimal number: what else a label holds is no name of a volume.
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in identity)
    name = f"{label.replace('.', '-')}-{plain}-{secrets.token_hex(8)}"
    await engine.create_volume(name, {label: identity, AGENT_LABEL: agent})
    return name


def _agent(labels: Mapping[str, str]) -> str:
    return labels.get(AGENT_LABEL) or UNNAMED
