"""The page about reverse proxies: its configurations, run by nginx and HAProxy."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests
import yaml
from playwright.sync_api import expect
from requests.adapters import HTTPAdapter

from dev.waiting import until
from tests.support.browser.tabs import Tabs
from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import change_settings, until_listed, until_state
from tests.support.forks import run_program
from tests.support.httpd.proxies import haproxy, nginx
from tests.support.pages import Page

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [
    pytest.mark.real("nginx", "haproxy", "chromium-headless-shell"),
    pytest.mark.page("docs/proxies.md"),
]
CLIENT = "127.0.0.2"
MIB = 1024 * 1024
SOON_SECONDS = 60.0


class Site:
    """What the page describes: a registry and an agent, each behind its proxy."""

    def __init__(self, page: Page, folder: Path, daemons: Daemons, free_port: FreePort) -> None:
        self.authority = Authority(folder / "ca")
        pair = self.authority.issue("127.0.0.1")
        settings = yaml.safe_load(page.blocks("yaml")[0].text)
        proxies = {"trusted_proxies": settings["trusted_proxies"]}
        self.registry, self.agent = daemons.registry(**proxies), daemons.agent(**proxies)
        self._closing = ExitStack()
        common: dict[str, Any] = {"pair": pair}
        self.nginx = self._closing.enter_context(
            nginx(
                page,
                folder / "nginx",
                port=free_port(),
                daemons={
                    "127.0.0.1:7655": f"127.0.0.1:{self.registry.port}",
                    "127.0.0.1:7656": f"127.0.0.1:{self.agent.port}",
                },
                **common,
            )
        )
        self.haproxy = self._closing.enter_context(
            haproxy(
                page,
                folder / "haproxy",
                port=free_port(),
                daemons={"127.0.0.1:7655": f"127.0.0.1:{self.registry.port}"},
                **common,
            )
        )
        self.session = requests.Session()
        self.session.verify = str(self.authority.ca)
        self.session.trust_env = False
        self.session.headers["Authorization"] = self.registry.key
        self.session.mount("https://", _From(CLIENT))

    @property
    def registries(self) -> list[str]:
        """The URLs of the registry behind each proxy."""
        return [self.nginx, f"{self.haproxy}/rollcall"]

    def close(self) -> None:
        self.session.close()
        self._closing.close()


class _From(HTTPAdapter):
    """Connects from another address than the proxies have."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, source_address=(self._address, 0))


@pytest.fixture
def site(page: Page, tmp_path: Path, daemons: Daemons, free_port: FreePort) -> Iterator[Site]:
    """Yield a site that runs."""
    found = Site(page, tmp_path / "site", daemons, free_port)
    yield found
    found.close()


def heartbeat(**kv: str) -> dict[str, Any]:
    return {"labels": ["service:web"], "kv": kv}


def test_the_command_logs_in_through_both_and_lists_and_explains(
    site: Site, tmp_path: Path
) -> None:
    site.registry.ask("POST", "/nodes/web-1", json=heartbeat())
    environment = os.environ | {"ROLLCALL_CONFIG": str(tmp_path / "contexts.yml")}

    def rollcall(*words: str) -> str:
        ran = run_program(["rollcall", *words], environment=environment, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    for url in site.registries:
        key, ca = str(site.registry.key_path), str(site.authority.ca)
        rollcall("login", f"{url}/", "--key-file", key, "--ca", ca)
        assert rollcall("nodes", "-o", "name") == "web-1\n"
        assert "service:web" in rollcall("node", "web-1", "-o", "json")


def test_an_agent_registers_and_its_host_has_its_own_address(site: Site) -> None:
    for number, url in enumerate(site.registries):
        hostname = f"web-{number}.test"
        change_settings(
            site.agent,
            node={"hostname": hostname},
            registries=[
                {
                    "url": url,
                    "key_file": str(site.registry.key_path),
                    "ca": str(site.authority.ca),
                }
            ],
        )
        site.agent.restart()
        until_listed(site.registry, hostname)
        answer = site.session.post(
            f"{url}/nodes/{hostname}",
            json={"labels": [1], "kv": {}},
            headers={"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9"},
            timeout=30,
        )
        assert (answer.status_code, answer.headers["Rollcall"]) == (400, "registry")
    rejected = site.registry.ask("GET", "/status").json()["rejected"]
    assert {each["address"] for each in rejected} == {CLIENT}
    assert f"remote={CLIENT}" in site.registry.log()
    assert "203.0.113.9" not in site.registry.log()


def test_events_come_at_once_and_pages_of_a_list_follow_each_other(site: Site) -> None:
    hostnames = ["web-0", "web-1", "web-2"]
    for hostname in hostnames:
        site.registry.ask("POST", f"/nodes/{hostname}", json=heartbeat())
    for number, url in enumerate(site.registries, 3):
        hostnames.append(f"web-{number}")
        with site.session.get(f"{url}/nodes?watch=true", stream=True, timeout=30) as stream:
            lines = stream.iter_lines(chunk_size=1, decode_unicode=True)
            assert next(lines).startswith(("event: ", "id: "))
            site.registry.ask("POST", f"/nodes/{hostnames[-1]}", json=heartbeat())
            assert any(hostnames[-1] in line for line in lines)
        found, following = [], f"{url}/nodes?limit=2"
        while following:
            answer = site.session.get(following, timeout=30)
            found += [node["hostname"] for node in answer.json()]
            following = answer.links.get("next", {}).get("url", "")
            following = following and urljoin(answer.url, following)
        assert found == hostnames
    events = f"{site.nginx}/agents/web-1/v1/events"
    key = {"Authorization": site.agent.key}
    with site.session.get(events, headers=key, stream=True, timeout=30) as stream:
        assert next(stream.iter_content(1))


def test_what_a_daemon_takes_the_proxies_take_and_what_is_too_large_is_an_answer_of_theirs(
    site: Site, daemons: Daemons
) -> None:
    large = heartbeat(**{f"k{number}": "x" * 4000 for number in range(255)})
    assert MIB * 0.9 < len(json.dumps(large)) < MIB
    for url in site.registries:
        answer = site.session.post(f"{url}/nodes/large", json=large, timeout=60)
        assert (answer.status_code, answer.headers["Rollcall"]) == (200, "registry")
    too_large = site.session.post(f"{site.nginx}/nodes/large", data=b"x" * (MIB + 1), timeout=60)
    assert too_large.status_code == 413
    assert "Rollcall" not in too_large.headers
    archive = f"{site.nginx}/agents/web-1/v1/apps/none/data"
    key = {"Authorization": site.agent.key}
    rejected = site.session.put(archive, data=b"x" * 3 * MIB, headers=key, timeout=60)
    assert rejected.headers["Rollcall"] == "agent"
    assert rejected.status_code != 413

    # The agent asks nginx without TLS, gets its page with 400, and moves.
    other = daemons.registry()
    plain = site.nginx.replace("https:", "http:")
    other.key_path.write_text(site.registry.key)
    change_settings(
        site.agent,
        registries=[{"url": plain, "key_file": str(site.registry.key_path)}],
    )
    site.agent.restart()
    failed = until_state(site.agent, plain, "garbage")
    words = "it answers 400, and not as a registry does: 400 The plain HTTP request was sent to"
    assert failed["reason"].startswith(words)


def test_a_check_of_health_takes_a_registry_out_and_back(site: Site) -> None:
    health = f"{site.haproxy}/rollcall/healthz"
    anybody = requests.Session()
    anybody.verify, anybody.trust_env = str(site.authority.ca), False

    def answers(status: int, *, is_daemon: bool) -> bool:
        answer = anybody.get(health, timeout=30)
        return (answer.status_code, "Rollcall" in answer.headers) == (status, is_daemon)

    until(lambda: answers(200, is_daemon=True), "health", within=SOON_SECONDS)
    site.registry.terminate()
    until(lambda: answers(503, is_daemon=False), "the proxy's 503", within=SOON_SECONDS)
    site.registry.start()
    until(lambda: answers(200, is_daemon=True), "health again", within=SOON_SECONDS)
    options = anybody.options(f"{site.haproxy}/rollcall/", timeout=30)
    slash = anybody.get(f"{health}/", timeout=30)
    assert [options.status_code, slash.status_code] == [401, 401]
    assert site.session.get(f"{health}/", timeout=30).status_code == 404


def test_the_pages_work_at_their_paths_and_keep_their_keys_apart(site: Site, tabs: Tabs) -> None:
    site.registry.ask("POST", "/nodes/web-1", json=heartbeat())

    def logged_in(url: str, daemon: Daemon, state: str) -> Any:
        page = tabs.open(url, ignore_https_errors=True)
        page.get_by_label("Key", exact=True).fill(daemon.key)
        page.keyboard.press("Enter")
        expect(page.locator("#connection")).to_contain_text(state)
        return page

    for url in site.registries:
        page = logged_in(url, site.registry, "Live")
        expect(page.get_by_role("link", name="web-1", exact=True)).to_be_visible()
        page.goto(f"{url}/#/host/web-1")
        expect(page.get_by_role("heading", name="web-1")).to_be_visible()
    agent = logged_in(f"{site.nginx}/agents/web-1/", site.agent, "the container engine")
    agent.goto(f"{site.nginx}/")
    expect(agent.get_by_label("Key", exact=True)).to_be_visible()
