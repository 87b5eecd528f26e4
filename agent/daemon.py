"""The running agent: opens its parts, connects them, and runs until a signal stops it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
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
from agent.api.routes import BODY_LIMITS, AppsApi, usage_routes
from agent.apps.errors import STATUS_BY_ERROR
from agent.apps.metrics.exporter import AppMetrics
from agent.apps.metrics.sampler import AppSampler, UsageSamples
from agent.apps.running import open_apps
from agent.apps.service.apps import Apps
from agent.engine.engine import Engine
from agent.metrics import (
    measuring_agent_disks,
    show_certificates,
    show_engine,
    show_labels_left_out,
)
from agent.reporting.connections import CertificateMonitor, RegistryGroup, registry_clients
from agent.reporting.failover import Failover
from agent.reporting.heartbeat import NO_APPS_KNOWN, HeartbeatBuilder, Host
from agent.reporting.label_files import LabelFiles
from agent.reporting.reporter import Reporter, Reporters, ReportTiming, scheduled
from agent.reporting.status import (
    AgentStatus,
    HeartbeatMetrics,
    HeartbeatRecorder,
    RegistryStatus,
    StatusWriter,
)
from agent.settings import AgentConfiguration, changes_needing_restart
from agent.state.database import AgentDatabase
from agent.state.identity import Identity, machine_id
from agent.state.lock import Deregistration, state_lock
from config import VERSION
from config.address import listen_address
from config.agent import NodeSettings
from config.load import lines_in_mistakes, log_pending_restarts
from httpd.app import NO_PROXIES, access_routes, build_app
from httpd.auth import Keyring
from httpd.clients import TrustedProxies
from httpd.metrics import RequestMetrics, measuring_loop, new_metrics
from httpd.pages import Pages
from httpd.process import SignalHandler, map_large_blocks
from httpd.server.listener import serving
from httpd.systemd.service import SystemdNotifier, SystemdSockets
from httpd.write_ahead_log import watching_log
from runtime.pauses import Backoff

DRAIN_SECONDS = 10.0
# The schedule requests each heartbeat. After the wall clock was set back it requests none until the
# clock has caught up; meanwhile a reporter sends one by itself, this many seconds late.
SCHEDULE_GRACE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class _Agent:
    """What the parts of the running agent share.

    ``instance`` is that of this process: if a machine is cloned, the clone has another one.
    """

    configuration: AgentConfiguration
    identity: Identity
    instance: str
    engine: Engine
    sampler: AppSampler
    keyring: Keyring
    reporters: Reporters
    metrics: CollectorRegistry
    log: FilteringBoundLogger


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
        metrics, instance = new_metrics(), uuid4().hex
        await stack.enter_async_context(measuring_loop(metrics, log))
        stack.enter_context(state_lock(configuration.state_directory, instance=instance))
        deregistration = Deregistration(directory=configuration.state_directory)
        deregistration.clear()  # first of all: a `deregister` during the start must win
        notifier = SystemdNotifier(os.environ)
        signals = SignalHandler(notifier=notifier, log=log)
        engine = _engine(configuration)
        agent = _Agent(
            configuration=configuration,
            identity=Identity(directory=configuration.state_directory, machine=machine_id()),
            instance=instance,
            engine=engine,
            sampler=AppSampler(engine=engine, log=log),
            keyring=Keyring(configuration.callers),
            reporters=Reporters(),
            metrics=metrics,
            log=log,
        )
        apps = await stack.enter_async_context(_apps(agent))
        await stack.enter_async_context(registry_clients(configuration.registry_groups, log))
        # It ends after the listener, so that the last report holds what the last requests change.
        stack.push_async_callback(agent.reporters.stop)
        systemd = SystemdSockets(environ=os.environ, notifier=notifier)
        port = await stack.enter_async_context(_listening(agent, apps, systemd))
        host = _host(agent, port)
        builder = HeartbeatBuilder(
            host=host(configuration.settings.node), hosted_apps=apps.hosted.hosted_apps
        )
        show_labels_left_out(metrics, lambda: builder.host.left_out)
        reporters = _group_reporters(agent, apps, builder, deregistration)
        agent.reporters.start(reporters)
        certificates = CertificateMonitor(configuration.registry_groups, log=log)
        show_certificates(metrics, configuration, certificates)
        ticks = [*(reporter.tick for reporter in reporters), certificates.tick]
        stack.enter_context(scheduled(ticks, seconds=configuration.settings.heartbeat_seconds))
        await signals.run_until_stopped(partial(_reload, agent, host, builder))


async def _reload(
    agent: _Agent, host: Callable[[NodeSettings], Host], builder: HeartbeatBuilder
) -> None:
    """Read the settings again.

    API keys and the logins at registries of images take effect at once; labels and kv are reported.

    Other settings that differ are logged, because they need a restart. Raises ConfigError if the
    settings cannot be used; then nothing has changed.
    """
    configuration = agent.configuration
    with lines_in_mistakes(configuration.file):
        fresh = await asyncio.to_thread(AgentConfiguration, configuration.file)
    builder.host = host(fresh.settings.node)
    agent.keyring.replace(fresh.callers)
    agent.engine.use_logins(fresh.logins())
    agent.reporters.request_report()
    log_pending_restarts(changes_needing_restart(configuration.settings, fresh.settings), agent.log)


def _engine(configuration: AgentConfiguration) -> Engine:
    docker = configuration.settings.docker
    return Engine(
        url=docker.url,
        timeout_seconds=docker.timeout_seconds,
        logins=configuration.logins(),
        pull_seconds=configuration.settings.apps.pull_seconds,
    )


@asynccontextmanager
async def _apps(agent: _Agent) -> AsyncIterator[Apps]:
    """Run the apps, and measure them, while the context is open."""
    configuration, metrics, sampler = agent.configuration, agent.metrics, agent.sampler
    metrics.register(AppMetrics(lambda: sampler.figures))

    def changed() -> None:
        sampler.look_soon()
        agent.reporters.request_report()

    store = AgentDatabase(configuration.database)
    async with (
        measuring_agent_disks(metrics, configuration, sampler, agent.log),
        open_apps(
            store=store,
            engine=agent.engine,
            identity=agent.identity,
            defaults=configuration.app_defaults(),
            log=agent.log,
            on_change=changed,
            clock=time,
            metrics=metrics,
            holders=partial(holders, agent.keyring),
        ) as apps,
        watching_log(metrics, configuration.database, agent.log, shorten=store.shorten_log),
        sampler.sampling(apps.queries.all),
    ):
        show_engine(metrics, apps.problem)
        yield apps


@asynccontextmanager
async def _listening(agent: _Agent, apps: Apps, systemd: SystemdSockets) -> AsyncIterator[int]:
    """Serve the API while the context is open; yield the port."""
    configuration, settings = agent.configuration, agent.configuration.settings
    request_metrics = RequestMetrics(agent.metrics)
    app = build_application(
        apps,
        usage=agent.sampler.usage,
        hostname=configuration.address.hostname,
        registries=[
            url.rstrip("/") for group in settings.registries for _, url in group.named_urls()
        ],
        keyring=agent.keyring,
        metrics=agent.metrics,
        request_metrics=request_metrics,
        open_metrics=settings.open_metrics,
        open_swagger=settings.open_swagger,
        pages=settings.pages,
        max_connections=settings.max_connections,
        proxies=configuration.proxies,
        log=agent.log,
    )
    async with serving(
        app,
        tls=configuration.tls,
        metrics=request_metrics,
        max_connections=settings.max_connections,
        drain_seconds=DRAIN_SECONDS,
        systemd=systemd,
        log=agent.log,
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


def _host(agent: _Agent, port: int) -> Callable[[NodeSettings], Host]:
    def warn(fault: str) -> None:
        agent.log.warning("left out of heartbeats", reason=fault)

    return partial(
        agent.configuration.host,
        agent_id=agent.identity.id,
        agent_instance=agent.instance,
        label_files=LabelFiles(warn=warn),
        warn=warn,
        port=port,
    )


def _group_reporters(
    agent: _Agent, apps: Apps, builder: HeartbeatBuilder, deregistration: Deregistration
) -> list[Reporter]:
    """Make a reporter for each group of registries, and write the first status file."""
    configuration, seconds = agent.configuration, agent.configuration.settings.heartbeat_seconds
    status = StatusWriter(
        configuration.state_directory,
        AgentStatus(
            agent_id=agent.identity.id,
            agent_instance=agent.instance,
            started_at=time(),
            hosting=NO_APPS_KNOWN,
            registries=[],
        ),
        hosting=lambda: builder.last_hosted_apps,
        foreign=lambda: apps.context.ownership.foreign,
    )
    apps.context.ownership.listeners.append(status.write)
    heartbeat_metrics = HeartbeatMetrics(agent.metrics)

    def reporter(group: RegistryGroup) -> Reporter:
        group = group.ordered_for(agent.identity.id)
        statuses = [
            RegistryStatus(url=url, alternatives=others) for url, others in group.alternatives()
        ]
        status.registries += statuses
        recorder = HeartbeatRecorder(
            statuses=statuses,
            metrics=heartbeat_metrics,
            clock=time,
            on_change=status.write,
            log=agent.log,
        )
        return Reporter(
            failover=Failover(
                group=group,
                hostname=configuration.address.hostname,
                identity=agent.identity,
                recorder=recorder,
                log=agent.log,
            ),
            heartbeat=builder.heartbeat,
            deregistration=deregistration,
            timing=ReportTiming(
                max_silence_seconds=seconds + SCHEDULE_GRACE_SECONDS,
                backoff=Backoff(max_seconds=seconds, random=SystemRandom()),
            ),
        )

    reporters = [reporter(group) for group in configuration.registry_groups]
    status.write()
    return reporters
