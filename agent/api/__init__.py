"""The agent's HTTP API, /v1/apps: routes, requests, log streams, statuses of errors."""
