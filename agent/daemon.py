"""The running agent: open, build, serve, schedule."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.resources import files
from time import time

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.api import PATH, STATUSES, AppsApi
from agent.apps import Apps
from agent.engine import DockerEngine
from agent.host import Host
from agent.identity import Identity, machine_id
from agent.labels import LabelFiles
from agent.lock import only_agent
from agent.presence import Presence
from agent.registries import in_the_clear
from agent.reload import Reload
from agent.renewals import Renewals
from agent.reporting import Reporting
from agent.roll_call import RollCall, Words
from agent.schedule import scheduled
from agent.settings import Configuration
from agent.status import StatusFile
from agent.store import Store
from config.address import listen_address
from config.agent import NodeSettings
from httpd.app import build_app
from httpd.auth import Keyring
from httpd.instant import Instant
from httpd.metrics import RequestMetrics, new_metrics
from httpd.serve import Signals, listening
from httpd.systemd import Notifier

DRAIN_SECONDS = 10.0


async def run(configuration: Configuration, log: FilteringBoundLogger) -> None:
    """Run the agent until SIGTERM or SIGINT: listen, tell systemd, and only then report.

    Raises:
        StateInUse: another agent works with the same state.
        StateUnusable: the state has no place to be kept.
        StartError: it cannot listen where it is to.
        StoreUnusable: the database cannot be used.
        IdentityError: the identity cannot be kept.

    """
    async with AsyncExitStack() as stack:
        stack.enter_context(only_agent(configuration.state))
        presence = Presence(directory=configuration.state)
        presence.join()  # a `deregister` from now on counts, however long the rest takes
        identity = Identity(directory=configuration.state, machine=machine_id())
        signals = Signals(notifier=Notifier(os.environ), log=log)
        metrics, keyring, roll_call = new_metrics(), Keyring(configuration.callers), RollCall()
        apps = await stack.enter_async_context(_apps(configuration, roll_call.call, log))
        port = await stack.enter_async_context(
            _listening(configuration, apps, keyring=keyring, metrics=metrics, log=log)
        )

        host = _host(configuration, identity, port=port, log=log)
        words = Words(host=host(configuration.settings.node), hosting=apps.hosting)
        reporting = _reporting(configuration, words, identity, presence, metrics=metrics, log=log)
        reporters = await stack.enter_async_context(reporting.reporters(configuration.lines))
        renewals = Renewals({line.url: line.trust for line in configuration.lines}, log=log)
        ticks = [*(reporter.tick for reporter in reporters), renewals.tick]
        seconds = configuration.settings.heartbeat_seconds
        stack.enter_context(scheduled(ticks, seconds=seconds))
        await stack.enter_async_context(roll_call.going_on(reporters))
        reload = Reload(
            configuration=configuration,
            host=host,
            keyring=keyring,
            words=words,
            roll_call=roll_call,
            log=log,
        )
        await signals.until_stopped(reload)


def _host(
    configuration: Configuration, identity: Identity, *, port: int, log: FilteringBoundLogger
) -> Callable[[NodeSettings], Host]:
    return partial(
        configuration.host,
        agent_id=identity.id,
        label_files=LabelFiles(complain=_complain(log)),
        complain=_complain(log),
        port=port,
    )


@asynccontextmanager
async def _apps(
    configuration: Configuration, on_change: Callable[[], None], log: FilteringBoundLogger
) -> AsyncIterator[Apps]:
    docker = configuration.settings.docker
    apps = Apps(
        store=Store(configuration.database),
        engine=DockerEngine(
            url=docker.url,
            timeout_seconds=docker.timeout_seconds,
            logins=configuration.logins(),
        ),
        defaults=configuration.app_defaults(),
        log=log,
        on_change=on_change,
        clock=time,
    )
    await apps.open()
    try:
        yield apps
    finally:
        await apps.close()


@asynccontextmanager
async def _listening(
    configuration: Configuration,
    apps: Apps,
    *,
    keyring: Keyring,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> AsyncIterator[int]:
    """Serve while the context is open; give the port."""
    settings, request_metrics = configuration.settings, RequestMetrics(metrics)
    api = AppsApi(apps=apps)
    app = build_app(
        routes=api.routes(),
        keyring=keyring,
        statuses=STATUSES,
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=files("agent").joinpath("swagger.yml").read_text("utf-8"),
        open_metrics=settings.open_metrics,
        open_swagger=settings.open_swagger,
        log=log,
    )
    app.on_shutdown.append(api.end_streams)
    async with listening(
        app,
        address=listen_address(settings.listen),
        tls=configuration.tls,
        metrics=request_metrics,
        max_connections=settings.max_connections,
        drain_seconds=DRAIN_SECONDS,
        log=log,
        instant=Instant(
            [("GET", f"{PATH}/{{name}}", api.get_at_once)],
            declined={"GET": ()},
            keyring=keyring,
            metrics=request_metrics,
            log=log,
        ),
    ) as (_, port):
        yield port


def _reporting(
    configuration: Configuration,
    words: Words,
    identity: Identity,
    presence: Presence,
    *,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> Reporting:
    for url in in_the_clear(configuration.settings):
        log.warning("the key for this registry travels unencrypted: use https", registry=url)
    return Reporting(
        words=words,
        hostname=configuration.address.hostname,
        interval_seconds=configuration.settings.heartbeat_seconds,
        identity=identity,
        presence=presence,
        status_file=StatusFile(directory=configuration.state),
        metrics=metrics,
        log=log,
    )


def _complain(log: FilteringBoundLogger) -> Callable[[str], None]:
    return lambda fault: log.warning("not told to the registries", reason=fault)
