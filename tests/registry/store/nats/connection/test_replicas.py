"""Whether a bucket has as many replicas as its cluster could hold."""

from collections.abc import Mapping
from typing import Any

import pytest

from registry.store.nats.bucket import BucketAddress, BucketState
from registry.store.nats.checks import Server, replicas_risk
from registry.store.options import NatsOptions

ONE = "nats://n1/rollcall"
THREE = "nats://n1,n2,n3/rollcall"
ALL = {"n1", "n2", "n3"}


def risk(
    url: str = ONE,
    *,
    replicas: int = 1,
    cluster: str = "test",
    candidates: set[str] = ALL,
    wanted: int | None = None,
    **placement: Any,
) -> str:
    """Return the risk of a bucket, where the settings want these replicas, if any."""
    place = BucketAddress.from_url(url, NatsOptions(replicas=wanted, **placement))
    assert place is not None
    state = BucketState("", 1, 1, 1, 1, ("n1",), replicas, cluster)
    return replicas_risk(state, place, candidates)


def test_too_few_replicas_are_a_risk_and_the_remedy_is_named() -> None:
    text = risk()

    assert "has 1 of 3 replicas, though 3 servers of the cluster test could keep one" in text
    assert "`nats stream edit KV_rollcall --replicas 3`" in text
    assert "`nats.replicas: 1`" in text
    assert "has 2 of 3 replicas" in risk(replicas=2)
    assert risk(THREE, candidates=set())


@pytest.mark.parametrize(
    "bucket",
    [
        {"replicas": 3},
        {"replicas": 5},
        {"cluster": ""},
        {"candidates": {"n1", "n2"}},
        {"url": THREE, "candidates": {"n1"}, "placement_tags": ("ssd",)},
        {"url": THREE, "candidates": {"n1"}, "placement_cluster": "test"},
        {"url": THREE, "wanted": 1},
    ],
    ids=[
        "three",
        "five",
        "a server alone",
        "two servers",
        "two without the tag",
        "two elsewhere",
        "as the settings say",
    ],
)
def test_no_risk_where_there_are_enough_or_no_more_are_possible(bucket: Mapping[str, Any]) -> None:
    assert risk(**bucket) == ""


def test_a_server_of_the_cluster_with_all_tags_can_keep_a_replica() -> None:
    varz = {
        "server_name": "n1",
        "version": "2.12.0",
        "jetstream": {"config": {"sync_always": True}},
        "cluster": {"name": "test"},
        "tags": ["SSD", "east"],
    }
    server = Server.from_varz(varz)

    assert server.can_keep("test", ())
    assert server.can_keep("test", ("ssd", "east"))
    assert not server.can_keep("test", ("ssd", "west"))
    assert not server.can_keep("other", ())
    assert not Server.from_varz({**varz, "jetstream": {}}).can_keep("test", ())
