"""What JetStream answers to a write."""

from collections.abc import Mapping

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from registry.store.nats.publisher import (
    Acknowledged,
    Conflict,
    PublishResult,
    Retry,
    WriteRejected,
    publish_result,
)


def answered(content: object, headers: Mapping[str, str] | None = None) -> PublishResult:
    data = msgspec.json.encode(content)
    return publish_result(Msg(Client(), data=data, headers=dict(headers or {})))


def test_a_sequence_says_that_it_has_taken_effect() -> None:
    assert answered({"stream": "error", "domain": "error", "seq": 7}) == Acknowledged(7)


def test_another_last_sequence_is_a_conflict() -> None:
    error = {"code": 400, "err_code": 10071, "description": "wrong last sequence: 12"}
    assert answered({"error": error}) == Conflict(12)


@pytest.mark.parametrize(
    ("code", "is_without_effect"), [(10164, True), (10008, False), (10009, False), (10076, False)]
)
def test_what_passes_is_no_refusal(code: int, *, is_without_effect: bool) -> None:
    answer = answered({"error": {"err_code": code, "description": "not now"}})
    assert isinstance(answer, Retry)
    assert answer.is_without_effect is is_without_effect


def test_without_anybody_to_answer_it_had_no_effect() -> None:
    answer = answered("", {"Status": "503"})
    assert isinstance(answer, Retry)
    assert answer.is_without_effect


@pytest.mark.parametrize(("code", "is_full"), [(10047, True), (10023, True), (10054, False)])
def test_other_errors_are_refusals(code: int, *, is_full: bool) -> None:
    answer = answered({"error": {"err_code": code, "description": "why"}})
    assert answer == WriteRejected("why", is_full=is_full)
