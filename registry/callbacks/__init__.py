"""Callbacks: changes of nodes, posted to receivers."""
