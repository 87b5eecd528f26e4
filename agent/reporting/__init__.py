"""Heartbeats: what this host reports, to which registries, and when."""
