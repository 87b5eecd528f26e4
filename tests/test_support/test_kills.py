"""Which operations the tests of kills take."""

import pytest

from dev.engines import SAMPLED_OPERATION
from tests.support.agent.kills.operations import EVERY_OPERATION, REBUILDS, UPDATES
from tests.support.agent.kills.runs import named


def test_a_part_of_a_name_takes_the_operations_with_it_and_none_takes_all() -> None:
    assert named(UPDATES, UPDATES[0].name) == [UPDATES[0]]
    assert named(REBUILDS, UPDATES[0].name) == []
    assert named(UPDATES, "") == list(UPDATES)


def test_a_part_of_no_name_is_an_error_that_shows_the_names() -> None:
    with pytest.raises(ValueError, match=f"ROLLCALL_OPERATION=rebiuld .*{REBUILDS[0].name}"):
        named(REBUILDS, "rebiuld")


def test_the_sample_has_an_operation() -> None:
    assert named(EVERY_OPERATION, SAMPLED_OPERATION)
