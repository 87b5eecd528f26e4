import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from dev.waiting import until
from tests.support.certificates import DAY, Authority, Pair
from tests.support.daemons import Daemon, Daemons, TlsOptions
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    heartbeats_taken,
    node_key,
    nodes,
    run_command,
    until_gone,
    until_listed,
    until_state,
)
from tests.support.run.release import some_of

pytestmark = pytest.mark.real
SECRET = {"node_secret": {"value": "a-secret-of-the-fleet"}}
RENEWED_WITHIN = 30.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def files(pair: Pair) -> dict[str, str]:
    """Return the settings of a listener."""
    return {"certificate": str(pair.certificate), "key": str(pair.key)}


def shown(pair: Pair) -> dict[str, str]:
    """Return the settings of a client."""
    return {"certificate": str(pair.certificate), "certificate_key": str(pair.key)}


def mutual(daemons: Daemons, authority: Authority) -> Daemon:
    """Start a registry that every client has to show a certificate."""
    operator = authority.issue("operator")
    trust: TlsOptions = (str(authority.ca), (str(operator.certificate), str(operator.key)))
    settings = files(authority.issue("127.0.0.1")) | {"client_ca": str(authority.ca)}
    return daemons.registry(tls=settings, trust=trust, **SECRET)


def host(
    daemons: Daemons, registry: Daemon, authority: Authority, hostname: str, **line: Any
) -> Daemon:
    """Start an agent that reports to the registry with a node key of its own."""
    agent = daemons.agent(node={"hostname": hostname}, heartbeat_seconds=1)
    agent.terminate()
    (agent.config_path.parent / "node.key").write_text(node_key(registry, hostname))
    line = {"url": registry.base_url, "key_file": "node.key", "ca": str(authority.ca)} | line
    change_settings(agent, registries=[line])
    agent.start()
    return agent


def test_both_daemons_speak_tls_with_certificates_of_a_private_ca(
    daemons: Daemons, authority: Authority
) -> None:
    trust: TlsOptions = (str(authority.ca), None)
    registry = daemons.registry(tls=files(authority.issue("127.0.0.1")), trust=trust)
    line = {
        "url": registry.base_url,
        "key_file": str(registry.key_path),
        "ca": str(authority.ca),
    }
    agent = daemons.agent(
        tls=files(authority.issue("127.0.0.1", stem="agent")),
        trust=trust,
        node={"hostname": "web-1"},
    )
    agent.terminate()
    change_settings(agent, registries=[line])
    agent.start()

    node = until_listed(registry, "web-1")

    assert "prometheus:rollcall:__scheme__:https" in node["labels"]
    assert node["kv"]["agent.url"].startswith("https://web-1:")
    metrics = agent.ask("GET", "/metrics").text
    for file in (authority.ca, authority.ca.with_name("agent.crt")):
        assert f'\nrollcall_certificate_expiry_timestamp_seconds{{file="{file}"}} ' in metrics
    assert "\nrollcall_agent_engine_up 0.0\n" in metrics
    assert "travels unencrypted" not in agent.log()


@pytest.mark.parametrize("lax", some_of([False, True], False, reason="a CA of another kind"))
def test_a_host_shows_its_certificate_and_speaks_for_itself(
    daemons: Daemons, tmp_path: Path, *, lax: bool
) -> None:
    authority = Authority(tmp_path / "ca", lax=lax)
    registry = mutual(daemons, authority)
    agent = host(daemons, registry, authority, "web-1", **shown(authority.issue("web-1")))

    until_state(agent, registry.base_url, "taken")

    assert nodes(registry).keys() == {"web-1"}


def test_a_hosts_renewed_certificate_that_is_no_good_is_reported_while_the_old_one_goes_on(
    daemons: Daemons, authority: Authority
) -> None:
    registry = mutual(daemons, authority)
    pair = authority.issue("web-1")
    agent = host(daemons, registry, authority, "web-1", **shown(pair))
    until_state(agent, registry.base_url, "taken")

    pair.key.write_text("no key")
    until(lambda: "renewed certificate files" in agent.log(), "the warning", within=RENEWED_WITHIN)

    assert str(pair.key) in agent.log()
    before = heartbeats_taken(agent, registry)
    until(
        lambda: heartbeats_taken(agent, registry) >= before + 2,
        "two heartbeats more",
        within=SOON_SECONDS,
    )


def test_a_host_without_a_certificate_that_counts_is_reported_why(
    daemons: Daemons, authority: Authority, tmp_path: Path
) -> None:
    registry = mutual(daemons, authority)
    stranger = Authority(tmp_path / "other", "another CA").issue("web-2")

    bare = host(daemons, registry, authority, "web-1")
    other = host(daemons, registry, authority, "web-2", **shown(stranger))

    reasons = {
        bare: "`certificate` and `certificate_key`",
        other: "is of a CA that is not in its `client_ca`",
    }
    for agent, reason in reasons.items():
        assert reason in until_state(agent, registry.base_url, "certificate_rejected")["reason"]
    assert nodes(registry) == {}


def test_a_certificate_is_good_for_its_own_name_alone(
    daemons: Daemons, authority: Authority
) -> None:
    registry = mutual(daemons, authority)
    other = shown(authority.issue("web-2"))

    agent = host(daemons, registry, authority, "web-1", **other)

    rejected = until_state(agent, registry.base_url, "forbidden")
    assert "the client certificate is for web-2" in rejected["reason"]
    assert nodes(registry) == {}


def test_not_even_an_operators_key_lets_one_host_speak_for_another(
    daemons: Daemons, authority: Authority
) -> None:
    registry = mutual(daemons, authority)
    agent = host(daemons, registry, authority, "web-1", **shown(authority.issue("web-1")))
    until_listed(registry, "web-1")

    posted = registry.ask("POST", "/nodes/web-2", json={"labels": [], "kv": {}})

    assert posted.status_code == 403
    assert "operator" in posted.json()["message"]
    agent.terminate()
    assert registry.ask("DELETE", "/nodes/web-1").status_code == 200


def test_a_renamed_host_with_new_key_and_certificate_leaves_no_ghost(
    daemons: Daemons, authority: Authority
) -> None:
    registry = mutual(daemons, authority)
    agent = host(daemons, registry, authority, "web-1", **shown(authority.issue("web-1")))
    until_listed(registry, "web-1")

    agent.terminate()
    (agent.config_path.parent / "node.key").write_text(node_key(registry, "web-2"))
    line = {"url": registry.base_url, "key_file": "node.key", "ca": str(authority.ca)}
    line |= shown(authority.issue("web-2"))
    change_settings(agent, node={"hostname": "web-2"}, registries=[line])
    agent.start()

    until_listed(registry, "web-2")
    until_gone(registry, "web-1")


def test_a_renewed_host_certificate_is_shown_without_a_restart(
    daemons: Daemons, authority: Authority
) -> None:
    registry = mutual(daemons, authority)
    agent = host(daemons, registry, authority, "web-1", **shown(authority.issue("web-2", stem="w")))
    until_state(agent, registry.base_url, "forbidden")

    authority.issue("web-1", stem="w")

    until_state(agent, registry.base_url, "taken")


def test_a_renewed_server_certificate_is_served_and_no_connection_is_dropped(
    daemons: Daemons, authority: Authority
) -> None:
    pair = authority.issue("127.0.0.1")
    trust: TlsOptions = (str(authority.ca), None)
    registry = daemons.registry(tls=files(pair), trust=trust, **SECRET)
    agent = host(daemons, registry, authority, "web-1")
    until_state(agent, registry.base_url, "taken")
    port = int(registry.base_url.rpartition(":")[2])
    before = serial(port, authority)
    kept = requests.Session()
    kept.trust_env = False
    kept.verify = str(authority.ca)
    # A connection that has shown no key is closed after 10 s, which the renewal may take.
    kept.headers["Authorization"] = f"Bearer {registry.key}"
    first = kept.get(f"{registry.base_url}/nodes", stream=True, timeout=10)
    peer = local_address(first)
    assert first.json()

    authority.issue("127.0.0.1")

    until(lambda: serial(port, authority) != before, "the renewal", within=RENEWED_WITHIN)
    again = kept.get(f"{registry.base_url}/nodes", stream=True, timeout=10)
    assert local_address(again) == peer
    assert again.json()
    assert "heartbeat failed" not in agent.log()
    kept.close()


def test_nothing_older_than_tls_1_2_is_spoken(daemons: Daemons, authority: Authority) -> None:
    trust: TlsOptions = (str(authority.ca), None)
    registry = daemons.registry(tls=files(authority.issue("127.0.0.1")), trust=trust)
    port = int(registry.base_url.rpartition(":")[2])

    context = ssl.create_default_context(cafile=authority.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert connect(port, context)[0] == "TLSv1.2"
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.deprecated_call():
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(port, context)


def test_the_secret_of_node_keys_is_changed_without_a_gap(daemons: Daemons) -> None:
    old, new = {"value": "the-old-secret-of-keys"}, {"value": "the-new-secret-of-keys"}
    registry = daemons.registry(node_secret=old)
    old_key = node_key(registry, "web-1")

    change_settings(registry, node_secret=[new, old])
    registry.restart()
    new_key = node_key(registry, "web-1")
    assert new_key != old_key
    assert [post(registry, key) for key in (old_key, new_key)] == [200, 200]

    change_settings(registry, node_secret=[new])
    registry.restart()
    assert [post(registry, key) for key in (old_key, new_key)] == [401, 200]


def test_node_key_says_what_is_missing(daemons: Daemons) -> None:
    registry = daemons.registry()

    printed = run_command("rollcall-registry", registry, "node-key", "web-1")

    assert printed.returncode == 2
    assert "node_secret" in printed.stderr


def test_a_registry_starts_with_an_expired_certificate_and_then_takes_valid_ones_alone(
    daemons: Daemons, authority: Authority
) -> None:
    def issue(age: timedelta) -> None:
        authority.issue("127.0.0.1", age=age)

    def until_logged(text: str) -> None:
        until(lambda: text in registry.log(), text, within=RENEWED_WITHIN)

    pair = authority.issue("127.0.0.1")
    trust: TlsOptions = (str(authority.ca), None)
    registry = daemons.registry(tls=files(pair), trust=trust)
    registry.terminate()
    issue(2 * DAY)
    port = int(registry.base_url.rpartition(":")[2])

    with ThreadPoolExecutor(1) as executor:
        starting = executor.submit(registry.start)
        until_logged(f"tls: {pair.certificate} expired at ")
        issue(timedelta(0))
        until_logged("certificate renewed")
        starting.result()
    valid = serial(port, authority)
    issue(2 * DAY)
    until_logged("certificate not renewed, the old one stays")

    assert serial(port, authority) == valid


def post(registry: Daemon, key: str) -> int:
    header = {"Authorization": f"Bearer {key}"}
    body: dict[str, Any] = {"labels": [], "kv": {}}
    return registry.ask("POST", "/nodes/web-1", json=body, headers=header).status_code


def connect(port: int, context: ssl.SSLContext) -> tuple[str | None, object]:
    """Make a connection; return its TLS version and the serial number of the certificate."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        return connection.version(), (connection.getpeercert() or {})["serialNumber"]


def serial(port: int, authority: Authority) -> object:
    """Return the serial number of the certificate that is served to a new connection."""
    return connect(port, ssl.create_default_context(cafile=authority.ca))[1]


def local_address(response: requests.Response) -> object:
    """Return the address from which the request of an unread response was sent."""
    connection = response.raw.connection
    assert connection is not None
    return connection.sock.getsockname()
