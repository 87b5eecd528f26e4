"""`apply` with values of `env` that are read from elsewhere."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from cli.reach.contexts import ContextFile, state_folder
from tests.support.cli.command import Ran, Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

SHOP = "/v1/apps/shop"
RECORD = APP_RECORD | {"healthy": True, "env": {"MODE": "live"}}
PLAN = {
    "app": RECORD,
    "replaces_container": True,
    "seconds_without_service": 1,
    "message": None,
}
FILE = """\
apps:
  - name: shop
    where: {%s}
    image: shop:1
    env_file: shop.env
    env:
      PLAIN: as it is
      TOKEN: {file: secrets/token}
      USER_NAME: {variable: SHOP_USER}
      PASSWORD: {command: [printf, "of the command\\n"]}
"""
ENV = {
    "MODE": "dark",
    "PLAIN": "as it is",
    "TOKEN": "of the file",
    "USER_NAME": "of the variable",
    "PASSWORD": "of the command",
}


class Applying:
    """The command with a file of apps and what that names."""

    def __init__(self, rollcall: Rollcall, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "apps.yml"
        self._rollcall = rollcall
        (folder / "secrets").mkdir()
        (folder / "secrets" / "token").write_text("of the file\n")
        (folder / "shop.env").write_text("MODE=dark\nPLAIN=of the env_file\n")
        rollcall.environment["SHOP_USER"] = "of the variable"

    async def __call__(self, where: str, command: str, *options: str) -> Ran:
        self.file.write_text(FILE % where)
        return await self._rollcall(command, "-f", str(self.file), *options)


@pytest.fixture
async def applying(
    rollcall: Rollcall, registry: InProcessRegistry, agent: FakeAgent, tmp_path: Path
) -> Applying:
    await registry.post("web-1", ["service:web"], kv={"agent.url": agent.url})
    agent.answers["GET", SHOP] = RECORD
    agent.answers["PUT", f"{SHOP}?dry_run=true"] = PLAN
    agent.answers["PUT", SHOP] = RECORD
    return Applying(rollcall, tmp_path)


async def test_values_are_read_and_never_printed(applying: Applying, agent: FakeAgent) -> None:
    seen = await applying("hosts: [web-1]", "diff", "--run-commands")
    ran = await applying("hosts: [web-1]", "apply", "--run-commands", "--yes")

    assert (seen.status, ran.status) == (1, 0), ran.err
    sent = [msgspec.json.decode(each.body) for each in agent.changes()]
    assert sent == [{"env": ENV}] * 3
    assert "env: MODE, PASSWORD, PLAIN, TOKEN, USER_NAME" in ran.out
    assert not any(f"of the {each}" in ran.out + ran.err + seen.out for each in ("file", "command"))


async def test_all_that_cannot_be_read_is_reported_and_nothing_is_changed(
    applying: Applying, agent: FakeAgent, rollcall: Rollcall
) -> None:
    forbidden = await applying("hosts: [web-1]", "apply", "--yes")
    del rollcall.environment["SHOP_USER"]
    shutil.rmtree(applying.folder / "secrets")
    broken = FILE.replace("[printf,", '["false",').replace(
        "{variable: SHOP_USER}", "{variable: NONE}"
    )
    await asyncio.to_thread(applying.file.write_text, broken % "hosts: [web-1]")
    missing = await rollcall("apply", "-f", str(applying.file), "--run-commands", "--yes")
    await asyncio.to_thread(
        applying.file.write_text, FILE.replace("{file:", "{from:") % "hosts: [web-1]"
    )
    unknown = await rollcall("diff", "-f", str(applying.file), "--run-commands")

    assert (forbidden.status, missing.status, unknown.status, agent.asked) == (2, 2, 2, [])
    assert "apps[0].env.PASSWORD: commands run only with --run-commands" in forbidden.err
    for text in (
        "apps[0].env.TOKEN: ",
        "the variable NONE is not set",
        "'false' ended with status 1",
    ):
        assert text in missing.err
    assert "apps[0].env.TOKEN: is none of a text, {file: FILE}" in unknown.err


async def test_hosts_that_choose_themselves_are_asked_about(
    applying: Applying, agent: FakeAgent, rollcall: Rollcall
) -> None:
    asked = await applying("labels: [service:web]", "apply", "--run-commands", "--yes")
    changed = agent.changes()[-1].path
    chosen = ContextFile(rollcall.contexts).chosen("test")
    accepted = state_folder("accepted", rollcall.environment, *chosen) / "shop.json"
    await asyncio.to_thread(accepted.parent.mkdir, parents=True)
    await asyncio.to_thread(accepted.write_text, '["web-1"]')
    known = await applying("labels: [service:web]", "apply", "--run-commands", "--yes")

    assert (asked.status, known.status) == (2, 0)
    assert changed.endswith("dry_run=true")
    assert "new to shop, by their own labels: web-1" in asked.err
    assert "name the hosts in `where.hosts`" in asked.err
    assert agent.changes()[-1].path == SHOP
