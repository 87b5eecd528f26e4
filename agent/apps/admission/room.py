"""How many apps there may be, and how much they may have together: fields, memory, kept data.

The agent has all of them in memory, and lists them in one answer, as the engine does.
"""

from collections.abc import Callable, Iterator

from agent.apps.app_label import encode_label, engine_bytes
from agent.apps.errors import MemoryPromised, TooManyApps, TooMuchKeptData
from agent.apps.repository.repository import AppRepository
from agent.engine.models import EngineInfo
from agent.model import App
from runtime.turns import share

MOST_APPS = 500
MOST_BYTES = 8 * 1024 * 1024
# The engine lists all volumes in one answer.
MOST_KEPT_VOLUMES = 5000


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
        for whose, group, part in self._groups(app.name, others):
            self._check(group, size, whose, part(MOST_APPS), part(MOST_BYTES))

    def check_memory(self, app: App, host: EngineInfo, percent: int) -> None:
        """Refuse an app that would be promised more memory than there is; MemoryPromised.

        ``percent`` of the host's may be promised, 0 is no bound. An app whose creation failed is
        promised nothing until a container is made for it.
        """
        others = self._repository.most(
            lambda each: 0 if each.failed else each.memory, other_than=app.name
        )
        for whose, group, part in self._groups(app.name, others) if percent else ():
            promised, most = sum(group.values()), part(host.memory * percent // 100)
            if promised + app.memory > most:
                raise MemoryPromised(
                    f"{promised} MiB are promised to other apps{whose}, and {app.memory} more would"
                    f" be over {most} MiB,{' four fifths of' if whose else ''} {percent} % of the"
                    f" host's {host.memory} (`apps.overcommit_percent`); give this app less memory,"
                    " or delete or limit others"
                )

    def check_kept_data(self, name: str, volumes: int, kept: dict[str, int]) -> None:
        """Refuse to keep so many volumes of an app; TooMuchKeptData.

        ``kept`` is how many of each deleted app there are.
        """
        for whose, group, part in self._groups(name, kept):
            present, most = sum(group.values()), part(MOST_KEPT_VOLUMES)
            if present + volumes > most:
                raise TooMuchKeptData(
                    f"deleted apps{whose} have left {present} volumes, and may leave {most}; delete"
                    " this app without ?keep_data=true, or create apps whose data nobody needs"
                    " again and delete them without it"
                )

    def _groups(
        self, name: str, others: dict[str, int]
    ) -> Iterator[tuple[str, dict[str, int], Callable[[int], int]]]:
        """Yield all others, and those of each key of the app, with what they may have of all."""
        yield "", others, int
        for key in self._keys(name):
            of_key = {other: each for other, each in others.items() if key in self._keys(other)}
            yield f" of the key `{key}`", of_key, share

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
