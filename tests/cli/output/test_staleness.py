"""Times that a node may have, told to people."""

import pytest

from cli.output.health import moment, silence


def test_a_moment_is_told_in_utc() -> None:
    assert moment(1_700_000_000) == "2023-11-14 22:13:20 UTC"


@pytest.mark.parametrize("odd", [10**13, -(10**13), 10**18, 2**63])
def test_a_moment_of_no_calendar_is_told_as_a_number(odd: int) -> None:
    assert moment(odd) == f"Unix time {odd:g}"
    assert silence(odd, 0).startswith(f"no heartbeat since Unix time {odd:g} (")
