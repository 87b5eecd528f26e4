"""Durable storage of nodes."""
