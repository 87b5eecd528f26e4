"""Nodes in a bucket of NATS JetStream, which any number of registries share."""
