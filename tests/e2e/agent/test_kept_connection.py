"""One app, asked for again and again over one connection, as somebody does who watches it."""

import http.client
import json
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Daemons, FreePort

pytestmark = pytest.mark.real
READER = "a-reader-of-the-tests"


def test_one_app_is_shown_alike_however_it_is_asked_for(
    tmp_path: Path, free_port: FreePort, engine_url: str, busybox_image: str
) -> None:
    name = f"one-{secrets.token_hex(4)}"
    with Daemons(folder=tmp_path, free_port=free_port) as daemons:
        agent = daemons.agent(
            engine=engine_url,
            keys=[
                {"name": "ops", "value": "an-operator-of-the-tests", "allow": ["read", "write"]},
                {"name": "reader", "value": READER, "allow": ["read"]},
            ],
        )
        operator = "an-operator-of-the-tests"
        whole = {"Authorization": operator}
        body = {"name": name, "image": busybox_image, "env": {"SECRET": "s3cret"}}
        created = agent.ask("POST", "/v1/apps", json=body, headers=whole)
        assert created.status_code == 201, created.text
        try:
            port = int(agent.base_url.rpartition(":")[2])
            with closing(http.client.HTTPConnection("127.0.0.1", port)) as kept:
                assert ask(kept, f"/v1/apps/{name}", operator) == (200, {"SECRET": "s3cret"})
                assert ask(kept, f"/v1/apps/{name}", operator) == (200, {"SECRET": "s3cret"})
                assert ask(kept, f"/v1/apps/{name}", READER) == (200, {"SECRET": None})
                assert ask(kept, f"/v1/apps/{name}x", operator)[0] == 404
                assert ask(kept, f"/v1/apps/{name}", "nobody-of-the-tests")[0] == 401
                assert ask(kept, f"/v1/apps/{name}?x=1", operator)[0] == 400
        finally:
            agent.ask("DELETE", f"/v1/apps/{name}", headers=whole)


def ask(connection: http.client.HTTPConnection, path: str, key: str) -> tuple[int, Any]:
    """Return the status, and the app's environment if the answer has it."""
    connection.request("GET", path, headers={"Authorization": key})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()).get("env")
