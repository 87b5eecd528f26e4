"""Names from the registry, for the completion of shells."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

import click

from agent.client.errors import AgentError
from cli.connections.contexts import ContextFile, context_path
from cli.connections.keys import VARIABLE, key_printed_by
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL
from cli.errors import CommandError
from cli.output.form import Format
from cli.output.output import Output, consoles
from cli.output.text import is_harmless
from cli.rollout.state_file import kept_apps, state_folder
from registry.client.errors import RegistryError
from registry.message import Node

SECONDS = 2
# An agent reports a label for each app that it has.
APP_LABEL = "app:"
MAX_SUGGESTIONS = 1000


def complete_hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the hostnames that begin so; none where the registry cannot be asked."""
    return _asked(ctx, lambda session: _hosts(session, incomplete))


def complete_labels(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the labels of nodes that begin so; none where the registry cannot be asked."""
    return _asked(ctx, lambda session: _labels(session, incomplete))


def complete_kv(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the `KEY:VALUE` of nodes that begin so, and the keys alone before there is a colon."""
    return _asked(ctx, lambda session: _kv(session, incomplete))


def complete_app_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of apps on any host that begin so, as the hosts report them."""
    return _asked(ctx, lambda session: _app_names(session, incomplete))


def complete_services(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the services that begin so; none where the registry cannot be asked."""
    return _asked(ctx, lambda session: _services(session, incomplete))


def complete_contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of contexts that begin so."""
    try:
        names = ContextFile(context_path(os.environ)).load().contexts
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_rollouts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the apps that begin so and have an unfinished rollout, in the context in use."""
    file = ContextFile(context_path(os.environ))
    try:
        context, _ = file.chosen(ctx.find_root().params.get("context"))
    except CommandError:
        return []
    apps = kept_apps(state_folder(os.environ, context))
    return [app for app in apps if app.startswith(incomplete)]


def complete_apps(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return `HOST/` or `HOST/NAME` that begin so; none where they cannot be asked."""
    return _asked(ctx, lambda session: _apps(session, incomplete))


def _asked(ctx: click.Context, ask: Callable[[Session], Awaitable[list[str]]]) -> list[str]:
    """Return the suggestions; a shell that completes shows no errors."""

    async def bounded(session: Session) -> list[str]:
        async with asyncio.timeout(SECONDS):
            found = {text for text in await ask(session) if is_harmless(text)}
            return sorted(found)[:MAX_SUGGESTIONS]

    try:
        return asyncio.run(bounded(_session(ctx.find_root().params.get("context"))))
    except (CommandError, RegistryError, AgentError, TimeoutError):
        return []


def _session(name: str | None) -> Session:
    """Return a session whose key command, if it has one, neither asks nor takes long."""
    file = ContextFile(context_path(os.environ))
    environment = dict(os.environ)
    command = file.chosen(name)[1].key_command
    if command is not None and not environment.get(VARIABLE):
        environment[VARIABLE] = key_printed_by(command, seconds=SECONDS, may_ask=False)
    out, err = consoles(os.environ, sys.stdout, sys.stderr)
    return Session(
        file=file,
        context=name,
        environment=environment,
        output=Output(Format.TABLE, out=out, err=err),
        timeout_seconds=SECONDS,
    )


async def _nodes(session: Session) -> Sequence[Node]:
    async with session.registry() as registry:
        return await registry.nodes()


async def _hosts(session: Session, incomplete: str) -> list[str]:
    names = [node.hostname for node in await _nodes(session)]
    return [name for name in names if name.startswith(incomplete)]


async def _labels(session: Session, incomplete: str) -> list[str]:
    async with session.registry() as registry:
        nodes = await registry.nodes(prefixes=[incomplete] if incomplete else ())
    return [label for node in nodes for label in node.labels if label.startswith(incomplete)]


async def _kv(session: Session, incomplete: str) -> list[str]:
    kv = [pair for node in await _nodes(session) for pair in node.kv.items()]
    texts = [f"{key}:{value}" if ":" in incomplete else f"{key}:" for key, value in kv]
    return [text for text in texts if text.startswith(incomplete)]


async def _app_names(session: Session, incomplete: str) -> list[str]:
    labels = await _labels(session, APP_LABEL + incomplete)
    return [label.removeprefix(APP_LABEL) for label in labels]


async def _services(session: Session, incomplete: str) -> list[str]:
    async with session.registry() as registry:
        names = [each.service for each in await registry.services()]
    return [name for name in names if name.startswith(incomplete)]


async def _apps(session: Session, incomplete: str) -> list[str]:
    host, slash, _ = incomplete.partition("/")
    if not slash:
        having = [node.hostname for node in await _nodes(session) if AGENT_URL in node.kv]
        return [f"{name}/" for name in having if name.startswith(host)]
    async with session.agent(await session.node(host)) as agent:
        names = [f"{host}/{app['name']}" for app in await agent.apps()]
    return [name for name in names if name.startswith(incomplete)]
