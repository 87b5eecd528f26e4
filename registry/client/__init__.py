"""A client of the registry."""
