"""The registry's HTTP API: /nodes and /prometheus."""
