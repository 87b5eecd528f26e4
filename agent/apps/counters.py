"""The counters of all apps together."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class AppCounters:
    """What the agent finds out about apps, and what it does without a request."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self.unhealthy = Gauge(
            "rollcall_apps_unhealthy",
            "Apps whose check, or that of their image, fails at present.",
            registry=metrics,
        )
        self.turned_unhealthy = Counter(
            "rollcall_apps_turned_unhealthy_total",
            "Times that an app became unhealthy by the check in its record.",
            registry=metrics,
        )
        self.restarts = Counter(
            "rollcall_apps_restarted_total",
            "Starts of apps by the agent without a request, by reason.",
            ["reason"],
            registry=metrics,
        )
        self.images_removed = Counter(
            "rollcall_images_removed_total",
            "Images that the agent had pulled and removed, by reason.",
            ["reason"],
            registry=metrics,
        )
        for reason in ("unneeded", "disk"):
            self.images_removed.labels(reason)
        for reason in ("down", "unhealthy"):
            self.restarts.labels(reason)
