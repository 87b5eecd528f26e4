"""An app with an operation, as the tests of the agent's database write them."""

from agent.journal import EntryHeader, ReplaceEntry
from agent.model import App

APP = App(
    name="web",
    image="app:1",
    ssh_port=20001,
    http_port=20002,
    cpu=100,
    memory=64,
    created_at="2026-01-31T12:00:00Z",
    env={"TOKEN": "s3cret"},
    labels=("service:web",),
    password="$6$hash",
)
HEADER = EntryHeader(id="1", operation="rebuild", app="web", by="ops", since=1.0)
ENTRY = ReplaceEntry(header=HEADER, before=APP, target=APP)
