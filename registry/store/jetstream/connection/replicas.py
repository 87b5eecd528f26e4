"""Whether a bucket has as many replicas as its cluster could hold."""

from collections.abc import Collection

from registry.store.jetstream.connection.bucket import WANTED_REPLICAS, BucketState, stream_of
from registry.store.jetstream.connection.bucket_address import BucketAddress


def replicas_risk(state: BucketState, place: BucketAddress, candidates: Collection[str]) -> str:
    """Return why the loss of one server can lose changes; empty if the replicas are enough.

    `candidates` are the servers that are known to be able to keep a replica. Without a placement,
    those that the URL names are able to as well.
    """
    options = place.options
    is_placed = bool(options.placement_cluster or options.placement_tags)
    count = max(len(candidates), 0 if is_placed else len(place.servers))
    if options.replicas is not None or not state.cluster:
        return ""
    if state.replicas >= WANTED_REPLICAS or count < WANTED_REPLICAS:
        return ""
    return (
        f"the bucket {place.bucket} has {state.replicas} of {WANTED_REPLICAS} replicas, though"
        f" {count} servers of the cluster {state.cluster} could keep one: do `nats stream edit"
        f" {stream_of(place.bucket)} --replicas {WANTED_REPLICAS}`; or set `nats.replicas:"
        f" {state.replicas}`, if the loss of a server may lose nodes"
    )
