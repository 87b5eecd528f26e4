"""Durable storage of nodes: the protocol, the URLs, and a folder for each kind of store."""
