"""The client of an agent's API."""
