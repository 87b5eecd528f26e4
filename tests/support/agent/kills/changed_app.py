"""Changes of an app: asked of its agent, or made through the engine so that the agent acts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from dev.waiting import until
from tests.support.agent.containers import run_in_container
from tests.support.agent.kills.engine_proxy import EngineProxy
from tests.support.agent.kills.observed_app import ObservedApp

TAKE_PAGE_AWAY = "busybox mv /www/index.html /www/away"
UP_SECONDS = 120.0


def _is_up(answer: requests.Response | None) -> bool:
    """Return whether the answer is the record of an app that is up and passes its check."""
    if answer is None or not answer.ok:
        return False
    record = answer.json()
    healthy = record["health"] is None or record["healthy"] is True
    return bool(record["state"] == "running" and record["progress"] is None and healthy)


def _has_password(answer: requests.Response) -> bool:
    """Return whether the answer is the record of an app whose password is set."""
    if not answer.ok:
        return False
    record = answer.json()
    return bool(record["password"] == "set" and record["progress"] is None)


class ChangedApp:
    """An app that is changed; ``proxy`` is that of its agent.

    The answer to a request is None if the agent ended before it answered.
    """

    def __init__(self, app: ObservedApp, proxy: EngineProxy) -> None:
        self.app = app
        self._proxy = proxy

    def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> requests.Response | None:
        """Send the agent a request for the app; None if the agent ended before it answered."""
        try:
            return self.app.agent.ask(method, self.app.path + path, json=body, **options)
        except requests.RequestException:
            return None

    def ask_while_pulling(
        self, method: str, path: str, change: Callable[[], object] | None = None
    ) -> requests.Response | None:
        """Ask the agent for something while it pulls an image for a change, by default a rebuild.

        Return the answer to that; None if the agent ended before it answered.
        """
        held = self._proxy.hold_pulls()
        with ThreadPoolExecutor(1) as pool:
            changed = pool.submit(change or (lambda: self.ask("PUT", "/rebuild")))
            until(lambda: held.is_set() or changed.done(), "the pull", within=UP_SECONDS)
            return self.ask(method, path)

    def settled(self) -> None:
        """Wait until no operation of the app runs."""
        self.app.settled()

    # What the agent does without a request.

    def take_page_away(self) -> requests.Response | None:
        """Make the app fail its check; return its record once it was restarted."""
        (container,) = self.app.containers()
        return self._until_started_again(
            lambda: run_in_container(
                self.app.client, {"container_id": container["Id"]}, TAKE_PAGE_AWAY
            )
        )

    def kill(self) -> requests.Response | None:
        """Kill the app through the engine; return its record once it was started."""
        (container,) = self.app.containers()
        return self._until_started_again(lambda: self.app.client.kill(container["Id"]))

    def start_by_hand(self) -> requests.Response | None:
        """Start the app through the engine; return its record once its password was set."""
        (container,) = self.app.containers()
        self.app.client.start(container["Id"])
        return self._until_password_set()

    def until_password_set(self) -> None:
        """Wait until no password is pending, and no operation runs."""
        answer = self._until_password_set()
        assert answer is not None, "the agent has ended"

    def _until_password_set(self) -> requests.Response | None:
        answers = list[requests.Response | None]()

        def is_set() -> bool:
            answers.append(self.ask("GET", ""))
            return answers[-1] is None or _has_password(answers[-1])

        until(is_set, "the password to be set", within=UP_SECONDS)
        return answers[-1]

    def _until_started_again(self, disturb: Callable[[], object]) -> requests.Response | None:
        """Return the record once the app is up again; None if the agent ended before that."""
        before = self._started_at()
        disturb()
        answers = list[requests.Response | None]()

        def again() -> bool:
            answers.append(self.ask("GET", ""))
            return answers[-1] is None or (_is_up(answers[-1]) and self._started_at() != before)

        until(again, "the start of the app", within=UP_SECONDS)
        return answers[-1]

    def _started_at(self) -> str:
        (container,) = self.app.containers()
        return str(self.app.client.inspect_container(container["Id"])["State"]["StartedAt"])

    def until_up(self) -> None:
        """Wait until the app runs, passes its check if it has one, and no operation runs."""
        until(lambda: _is_up(self.ask("GET", "")), "the app to be up", within=UP_SECONDS)
