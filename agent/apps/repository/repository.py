"""All apps and the journal of operations: read from memory, written to the store."""

import time
from collections.abc import Callable, Iterator

import msgspec

from agent.apps.errors import AppNotFound, OperationCancelled
from agent.apps.repository.events import EventFeed, outcome_event
from agent.apps.repository.pull_records import PullRecords
from agent.apps.repository.revisions import KeptRevisions, Revised, revise
from agent.journal import CreateEntry, DeleteEntry, EntryHeader, JournalEntry, ReplacedEntry
from agent.model import App
from agent.state.database import AgentDatabase
from agent.state.history import Event, Revision, RevisionImage
from agent.state.rows import AppTransaction, StoredState


class AppRepository:
    """The apps as they were asked for, and the operations that have not ended.

    An operation holds its ports from the moment in which ``begin`` is called, before its entry is
    written, so that no two operations side by side can take the same. An app that is put with other
    fields or another image than before gets a revision, and how an operation ends is an event: both
    are written together with the app.

    ``feed`` has the latest events, ``pulls`` the records of pulls. ``clock`` returns Unix time,
    ``holders`` the keys for some apps that an app belongs to.
    """

    def __init__(
        self,
        store: AgentDatabase,
        *,
        clock: Callable[[], float] = time.time,
        holders: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.holders = holders
        self.feed = EventFeed()
        self.store = store
        self._clock = clock
        self._apps: dict[str, App] = {}
        self._entries: dict[str, JournalEntry] = {}
        self._being_written: dict[str, App] = {}
        self._undone: set[str] = set()
        self._ended: dict[str, str] = {}
        self._kept_data: dict[str, dict[str, str]] = {}
        self.pulls = PullRecords(store)
        self.revisions = KeptRevisions()
        self.adopted = True

    def load(self, stored: StoredState) -> None:
        """Take over what the store holds."""
        self.adopted = stored.adopted
        self._apps = {app.name: app for app in stored.apps}
        self._entries = {entry.app: entry for entry in stored.entries}
        self._undone = set(stored.undone)
        self._kept_data = dict(stored.kept_data)
        self.pulls = PullRecords(self.store, images=stored.pulled, begun=stored.pulls)
        self.revisions = KeptRevisions(stored.images)

        self.feed.add(stored.latest_events)
        self.store.listeners.append(self.feed.add)

    def get(self, name: str) -> App:
        """Return an app, also while it is being created; AppNotFound."""
        app = self.find(name)
        if app is None:
            raise AppNotFound(name)
        return app

    def find(self, name: str) -> App | None:
        """Return an app, None if there is none."""
        entry = self._entries.get(name)
        being_created = entry.target if isinstance(entry, CreateEntry) else None
        return self._apps.get(name) or being_created

    def all(self) -> list[App]:
        """Return all apps by name, also those that are being created."""
        return [self.get(name) for name in sorted(self._apps.keys() | self._being_created())]

    def _being_created(self) -> set[str]:
        return {name for name, entry in self._entries.items() if isinstance(entry, CreateEntry)}

    def existing(self) -> list[App]:
        """Return all apps by name, without those whose creation has not ended."""
        return [app for _, app in sorted(self._apps.items())]

    def entry(self, name: str) -> JournalEntry | None:
        """Return the entry of the app in the journal, None if there is none."""
        return self._entries.get(name)

    def entries(self) -> list[JournalEntry]:
        """Return the journal."""
        return list(self._entries.values())

    def is_ended(self, header: EntryHeader) -> bool:
        """Return whether the operation is the last one of its app whose outcome was written."""
        return self._ended.get(header.app) == header.id

    def is_undone(self, operation: str) -> bool:
        """Return whether containers that the operation of this id made are orphans."""
        return operation in self._undone

    def kept_data(self, name: str) -> dict[str, str]:
        """Return the volumes, by path, that the deleted app of this name has left."""
        return self._kept_data.get(name, {})

    def has_container(self, container_id: str) -> bool:
        """Return whether it is the container of an app, or of one that is being replaced."""
        if any(app.container_id == container_id for app in self._apps.values()):
            return True
        entries = (each for each in self._entries.values() if isinstance(each, ReplacedEntry))
        return any(container_id in (each.container_id, each.old_container_id) for each in entries)

    def most(self, measure: Callable[[App], int], *, other_than: str) -> dict[str, int]:
        """Return the measure of each other app by name, the most that operations may make it."""
        most = dict[str, int]()
        for app in self._all_states():
            if app.name != other_than:
                most[app.name] = max(most.get(app.name, 0), measure(app))
        return most

    def port_holder(self, port: int, *, other_than: str) -> str | None:
        """Return which other app has a port of the host, or is about to get it."""
        for app in self._all_states():
            if app.name != other_than and port in (app.ssh_port, app.http_port):
                return app.name
        return None

    def _all_states(self) -> Iterator[App]:
        """Yield the apps as they are, and as operations are about to make them."""
        yield from self._apps.values()
        yield from self._being_written.values()
        for entry in self._entries.values():
            if not isinstance(entry, DeleteEntry):
                yield entry.target

    async def begin(self, entry: JournalEntry) -> None:
        """Write an entry before its operation changes anything; it replaces an unfinished one."""
        unfinished = self._entries.get(entry.app)
        self._entries[entry.app] = entry
        try:
            await self.store.begin(
                entry,
                undone=unfinished.id if unfinished else None,
                event=self._replaced(unfinished, entry) if unfinished else None,
            )
        except BaseException:
            del self._entries[entry.app]
            if unfinished is not None:
                self._entries[entry.app] = unfinished
            raise
        if unfinished is not None:
            self._undone.add(unfinished.id)

    async def advance(self, entry: JournalEntry) -> None:
        """Replace the operation's journal entry."""
        await self.store.begin(entry)
        self._entries[entry.app] = entry

    async def finish(
        self,
        entry: JournalEntry,
        app: App | None,
        *,
        undone: str | None = None,
        kept_data: dict[str, str] | None = None,
        error: Exception | None = None,
    ) -> None:
        """Remove an entry and put the app as it is now, None if it is gone.

        ``error`` is why the operation failed, None if it did not.

        ``undone`` is the id of an operation whose containers are orphans from now on: this one, if
        it failed, or the one that made a container which is still to be removed. ``kept_data`` are
        the volumes, by path, that a deleted app leaves; empty, they belong to an app again.
        """
        revised = self.revised(app, entry.header, error) if app is not None else None
        transaction = AppTransaction(
            name=entry.app,
            app=revised.app if revised is not None else None,
            ends_operation=True,
            undone=undone,
            kept_data=kept_data,
            revision=revised.revision if revised is not None else None,
            event=self._outcome(entry.header, revised, error),
        )

        def apply() -> None:
            if kept_data is not None:
                self._kept_data[entry.app] = kept_data
            if undone is not None:
                self._undone.add(undone)
            self._entries.pop(entry.app, None)
            self._keep(entry.app, revised, ended=entry.id)

        await self.store.write(transaction, then=apply)

    async def put(
        self,
        app: App,
        *,
        outcome_of: EntryHeader | None = None,
        error: Exception | None = None,
    ) -> None:
        """Put an app as it is now; it holds its ports from now on, before it is written.

        ``outcome_of`` is the operation that ends with it, which may change fields; ``error`` is as
        in finish.
        """
        revised = self.revised(app, outcome_of, error)
        event = self._outcome(outcome_of, revised, error) if outcome_of is not None else None
        transaction = AppTransaction(
            name=app.name, app=revised.app, revision=revised.revision, event=event
        )

        def apply() -> None:
            self._keep(app.name, revised, ended=outcome_of.id if outcome_of is not None else None)

        self._being_written[app.name] = app
        try:
            await self.store.write(transaction, then=apply)
        finally:
            del self._being_written[app.name]

    def revised(
        self, app: App, header: EntryHeader | None, error: Exception | None = None
    ) -> Revised:
        """Return an app as it is written once an operation has ended, with its new revision."""
        before = self._apps.get(app.name)
        # A stop may be what ended the operation before it.
        is_done = header is not None and header.operation != "stop" and error is None
        if is_done and before is not None and app.message == before.message:
            # Why an earlier operation failed no longer matters, unless its effect remains.
            remains = app.failed or app.password_pending
            app = msgspec.structs.replace(app, message=app.message if remains else None)
        return revise(before, app, header, image=self.revisions.image(before))

    def _outcome(
        self, header: EntryHeader, revised: Revised | None, error: Exception | None
    ) -> Event:
        before = self._apps.get(header.app)
        return outcome_event(header, before, revised, now=self._clock(), error=error)

    def _replaced(self, unfinished: JournalEntry, entry: JournalEntry) -> Event:
        error = OperationCancelled(
            f"it was interrupted, and a {entry.header.operation} replaces it"
        )
        return self._outcome(unfinished.header, None, error)

    async def events(self, name: str) -> list[Event]:
        """Return the last events of an app, also one that is gone; AppNotFound if it has none."""
        events = await self.store.events_of(name)
        if not events:
            self.get(name)
        return events

    async def adopt(self, apps: list[App]) -> None:
        """Put apps that were read from their containers."""
        adopted = [revise(None, app, None, image=None) for app in apps]
        await self.store.adopt(
            [each.app for each in adopted],
            [each.revision for each in adopted if isinstance(each.revision, Revision)],
        )
        self.adopted = True
        for each in adopted:
            self._keep(each.app.name, each)

    def _keep(self, name: str, revised: Revised | None, *, ended: str | None = None) -> None:
        """Keep an app as it was written; ``ended`` is the id of the operation that this ended."""
        if revised is None:
            self._apps.pop(name, None)
            self._ended.pop(name, None)
            self.revisions.drop(name)
            return
        self._apps[name] = revised.app
        self.revisions.keep(revised.revision)
        if ended is not None:
            self._ended[name] = ended

    async def put_image(self, image: RevisionImage) -> None:
        """Put the image of a revision that was written without it, or without its digest."""
        await self.store.put_image(image)
        self.revisions.fill(image)

    def needed_images(self) -> set[str]:
        """Return the images of all apps, and those that operations are about to use or go back to.

        Revisions before the present one of an app are not among them.
        """
        needed = {app.image_id for app in self._apps.values()}
        for entry in self._entries.values():
            apps = (getattr(entry, "before", None), getattr(entry, "target", None))
            needed |= {app.image_id for app in apps if app is not None}
        return {each for each in needed if each is not None}
