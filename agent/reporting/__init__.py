"""Heartbeats to the registries."""
