"""Accounts of NATS servers as JWTs, and the credentials files of their users."""

import base64
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import nkeys

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
UNLIMITED = -1
LIMITS = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), UNLIMITED),
    "wildcards": True,
}
JETSTREAM = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), UNLIMITED)
CREDENTIALS = """\
-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


class Permissions(NamedTuple):
    """The subjects to which a user may publish and subscribe."""

    publish: Sequence[str]
    subscribe: Sequence[str]


class Key:
    """An nkey of an operator, an account or a user."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public: str = self._pair.public_key.decode()

    def token(self, subject: str, claims: Mapping[str, Any], *, seconds: int | None = None) -> str:
        """Return a JWT about a subject; it expires after so many seconds, if it does."""
        now = int(time.time())
        content = {"iss": self.public, "sub": subject, "iat": now, "nats": {"version": 2, **claims}}
        if seconds is not None:
            content["exp"] = now + seconds
        text = f"{_part(HEADER)}.{_part(content)}"
        return f"{text}.{_base64(self._pair.sign(text.encode()))}"


class Operator:
    """An operator with two accounts: the system's, and one that has JetStream."""

    def __init__(self) -> None:
        self._key = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self.system, self.account = (Key(nkeys.PREFIX_BYTE_ACCOUNT) for _ in range(2))

    def settings(self) -> str:
        """Return what a server needs in its settings."""
        operator = self._key.token(self._key.public, {"type": "operator"})
        accounts = {
            self.system.public: self._account(self.system, {}),
            self.account.public: self._account(self.account, JETSTREAM),
        }
        preload = "\n".join(f"  {name}: {token}" for name, token in accounts.items())
        return (
            f"operator: {operator}\nsystem_account: {self.system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
        )

    def _account(self, account: Key, limits: Mapping[str, int]) -> str:
        return self._key.token(account.public, {"type": "account", "limits": {**LIMITS, **limits}})


def credentials(account: Key, permissions: Permissions, *, seconds: int | None = None) -> str:
    """Return a credentials file: a user of an account, who may do that much."""
    user = Key(nkeys.PREFIX_BYTE_USER)
    claims = {
        "type": "user",
        **dict.fromkeys(("subs", "data", "payload"), UNLIMITED),
        "pub": {"allow": list(permissions.publish)},
        "sub": {"allow": list(permissions.subscribe)},
    }
    token = account.token(user.public, claims, seconds=seconds)
    return CREDENTIALS.format(token=token, seed=user.seed)


def _part(value: object) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
