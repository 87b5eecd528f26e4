"""How many apps there may be, and how large they may be together.

The agent has all of them in memory, and lists them in one answer, as the engine does.
"""

from agent.apps.app_label import encode_label, engine_bytes
from agent.apps.errors import TooManyApps
from agent.apps.repository.repository import AppRepository
from agent.model import App
from httpd.shares.turns import share

MOST_APPS = 500
MOST_BYTES = 8 * 1024 * 1024


class AppRoom:
    """The room for apps, of which the apps of one key for some apps have their share at most."""

    def __init__(self, repository: AppRepository) -> None:
        self._repository = repository
        # With the app as it was measured: measuring all would take long.
        self._measured: dict[str, tuple[App, int]] = {}

    def check(self, app: App) -> None:
        """Refuse an app that is new, or larger than before, if there is no room; TooManyApps."""
        before, size = self._repository.find(app.name), _bytes_of(app)
        if before is not None and size <= _bytes_of(before):
            return
        others = self._repository.most(self._bytes, other_than=app.name)
        self._measured = {each: self._measured[each] for each in others}
        self._check(others, size, "", MOST_APPS, MOST_BYTES)
        for key in self._keys(app.name):
            of_key = {name: each for name, each in others.items() if key in self._keys(name)}
            whose = f" of the key `{key}`"
            self._check(of_key, size, whose, share(MOST_APPS), share(MOST_BYTES))

    def _check(
        self, others: dict[str, int], size: int, whose: str, most_apps: int, most_bytes: int
    ) -> None:
        if len(others) >= most_apps:
            raise TooManyApps(
                f"there are {len(others)} other apps{whose}, and may be {most_apps} in all; delete"
                " some that nobody needs, failed ones too"
            )
        total = sum(others.values()) + size
        if total > most_bytes:
            raise TooManyApps(
                f"the fields of all apps{whose} would take {total} bytes together, and may take"
                f" {most_bytes}; write less into `env`, `command` and the labels of this app, or"
                " delete others"
            )

    def _keys(self, name: str) -> list[str]:
        return [key for key in self._repository.holders(name).split(",") if key]

    def _bytes(self, app: App) -> int:
        measured = self._measured.get(app.name)
        if measured is None or measured[0] is not app:
            measured = self._measured[app.name] = (app, _bytes_of(app))
        return measured[1]


def _bytes_of(app: App) -> int:
    """Return the bytes of an app as the engine repeats it, with the values of its variables."""
    return engine_bytes([encode_label(app)]) + sum(len(each.encode()) for each in app.env.values())
