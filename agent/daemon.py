"""The running agent: opens its parts, connects them, and runs until a signal stops it."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from functools import partial
from importlib.resources import files
from random import SystemRandom
from time import time
from uuid import uuid4

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.api.errors import STATUS_BY_ERROR
from agent.api.routes import AppsApi
from agent.apps import Apps, open_apps
from agent.engine import DockerEngine
from agent.reporting.backoff import Backoff
from agent.reporting.certificates import CertificateMonitor
from agent.reporting.connections import RegistryConnection
from agent.reporting.group import ReporterGroup
from agent.reporting.heartbeat import HeartbeatBuilder, Host
from agent.reporting.label_files import LabelFiles
from agent.reporting.registration import Registration
from agent.reporting.reporter import Reporter, ReportTiming
from agent.reporting.schedule import scheduled
from agent.reporting.status import (
    HeartbeatMetrics,
    RegistryStatusRecorder,
    StatusFile,
    StatusWriter,
)
from agent.settings import AgentConfiguration, changes_needing_restart
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity, machine_id
from agent.state.lock import state_lock
from agent.state.store import Store
from config.address import listen_address
from config.agent import NodeSettings
from config.changes import log_pending_restarts
from httpd.app import build_app
from httpd.auth import Keyring
from httpd.metrics import RequestMetrics, new_metrics
from httpd.process import SignalHandler, SystemdNotifier
from httpd.server.listener import listening

DRAIN_SECONDS = 10.0
# The schedule requests each heartbeat. After the wall clock was set back it requests none until the
# clock has caught up; meanwhile a reporter sends one by itself, this many seconds late.
SCHEDULE_GRACE_SECONDS = 1.0


async def run(configuration: AgentConfiguration, log: FilteringBoundLogger) -> None:
    """Run the agent until SIGTERM or SIGINT: listen, notify systemd, and then report.

    Raises:
        StateError: the state directory is in use, or cannot be used.
        StoreUnusable: the database cannot be used.
        ListenError: the address cannot be listened on.

    """
    async with AsyncExitStack() as stack:
        stack.enter_context(state_lock(configuration.state_directory))
        deregistration = Deregistration(directory=configuration.state_directory)
        deregistration.clear()  # first of all: a `deregister` during the start must win
        identity = Identity(directory=configuration.state_directory, machine=machine_id())
        signals = SignalHandler(notifier=SystemdNotifier(os.environ), log=log)
        metrics, keyring = new_metrics(), Keyring(configuration.callers)
        reporter_group = ReporterGroup()
        apps = await stack.enter_async_context(
            _apps(configuration, identity.id, reporter_group.request_report, log)
        )
        await stack.enter_async_context(_registry_clients(configuration, log))
        # It ends after the listener, so that the last report holds what the last requests change.
        stack.push_async_callback(reporter_group.stop)
        port = await stack.enter_async_context(
            _listening(configuration, apps, keyring=keyring, metrics=metrics, log=log)
        )
        host = _host(configuration, identity, port=port, log=log)
        heartbeat_builder = HeartbeatBuilder(
            host=host(configuration.settings.node), hosted_apps=apps.hosted_apps
        )
        reporters = _reporters(
            configuration, heartbeat_builder, identity, deregistration, metrics=metrics, log=log
        )
        reporter_group.start(reporters)
        stack.enter_context(_scheduled(configuration, reporters, log))
        await signals.run_until_stopped(
            partial(
                _reload,
                configuration,
                host=host,
                keyring=keyring,
                heartbeat_builder=heartbeat_builder,
                reporter_group=reporter_group,
                log=log,
            )
        )


def _reload(
    configuration: AgentConfiguration,
    *,
    host: Callable[[NodeSettings], Host],
    keyring: Keyring,
    heartbeat_builder: HeartbeatBuilder,
    reporter_group: ReporterGroup,
    log: FilteringBoundLogger,
) -> None:
    """Read the settings again: API keys, labels and kv take effect and are reported at once.

    Other settings that differ are logged, because they need a restart. Raises ConfigError if the
    settings cannot be used; then nothing has changed.
    """
    fresh = AgentConfiguration(configuration.file)
    heartbeat_builder.host = host(fresh.settings.node)
    keyring.replace(fresh.callers)
    reporter_group.request_report()
    log_pending_restarts(changes_needing_restart(configuration.settings, fresh.settings), log)


def _apps(
    configuration: AgentConfiguration,
    identity: str,
    on_change: Callable[[], None],
    log: FilteringBoundLogger,
) -> AbstractAsyncContextManager[Apps]:
    docker = configuration.settings.docker
    return open_apps(
        store=Store(configuration.database),
        engine=DockerEngine(
            url=docker.url,
            timeout_seconds=docker.timeout_seconds,
            logins=configuration.logins(),
            pull_seconds=configuration.settings.apps.pull_seconds,
        ),
        identity=identity,
        defaults=configuration.app_defaults(),
        log=log,
        on_change=on_change,
        clock=time,
    )


@asynccontextmanager
async def _listening(
    configuration: AgentConfiguration,
    apps: Apps,
    *,
    keyring: Keyring,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> AsyncIterator[int]:
    """Serve the API while the context is open; yield the port."""
    settings, request_metrics = configuration.settings, RequestMetrics(metrics)
    api = AppsApi(apps=apps)
    app = build_app(
        routes=api.routes(),
        keyring=keyring,
        status_by_error=STATUS_BY_ERROR,
        metrics=metrics,
        request_metrics=request_metrics,
        unavailable_reason=apps.problem,
        swagger=files("agent").joinpath("swagger.yml").read_text("utf-8"),
        open_metrics=settings.open_metrics,
        open_swagger=settings.open_swagger,
        log=log,
    )
    app.on_shutdown.append(api.end_long_requests)
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


def _host(
    configuration: AgentConfiguration, identity: Identity, *, port: int, log: FilteringBoundLogger
) -> Callable[[NodeSettings], Host]:
    def warn(fault: str) -> None:
        log.warning("left out of heartbeats", reason=fault)

    return partial(
        configuration.host,
        agent_id=identity.id,
        # Of this process: if a machine is cloned with its state, the clone has another one.
        agent_instance=uuid4().hex,
        label_files=LabelFiles(warn=warn),
        warn=warn,
        port=port,
    )


def _reporters(
    configuration: AgentConfiguration,
    heartbeat_builder: HeartbeatBuilder,
    identity: Identity,
    deregistration: Deregistration,
    *,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> list[Reporter]:
    """Make a reporter for each registry, and write the first status file."""
    seconds = configuration.settings.heartbeat_seconds
    heartbeat_metrics = HeartbeatMetrics(metrics)
    status = StatusWriter(
        StatusFile(directory=configuration.state_directory),
        agent_id=identity.id,
        started_at=time(),
        hosting=lambda: heartbeat_builder.last_hosted_apps,
    )

    def reporter(connection: RegistryConnection) -> Reporter:
        recorder = RegistryStatusRecorder(
            url=connection.url,
            metrics=heartbeat_metrics,
            clock=time,
            on_change=status.write,
            log=log,
        )
        status.add(recorder.registry_status)
        return Reporter(
            registration=Registration(
                connection=connection,
                hostname=configuration.address.hostname,
                identity=identity,
                log=log,
            ),
            heartbeat=heartbeat_builder.heartbeat,
            deregistration=deregistration,
            recorder=recorder,
            timing=ReportTiming(
                max_silence_seconds=seconds + SCHEDULE_GRACE_SECONDS,
                backoff=Backoff(max_seconds=seconds, random=SystemRandom()),
            ),
        )

    reporters = [reporter(connection) for connection in configuration.registry_connections]
    status.write()
    return reporters


@asynccontextmanager
async def _registry_clients(
    configuration: AgentConfiguration, log: FilteringBoundLogger
) -> AsyncIterator[None]:
    """Keep the clients of the registries open."""
    async with AsyncExitStack() as stack:
        for connection in configuration.registry_connections:
            if connection.sends_key_unencrypted:
                log.warning(
                    "the key for this registry travels unencrypted: use https",
                    registry=connection.url,
                )
            await stack.enter_async_context(connection.client)
        yield


def _scheduled(
    configuration: AgentConfiguration, reporters: list[Reporter], log: FilteringBoundLogger
) -> AbstractContextManager[None]:
    """Return the context in which heartbeats and checks of certificates are due periodically."""
    certificate_monitor = CertificateMonitor(configuration.registry_connections, log=log)
    ticks = [*(reporter.tick for reporter in reporters), certificate_monitor.tick]
    return scheduled(ticks, seconds=configuration.settings.heartbeat_seconds)
