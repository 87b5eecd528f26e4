"""URLs of stores in NATS."""

import pytest

from registry.store.backend import backend_of
from registry.store.options import NatsOptions


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://n1/rollcall", "nats://n1:4222/rollcall"),
        ("nats://n1:5000,n2/b", "nats://n1:5000,n2:4222/b"),
        ("nats://[::1]:4222,127.0.0.1/b_-1", "nats://[::1]:4222,127.0.0.1:4222/b_-1"),
    ],
)
def test_a_url_names_servers_and_a_bucket(url: str, shown: str) -> None:
    assert str(backend_of(url, NatsOptions())) == shown


@pytest.mark.parametrize(
    "url",
    [
        "nats://n1",
        "nats://n1/",
        "nats:///b",
        "nats://n1,/b",
        "nats://n1/a.b",
        "nats://n1/a/b",
        "nats://user:password@n1/b",
        "nats://n1:port/b",
    ],
)
def test_what_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="nats://HOST:PORT,HOST:PORT/BUCKET"):
        backend_of(url, NatsOptions())
