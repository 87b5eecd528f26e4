"""Databases of an earlier version, in which an operation broke off."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from agent.model import App
from tests.support.agent.engines.fake_engine import IMAGE_IDS
from tests.support.agent.engines.fake_state import FakeEngineState

FOLDER = Path(__file__).parents[3] / "agent" / "apps" / "recovery" / "interrupted"
OPERATIONS = sorted(file.stem for file in FOLDER.glob("*.json"))


class End(msgspec.Struct, frozen=True):
    """What the version that wrote a database made of it in the end."""

    apps: list[App]
    undone: list[str]
    engine: FakeEngineState


class Interruption(msgspec.Struct, frozen=True):
    """The database and the engine, when an operation broke off at a step."""

    step: str
    agent: str
    apps: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    undone: list[str]
    engine: FakeEngineState
    end: End

    def write_database(self, path: Path) -> None:
        """Write the database as that version did, and make its directory."""
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as database, database:
            # All in one transaction: each one waits for the disk.
            schema = (FOLDER / "schema_2.sql").read_text("utf-8")
            database.executescript(f"BEGIN;\n{schema}")
            facts = {"agent": self.agent, "adopted": "yes"}
            database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            database.executemany(
                "INSERT INTO apps VALUES (?, ?)",
                [(each["name"], msgspec.json.encode(each)) for each in self.apps],
            )
            database.executemany(
                "INSERT INTO changes VALUES (?, ?)",
                [(each["app"], msgspec.json.encode(each)) for each in self.changes],
            )
            database.executemany("INSERT INTO undone VALUES (?)", [(each,) for each in self.undone])


def interruptions(operation: str) -> list[Interruption]:
    """Return the steps at which an operation broke off."""
    written = msgspec.json.decode((FOLDER / f"{operation}.json").read_bytes())
    for interruption in written:
        for engine in (interruption["engine"], interruption["end"]["engine"]):
            for container in engine["containers"].values():
                container["volumes"] = {"/srv": container.pop("volume")}
                container["image_id"] = IMAGE_IDS[container["image"]]
    return msgspec.convert(written, list[Interruption])
