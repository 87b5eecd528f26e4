"""All apps and the journal of operations: in memory to be read, in the store to last."""

from collections.abc import Iterator

from agent.apps.errors import AppNotFound
from agent.model import App, CreateEntry, DeleteEntry, JournalEntry
from agent.state.store import Store, StoredState


class AppRepository:
    """The apps as they were asked for, and the operations that have not ended.

    An operation holds its ports from the moment in which ``begin`` is called, before its entry is
    written, so that no two operations side by side can take the same.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._apps: dict[str, App] = {}
        self._entries: dict[str, JournalEntry] = {}
        self._being_written: dict[str, App] = {}
        self._undone: set[str] = set()
        self._kept_data: dict[str, dict[str, str]] = {}
        self.agent = ""
        self.adopted = True

    def load(self, stored: StoredState) -> None:
        """Take over what the store holds."""
        self.agent, self.adopted = stored.agent, stored.adopted
        self._apps = {app.name: app for app in stored.apps}
        self._entries = {entry.app: entry for entry in stored.entries}
        self._undone = set(stored.undone)
        self._kept_data = dict(stored.kept_data)

    def get(self, name: str) -> App:
        """Return an app, a new one from the beginning of its creation; AppNotFound."""
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
        """Return all apps by name, new ones from the beginning of their creation."""
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

    def is_undone(self, operation: str) -> bool:
        """Return whether containers that the operation of this id made are orphans."""
        return operation in self._undone

    def kept_data(self, name: str) -> dict[str, str]:
        """Return the volumes, by path, that the deleted app of this name has left."""
        return self._kept_data.get(name, {})

    def port_holder(self, port: int, *, other_than: str) -> str | None:
        """Return which other app has a port of the host, or is about to get it."""
        for app in self._port_holders():
            if app.name != other_than and port in (app.ssh_port, app.http_port):
                return app.name
        return None

    def _port_holders(self) -> Iterator[App]:
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
            await self._store.begin(entry, undone=unfinished.id if unfinished else None)
        except BaseException:
            del self._entries[entry.app]
            if unfinished is not None:
                self._entries[entry.app] = unfinished
            raise
        if unfinished is not None:
            self._undone.add(unfinished.id)

    async def advance(self, entry: JournalEntry) -> None:
        """Replace the operation's journal entry."""
        await self._store.begin(entry)
        self._entries[entry.app] = entry

    async def finish(
        self,
        entry: JournalEntry,
        app: App | None,
        *,
        undone: str | None = None,
        kept_data: dict[str, str] | None = None,
    ) -> None:
        """Remove an entry and put the app as it is now, None if it is gone.

        ``undone`` is the id of an operation whose containers are orphans from now on: this one, if
        it failed, or the one that made a container which is still to be removed. ``kept_data`` are
        the volumes, by path, that a deleted app leaves; empty, they belong to an app again.
        """
        await self._store.finish(entry, app, undone=undone, kept_data=kept_data)
        if kept_data is not None:
            self._kept_data[entry.app] = kept_data
        if undone is not None:
            self._undone.add(undone)
        self._entries.pop(entry.app, None)
        self._keep(entry.app, app)

    async def put(self, app: App) -> None:
        """Put an app as it is now; it holds its ports from now on, before it is written."""
        self._being_written[app.name] = app
        try:
            await self._store.put(app)
        finally:
            del self._being_written[app.name]
        self._keep(app.name, app)

    async def adopt(self, apps: list[App]) -> None:
        """Put apps that were read from their containers."""
        await self._store.adopt(apps)
        self.adopted = True
        for app in apps:
            self._keep(app.name, app)

    def _keep(self, name: str, app: App | None) -> None:
        if app is None:
            self._apps.pop(name, None)
        else:
            self._apps[name] = app

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
