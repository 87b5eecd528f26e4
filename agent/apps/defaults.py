"""What an app gets where neither it nor its image says otherwise."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AppDefaults:
    """Defaults and limits of all apps on this host.

    Attributes:
        cpu: Percent of one core.
        memory: MiB.
        ports: The host's ports that may be picked.
        bind: The host's address on which ports are published.
        ssh_port: The SSH port in a container.
        http_port: The HTTP port in a container.
        data: Where the app's volume is mounted.
        ssh_user: Whose password is set.
        stop_seconds: How long an app has to end before it is killed.
        password_min: Characters in the shortest password.
        pids: Processes and threads in one app.
        log_mib: MiB that an app's log may take.
        min_free_percent: Space and inodes that must be free for new data, on the engine's disk and
            on that of the database.
        no_new_privileges: Whether setuid programs are powerless in apps.
        settle_seconds: How long an app must stay up for its start to count.

    """

    cpu: int = 100
    memory: int = 512
    ports: range = range(20000, 30000)
    bind: str = "127.0.0.1"
    ssh_port: int = 22
    http_port: int = 8000
    data: str = "/srv"
    ssh_user: str = "app"
    stop_seconds: int = 10
    password_min: int = 8
    pids: int = 512
    log_mib: int = 10
    min_free_percent: int = 5
    no_new_privileges: bool = True
    settle_seconds: float = 1.0
