"""The limits that the page about operations promises are those in force."""

import re

from agent.api.data import MAX_TRANSFERS, UPLOAD_IDLE_SECONDS
from agent.api.requests import MAX_LABEL_FILTERS
from agent.api.streams import MAX_READERS, MAX_STREAMS_PER_KEY
from agent.apps.admission.admission import MOST_APPS, MOST_BYTES, MOST_KEPT_VOLUMES
from agent.apps.errors import STATUS_BY_ERROR as AGENT_STATUS
from agent.apps.errors import DataTooSlow, MemoryPromised, TooManyApps, TooMuchKeptData
from agent.apps.health import MOST_CHECKS
from agent.apps.images.pulled import MOST_PULLS, MOST_PULLS_OF_KEY
from agent.apps.repository.events import MAX_EVENTS
from agent.apps.runner.runner import MOST_OPERATIONS, MOST_OWN_OPERATIONS
from agent.engine.commands import CommandKind
from agent.engine.errors import DiskFull, TooManyStreams
from agent.engine.reads import MOST_LOGS, MOST_MEASURED
from agent.state.history import MAX_EVENTS_OF_AN_APP, MAX_FORMER_APPS, MAX_OWN_EVENTS
from clients import message
from config.agent import AgentSettings
from config.registry import RegistrySettings
from httpd import bodies
from httpd.errors import STATUS_BY_ERROR as COMMON_STATUS
from httpd.errors import NoPlace
from httpd.server import limits
from httpd.server.handshakes import MAX_HANDSHAKES
from httpd.server.limits import MAX_UNFINISHED_BYTES
from httpd.server.requests import MAX_HEAD_BYTES, MAX_HEAD_FIELDS
from registry.api.queries import MAX_FILTERS
from registry.api.representation import CONFIRMED_AT_ONCE, CONFIRMING_SECONDS
from registry.api.watch import MAX_WATCHERS
from registry.errors import STATUS_BY_ERROR, ChangesTooFast, TooManyHeartbeats, TooManyReaders
from registry.nodes.limits import MAX_LARGE_BYTES
from registry.responses import readers
from runtime.turns import share
from tests.support.pages import Page


def promised() -> dict[str, list[float]]:
    """Return the numbers in each line of the page's table of limits."""
    table = Page("docs/operations.md").section("Limits")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[2:]
    return {
        what: [
            float(number.replace(",", ""))
            for number in re.findall(r"[0-9][0-9.,]*[0-9]|[0-9]", text)
        ]
        for what, text in rows
    }


def status_of(error: type[Exception]) -> int:
    """Return the agent's status for an error."""
    return next(AGENT_STATUS[each] for each in error.__mro__ if each in AGENT_STATUS)


def test_the_limits_are_as_the_page_shows_them() -> None:
    timeouts = limits.Timeouts()

    assert promised() == {
        "the first request": [timeouts.header],
        "a request's headers": [timeouts.header, MAX_HEAD_BYTES / 1024, MAX_HEAD_FIELDS],
        "a request's body": [
            bodies.DEFAULT_MAX_BODY_BYTES / 1024,
            message.MAX_BODY_BYTES / 2**20,
            bodies.BODY_TIMEOUT_SECONDS,
        ],
        "a TLS handshake": [timeouts.handshake, 1.2, MAX_HANDSHAKES],
        "an idle connection": [timeouts.idle, timeouts.header],
        "a client that reads nothing of its answer": [timeouts.stall],
        "requests that are not complete": [MAX_UNFINISHED_BYTES / 2**20],
        "connections": [
            RegistrySettings().max_connections,
            AgentSettings().max_connections,
            COMMON_STATUS[NoPlace],
        ],
        "data of apps, out and in": [
            MAX_TRANSFERS,
            MAX_TRANSFERS * 4 // 5,
            COMMON_STATUS[NoPlace],
            UPLOAD_IDLE_SECONDS,
            status_of(DataTooSlow),
            status_of(DiskFull),
        ],
        "a registry's large answers": [
            readers.MAX_HELD_BYTES / 2**20,
            readers.MAX_HELD_BYTES / 2 / readers.READER_BYTES,
            readers.WAIT_SECONDS,
            STATUS_BY_ERROR[TooManyReaders],
            readers.PATIENCE_SECONDS,
        ],
        "large heartbeats, over 48 KiB, that are being taken": [
            MAX_LARGE_BYTES / 2**20,
            STATUS_BY_ERROR[TooManyHeartbeats],
        ],
        "answers to heartbeats, over 64 KiB, that are being sent": [
            CONFIRMED_AT_ONCE,
            share(CONFIRMED_AT_ONCE),
            CONFIRMING_SECONDS,
        ],
        "large heartbeats of one host whose bytes differ": [
            message.MAX_BODY_BYTES / 2**20,
            STATUS_BY_ERROR[ChangesTooFast],
        ],
        "clients that watch": [MAX_WATCHERS, MAX_WATCHERS * 4 / 5, COMMON_STATUS[NoPlace]],
        "clients that follow an agent's events": [
            MAX_READERS,
            MAX_READERS * 4 / 5,
            COMMON_STATUS[NoPlace],
            MAX_EVENTS,
        ],
        "events that an agent keeps": [MAX_EVENTS_OF_AN_APP, MAX_OWN_EVENTS, MAX_FORMER_APPS],
        "filters of `GET /nodes`": [MAX_FILTERS],
        "filters `label` of `GET /v1/apps`": [MAX_LABEL_FILTERS],
        "an agent's commands to the engine": [CommandKind.ENGINE.value, CommandKind.PROGRAM.value],
        "an agent's changes of apps": [MOST_OPERATIONS, share(MOST_OPERATIONS)],
        "restarts of unhealthy apps, and passwords that an agent sets later": [
            MOST_OWN_OPERATIONS,
            share(MOST_OWN_OPERATIONS),
        ],
        "health checks of apps": [MOST_CHECKS, share(MOST_CHECKS)],
        "an agent's apps": [MOST_APPS, MOST_BYTES / 2**20, status_of(TooManyApps)],
        "memory promised to apps": [status_of(MemoryPromised)],
        "volumes of deleted apps": [MOST_KEPT_VOLUMES, status_of(TooMuchKeptData)],
        "an agent's pulls": [MOST_PULLS, MOST_PULLS_OF_KEY],
        "an agent's measurements, by `processes` and `stats`": [MOST_MEASURED],
        "logs that an agent streams": [
            MOST_LOGS,
            MAX_STREAMS_PER_KEY,
            status_of(TooManyStreams),
        ],
    }
