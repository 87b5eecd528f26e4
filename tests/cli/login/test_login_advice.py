"""A login that fails says what is wrong, and prints the command that would work."""

from functools import partial
from pathlib import Path

import pytest

from cli.reach.advice import Attempt, failed_login
from cli.reach.contexts import Context
from clients.errors import NotTls, OtherDaemon, Unreachable
from tests.support.certificates import Authority
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import rejection
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import SCRAPER, InProcessRegistry

pytestmark = pytest.mark.slow
PLAIN = ("--allow-plain", "127.0.0.1")


@pytest.fixture
def plain_url(registry: InProcessRegistry) -> str:
    """Return the URL of a registry without TLS."""
    return f"http://127.0.0.1:{registry.address[1]}"


async def test_plain_http_to_a_loopback_address_needs_no_permission(
    rollcall: Rollcall, plain_url: str, key_file: Path
) -> None:
    ran = await rollcall("login", plain_url, "--key-file", str(key_file))

    assert (ran.status, ran.err) == (0, f"{plain_url} answers; the context default is in use\n")
    assert (await rollcall("nodes")).status == 0


@pytest.mark.parametrize(
    ("host", "step"),
    [("0.0.0.0", "if that is safe: rollcall login http://0.0.0.0:"), ("localhost", "")],
)
async def test_where_plain_http_is_rejected_the_whole_command_is_printed_and_works(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, host: str, step: str
) -> None:
    port = registry.address[1]
    options = ("--name", "lab", "--key-file", str(key_file))

    ran = await rollcall("login", f"http://{host}:{port}", *options)

    rejected, following = ran.err.splitlines()
    assert ran.status == 2
    assert rejected.startswith(f"rollcall: http://{host}:{port} has no TLS")
    address = "127.0.0.1" if host == "localhost" else host
    assert (step or f"or rollcall login http://{address}:") in following
    command = following[following.index("rollcall login") :]
    permission = "" if host == "localhost" else f" --allow-plain {address}"
    assert command.endswith(f"--name lab --key-file {key_file}{permission}")
    assert (await rollcall(*command.split()[1:])).status == 0


async def test_a_port_without_tls_is_reported_with_the_command_for_it(
    rollcall: Rollcall, plain_url: str, key_file: Path
) -> None:
    url = plain_url.replace("http:", "https:")

    ran = await rollcall("login", url, "--key-file", str(key_file))

    assert ran.status == 3
    assert ran.err == (
        f"rollcall: {url} does not speak TLS\n"
        f"  next: rollcall login {plain_url} --key-file {key_file}\n"
    )


async def test_a_port_with_tls_is_reported_with_the_command_for_it(
    rollcall: Rollcall, tmp_path: Path, key_file: Path, http_server: HttpServer
) -> None:
    tls = server_context(Authority(tmp_path / "ca").issue("127.0.0.1"))
    url = await http_server(rejection(404, "no"), tls=tls)
    plain = url.replace("https:", "http:")
    ran = await rollcall("login", plain, "--key-file", str(key_file), *PLAIN)

    assert ran.status == 3
    assert ran.err == (
        f"rollcall: {url} speaks TLS\n"
        f"  next: rollcall login {url} --ca FILE --key-file {key_file}\n"
    )


async def test_a_port_where_nobody_listens_is_no_port_with_tls(
    rollcall: Rollcall, key_file: Path
) -> None:
    ran = await rollcall("login", "http://127.0.0.1:1", "--key-file", str(key_file), *PLAIN)

    assert ran.status == 3
    assert "no connection to 127.0.0.1:1" in ran.err
    step = "check host and port; on that host: systemctl status rollcall-registry"
    assert ran.err.endswith(f"\n  advice: {step}\n")


@pytest.mark.parametrize("status", [401, 404])
async def test_an_agent_is_distinguished_from_a_registry(
    rollcall: Rollcall, key_file: Path, http_server: HttpServer, status: int
) -> None:
    key = ("--key-file", str(key_file), *PLAIN)
    url = await http_server(rejection(status, "no"), daemon="agent")
    agent = await rollcall("login", url, *key)
    other = await rollcall("login", await http_server(rejection(404, "no")), *key)

    assert agent.status == 3
    assert agent.err == (
        f"rollcall: {url} is an agent, not a registry; a registry has port 7655 by default\n"
        f"  next: rollcall login http://127.0.0.1:7655 {' '.join(key)}\n"
    )
    assert "agent" not in other.err


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_permitted_is_reported_with_the_login(
    rollcall: Rollcall, key_file: Path, status: int, http_server: HttpServer
) -> None:
    url = await http_server(rejection(status, "no"))
    ran = await rollcall("login", url, "--key-file", str(key_file), *PLAIN)
    rollcall.environment["ROLLCALL_KEY"] = SCRAPER
    of_variable = await rollcall("login", url, *PLAIN)

    assert (ran.status, of_variable.status) == (3, 3)
    unknown = f"the registry does not know the key in {key_file}\n"
    assert (unknown if status == 401 else "the registry: 403: no\n") in ran.err
    assert status == 403 or "does not know the key in ROLLCALL_KEY\n" in of_variable.err
    assert f"  next: rollcall login {url} --key-file FILE --allow-plain 127.0.0.1\n" in ran.err
    assert "  advice: unset ROLLCALL_KEY, or set it to a key of this registry\n" in of_variable.err


async def test_a_secret_of_agents_that_cannot_be_read_is_reported_with_the_login(
    rollcall: Rollcall, plain_url: str, key_file: Path
) -> None:
    named = ("--name", "lab", "--key-file", str(key_file))

    ran = await rollcall("login", plain_url, *named, "--agent-secret-file", "typo", *PLAIN)

    assert ran.status == 2
    step = ran.err.partition("\n  next: ")[2]
    assert step.startswith("rollcall login ")
    assert "--name lab" in step
    assert "--agent-secret-file FILE" in step


async def test_agents_with_the_key_of_a_distant_registry_are_reported_before_the_lack_of_tls(
    rollcall: Rollcall, key_file: Path
) -> None:
    ran = await rollcall(
        "login", "http://10.1.1.1:7655", "--agent-key", "same", "--key-file", str(key_file)
    )

    assert ran.status == 2
    assert "agents get the key of the registry only beside a registry" in ran.err
    assert "--agent-key same" not in ran.err
    assert "--allow-plain" not in ran.err


async def test_the_path_in_a_step_is_quoted(
    rollcall: Rollcall, plain_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "my keys" / "ops.key"
    file.parent.mkdir()
    file.write_text("ops-key-0123456789")
    file.chmod(0o644)

    ran = await rollcall("login", plain_url, "--key-file", str(file), *PLAIN)

    assert ran.err.endswith(f"  next: chmod 600 '{file}'\n")


async def test_a_key_file_that_is_not_there_is_reported_with_the_login(
    rollcall: Rollcall, plain_url: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.key"

    ran = await rollcall("login", plain_url, "--key-file", str(missing), *PLAIN)

    assert ran.status == 2
    assert ran.err == (
        f"rollcall: the key in {missing} cannot be read: No such file or directory\n"
        f"  next: rollcall login {plain_url} --key-file FILE --allow-plain 127.0.0.1\n"
    )


async def test_a_key_file_that_is_not_there_is_reported_before_the_lack_of_tls(
    rollcall: Rollcall, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.key"

    ran = await rollcall("login", "http://registry.test:7655", "--key-file", str(missing))

    assert ran.status == 2
    assert ran.err == (
        f"rollcall: the key in {missing} cannot be read: No such file or directory\n"
        "  next: rollcall login http://registry.test:7655 --key-file FILE\n"
    )


@pytest.mark.parametrize(
    ("typed", "why", "meant"),
    [
        ("registry.test", "has no scheme", "https://registry.test:7655"),
        ("10.0.0.1:7000", "has no scheme", "https://10.0.0.1:7000"),
        ("registry.test/ui", "has no scheme", "https://registry.test/ui"),
        ("ftp://registry.test", "is no URL of a registry", "https://registry.test:7655"),
        ("http://a b", "is no URL of a registry", "https://REGISTRY:7655"),
        ("https://x:1/a//b", "is no URL of a registry: leave out what follows", "https://x:1"),
        ("https://x/../b", "is no URL of a registry: leave out what follows", "https://x"),
        ("https://x/?a=b", "is no URL of a registry: leave out what follows", "https://x"),
        ("https://x/ui#/hosts", "is no URL of a registry: leave out what", "https://x/ui"),
        ("HTTPS://x:1", "is no URL of a registry: write the scheme in small", "https://x:1"),
    ],
)
async def test_what_is_no_url_is_reported_before_a_key_is_asked_for(
    rollcall: Rollcall, typed: str, why: str, meant: str
) -> None:
    ran = await rollcall("login", typed, "--agent-key-file", "{hostname}/a key")

    assert ran.status == 2
    assert f"{typed!a} {why}" in ran.err
    following = f"rollcall login {meant} --agent-key-file '{{hostname}}/a key'"
    assert ran.err.endswith(f"\n  next: {following}\n")


@pytest.mark.parametrize("path", ["/nodes", "/ui"])
async def test_a_path_that_only_a_proxy_has_is_left_out_in_the_command_that_works(
    rollcall: Rollcall, plain_url: str, key_file: Path, path: str
) -> None:
    ran = await rollcall("login", f"{plain_url}{path}", "--key-file", str(key_file))

    assert f"the registry has no path {path}, as it has behind a proxy" in ran.err
    _, _, command = ran.err.rstrip().partition("next: ")
    assert command.startswith(f"rollcall login {plain_url} --key-file")
    assert (await rollcall(*command.split()[1:])).status == 0


@pytest.mark.parametrize(
    ("typed", "allowed", "following"),
    [
        ("http://10.0.0.1:7656", ["10.0.0.1"], "http://ADDRESS:7655 --allow-plain ADDRESS"),
        (
            "http://10.0.0.1:7656",
            ["10.0.0.1", "10.1.0.0/16"],
            "http://ADDRESS:7655 --allow-plain 10.1.0.0/16 --allow-plain ADDRESS",
        ),
        ("https://web-1:7656", [], "https://REGISTRY:7655"),
        ("https://web-1:7656", ["10.0.0.1"], "https://REGISTRY:7655 --allow-plain 10.0.0.1"),
    ],
)
async def test_in_place_of_an_agent_no_address_of_it_is_allowed(
    typed: str, allowed: list[str], following: str
) -> None:
    context = Context(registry=typed, allow_plain=allowed)
    attempt = Attempt(context, partial(typed_again, context), "", "")

    failed = await failed_login(OtherDaemon("an agent answers there"), attempt)

    assert failed is not None
    assert failed.hint == following


def typed_again(context: Context, **options: object) -> str:
    """Return the URL and what is allowed of a login that is typed again."""
    given = {"url": context.registry, "allow_plain": context.allow_plain, **options}
    allowed = given["allow_plain"]
    assert isinstance(allowed, list)
    return " ".join([str(given["url"]), *(f"--allow-plain {each}" for each in allowed)])


async def test_a_port_with_tls_keeps_what_is_allowed_for_agents(
    rollcall: Rollcall, tmp_path: Path, key_file: Path, http_server: HttpServer
) -> None:
    tls = server_context(Authority(tmp_path / "ca").issue("127.0.0.1"))
    networks = ("--allow-plain", "10.0.0.0/8")
    url = await http_server(rejection(404, "no"), tls=tls)
    plain = url.replace("https:", "http:")
    ran = await rollcall("login", plain, "--key-file", str(key_file), *PLAIN, *networks)

    assert f"rollcall login {url} --ca FILE --key-file {key_file} {' '.join(networks)}\n" in ran.err


async def test_an_address_is_not_allowed_a_second_time(
    rollcall: Rollcall, plain_url: str, key_file: Path
) -> None:
    options = ("--key-file", str(key_file), "--allow-plain", "0.0.0.0/0")
    for typed in (
        plain_url.replace("http:", "https:"),
        plain_url.replace("127.0.0.1", "localhost"),
    ):
        ran = await rollcall("login", typed, *options)
        assert ran.err.endswith(f"rollcall login {plain_url} {' '.join(options)}\n")


async def test_a_name_that_is_not_known_is_reported_before_it_is_allowed(
    rollcall: Rollcall,
) -> None:
    ran = await rollcall("login", "http://no-such-host.invalid:7655", "--key-command", "false")

    assert ran.status == 3
    assert ran.err == (
        "rollcall: the name no-such-host.invalid cannot be resolved\n"
        "  next: getent hosts no-such-host.invalid\n"
    )


async def test_a_name_is_not_allowed_and_the_address_is_asked_for(rollcall: Rollcall) -> None:
    login = await rollcall(
        "login", "https://x:7655", "--allow-plain", "x", "--key-command", "false"
    )
    changed = await rollcall("context", "set", "--allow-plain", "x")

    assert (login.status, changed.status) == (2, 2)
    said = "a name is never allowed: it may resolve to anything\n  next: "
    following = "rollcall login https://x:7655 --key-command false --allow-plain ADDRESS\n"
    assert login.err.endswith(f"{said}{following}")
    assert changed.err.endswith(f"{said}rollcall context set --allow-plain ADDRESS\n")


async def test_a_url_without_a_port_is_reported_with_the_ports_that_are_meant() -> None:
    context = Context(registry="http://127.0.0.1")
    attempt = Attempt(context, partial(typed_again, context), "", "")

    away = await failed_login(Unreachable("no connection"), attempt)
    plain = await failed_login(
        NotTls("no"),
        attempt._replace(context=Context(registry="https://127.0.0.1")),
    )

    assert away is not None
    assert (away.hint or "").startswith("check host and port (port 7655 by default); ")
    assert plain is not None
    assert plain.hint == "http://127.0.0.1:443"


@pytest.mark.parametrize(
    ("path", "password", "known"),
    [
        ("", "sesame", "registry.test"),
        ("/nodes", "sesame", "registry.test"),
        ("", "a@sesame", "registry.test"),
        ("", "a/sesame", "REGISTRY"),
    ],
)
async def test_a_password_in_a_url_is_not_printed(
    rollcall: Rollcall, key_file: Path, path: str, password: str, known: str
) -> None:
    url = f"https://ops:{password}@registry.test:7655{path}"

    ran = await rollcall("login", url, "--key-file", str(key_file))

    assert ran.status == 2
    assert "leave out what stands before the @" in ran.err
    assert f"rollcall login https://{known}:7655{path} --key-file {key_file}" in ran.err
    without_key = await rollcall("login", url, "--key-file", "gone")
    assert (
        f"next: rollcall login https://registry.test:7655{path} --key-file FILE" in without_key.err
    )
    assert "sesame" not in ran.out + ran.err + without_key.out + without_key.err
