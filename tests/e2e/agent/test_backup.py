"""A backup of the agent's database, made and put back as docs/operations.md says."""

import shutil

import docker
import pytest

from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.daemons import Daemons
from tests.support.e2e.commands import run_command

pytestmark = pytest.mark.real


def test_a_backup_that_is_restored_has_the_apps_which_run_on(
    daemons: Daemons, engine_url: str, docker_client: docker.APIClient, busybox_image: str
) -> None:
    agent = daemons.agent(engine=engine_url, apps={"bind": "127.0.0.1", "stop_seconds": 1})
    app, later = (ObservedApp(agent, docker_client) for _ in range(2))
    try:
        body = {"image": busybox_image, "memory": 32, "env": {"KEY": "value"}}
        assert agent.ask("POST", "/v1/apps", json={"name": app.name, **body}).status_code == 201
        app.write()
        folder = agent.config_path.parent
        backup = folder / "backup.db"

        done = run_command("rollcall-agent", agent, "backup", str(backup))
        assert (done.returncode, done.stdout) == (0, f"{backup}: 1 apps\n")
        assert backup.stat().st_mode & 0o777 == 0o600
        again = run_command("rollcall-agent", agent, "backup", str(backup))
        assert (again.returncode, "replaces nothing" in again.stderr) == (1, True)

        assert agent.ask("POST", "/v1/apps", json={"name": later.name, **body}).status_code == 201
        assert agent.ask("PUT", f"{app.path}/rebuild").ok
        assert agent.ask("POST", f"{app.path}/labels", json={"Value": "a:b"}).ok
        agent.terminate()
        for file in folder.glob("store.db*"):
            file.unlink()
        shutil.copy(backup, folder / "store.db")
        agent.start()

        app.check()
        record = app.record()
        assert record is not None
        assert (record["env"], record["labels"]) == ({"KEY": "value"}, [])
        assert later.record() is not None
    finally:
        app.delete()
        later.delete()
