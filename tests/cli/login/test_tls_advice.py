"""A fault of TLS is reported with the wrong file, name or date, and the command that helps."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.certificates import Authority, self_signed
from tests.support.cli.command import Rollcall
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import HttpServer

pytestmark = pytest.mark.slow
RENEWAL = 'renew it on the host of the registry: docs/rollout.md, "6. Renew certificates"'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return the CA of the registry."""
    return Authority(tmp_path / "ca", lifetime=timedelta(days=10))


async def no_nodes(_request: web.Request) -> web.Response:
    """Answer as a registry without nodes."""
    return web.json_response([])


async def test_a_name_that_is_not_in_the_certificate_is_reported_with_a_login_that_works(
    rollcall: Rollcall, authority: Authority, key_file: Path, http_server: HttpServer
) -> None:
    options = ("--ca", str(authority.ca), "--key-file", str(key_file))
    url = await http_server(
        no_nodes, tls=server_context(authority.issue("registry.invalid", "*.x.test", "localhost"))
    )
    ran = await rollcall("login", url, *options)

    said, _, command = ran.err.rstrip().partition("\n  next: ")
    assert ran.status == 3
    assert "certificate is not valid for '127.0.0.1'" in said
    assert said.endswith("; it is valid for registry.invalid, *.x.test, localhost")
    meant = url.replace("127.0.0.1", "localhost")
    assert command == f"rollcall login {meant} {' '.join(options)}"
    assert (await rollcall(*command.split()[1:])).status == 0


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (
            "registry.invalid",
            "\n  advice: make registry.invalid resolve to the address of that host\n",
        ),
        ("*.x.test", "; log in with a name in it\n"),
    ],
)
async def test_a_name_that_leads_nowhere_is_reported_with_what_has_to_be_done_for_it(
    rollcall: Rollcall,
    authority: Authority,
    key_file: Path,
    name: str,
    step: str,
    http_server: HttpServer,
) -> None:
    options = ("--ca", str(authority.ca), "--key-file", str(key_file))
    tls = server_context(authority.issue(name))
    url = await http_server(no_nodes, tls=tls)
    ran = await rollcall("login", url, *options)

    meant = url.replace("127.0.0.1", name if name == "registry.invalid" else "NAME")
    assert ran.err.endswith(f"{step}  next: rollcall login {meant} {' '.join(options)}\n")


async def test_an_expired_certificate_of_a_registry_is_reported_with_its_date(
    rollcall: Rollcall, authority: Authority, key_file: Path, http_server: HttpServer
) -> None:
    url = await http_server(
        no_nodes, tls=server_context(authority.issue("127.0.0.1", age=timedelta(days=13)))
    )
    options = ("--ca", str(authority.ca), "--key-file", str(key_file))
    login = await rollcall("login", url, *options)
    rollcall.use(registry=url, ca=str(authority.ca), key_file=str(key_file))
    nodes = await rollcall("nodes")

    day = (datetime.now(UTC) - timedelta(days=3, hours=1)).date()
    said = f"rollcall: the registry's certificate expired on {day}\n  advice: {RENEWAL}\n"
    assert (login.status, login.err) == (3, said)
    assert (nodes.status, nodes.err) == (3, said)


async def test_a_certificate_that_is_not_valid_yet_is_reported_with_the_clocks(
    rollcall: Rollcall, authority: Authority, key_file: Path, http_server: HttpServer
) -> None:
    url = await http_server(
        no_nodes, tls=server_context(authority.issue("127.0.0.1", age=timedelta(days=-2)))
    )
    options = ("--ca", str(authority.ca), "--key-file", str(key_file))
    ran = await rollcall("login", url, *options)

    assert "not yet valid" in ran.err
    assert "advice: compare the clock of this host with that of the registry" in ran.err


async def test_a_certificate_of_another_ca_is_reported_with_the_option_for_the_ca(
    rollcall: Rollcall,
    authority: Authority,
    tmp_path: Path,
    key_file: Path,
    http_server: HttpServer,
) -> None:
    other = Authority(tmp_path / "other").ca
    tls = server_context(authority.issue("127.0.0.1"))
    url = await http_server(no_nodes, tls=tls)
    options = ("--ca", str(other), "--key-file", str(key_file))
    login = await rollcall("login", url, *options)
    rollcall.use(registry=url, ca=str(other), key_file=str(key_file))
    nodes = await rollcall("nodes")

    assert login.err.endswith(f"next: rollcall login {url} --ca FILE --key-file {key_file}\n")
    assert nodes.err.endswith("next: rollcall context set --ca FILE\n")


@pytest.mark.parametrize("shown", ["none", "expired", "of another CA"])
async def test_an_own_certificate_that_is_not_accepted_is_reported_with_the_reason(
    rollcall: Rollcall,
    authority: Authority,
    tmp_path: Path,
    key_file: Path,
    shown: str,
    http_server: HttpServer,
) -> None:
    own = {
        "none": None,
        "expired": authority.issue("ops.test", age=timedelta(days=13)),
        "of another CA": self_signed(tmp_path, "ops.test"),
    }[shown]
    day = (datetime.now(UTC) - timedelta(days=3, hours=1)).date()
    file = "" if own is None else str(own.certificate)
    said = {
        "none": "the registry does not accept a connection without a client certificate",
        "expired": f"your certificate {file} expired on {day}",
        "of another CA": f"the registry does not accept the certificate {file}: it must be signed "
        "by a CA in the file that `tls.client_ca` of the registry names",
    }[shown]
    context = {"ca": str(authority.ca)}
    if own is not None:
        context |= {"certificate": str(own.certificate), "certificate_key": str(own.key)}
    given = [
        text for name, file in context.items() for text in (f"--{name.replace('_', '-')}", file)
    ]

    pair = authority.issue("127.0.0.1")
    url = await http_server(no_nodes, tls=server_context(pair, client_ca=authority.ca))
    login = await rollcall("login", url, *given, "--key-file", str(key_file))
    rollcall.use(registry=url, key_file=str(key_file), **context)
    nodes = await rollcall("nodes")

    files = "--certificate FILE --certificate-key FILE"
    step = f"rollcall login {url} --ca {authority.ca} {files} --key-file {key_file}"
    assert (login.status, login.err) == (3, f"rollcall: {said}\n  next: {step}\n")
    step = f"rollcall context set {files}"
    assert (nodes.status, nodes.err) == (3, f"rollcall: {said}\n  next: {step}\n")


@pytest.mark.parametrize(
    ("given", "said", "step"),
    [
        (("--ca", "gone"), "--ca: {}/gone: No such file or directory", "--ca FILE"),
        (("--ca", "ops.key"), "--ca: {}/ops.key: it holds no certificate", "--ca FILE"),
        (
            ("--certificate", "ops.crt"),
            "--certificate-key: {}/ops.crt: it holds no private key",
            "--certificate {}/ops.crt --certificate-key FILE",
        ),
        (
            ("--certificate-key", "ops.key"),
            "--certificate-key is given without --certificate",
            "--certificate FILE --certificate-key {}/ops.key",
        ),
        (
            ("--certificate", "ops.crt", "--certificate-key", "other.key"),
            "--certificate-key: {}/other.key: its private key does not belong to the certificate",
            "--certificate {}/ops.crt --certificate-key FILE",
        ),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_before_anything_is_asked(
    rollcall: Rollcall, tmp_path: Path, given: tuple[str, ...], said: str, step: str
) -> None:
    folder = tmp_path / "files"
    authority = Authority(folder)
    authority.issue("ops")
    authority.issue("other")
    typed = [each if each.startswith("--") else str(folder / each) for each in given]

    # Nobody listens there, and no key is given.
    ran = await rollcall("login", "https://127.0.0.1:1", *typed)

    assert ran.status == 2
    assert ran.err.startswith(f"rollcall: {said.format(folder)}")
    following = f"rollcall login https://127.0.0.1:1 {step.format(folder)}"
    assert ran.err.endswith(f"\n  next: {following}\n")


async def test_a_file_that_is_gone_since_the_login_is_reported_with_the_option_for_it(
    rollcall: Rollcall, tmp_path: Path, key_file: Path
) -> None:
    gone = str(tmp_path / "gone.crt")
    rollcall.use(registry="https://127.0.0.1:1", key_file=str(key_file), ca=gone)

    ran = await rollcall("nodes")

    assert ran.status == 2
    assert ran.err == (
        f"rollcall: {gone}: No such file or directory\n  next: rollcall context set --ca FILE\n"
    )
