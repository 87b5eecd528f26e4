"""Names from the registry, for the completion of shells."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from io import StringIO

import click

from cli.errors import CommandError
from cli.output.output import Format, GlobalOptions, ProcessIO
from cli.output.text import is_harmless
from cli.reach.contexts import VARIABLE, ContextFile, context_path, key_printed_by, state_folder
from cli.reach.session import Session, import_aiohttp
from cli.reach.trust import AGENT_URL
from cli.rollout.rollout import kept_apps
from clients.errors import AgentError, RegistryError
from clients.models import AddressedNode

SECONDS = 2
# An agent reports a label for each app that it has.
APP_LABEL = "app:"
MAX_SUGGESTIONS = 1000


def suggestions(what: str, ctx: click.Context, incomplete: str) -> list[str]:
    """Return the names that begin so; none where they cannot be asked for, and no error."""
    try:
        context = ctx.find_root().params.get("context")
        if what in KEPT:
            found = KEPT[what](ContextFile(context_path(os.environ)), context)
        else:
            found = asyncio.run(_asked(what, _session(context), incomplete))
    except (CommandError, RegistryError, AgentError, TimeoutError):
        return []
    return [text for text in found if text.startswith(incomplete)]


async def _asked(what: str, session: Session, incomplete: str) -> Iterable[str]:
    async with asyncio.timeout(SECONDS):
        found = await ASKED[what](session, incomplete)
    # A hostname such as `--yes` would be an option.
    harmless = {
        text
        for text in found
        if text.startswith(incomplete) and is_harmless(text) and not text.startswith("-")
    }
    return sorted(harmless)[:MAX_SUGGESTIONS]


def _session(name: str | None) -> Session:
    """Return a session whose key command, if it has one, neither asks nor takes long."""
    environment = dict(os.environ)
    command = ContextFile(context_path(environment)).chosen(name)[1].key_command
    if command is not None and not environment.get(VARIABLE):
        environment[VARIABLE] = key_printed_by(command, seconds=SECONDS, may_ask=False)
    import_aiohttp()  # the time limit is that of an answer
    # Notes would stand amid what is typed.
    process = ProcessIO(environment, sys.stdout, StringIO())
    return Session(GlobalOptions(process, name, Format.TABLE, SECONDS))


async def _hosts(session: Session, _incomplete: str) -> Iterable[str]:
    return [node.hostname for node in await _nodes(session)]


async def _nodes(session: Session, prefix: str = "") -> list[AddressedNode]:
    return await session.ask(lambda registry: registry.nodes(prefixes=[prefix] if prefix else ()))


async def _labels(session: Session, incomplete: str) -> Iterable[str]:
    return [label for node in await _nodes(session, incomplete) for label in node.labels]


async def _kv(session: Session, incomplete: str) -> Iterable[str]:
    """Return each `KEY:VALUE`, or the keys alone before there is a colon."""
    kv = [pair for node in await _nodes(session) for pair in node.kv.items()]
    return [f"{key}:{value}" if ":" in incomplete else f"{key}:" for key, value in kv]


async def _app_names(session: Session, incomplete: str) -> Iterable[str]:
    """Return the apps on any host, as the hosts report them."""
    labels = await _labels(session, APP_LABEL + incomplete)
    return [label.removeprefix(APP_LABEL) for label in labels if label.startswith(APP_LABEL)]


async def _services(session: Session, _incomplete: str) -> Iterable[str]:
    return [each.service for each in await session.ask(lambda registry: registry.services())]


async def _apps(session: Session, incomplete: str) -> Iterable[str]:
    """Return each `HOST/`, or the `HOST/NAME` of a host."""
    host, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{each.hostname}/" for each in await _nodes(session) if AGENT_URL in each.kv]
    async with session.agent(await session.node(host)) as agent:
        return [f"{host}/{app['name']}" for app in await agent.apps()]


ASKED: dict[str, Callable[[Session, str], Awaitable[Iterable[str]]]] = {
    "hosts": _hosts,
    "labels": _labels,
    "kv": _kv,
    "app_names": _app_names,
    "services": _services,
    "apps": _apps,
}
# What this machine keeps, by the file of contexts and the context that was given.
KEPT: dict[str, Callable[[ContextFile, str | None], Iterable[str]]] = {
    "contexts": lambda file, _: file.load().contexts,
    "rollouts": lambda file, name: kept_apps(
        state_folder("rollouts", os.environ, *file.chosen(name))
    ),
}
