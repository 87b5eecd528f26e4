"""What a command works with: the context, the clients, the output."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from agent.client.client import AgentClient
from agent.client.errors import AgentRefused
from cli.connections.contexts import Context, ContextFile
from cli.connections.keys import (
    agent_key_source,
    derived_agent_key,
    read_agent_key,
    read_key,
)
from cli.connections.names import node_not_known
from cli.connections.trust import agent_address, checked_registry
from cli.connections.wording import in_commands
from cli.errors import NotReached, WrongUsage
from cli.output.output import Output
from cli.output.program import of_context, program, typed
from registry.client.client import RegistryClient, Timeouts
from registry.client.errors import NotFound
from registry.client.tls import ClientTls
from registry.message import HostnameInvalid, Node, normalise_hostname

# A registry sends all of its nodes within this time, too.
REGISTRY_SECONDS = 60


class KeyRefused(AgentRefused):
    """An agent does not know the key; ``hint`` is what helps."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(HTTPStatus.UNAUTHORIZED, f"{reason}; set it: {hint}")
        self.reason, self.hint = reason, hint


class Session:
    """The settings of one run of the command. The key is read once, when it is first needed.

    ``wanted`` is the context that was given, None if none was.
    """

    def __init__(
        self,
        *,
        file: ContextFile,
        context: str | None,
        environment: Mapping[str, str],
        output: Output,
        timeout_seconds: float,
    ) -> None:
        self.file = file
        self.output = output
        self.environment = environment
        self.timeout_seconds = timeout_seconds
        self.wanted = context
        self._key_read: tuple[Context, str] | None = None

    @property
    def context_name(self) -> str:
        """Return the name of the context in use; WrongUsage if there is none."""
        return self.file.chosen(self.wanted)[0]

    @property
    def rollcall(self) -> str:
        """Return how a further command begins: with the context, if this one was given it."""
        return program(self.wanted)

    def in_context(self, text: str) -> str:
        """Return a text whose commands begin with the context, if this one was given it."""
        return of_context(text, self.wanted)

    @property
    def context(self) -> Context:
        """Return the context in use; WrongUsage if there is none."""
        return self.file.chosen(self.wanted)[1]

    @asynccontextmanager
    async def registry(self, context: Context | None = None) -> AsyncIterator[RegistryClient]:
        """Yield a client of the registry; WrongUsage if the key must not be sent there."""
        used = context or self.context
        checked_registry(used.registry, used)
        key = self._key(used)
        async with RegistryClient(
            url=used.registry,
            key=lambda: key,
            client_tls=client_tls(used),
            timeouts=Timeouts(
                whole=max(REGISTRY_SECONDS, self.timeout_seconds), head=self.timeout_seconds
            ),
            user_agent="rollcall",
        ) as client:
            yield client

    @asynccontextmanager
    async def agent(self, node: Node) -> AsyncIterator[AgentClient]:
        """Yield a client of a node's agent. What it rejects is reported in commands of ours.

        Raises:
            NotReached: the key must not be sent there, or the host's own file has none.
            WrongUsage: the context has no key for agents, or its secret cannot be read.

        """
        context = self.context
        address = agent_address(node, context)
        key = self._agent_key(context, node.hostname)
        async with AgentClient(
            url=address.url,
            server_hostname=address.server_hostname,
            key=lambda: key,
            client_tls=client_tls(context),
            timeout_seconds=self.timeout_seconds,
        ) as client:
            try:
                yield client
            except AgentRefused as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    source = agent_key_source(context, node.hostname, self.environment)
                    hint = self._agent_key_step(context, node.hostname)
                    raise KeyRefused(f"the agent does not know the key {source}", hint) from error
                message = in_commands(str(error), node.hostname, rollcall=self.rollcall)
                raise AgentRefused(error.status, message) from error

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


def client_tls(context: Context) -> ClientTls:
    """Return whom a context trusts, and the operator's own certificate."""
    return ClientTls(
        ca=_path(context.ca),
        certificate=_path(context.certificate),
        key=_path(context.certificate_key),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
