"""What JetStream answers to a write."""

from typing import Any, NamedTuple

import msgspec
from nats.aio.msg import Msg

from registry.store.nats.connection.api import TEMPORARILY_UNAVAILABLE

WRONG_LAST_SEQUENCE = 10071
# Another change of the same key is on its way to the servers, so its sequence is not known yet.
ANOTHER_ON_ITS_WAY = 10164
OUT_OF_RESOURCES = {10002, 10023, 10047, 10077}
ON_ITS_WAY_SECONDS = 0.02
NO_LEADER_SECONDS = 0.2


class Acknowledged(NamedTuple):
    """The write has taken effect, with this sequence."""

    sequence: int


class Conflict(NamedTuple):
    """The write had no effect, since its key has another last sequence; 0 if it has none."""

    actual: int


class Retry(NamedTuple):
    """The write is to be sent again after these seconds; `is_without_effect` if it had none yet."""

    seconds: float
    is_without_effect: bool


class Refusal(NamedTuple):
    """The servers do not accept the write."""

    reason: str
    is_full: bool


PublishResult = Acknowledged | Conflict | Retry | Refusal


class _Acknowledgement(msgspec.Struct, frozen=True):
    seq: int = 0
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Acknowledgement).decode


def publish_result(message: Msg) -> PublishResult:
    """Return what an answer says. Raises msgspec.MsgspecError if it is none of JetStream."""
    if message.headers and "Status" in message.headers:
        return Retry(NO_LEADER_SECONDS, is_without_effect=True)
    answer = _decode(message.data)
    if answer.error is None:
        return Acknowledged(answer.seq)
    code = answer.error.get("err_code", 0)
    text = str(answer.error.get("description", "no reason given"))
    if code == WRONG_LAST_SEQUENCE:
        return Conflict(int(text.rpartition(" ")[2]))
    if code == ANOTHER_ON_ITS_WAY:
        return Retry(ON_ITS_WAY_SECONDS, is_without_effect=True)
    if code in TEMPORARILY_UNAVAILABLE:
        return Retry(NO_LEADER_SECONDS, is_without_effect=False)
    return Refusal(text, is_full=code in OUT_OF_RESOURCES)
