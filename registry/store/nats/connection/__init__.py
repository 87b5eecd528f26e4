"""Talking to NATS servers: connections, the API of JetStream, ordered delivery."""
