"""Defaults and limits of apps."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AppDefaults:
    """The values for an app where neither the app nor its image sets them.

    Attributes:
        cpu: The limit of CPU time, in percent of one core.
        memory: The limit of memory, in MiB.
        ports: The host's ports that the agent picks from.
        bind: The host's address on which ports are published.
        ssh_port: The SSH port in a container.
        http_port: The HTTP port in a container.
        data: The path that keeps its files where neither the app nor its image names any.
        allowed_images: What the references of images begin with, each with its server and a slash
            at its end; None: all images are allowed.
        allowed_data: The paths at or below which an app may ask for volumes.
        ssh_user: The user whose password is set.
        stop_seconds: The time between the request to end and the kill.
        allow_command: Whether an app may say what its container runs.
        password_min: The smallest number of characters in a password.
        pids: The limit of processes and threads in one app.
        log_mib: The limit of an app's log, in MiB.
        overcommit_percent: The part of the host's memory that all apps together may be promised,
            0 for no bound.
        min_free_percent: The part of space and inodes that must be free for new data, on the
            engine's disk and on that of the database.
        no_new_privileges: Whether setuid programs in apps gain no privileges.
        isolated: Whether apps reach only what others publish.
        subnets: The subnets of the network of isolated apps; empty: the engine chooses.
        settle_seconds: How long an updated or rebuilt app must stay up before its old container is
            removed; an app that is created or started, at most a second of it.
        healthy_seconds: How long such an app may take to get healthy, or longer if its check needs
            longer.

    """

    cpu: int = 100
    memory: int = 512
    ports: range = range(20000, 30000)
    bind: str = "127.0.0.1"
    ssh_port: int = 22
    http_port: int = 8000
    data: str = "/srv"
    allowed_data: tuple[str, ...] = ("/",)
    allowed_images: tuple[str, ...] | None = None
    ssh_user: str = "app"
    stop_seconds: int = 10
    allow_command: bool = True
    password_min: int = 8
    pids: int = 512
    log_mib: int = 10
    overcommit_percent: int = 0
    min_free_percent: int = 5
    no_new_privileges: bool = True
    isolated: bool = False
    subnets: tuple[str, ...] = ()
    settle_seconds: float = 5.0
    healthy_seconds: float = 60.0
