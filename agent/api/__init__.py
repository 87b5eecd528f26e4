"""The agent's HTTP API: /v1/apps."""
