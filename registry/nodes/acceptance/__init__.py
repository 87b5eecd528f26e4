"""Which heartbeats are accepted."""
