"""All apps and their changes under way: in memory to be read, in the store to last."""

from collections.abc import Iterator

from agent.apps.errors import AppNotFound
from agent.model import App, Change
from agent.state.store import Store, StoredState


class AppRepository:
    """What was asked for.

    A change holds its ports from the moment in which ``begin`` is called, before it is written, so
    that no two changes side by side can take the same.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._apps: dict[str, App] = {}
        self._changes: dict[str, Change] = {}
        self._claims: dict[str, App] = {}
        self._undone: set[str] = set()
        self.agent = ""
        self.adopted = True

    def load(self, stored: StoredState) -> None:
        """Take over what the store holds."""
        self.agent, self.adopted = stored.agent, stored.adopted
        self._apps = {app.name: app for app in stored.apps}
        self._changes = {change.app: change for change in stored.changes}
        self._undone = set(stored.undone)

    def get(self, name: str) -> App:
        """Give an app, a new one from the beginning of its creation; AppNotFound."""
        app = self.find(name)
        if app is None:
            raise AppNotFound(name)
        return app

    def find(self, name: str) -> App | None:
        """Give an app, or None."""
        change = self._changes.get(name)
        being_created = change.target if change and change.operation == "create" else None
        return self._apps.get(name) or being_created

    def all(self) -> list[App]:
        """Give all apps by name, new ones from the beginning of their creation."""
        return [self.get(name) for name in sorted(self._apps.keys() | self._being_created())]

    def _being_created(self) -> set[str]:
        return {name for name, change in self._changes.items() if change.operation == "create"}

    def existing(self) -> list[App]:
        """Give all apps by name that are not just being created."""
        return [app for _, app in sorted(self._apps.items())]

    def change(self, name: str) -> Change | None:
        """Give the app's change that is not finished."""
        return self._changes.get(name)

    def changes(self) -> list[Change]:
        """Give all changes that are not finished."""
        return list(self._changes.values())

    def undone(self, change: str) -> bool:
        """Tell whether what a change made is nobody's, since it was taken back or replaced."""
        return change in self._undone

    def port_holder(self, port: int, *, other_than: str) -> str | None:
        """Tell which other app has a port of the host, or is about to get it."""
        for app in self._port_holders():
            if app.name != other_than and port in (app.ssh_port, app.http_port):
                return app.name
        return None

    def _port_holders(self) -> Iterator[App]:
        yield from self._apps.values()
        yield from self._claims.values()
        for change in self._changes.values():
            if change.target is not None:
                yield change.target

    async def begin(self, change: Change) -> Change:
        """Write down a change before it is done; it takes the place of one that broke off."""
        unfinished = self._changes.get(change.app)
        self._changes[change.app] = change
        try:
            await self._store.begin(change, undone=unfinished.id if unfinished else None)
        except BaseException:
            del self._changes[change.app]
            if unfinished is not None:
                self._changes[change.app] = unfinished
            raise
        if unfinished is not None:
            self._undone.add(unfinished.id)
        return change

    async def advance(self, change: Change) -> Change:
        """Write down how far a change is."""
        await self._store.begin(change)
        self._changes[change.app] = change
        return change

    async def finish(self, change: Change, app: App | None, *, undone: str | None = None) -> None:
        """Close a change with the app as it now is, or with none.

        ``undone`` is a change whose container is nobody's from now on: this one, if it was in vain,
        or the one that made the container before this one's, if that is still there.
        """
        await self._store.finish(change, app, undone=undone)
        if undone is not None:
            self._undone.add(undone)
        self._changes.pop(change.app, None)
        self._keep(change.app, app)

    async def put(self, app: App) -> None:
        """Keep an app as it now is; it has its ports from now on, before that is written."""
        self._claims[app.name] = app
        try:
            await self._store.put(app)
        finally:
            del self._claims[app.name]
        self._keep(app.name, app)

    async def adopt(self, apps: list[App]) -> None:
        """Keep apps that were read back from their containers."""
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
