"""The wire format: what a host sends to the registry, and what the registry answers."""

import re
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

MAX_BODY_BYTES = 1024 * 1024
MAX_HOSTNAME = 253
MAX_LABELS = 4096
MAX_LABEL = 1024
MAX_KV = 1024
MAX_KEY = 256
MAX_VALUE = 16_384
# The kv in which an agent reports the state of each app.
APP_STATES = "apps.states"

HOSTNAME_RULE = (
    f"a hostname is 1 to {MAX_HOSTNAME} of the letters a-z, digits, '-', '_' and '.',"
    " with something between the dots"
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# The same in UTF-8, found ten times as quickly: a mebibyte of labels would take 10 ms.
_ASCII_CONTROL = bytes([*range(0x20), 0x7F])
_OTHER_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")
# Written out in ASCII: str.lower() turns the Kelvin sign into a k.
_HOSTNAME = re.compile(rf"(?!.*\.\.)(?!\.)[A-Za-z0-9._-]{{1,{MAX_HOSTNAME}}}(?<!\.)")

Label = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY)]
Value = Annotated[str, Meta(max_length=MAX_VALUE)]


class HostnameInvalid(Exception):
    """The text is no hostname; the message says what one is."""


class Heartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /nodes/{hostname}: labels and kv, which replace those known before.

    Labels keep the order sent; duplicates are dropped before they are counted. `hostname` and
    `last_update` are allowed so that a node can be sent back as it was read: the first must agree
    with the path, the second is ignored, whatever it is. Decoding raises msgspec.ValidationError,
    which names the field that breaks a limit.
    """

    labels: list[Label]
    kv: Annotated[dict[Key, Value], Meta(max_length=MAX_KV)]
    hostname: str | UnsetType = UNSET
    last_update: msgspec.Raw | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Drop duplicate labels; msgspec turns the ValueError into its ValidationError."""
        labels = self.labels
        if _holds_control("".join(labels)):
            fault = next(label for label in labels if _holds_control(label))
            raise ValueError(f"labels hold no control characters, label {fault!a} does")
        if len(set(labels)) != len(labels):
            labels[:] = dict.fromkeys(labels)
        if len(labels) > MAX_LABELS:
            raise ValueError(
                f"`labels` holds {len(labels)} labels; at most {MAX_LABELS} are allowed"
            )


def _holds_control(text: str) -> bool:
    encoded = text.encode()
    if len(encoded.translate(None, _ASCII_CONTROL)) != len(encoded):
        return True
    return _OTHER_CONTROL.search(encoded) is not None


class _LabelsOf(msgspec.Struct, frozen=True):
    """The labels of a body of POST /nodes/{hostname}, not decoded."""

    labels: msgspec.Raw


_decode_labels = msgspec.json.Decoder(_LabelsOf).decode


def has_unique_keys(body: bytes, heartbeat: Heartbeat) -> bool:
    """Return whether a body, decoded to `heartbeat`, repeats no key.

    There are two quotation marks for each string of the heartbeat, and more for a repeated key or a
    duplicate label.
    """
    others = 2 + 2 * len(heartbeat.kv)
    others += 0 if heartbeat.hostname is UNSET else 2
    others += 0 if heartbeat.last_update is UNSET else 1
    found = _quotation_marks(body)
    if found == 2 * (others + len(heartbeat.labels)):
        return True
    return found - _quotation_marks(bytes(_decode_labels(body).labels)) == 2 * others


def _quotation_marks(text: bytes) -> int:
    """Return how many quotation marks of some JSON begin or end a string."""
    found = text.count(b'"')
    if b'\\"' in text:
        found -= text.replace(rb"\\", b"\0\0").count(b'\\"')
    return found


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A host as GET /nodes shows it; `last_update` is Unix time in whole seconds."""

    hostname: str
    labels: list[str]
    kv: dict[str, str]
    last_update: int


class TargetGroup(msgspec.Struct, frozen=True):
    """Scrape targets, each `host:port` or `host`, that share labels: an element of http_sd."""

    targets: list[str]
    labels: dict[str, str]


def normalise_hostname(text: str) -> str:
    """Return the one spelling of a hostname: lower case, without a trailing dot.

    Raises HostnameInvalid.
    """
    name = text.removesuffix(".")
    if _HOSTNAME.fullmatch(name) is None:
        raise HostnameInvalid(HOSTNAME_RULE)
    return name.lower()


def label_error(text: str) -> str | None:
    """Return why `text` cannot be a label, or None if it can."""
    if not 1 <= len(text) <= MAX_LABEL:
        return f"a label has 1 to {MAX_LABEL} characters, this one has {len(text)}"
    if _CONTROL.search(text):
        return "a label holds no control characters"
    return None
