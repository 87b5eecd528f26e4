"""Durable storage of nodes in one SQLite file."""
