"""Registries that share a bucket, on NATS servers that fail."""
