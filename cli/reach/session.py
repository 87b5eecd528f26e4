"""What a command works with: the context, the clients, the output."""

import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.errors import NotReached, WrongUsage
from cli.output.output import GlobalOptions, Output
from cli.output.text import of_context, program, typed
from cli.reach.contexts import (
    Context,
    ContextFile,
    agent_key_source,
    context_path,
    derived_agent_key,
    read_agent_key,
    read_key,
    state_folder,
)
from cli.reach.names import node_not_known
from cli.reach.trust import agent_address, checked_registry
from clients.errors import AgentRejected, NotFound
from clients.message import HostnameInvalid, Node, normalise_hostname
from clients.models import Gaps
from clients.tls import ClientTls

if TYPE_CHECKING:
    from clients.agent import AgentClient
    from clients.registry import RegistryClient

# Where OpenSSL looks for the CAs of the system.
CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
# A registry sends all of its nodes within this time, too.
REGISTRY_SECONDS = 60
READ = re.compile(
    r"GET /v1/apps(?:/(?P<name>[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?)(?:/(?P<what>[a-z]+))?)?"
    r"(?![\w/{])",
    re.ASCII,
)
COMMANDS = {
    None: "show",
    "data": "backup",
    "events": "events",
    "history": "history",
    "logs": "logs",
    "processes": "ps",
    "stats": "stats",
}


T = TypeVar("T")


class KeyRejected(AgentRejected):
    """An agent does not know the key; ``hint`` is what helps."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(HTTPStatus.UNAUTHORIZED, f"{reason}; set it: {hint}")
        self.reason, self.hint = reason, hint


class Session:
    """The settings of one run of the command. The key is read once, when it is first needed.

    ``wanted`` is the context that was given, None if none was. ``gaps`` is what answers of the
    registry lack.
    """

    def __init__(self, options: GlobalOptions) -> None:
        self.environment = options.process.environment
        self.file = ContextFile(context_path(self.environment))
        self.output = Output(options.form, options.process)
        self.timeout_seconds = options.timeout_seconds
        self.wanted = options.context
        self.gaps = Gaps()
        self._key_read: tuple[Context, str] | None = None

    @property
    def chosen(self) -> tuple[str, Context]:
        """Return the name of the context in use, and the context; WrongUsage if there is none."""
        return self.file.chosen(self.wanted)

    @property
    def rollcall(self) -> str:
        """Return how a further command begins: with the context, if this one was given it."""
        return program(self.wanted)

    def folder(self, kind: str) -> Path:
        """Return the folder of what is kept of the context; WrongUsage if there is none."""
        return state_folder(kind, self.environment, *self.chosen)

    def in_context(self, text: str) -> str:
        """Return a text whose commands begin with the context, if this one was given it."""
        return of_context(text, self.wanted)

    @property
    def context(self) -> Context:
        """Return the context in use; WrongUsage if there is none."""
        return self.chosen[1]

    @asynccontextmanager
    async def registry(self, context: Context | None = None) -> AsyncIterator["RegistryClient"]:
        """Yield a client of the registry; WrongUsage if the key must not be sent there."""
        used = context or self.context
        checked_registry(used.registry, used)
        key = self._key(used)
        import_aiohttp()
        from clients.registry import RegistryClient, Timeouts

        async with RegistryClient(
            url=used.registry,
            key=lambda: key,
            client_tls=client_tls(used),
            timeouts=Timeouts(
                whole=max(REGISTRY_SECONDS, self.timeout_seconds), head=self.timeout_seconds
            ),
            user_agent="rollcall",
        ) as client:
            client.on_gaps = self._tell_gaps
            yield client

    async def ask(self, ask: Callable[["RegistryClient"], Awaitable[T]]) -> T:
        """Return what the registry answers to one question, or to several."""
        async with self.registry() as registry:
            return await ask(registry)

    def _tell_gaps(self, gaps: Gaps) -> None:
        """Tell people once what answers of the registry lack."""
        reported = self.gaps
        self.gaps = Gaps(
            max(reported.warming, gaps.warming), max(reported.store_age, gaps.store_age)
        )
        if gaps.warming and not reported.warming:
            self.output.note(
                f"the registry warms up for {gaps.warming} s more: hosts that have not reported to"
                " it yet are missing"
            )
        if gaps.store_age and not reported.store_age:
            self.output.note(
                f"the registry has not reached its store for {gaps.store_age} s: what happened"
                " since is missing, and no host becomes stale"
            )

    @asynccontextmanager
    async def agent(self, node: Node) -> AsyncIterator["AgentClient"]:
        """Yield a client of a node's agent. What it rejects is reported in commands of ours.

        Raises:
            NotReached: the key must not be sent there, or the host's own file has none.
            WrongUsage: the context has no key for agents, or its secret cannot be read.

        """
        context = self.context
        address = agent_address(node, context)
        key = self._agent_key(context, node.hostname)
        import_aiohttp()
        from clients.agent import AgentClient

        async with AgentClient(
            url=str(address),
            server_hostname=node.hostname,
            key=lambda: key,
            client_tls=client_tls(context),
            timeout_seconds=self.timeout_seconds,
        ) as client:
            try:
                yield client
            except AgentRejected as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    source = agent_key_source(context, node.hostname, self.environment)
                    hint = self._agent_key_step(context, node.hostname)
                    raise KeyRejected(f"the agent does not know the key {source}", hint) from error
                message = in_commands(str(error), node.hostname, rollcall=self.rollcall)
                raise AgentRejected(error.status, message) from error

    async def node(self, hostname: str) -> Node:
        """Return a node; NotKnown if the registry does not know it."""
        async with self.registry() as registry:
            try:
                return await registry.node(normalise_hostname(hostname))
            except (NotFound, HostnameInvalid) as error:
                raise await node_not_known(registry, hostname) from error

    def _agent_key(self, context: Context, hostname: str) -> str:
        """Return the key of an agent; NotReached if the file of its host has none."""
        if context.agent_secret_file is not None:
            return derived_agent_key(context.agent_secret_file, hostname)
        if context.agent_key_file is None:
            return self._key(context)
        try:
            return read_agent_key(context.agent_key_file, hostname)
        except WrongUsage as error:
            raise NotReached(str(error), hint=error.hint) from error

    def _agent_key_step(self, context: Context, hostname: str) -> str:
        """Return what helps where an agent does not know its key."""
        if context.agent_secret_file is not None:
            command = typed(f"{self.rollcall} agent-key", hostname)
            return f"add the key that this prints to `keys` of the agent: {command}"
        option = "--agent-secret-file" if context.agent_key_file is None else "--agent-key-file"
        return f"{self.rollcall} context set {option} FILE"

    def _key(self, context: Context) -> str:
        if self._key_read is None or self._key_read[0] != context:
            self._key_read = (context, read_key(context, self.environment))
        return self._key_read[1]


def import_aiohttp() -> None:
    """Import aiohttp, which then reads the CAs of the system, for a context that we never use.

    Where it finds none, a command starts in two thirds of the time.
    """
    if "aiohttp" in sys.modules:
        return
    given = {name: os.environ.get(name) for name in CA_VARIABLES}
    os.environ.update(dict.fromkeys(CA_VARIABLES, os.devnull))
    try:
        import aiohttp  # noqa: F401 - the clients import it again
    finally:
        for name, value in given.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def client_tls(context: Context) -> ClientTls:
    """Return whom a context trusts, and the operator's own certificate."""
    return ClientTls(
        ca=_path(context.ca),
        certificate=_path(context.certificate),
        key=_path(context.certificate_key),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def in_commands(message: str, hostname: str, *, rollcall: str = "rollcall") -> str:
    """Return an agent's message with commands in place of requests; its further lines stay.

    Those may be lines of an app's log. Commands begin as ``rollcall`` says.
    """

    def command(found: re.Match[str]) -> str:
        if found["name"] is None:
            return f"`{typed(f'{rollcall} apps', hostname)}`"
        action = COMMANDS.get(found["what"])
        if action is None:
            return found[0]
        where = f"{hostname}/{found['name']}"
        return f"`{typed(f'{rollcall} app {action}', where)}`"

    first, *others = message.split("\n")
    return "\n".join([READ.sub(command, first), *others])
