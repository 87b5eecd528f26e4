"""The running agent: opens its parts, connects them, and runs until a signal stops it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from functools import partial
from importlib.resources import files
from random import SystemRandom
from time import time
from uuid import uuid4

from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.api.bounds import holders, permits
from agent.api.data import UPLOAD_IDLE_SECONDS
from agent.api.errors import STATUS_BY_ERROR
from agent.api.routes import BODY_LIMITS, AppsApi
from agent.api.usage import usage_routes
from agent.apps.metrics.exporter import AppMetrics
from agent.apps.metrics.sampler import AppSampler, UsageSamples
from agent.apps.running import open_apps
from agent.apps.service.apps import Apps
from agent.engine.docker.engine import DockerEngine
from agent.metrics import (
    measuring_agent_disks,
    show_certificates,
    show_engine,
    show_labels_left_out,
)
from agent.reporting.certificates import CertificateMonitor
from agent.reporting.connections import RegistryGroup, registry_clients
from agent.reporting.failover import Failover, Registration
from agent.reporting.heartbeat import HeartbeatBuilder, Host
from agent.reporting.label_files import LabelFiles
from agent.reporting.reporter import Reporter, Reporters, ReportTiming, scheduled
from agent.reporting.status import (
    AgentRun,
    HeartbeatMetrics,
    HeartbeatRecorder,
    RegistryStatus,
    StatusFile,
    StatusWriter,
)
from agent.settings import AgentConfiguration, changes_needing_restart
from agent.state.database import Store
from agent.state.identity import Identity, machine_id
from agent.state.lock import Deregistration, state_lock
from config import VERSION
from config.address import listen_address
from config.agent import NodeSettings
from config.changes import log_pending_restarts
from config.lines import lines_in_mistakes
from httpd.app import NO_PROXIES, access_routes, build_app
from httpd.auth import Keyring
from httpd.clients import TrustedProxies
from httpd.host_metrics.loop import measuring_loop
from httpd.host_metrics.write_ahead_log import watching_log
from httpd.metrics import RequestMetrics, new_metrics
from httpd.pages.files import Pages
from httpd.process import SignalHandler, map_large_blocks
from httpd.server.listener import serving
from httpd.systemd.notifier import SystemdNotifier
from httpd.systemd.sockets import SystemdSockets
from runtime.pauses import Backoff

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
    map_large_blocks()
    async with AsyncExitStack() as stack:
        for fault in configuration.certificate_faults():
            log.warning("certificate not valid, peers reject it", reason=fault)
        for unsafe in configuration.unsafe_settings():
            log.warning("unsafe setting", reason=unsafe)
        metrics, keyring = new_metrics(), Keyring(configuration.callers)
        await stack.enter_async_context(measuring_loop(metrics))
        # It is that of this process: if a machine is cloned, the clone has another one.
        instance = uuid4().hex
        stack.enter_context(state_lock(configuration.state_directory, instance=instance))
        deregistration = Deregistration(directory=configuration.state_directory)
        deregistration.clear()  # first of all: a `deregister` during the start must win
        identity = Identity(directory=configuration.state_directory, machine=machine_id())
        notifier = SystemdNotifier(os.environ)
        signals = SignalHandler(notifier=notifier, log=log)
        reporters = Reporters()
        engine = _engine(configuration)
        sampler = AppSampler(engine=engine, log=log)
        apps = await stack.enter_async_context(
            _apps(
                configuration,
                engine,
                identity,
                sampler,
                keyring,
                on_change=reporters.request_report,
                metrics=metrics,
                log=log,
            )
        )
        await stack.enter_async_context(registry_clients(configuration.registry_groups, log))
        # It ends after the listener, so that the last report holds what the last requests change.
        stack.push_async_callback(reporters.stop)
        port = await stack.enter_async_context(
            _listening(
                configuration,
                apps,
                sampler,
                keyring=keyring,
                metrics=metrics,
                systemd=SystemdSockets(environ=os.environ, notifier=notifier),
                log=log,
            )
        )
        agent_run = AgentRun(agent_id=identity.id, agent_instance=instance, started_at=time())
        host = _host(configuration, agent_run, port=port, log=log)
        heartbeat_builder = HeartbeatBuilder(
            host=host(configuration.settings.node), hosted_apps=apps.hosted.hosted_apps
        )
        show_labels_left_out(metrics, lambda: heartbeat_builder.host.left_out)
        status = _status_writer(configuration, heartbeat_builder, agent_run, apps)
        group_reporters = _group_reporters(
            configuration,
            heartbeat_builder,
            identity,
            deregistration,
            status=status,
            metrics=metrics,
            log=log,
        )
        reporters.start(group_reporters)
        stack.enter_context(_scheduled(configuration, group_reporters, metrics, log))
        await signals.run_until_stopped(
            partial(
                _reload,
                configuration,
                host=host,
                keyring=keyring,
                engine=engine,
                heartbeat_builder=heartbeat_builder,
                reporters=reporters,
                log=log,
            )
        )


async def _reload(
    configuration: AgentConfiguration,
    *,
    host: Callable[[NodeSettings], Host],
    keyring: Keyring,
    engine: DockerEngine,
    heartbeat_builder: HeartbeatBuilder,
    reporters: Reporters,
    log: FilteringBoundLogger,
) -> None:
    """Read the settings again.

    API keys and the logins at registries of images take effect at once; labels and kv are reported.

    Other settings that differ are logged, because they need a restart. Raises ConfigError if the
    settings cannot be used; then nothing has changed.
    """
    with lines_in_mistakes(configuration.file):
        fresh = await asyncio.to_thread(AgentConfiguration, configuration.file)
    heartbeat_builder.host = host(fresh.settings.node)
    keyring.replace(fresh.callers)
    engine.use_logins(fresh.logins())
    reporters.request_report()
    log_pending_restarts(changes_needing_restart(configuration.settings, fresh.settings), log)


def _engine(configuration: AgentConfiguration) -> DockerEngine:
    docker = configuration.settings.docker
    return DockerEngine(
        url=docker.url,
        timeout_seconds=docker.timeout_seconds,
        logins=configuration.logins(),
        pull_seconds=configuration.settings.apps.pull_seconds,
    )


@asynccontextmanager
async def _apps(
    configuration: AgentConfiguration,
    engine: DockerEngine,
    identity: Identity,
    sampler: AppSampler,
    keyring: Keyring,
    *,
    on_change: Callable[[], None],
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> AsyncIterator[Apps]:
    """Run the apps, and measure them, while the context is open."""
    metrics.register(AppMetrics(lambda: sampler.figures))

    def changed() -> None:
        sampler.look_soon()
        on_change()

    store = Store(configuration.database)
    async with (
        measuring_agent_disks(metrics, configuration, sampler),
        open_apps(
            store=store,
            engine=engine,
            identity=identity,
            defaults=configuration.app_defaults(),
            log=log,
            on_change=changed,
            clock=time,
            metrics=metrics,
            holders=partial(holders, keyring),
        ) as apps,
        watching_log(metrics, configuration.database, log, shorten=store.shorten_log),
        sampler.sampling(apps.queries.all),
    ):
        show_engine(metrics, apps.problem)
        yield apps


@asynccontextmanager
async def _listening(
    configuration: AgentConfiguration,
    apps: Apps,
    sampler: AppSampler,
    *,
    keyring: Keyring,
    metrics: CollectorRegistry,
    systemd: SystemdSockets,
    log: FilteringBoundLogger,
) -> AsyncIterator[int]:
    """Serve the API while the context is open; yield the port."""
    settings, request_metrics = configuration.settings, RequestMetrics(metrics)
    app = build_application(
        apps,
        usage=sampler.usage,
        hostname=configuration.address.hostname,
        registries=[
            url.rstrip("/") for group in settings.registries for _, url in group.named_urls()
        ],
        keyring=keyring,
        metrics=metrics,
        request_metrics=request_metrics,
        open_metrics=settings.open_metrics,
        open_swagger=settings.open_swagger,
        pages=settings.pages,
        max_connections=settings.max_connections,
        proxies=configuration.proxies,
        log=log,
    )
    async with serving(
        app,
        tls=configuration.tls,
        metrics=request_metrics,
        max_connections=settings.max_connections,
        drain_seconds=DRAIN_SECONDS,
        systemd=systemd,
        log=log,
    ) as listener:
        _, port = await listener.start(listen_address(settings.listen))
        yield port


def build_application(
    apps: Apps,
    *,
    usage: Callable[[], UsageSamples],
    hostname: str,
    registries: Sequence[str] = (),
    keyring: Keyring,
    metrics: CollectorRegistry,
    request_metrics: RequestMetrics,
    open_metrics: bool,
    open_swagger: bool,
    pages: bool,
    max_connections: int,
    log: FilteringBoundLogger,
    proxies: TrustedProxies = NO_PROXIES,
    upload_idle_seconds: float = UPLOAD_IDLE_SECONDS,
) -> web.Application:
    """Build the HTTP application over the apps."""
    api = AppsApi(
        apps=apps,
        log=log,
        upload_idle_seconds=upload_idle_seconds,
        max_connections=max_connections,
    )
    app = build_app(
        daemon="agent",
        routes=[
            *api.routes(),
            *usage_routes(usage),
            *access_routes("agent", version=VERSION, hostname=hostname, registries=registries),
        ],
        keyring=keyring,
        permits=permits,
        status_by_error=STATUS_BY_ERROR,
        metrics=metrics,
        request_metrics=request_metrics,
        unavailable_reason=apps.problem,
        body_limits=BODY_LIMITS,
        swagger=files("agent").joinpath("swagger.yml").read_text("utf-8"),
        open_metrics=open_metrics,
        open_swagger=open_swagger,
        pages=Pages("agent") if pages else None,
        proxies=proxies,
        log=log,
    )
    api.attach(app)
    return app


def _host(
    configuration: AgentConfiguration, agent_run: AgentRun, *, port: int, log: FilteringBoundLogger
) -> Callable[[NodeSettings], Host]:
    def warn(fault: str) -> None:
        log.warning("left out of heartbeats", reason=fault)

    return partial(
        configuration.host,
        agent_id=agent_run.agent_id,
        agent_instance=agent_run.agent_instance,
        label_files=LabelFiles(warn=warn),
        warn=warn,
        port=port,
    )


def _status_writer(
    configuration: AgentConfiguration,
    heartbeat_builder: HeartbeatBuilder,
    agent_run: AgentRun,
    apps: Apps,
) -> StatusWriter:
    status = StatusWriter(
        StatusFile(directory=configuration.state_directory),
        run=agent_run,
        hosting=lambda: heartbeat_builder.last_hosted_apps,
        foreign=apps.queries.foreign,
    )
    apps.queries.ownership.listeners.append(status.write)
    return status


def _group_reporters(
    configuration: AgentConfiguration,
    heartbeat_builder: HeartbeatBuilder,
    identity: Identity,
    deregistration: Deregistration,
    *,
    status: StatusWriter,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> list[Reporter]:
    """Make a reporter for each group of registries, and write the first status file."""
    seconds = configuration.settings.heartbeat_seconds
    heartbeat_metrics = HeartbeatMetrics(metrics)

    def reporter(group: RegistryGroup) -> Reporter:
        group = group.ordered_for(identity.id)
        registry_statuses = [
            RegistryStatus(url=url, alternatives=others) for url, others in group.alternatives()
        ]
        status.add(registry_statuses)
        recorder = HeartbeatRecorder(
            statuses=registry_statuses,
            metrics=heartbeat_metrics,
            clock=time,
            on_change=status.write,
            log=log,
        )
        registration = Registration(
            group=group, hostname=configuration.address.hostname, identity=identity, log=log
        )
        return Reporter(
            failover=Failover(registration=registration, recorder=recorder),
            heartbeat=heartbeat_builder.heartbeat,
            deregistration=deregistration,
            timing=ReportTiming(
                max_silence_seconds=seconds + SCHEDULE_GRACE_SECONDS,
                backoff=Backoff(max_seconds=seconds, random=SystemRandom()),
            ),
        )

    reporters = [reporter(group) for group in configuration.registry_groups]
    status.write()
    return reporters


def _scheduled(
    configuration: AgentConfiguration,
    reporters: list[Reporter],
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> AbstractContextManager[None]:
    """Return the context in which heartbeats and checks of certificates are due periodically."""
    certificate_monitor = CertificateMonitor(configuration.registry_groups, log=log)
    show_certificates(metrics, configuration, certificate_monitor)
    ticks = [*(reporter.tick for reporter in reporters), certificate_monitor.tick]
    return scheduled(ticks, seconds=configuration.settings.heartbeat_seconds)
