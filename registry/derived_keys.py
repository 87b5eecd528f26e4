"""Keys that are derived from a secret, each for one host, so that none is stored."""

import base64
import hashlib
import hmac


def derived_key(version: str, secret: str, purpose: str, hostname: str) -> str:
    """Return ``VERSION.HOST.`` and the unpadded base64url of an HMAC-SHA256.

    Its message is the purpose and the hostname, which is normalised already.
    """
    mac = hmac.digest(secret.encode(), f"{purpose} {hostname}".encode(), hashlib.sha256)
    return f"{version}.{hostname}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
