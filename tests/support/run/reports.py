"""What a run prints: each failure at once, and at the end each group of tests that was left out.

With ``CI=true`` a test that is left out is a failure.
"""

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterable

import pytest

MUST_RUN = os.environ.get("CI") == "true"
FIRST_LINES = 12


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip a failure where every test must run.

    A finalizer that prints a traceback while pytest parses the source of a failed test lets Python
    3.11 fail with a SystemError (in any later version it does not), which would end the whole run.
    """
    if call.excinfo is not None:
        gc.disable()
    try:
        report = yield
    finally:
        gc.enable()
    if MUST_RUN and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where all must run: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make the skip of a whole module a failure where every test must run."""
    report = yield
    if MUST_RUN and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped where all must run: {report.longrepr}"
    return report


class ImmediateFailures:
    """Prints the name and the first lines of each failure when the test ends."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failed test."""
        if report.failed:
            self._terminal.write_line("")  # ends the line of dots
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)
            for line in first_lines(report):
                self._terminal.write_line(f"    {line}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print failures at once where the terminal is, which is not in the workers of xdist."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(ImmediateFailures(terminal))


def first_lines(report: pytest.TestReport) -> list[str]:
    """Return the lines that say what failed, at most some, and where."""
    lines = report.longreprtext.splitlines()
    errors = [line for line in lines if line.startswith("E ")] or lines
    crash = getattr(report.longrepr, "reprcrash", None)
    where = [] if crash is None else [f"{crash.path}:{crash.lineno}"]
    return [*where, *errors[:FIRST_LINES]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each group of tests that was left out, once, with its reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, count in sorted(left_out(report.longrepr for report in skipped).items()):
        terminalreporter.write_line(f"left out ({count}): {reason}")


def left_out(skips: Iterable[object]) -> Counter[str]:
    """Count skipped tests by their reason."""
    reasons = (skip[2] if isinstance(skip, tuple) else str(skip) for skip in skips)
    return Counter(reason.removeprefix("Skipped: ") for reason in reasons)
