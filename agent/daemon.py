"""The running agent: open, build, serve, schedule."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.resources import files
from time import time

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.api.routes import STATUSES, AppsApi
from agent.apps import Apps
from agent.engine import DockerEngine
from agent.reload import AgentReloader
from agent.reporting.certificates import CertificateMonitor
from agent.reporting.connections import unencrypted_registries
from agent.reporting.group import HeartbeatBuilder, ReporterGroup
from agent.reporting.heartbeat import Host
from agent.reporting.label_files import LabelFiles
from agent.reporting.reporter_factory import ReporterFactory
from agent.reporting.schedule import scheduled
from agent.reporting.status import StatusFile
from agent.settings import AgentConfiguration
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity, machine_id
from agent.state.lock import state_lock
from agent.state.store import Store
from config.address import listen_address
from config.agent import NodeSettings
from httpd.app import build_app
from httpd.auth import Keyring
from httpd.metrics import RequestMetrics, new_metrics
from httpd.process import SignalHandler, SystemdNotifier
from httpd.server.listener import listening

DRAIN_SECONDS = 10.0


async def run(configuration: AgentConfiguration, log: FilteringBoundLogger) -> None:
    """Run the agent until SIGTERM or SIGINT: listen, tell systemd, and only then report.

    Raises:
        StateInUse: another agent works with the same state.
        StateUnusable: the state has no place to be kept.
        StartError: it cannot listen where it is to.
        StoreUnusable: the database cannot be used.
        IdentityError: the identity cannot be kept.

    """
    async with AsyncExitStack() as stack:
        stack.enter_context(state_lock(configuration.state_directory))
        deregistration = Deregistration(directory=configuration.state_directory)
        deregistration.clear()  # a `deregister` from now on counts, however long the rest takes
        identity = Identity(directory=configuration.state_directory, machine=machine_id())
        signals = SignalHandler(notifier=SystemdNotifier(os.environ), log=log)
        metrics, keyring, reporter_group = (
            new_metrics(),
            Keyring(configuration.callers),
            ReporterGroup(),
        )
        apps = await stack.enter_async_context(
            _apps(configuration, reporter_group.request_report, log)
        )
        port = await stack.enter_async_context(
            _listening(configuration, apps, keyring=keyring, metrics=metrics, log=log)
        )

        host = _host(configuration, identity, port=port, log=log)
        heartbeat_builder = HeartbeatBuilder(
            host=host(configuration.settings.node), hosted_apps=apps.hosted_apps
        )
        reporter_factory = _reporter_factory(
            configuration, heartbeat_builder, identity, deregistration, metrics=metrics, log=log
        )
        reporters = await stack.enter_async_context(
            reporter_factory.reporters(configuration.registry_connections)
        )
        certificate_monitor = CertificateMonitor(
            {
                connection.url: connection.client_tls
                for connection in configuration.registry_connections
            },
            log=log,
        )
        ticks = [*(reporter.tick for reporter in reporters), certificate_monitor.tick]
        seconds = configuration.settings.heartbeat_seconds
        stack.enter_context(scheduled(ticks, seconds=seconds))
        await stack.enter_async_context(reporter_group.running(reporters))
        reload = AgentReloader(
            configuration=configuration,
            host=host,
            keyring=keyring,
            heartbeat_builder=heartbeat_builder,
            reporter_group=reporter_group,
            log=log,
        )
        await signals.run_until_stopped(reload)


def _host(
    configuration: AgentConfiguration, identity: Identity, *, port: int, log: FilteringBoundLogger
) -> Callable[[NodeSettings], Host]:
    return partial(
        configuration.host,
        agent_id=identity.id,
        label_files=LabelFiles(warn=_log_left_out(log)),
        warn=_log_left_out(log),
        port=port,
    )


@asynccontextmanager
async def _apps(
    configuration: AgentConfiguration, on_change: Callable[[], None], log: FilteringBoundLogger
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
    configuration: AgentConfiguration,
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
    ) as (_, port):
        yield port


def _reporter_factory(
    configuration: AgentConfiguration,
    heartbeat_builder: HeartbeatBuilder,
    identity: Identity,
    deregistration: Deregistration,
    *,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> ReporterFactory:
    for url in unencrypted_registries(configuration.settings):
        log.warning("the key for this registry travels unencrypted: use https", registry=url)
    return ReporterFactory(
        heartbeat_builder=heartbeat_builder,
        hostname=configuration.address.hostname,
        interval_seconds=configuration.settings.heartbeat_seconds,
        identity=identity,
        deregistration=deregistration,
        status_file=StatusFile(directory=configuration.state_directory),
        metrics=metrics,
        log=log,
    )


def _log_left_out(log: FilteringBoundLogger) -> Callable[[str], None]:
    return lambda fault: log.warning("not told to the registries", reason=fault)
