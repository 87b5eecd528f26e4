"""The parts of a registry behind its routes, each made from the context."""

from collections.abc import Collection

from httpd.sse import Wakeups
from registry.callbacks.callbacks import Callbacks
from registry.nodes.change_log import FOLLOWED_KINDS, ChangeLog
from registry.nodes.changes import AUDITED_KINDS, AuditLog
from registry.nodes.context import RegistryContext
from registry.nodes.heartbeat_counts import HeartbeatSampler, RejectedHeartbeats
from registry.nodes.listing import NodeQueries
from registry.nodes.nodes import Nodes
from registry.nodes.warm_up import WarmUp
from registry.prometheus.index import INDEXED_KINDS, TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.targets import TargetOptions
from registry.responses.slices import TimeSlices
from registry.roll_call import ExpectedFile, RollCalls
from registry.store.reachability import ReachabilityLog


class Registry:
    """The rules on a store that is not loaded yet, and the subscribers of changes."""

    def __init__(self, context: RegistryContext, target_options: TargetOptions) -> None:
        self.context = context
        self.slices = TimeSlices()
        self.nodes = nodes = Nodes(context, self.slices)
        self.warm_up = WarmUp(context)
        self.queries = NodeQueries(context, nodes, self.slices)
        self.index = TargetIndex(context.directory, target_options, self.slices)
        self.scrapers = Scrapers(context.clocks)
        self.change_log = ChangeLog(context.settings.change_log_bytes, nodes.store_position)
        self.wakeups = Wakeups()
        self.rejected = RejectedHeartbeats(context)
        self.heartbeats = HeartbeatSampler(context, nodes)
        self.expected_file = ExpectedFile(context, nodes, self.slices)
        self.roll_calls = RollCalls(context, nodes, self.expected_file, self.warm_up, self.rejected)
        self.audit = AuditLog(context.log)
        self.reachability = ReachabilityLog(
            lambda: nodes.health, context.log, lambda: nodes.unavailable_reason
        )
        self.callbacks = Callbacks(context, self.change_log, self.is_complete)
        for subscriber, kinds in (
            (self.change_log.record, FOLLOWED_KINDS),
            (lambda _change: self.wakeups.notify(), FOLLOWED_KINDS),
            (self.index.on_change, INDEXED_KINDS),
            (self.audit.record, AUDITED_KINDS),
        ):
            context.changes.subscribe(subscriber, kinds)

    async def load(self) -> None:
        """Read the store; from then on nodes are served. Raises StoreOpenError."""
        await self.expected_file.start()
        continues = await self.nodes.load()
        self.change_log.follow(self.nodes.denied.digest)
        self.warm_up.begin(continues=continues)  # before any request sees the nodes
        await self.call_roll()

    async def call_roll(self) -> None:
        """Call the roll, for metrics and the status."""
        await self.roll_calls.refresh(self.slices)

    async def deny(self, patterns: Collection[str]) -> None:
        """Deny these hosts from now on, and no others.

        Watchers that have not been sent all changes begin anew: some may be of these hosts.
        """
        if self.nodes.denied.would_change(patterns):
            self.change_log.forget()
            await self.nodes.deny(patterns)
            self.change_log.follow(self.nodes.denied.digest)

    def is_complete(self) -> bool:
        """Return whether all nodes can be read: a reader must not get a part of them."""
        return self.nodes.writes.is_readable and self.warm_up.reason is None
