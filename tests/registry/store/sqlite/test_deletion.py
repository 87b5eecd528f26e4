"""Nodes are deleted while no registry runs."""

import shutil
from pathlib import Path

import pytest
import yaml

from registry.errors import StoreOpenError
from registry.main import main
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.sqlite_store import (
    fill,
    hostnames_of,
    open_store,
    start_error,
)
from tests.support.registry.stores.used_stores import continues


async def known(path: Path) -> list[str]:
    async with open_store(path) as (_, rows):
        return hostnames_of(rows)


def arguments(tmp_path: Path, *hosts: str) -> list[str]:
    """Write settings; return the arguments of the command."""
    file = tmp_path / "registry.yml"
    key = {"name": "ops", "value": "0123456789abcdef", "allow": ["read", "write"]}
    file.write_text(yaml.safe_dump({"keys": [key], "store": f"sqlite:///{tmp_path}/r.db"}))
    return ["--config", str(file), "delete", *hosts]


@pytest.mark.slow
async def test_the_command_deletes_nodes_and_tells_of_those_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(tmp_path / "r.db", "a", "b", "c")

    assert main(arguments(tmp_path, "A.", "c", "a")) == 0
    assert capsys.readouterr().out == "a: deleted\nc: deleted\n"
    assert main(arguments(tmp_path, "c", "b")) == 1
    assert capsys.readouterr().out == "c: no such node\nb: deleted\n"

    assert await known(tmp_path / "r.db") == []


@pytest.mark.slow
async def test_a_store_in_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(tmp_path / "r.db", "a")
    async with open_store(tmp_path / "r.db"):
        assert main(arguments(tmp_path, "a")) == 1
    assert "in use by another process" in capsys.readouterr().err
    assert await known(tmp_path / "r.db") == ["a"]


@pytest.mark.slow
async def test_what_only_the_log_of_a_killed_registry_holds_is_deleted(tmp_path: Path) -> None:
    await fill(tmp_path / "r.db", "a", "b")
    async with open_store(tmp_path / "r.db"):
        await fill(tmp_path / "other.db")
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"r.db{suffix}", tmp_path / f"killed.db{suffix}")

    assert SqliteBackend(tmp_path / "killed.db").delete(["a"]) == ["a"]

    assert await known(tmp_path / "killed.db") == ["b"]


@pytest.mark.slow
async def test_a_deletion_makes_no_other_store_of_it(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        await store.confirm()
    await fill(path, "a")
    SqliteBackend(path).delete(["a"])

    assert await continues(SqliteBackend(path))
    assert await known(path) == []


async def test_what_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with pytest.raises(StoreOpenError, match="does not exist"):
        SqliteBackend(path).delete(["a"])
    assert not path.with_name("r.db.lock").exists()
    path.write_text("hello")
    with pytest.raises(StoreOpenError, match="is not a SQLite database"):
        SqliteBackend(path).delete(["a"])
    assert "is not a SQLite database" in await start_error(path)
