"""A login that fails says what is wrong, and prints the command that would work."""

from pathlib import Path

import pytest
from aiohttp import web

from cli.connections.advice import Attempt, failed_login
from cli.connections.contexts import Context
from registry.client.client import RegistryClient
from registry.client.errors import WrongKey
from tests.support.certificates import Authority
from tests.support.cli.command import Rollcall
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import Handler, http_server
from tests.support.registry.in_process import SCRAPER, InProcessRegistry

pytestmark = pytest.mark.slow
PLAIN = ("--allow-plain", "127.0.0.1")


@pytest.fixture
def plain_url(registry: InProcessRegistry) -> str:
    """Return the URL of a registry without TLS."""
    return f"http://127.0.0.1:{registry.address[1]}"


def refusing(status: int, *, daemon: str = "registry") -> Handler:
    """Return a daemon that answers each request with an error, except of what it is."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/access" and status not in (401, 403):
            return web.json_response({"name": "ops", "allow": ["read"], "daemon": daemon})
        return web.json_response({"message": "no"}, status=status)

    return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_where_plain_http_is_refused_the_whole_command_is_printed_and_works(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, host: str
) -> None:
    port = registry.address[1]
    options = ("--name", "lab", "--key-file", str(key_file))

    ran = await rollcall("login", f"http://{host}:{port}", *options)

    refused, following = ran.err.splitlines()
    assert ran.status == 2
    assert refused.startswith(f"rollcall: http://{host}:{port} has no TLS")
    _, _, command = following.partition("if that is safe: ")
    assert command.startswith("rollcall login http://")
    address = command.rpartition(" ")[2]
    assert command.endswith(f"--name lab --key-file {key_file} --allow-plain {address}")
    if address == "127.0.0.1":  # localhost may be ::1, where the registry does not listen
        assert (await rollcall(*command.split()[1:])).status == 0


async def test_a_port_without_tls_is_told_with_the_command_for_it(
    rollcall: Rollcall, plain_url: str, key_file: Path
) -> None:
    url = plain_url.replace("http:", "https:")

    ran = await rollcall("login", url, "--key-file", str(key_file))

    assert ran.status == 3
    assert ran.err == (
        f"rollcall: {url} does not speak TLS\n  next: if that is safe: rollcall login {plain_url}"
        f" --key-file {key_file} --allow-plain 127.0.0.1\n"
    )


async def test_a_port_with_tls_is_told_with_the_command_for_it(
    rollcall: Rollcall, tmp_path: Path, key_file: Path
) -> None:
    tls = server_context(Authority(tmp_path / "ca").issue("127.0.0.1"))
    async with http_server(refusing(404), tls=tls) as url:
        plain = url.replace("https:", "http:")
        ran = await rollcall("login", plain, "--key-file", str(key_file), *PLAIN)

    assert ran.status == 3
    assert ran.err == (
        f"rollcall: {plain} speaks TLS\n"
        f"  next: rollcall login {url} --ca FILE --key-file {key_file}\n"
    )


async def test_a_port_where_nobody_listens_is_no_port_with_tls(
    rollcall: Rollcall, key_file: Path
) -> None:
    ran = await rollcall("login", "http://127.0.0.1:1", "--key-file", str(key_file), *PLAIN)

    assert ran.status == 3
    assert "no connection to 127.0.0.1:1" in ran.err


async def test_an_agent_is_told_apart_from_a_registry(rollcall: Rollcall, key_file: Path) -> None:
    key = ("--key-file", str(key_file), *PLAIN)
    async with http_server(refusing(404, daemon="agent")) as url:
        agent = await rollcall("login", url, *key)
    async with http_server(refusing(404)) as other_url:
        other = await rollcall("login", other_url, *key)

    assert agent.status == 3
    assert agent.err == (
        f"rollcall: {url} is an agent, not a registry; a registry has port 7655 by default\n"
        f"  next: rollcall login http://REGISTRY:7655 {' '.join(key)}\n"
    )
    assert "agent" not in other.err


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_permitted_is_told_with_the_login(
    rollcall: Rollcall, key_file: Path, status: int
) -> None:
    async with http_server(refusing(status)) as url:
        ran = await rollcall("login", url, "--key-file", str(key_file), *PLAIN)
        rollcall.environment["ROLLCALL_KEY"] = SCRAPER
        of_variable = await rollcall("login", url, *PLAIN)

    assert (ran.status, of_variable.status) == (3, 3)
    assert f"the registry: {status}: no\n" in ran.err
    assert f"  next: rollcall login {url} --key-file FILE --allow-plain 127.0.0.1\n" in ran.err
    assert "  next: unset ROLLCALL_KEY, or set it to a key of this registry\n" in of_variable.err


@pytest.mark.parametrize(
    ("port", "told"), [(7656, "; 7656 is the port of agents, 7655 that of registries"), (7655, "")]
)
async def test_a_key_that_is_unknown_at_the_port_of_agents_is_told_so(port: int, told: str) -> None:
    url = f"http://127.0.0.1:{port}"
    attempt = Attempt(Context(registry=url), lambda **_: "", "rollcall login")
    registry = RegistryClient(url=url, key=lambda: "")

    failed = await failed_login(WrongKey("401: no"), registry, attempt)

    assert str(failed) == f"the registry: 401: no{told}"


async def test_a_key_file_that_is_not_there_is_told_with_the_login(
    rollcall: Rollcall, plain_url: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.key"

    ran = await rollcall("login", plain_url, "--key-file", str(missing), *PLAIN)

    assert ran.status == 2
    assert ran.err == (
        f"rollcall: the key in {missing} cannot be read: No such file or directory\n"
        f"  next: rollcall login {plain_url} --key-file FILE --allow-plain 127.0.0.1\n"
    )


@pytest.mark.parametrize(
    ("typed", "why", "meant"),
    [
        ("registry.test", "has no scheme", "https://registry.test:7655"),
        ("10.0.0.1:7000", "has no scheme", "https://10.0.0.1:7000"),
        ("ftp://registry.test", "is no URL of a registry", "https://registry:7655"),
        ("http://a b", "is no URL of a registry", "https://registry:7655"),
    ],
)
async def test_what_is_no_url_is_told_before_a_key_is_asked_for(
    rollcall: Rollcall, typed: str, why: str, meant: str
) -> None:
    ran = await rollcall("login", typed, "--agent-key-file", "{hostname}/a key")

    assert ran.status == 2
    assert f"{typed!a} {why}" in ran.err
    following = f"rollcall login {meant} --agent-key-file '{{hostname}}/a key'"
    assert ran.err.endswith(f"\n  next: {following}\n")
