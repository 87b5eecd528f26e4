"""The apps of this host: everything that can be asked of them."""

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

from structlog.typing import FilteringBoundLogger

from agent.apps.adoption import Adoption
from agent.apps.alteration import Alteration
from agent.apps.belongings import Belongings
from agent.apps.creation import Creation
from agent.apps.defaults import AppDefaults
from agent.apps.errors import AppError
from agent.apps.images import Images
from agent.apps.lifecycle import Lifecycle
from agent.apps.passwords import Passwords
from agent.apps.ports import Ports, can_listen, ephemeral_ports
from agent.apps.readings import Readings, Stats
from agent.apps.records import Record
from agent.apps.replacement import Replacement
from agent.apps.retries import Retries
from agent.apps.room import Room
from agent.apps.roster import Roster
from agent.apps.runner import Runner
from agent.apps.settling import Settling
from agent.apps.spec import AppChanges, NewApp
from agent.apps.telling import Telling
from agent.apps.turns import Asker, Turn, Turns
from agent.apps.watch import Watch
from agent.apps.workbench import Workbench
from agent.containers import Engine, EngineError, EngineUnavailable, Process
from agent.host import Hosting
from agent.journal import Change, Operation
from agent.store import Store

PATIENCE_SECONDS = 5.0
Work = Callable[[Turn], Awaitable[None]]


class Apps:
    """The apps of this host.

    Each change is written down before it is begun, goes on in a task of its own whatever becomes of
    the client, and is the only one of its app at a time. What broke off is finished or undone at
    the next start, or when the engine is back.

    ``on_change`` is called after each change of the apps, their labels or their states, those made
    behind the agent's back included, and when the engine goes or comes.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        defaults: AppDefaults,
        log: FilteringBoundLogger,
        on_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._engine = engine
        self._roster = Roster(store)
        self._turns = Turns(clock=clock, on_change=self._turn_ended, log=log)
        self._on_change = on_change
        self._log = log
        self._images = Images(engine=engine, log=log)
        bench = self._bench(defaults, clock, log)
        runner = Runner(bench)
        self._creation = Creation(bench, runner)
        self._alteration = Alteration(bench, Replacement(bench, runner))
        self._lifecycle = Lifecycle(bench, runner, self._alteration)
        self._belongings = Belongings(bench)
        self._readings = Readings(engine=engine, roster=self._roster, turns=self._turns)
        self._telling = Telling(
            roster=self._roster, containers=self._readings.containers, on_change=on_change
        )
        self._settling = self._settling_on(bench)
        self._watch = Watch(
            engine=engine,
            roster=self._roster,
            turns=self._turns,
            settling=self._settling,
            readings=self._readings,
            retries=Retries(time.monotonic),
            on_change=on_change,
            clock=clock,
            log=log,
        )

    def _bench(
        self, defaults: AppDefaults, clock: Callable[[], float], log: FilteringBoundLogger
    ) -> Workbench:
        return Workbench(
            engine=self._engine,
            roster=self._roster,
            images=self._images,
            passwords=Passwords(engine=self._engine, default_user=defaults.ssh_user),
            ports=Ports(
                engine=self._engine,
                roster=self._roster,
                pick_from=defaults.ports,
                probe=lambda port: can_listen(defaults.bind, port),
                ephemeral=ephemeral_ports(),
                chance=secrets.SystemRandom(),
                log=log,
            ),
            room=Room(min_free_percent=defaults.min_free_percent, own=self._store.folder),
            defaults=defaults,
            clock=clock,
            log=log,
        )

    def _settling_on(self, bench: Workbench) -> Settling:
        return Settling(
            bench=bench,
            turns=self._turns,
            creation=self._creation,
            alteration=self._alteration,
            lifecycle=self._lifecycle,
            belongings=self._belongings,
            adoption=Adoption(bench),
        )

    async def open(self) -> None:
        """Read the database, and begin to watch the engine, which need not be there.

        Raises:
            StoreUnusable: the database cannot be used, and was left as it is.

        """
        self._roster.load(await self._store.open())
        await self._watch.open(PATIENCE_SECONDS)

    async def close(self, seconds: float = 30.0) -> None:
        """Wait, at most so long, for changes under way; what is cut off is settled at a start."""
        await self._turns.close(seconds)
        await self._watch.close()
        await self._telling.close()
        await self._images.close()
        await self._engine.close()
        await self._roster.close()

    async def create(self, wanted: NewApp, asker: Asker) -> Record:
        """Create an app and see it run; its record."""
        busy = self._turns.current(wanted.name) or self._roster.change(wanted.name)
        if not busy:  # else it may be gone when its turn comes
            self._creation.check_free(wanted.name)
        return await self._change(
            wanted.name, "create", asker, lambda turn: self._creation.create(turn, wanted)
        )

    async def update(self, name: str, changes: AppChanges, asker: Asker) -> Record:
        """Change fields of an app."""
        return await self._change(
            name, "update", asker, lambda turn: self._alteration.update(turn, name, changes)
        )

    async def rebuild(self, name: str, asker: Asker) -> Record:
        """Pull an app's image and replace its container."""
        return await self._change(
            name, "rebuild", asker, lambda turn: self._alteration.rebuild(turn, name)
        )

    async def start(self, name: str, asker: Asker) -> Record:
        """Let an app run."""
        return await self._change(
            name, "start", asker, lambda turn: self._lifecycle.start(turn, name)
        )

    async def stop(self, name: str, asker: Asker) -> Record:
        """Let an app end."""
        return await self._change(
            name, "stop", asker, lambda turn: self._lifecycle.stop(turn, name)
        )

    async def delete(self, name: str, asker: Asker, *, keep_data: bool = False) -> Record | None:
        """Remove an app and, unless it is to be kept, its data; None once it is gone."""
        self._roster.get(name)
        turn = await self._turns.take(name, "delete", asker)
        done = await self._turns.run(
            turn,
            self._settled(turn, lambda t: self._lifecycle.delete(t, name, keep_data=keep_data)),
        )
        return None if done else await self._readings.one(name)

    async def set_password(self, name: str, password: str, asker: Asker) -> Record:
        """Set the password of the app's user."""
        return await self._change(
            name, "keys", asker, lambda turn: self._belongings.set_password(turn, name, password)
        )

    async def add_label(self, name: str, label: str, asker: Asker) -> Record:
        """Add a label to an app."""
        return await self._change(
            name, "label", asker, lambda _: self._belongings.add_label(name, label)
        )

    async def remove_label(self, name: str, label: str, asker: Asker) -> Record:
        """Remove a label from an app."""
        return await self._change(
            name, "label", asker, lambda _: self._belongings.remove_label(name, label)
        )

    async def _change(self, name: str, operation: Operation, asker: Asker, work: Work) -> Record:
        if operation != "create":
            self._roster.get(name)
        turn = await self._turns.take(name, operation, asker)
        await self._turns.run(turn, self._settled(turn, work))
        return await self._readings.one(name)

    async def _settled(self, turn: Turn, work: Work) -> None:
        left = self._roster.change(turn.app)
        if left is not None:
            await self._settle(turn, left)
            deleted = left.operation == turn.operation == "delete"
            if deleted and self._roster.find(turn.app) is None:
                return
        await work(turn)

    async def _settle(self, turn: Turn, left: Change) -> None:
        """Settle what broke off before; how that fails is not this caller's business."""
        try:
            await self._settling.settle(turn, left)
        except EngineUnavailable:
            raise
        except (AppError, EngineError) as error:
            # A delete takes the place of anything; else the row that is left must go first.
            if self._roster.change(turn.app) is not None and turn.operation != "delete":
                raise
            reason = getattr(error, "reason", str(error))
            self._log.warning("change that broke off failed", app=turn.app, reason=reason)

    def _turn_ended(self) -> None:
        self._watch.turn_ended()
        self._on_change()

    async def all(
        self, *, labels: Collection[str] = (), states: Collection[str] = ()
    ) -> list[Record]:
        """List apps by name: those with all of the labels, in any of the states."""
        return await self._readings.all(labels=labels, states=states)

    async def get(self, name: str) -> Record:
        """Give an app's record."""
        return await self._readings.one(name)

    async def processes(self, name: str) -> list[Process]:
        """List an app's processes, none when it does not run."""
        return await self._readings.processes(name)

    async def stats(self, name: str) -> Stats:
        """Measure an app."""
        return await self._readings.stats(name)

    async def logs(
        self, name: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Give what an app wrote; close the generator to end it."""
        return await self._readings.logs(name, tail=tail, since=since, follow=follow)

    async def hosting(self) -> Hosting:
        """Tell the roll call what is hosted here; never fails, and never takes long."""
        return await self._telling.hosting(version=self._watch.version)
