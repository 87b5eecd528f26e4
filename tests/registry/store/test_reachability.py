"""The log says when a shared store is lost and regained, once each."""

import structlog
from structlog.testing import LogCapture

from registry.store.reachability import ReachabilityLog
from tests.support.registry.in_process import InProcessRegistry
from tests.support.registry.stores.memory_store import MemoryStore


async def test_each_reason_for_which_a_store_is_at_risk_is_an_error_in_the_log_once() -> None:
    store, capture = MemoryStore(), LogCapture()
    reachability = ReachabilityLog(
        lambda: store.health, structlog.wrap_logger(None, processors=[capture]), lambda: None
    )
    for risk in ("", "n1 does not sync", "n1 does not sync", "n2 is too old", "", ""):
        store.risk = risk
        await reachability.look()

    assert capture.entries == [
        {"event": "store at risk", "log_level": "error", "reason": "n1 does not sync"},
        {"event": "store at risk", "log_level": "error", "reason": "n2 is too old"},
        {"event": "store no longer at risk", "log_level": "info"},
    ]


async def test_servers_that_could_not_be_checked_are_a_warning_in_the_log_once() -> None:
    store, capture = MemoryStore(), LogCapture()
    reachability = ReachabilityLog(
        lambda: store.health, structlog.wrap_logger(None, processors=[capture]), lambda: None
    )
    for unchecked in ("no answer from n3", "no answer from n3", "", ""):
        store.unchecked = unchecked
        await reachability.look()

    assert capture.entries == [
        {
            "event": "store servers not checked",
            "log_level": "warning",
            "reason": "no answer from n3",
        },
        {"event": "store servers checked", "log_level": "info"},
    ]


async def test_a_store_that_is_lost_and_regained_is_logged_once_with_reason_and_duration() -> None:
    store, capture = MemoryStore(), LogCapture()
    logger = structlog.wrap_logger(None, processors=[capture])
    reachability = ReachabilityLog(lambda: store.health, logger, lambda: None)
    for age, problem in (
        (0.0, ""),
        (3.2, "n1: connection refused"),
        (9.04, "x"),
        (0.0, ""),
        (0.0, ""),
    ):
        store.age, store.problem = age, problem
        await reachability.look()

    assert capture.entries == [
        {
            "event": "store unreachable",
            "log_level": "warning",
            "store_age": 3.2,
            "reason": "n1: connection refused",
        },
        {"event": "store reachable again", "log_level": "info", "seconds": 9.0},
    ]


async def test_a_store_at_risk_is_seen_in_the_metrics(registry: InProcessRegistry) -> None:
    for risk, value in (("", 0.0), ("n1 does not sync", 1.0)):
        registry.store.risk = risk
        reported = (await registry.ask("GET", "/metrics")).body.decode()
        assert f"\nrollcall_registry_store_at_risk {value}\n" in reported
