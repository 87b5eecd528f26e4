"""What is wrong where a request fails, and the command that would work."""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from cli.errors import CommandError, NotReached, WrongUsage
from cli.output.health import REGISTRY_UNIT
from cli.output.text import typed
from cli.reach.certificates import (
    COMPARE_CLOCKS,
    expired,
    names_of,
    not_accepted,
    speaks_tls,
)
from cli.reach.choice import AWAY, NOT_PERMITTED
from cli.reach.contexts import KEY_HINT, VARIABLE, Context, is_host, key_source, read_key
from cli.reach.session import KeyRejected, Session, client_tls
from cli.reach.trust import (
    Origin,
    registry_may_be_plain,
    registry_of,
)
from clients.errors import (
    AgentError,
    AgentRejected,
    BadCertificate,
    BadFile,
    Busy,
    CertificateRejected,
    Expired,
    NoSuchPath,
    NotARegistry,
    NotFound,
    NotPermitted,
    NotTls,
    NotYetValid,
    OtherDaemon,
    RegistryError,
    Rejected,
    TooSlow,
    Unreachable,
    WrongKey,
    WrongName,
)
from clients.tls import is_loopback_address

NOT_REACHED_STEP = f"on the host of the registry: systemctl status {REGISTRY_UNIT}"
NEXT_STEPS: dict[type[Exception], str] = {
    NotPermitted: "use a key that may do this: rollcall context set --key-file FILE",
    NotTls: "log in with the right URL: rollcall login --help",
    NotYetValid: COMPARE_CLOCKS,
    WrongName: "log in with a name that the certificate is valid for: rollcall login --help",
    BadCertificate: "rollcall context set --ca FILE",
    Busy: "wait a moment, and run the same command again",
    Unreachable: NOT_REACHED_STEP,
    TooSlow: NOT_REACHED_STEP,
}
AGENT_KEY_STEP = (
    "use a key of the agent that may do this: rollcall context set --agent-secret-file FILE,"
    " or --agent-key-file FILE"
)
AGENT_STEPS: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "rollcall apps",
    **dict.fromkeys(AWAY, "rollcall doctor"),
}
SECONDS = 5
HTTPS_PORT = 443
REGISTRY_PORT = 7655


class Attempt(NamedTuple):
    """A login: its context, how it may be typed again, and how with another key.

    ``retry`` returns the login as it was typed, with other values of some options. ``key`` says
    where the key is from, such as `in FILE`.
    """

    context: Context
    retry: Callable[..., str]
    other_key: str
    key: str


async def check_url(attempt: Attempt) -> None:
    """Reject a URL of a registry that the key must not be sent to.

    Raises:
        WrongUsage: it is no such URL, or one without TLS that is not allowed.
        NotReached: it is without TLS, and its name cannot be resolved.

    """
    context = attempt.context
    url = context.registry
    origin = registry_of(url)
    if origin is None:
        meant = _meant(url)
        raise WrongUsage(_fault(url, meant), hint=await _login(meant, attempt))
    if origin.scheme == "http" and not registry_may_be_plain(origin.host, context):
        raise WrongUsage(
            f"{url} has no TLS, and the key would be readable on the way to it",
            hint=f"use https://, or {await _login(origin, attempt)}",
        )


def _meant(url: str) -> Origin | None:
    """Return what a URL with a query, or without a scheme, may have meant; None if nothing."""
    try:
        typed = urlsplit(url if "://" in url else f"//{url}")
    except ValueError:
        return None
    is_web = typed.scheme in ("http", "https")
    netloc = typed.netloc.rpartition("@")[2]
    origin = f"{typed.scheme if is_web else 'https'}://{netloc}"
    found = registry_of(origin + typed.path) or registry_of(origin)
    if found is None or is_web:
        return found
    # A path is that of a proxy, which listens at the port of the scheme.
    return found if found.path else found._replace(port=found.port or REGISTRY_PORT)


def _fault(url: str, meant: Origin | None) -> str:
    if "@" in url:  # it may be a password, which must not be printed
        return "a URL of a registry has no login: leave out what stands before the @"
    if meant is None:
        example = f"https://registry:{REGISTRY_PORT}"
        return f"{url!a} is no URL of a registry: scheme, host and port, such as {example}"
    scheme, separator, rest = url.partition("://")
    if not separator:
        return f"{url!a} has no scheme: https://, or http:// without TLS"
    if scheme.lower() not in ("http", "https"):
        return f"{url!a} is no URL of a registry: its scheme is https, or http without TLS"
    if any(sign in rest for sign in "/?#"):
        return f"{url!a} is no URL of a registry: leave out what follows host and port"
    return f"{url!a} is no URL of a registry: write the scheme in small letters"


async def _login(origin: Origin | None, attempt: Attempt) -> str:
    """Return the login at a URL, with what has to be allowed for it."""
    if origin is None:
        return attempt.retry(url=f"https://REGISTRY:{REGISTRY_PORT}")
    if origin.scheme == "https":
        return attempt.retry(url=str(origin))
    # No name is allowed.
    plain = origin._replace(host=await _address(origin))
    if registry_may_be_plain(plain.host, attempt.context):
        return attempt.retry(url=str(plain))
    allowed = [*attempt.context.allow_plain, plain.host]
    return f"if that is safe: {attempt.retry(url=str(plain), allow_plain=allowed)}"


async def _address(origin: Origin) -> str:
    """Return the address of a host, of several the one that accepts a connection; NotReached."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(origin.host))
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SECONDS):
            found = await loop.getaddrinfo(origin.host, origin.port or 80)
    except (OSError, UnicodeError) as error:
        raise NotReached(
            f"the name {origin.host} cannot be resolved", hint=typed("getent hosts", origin.host)
        ) from error
    with suppress(OSError):
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(
                origin.host, origin.port or 80, happy_eyeballs_delay=0.25
            )
        address = str(writer.get_extra_info("peername")[0])
        writer.transport.abort()
        return address
    return str(found[0][4][0])


def check_key_file(attempt: Attempt, environment: Mapping[str, str]) -> None:
    """Reject a key file that cannot be used, with the login as the next step; WrongUsage.

    This comes before all other advice, which would repeat the name of the file.
    """
    try:
        read_key(attempt.context, environment)
    except WrongUsage as error:
        hint = attempt.other_key if error.hint == KEY_HINT else error.hint
        raise WrongUsage(str(error), hint=hint) from error


def check_tls_files(attempt: Attempt) -> None:
    """Reject files of TLS that cannot be used, with the login as the next step; WrongUsage."""
    context = attempt.context
    if context.certificate_key is not None and context.certificate is None:
        hint = attempt.retry(certificate="FILE")
        raise WrongUsage("--certificate-key is given without --certificate", hint=hint)
    if context.ca is None and context.certificate is None:
        return  # the system's CAs take some time to read
    try:
        client_tls(context).context()
    except BadFile as error:
        setting = error.setting or "ca"
        hint = attempt.retry(**{setting: "FILE"})
        raise WrongUsage(f"--{setting.replace('_', '-')}: {error}", hint=hint) from error


async def failed_login(error: RegistryError, attempt: Attempt) -> CommandError | None:
    """Return what a registry's error means for a login; None if it says all there is to say."""
    url, retry = attempt.context.registry, attempt.retry
    origin = registry_of(url)
    assert origin is not None, "check_url was called"
    if isinstance(error, BadCertificate | CertificateRejected | WrongKey | NotPermitted):
        return await _not_accepted(error, origin, attempt)
    if isinstance(error, OtherDaemon):
        return NotReached(
            f"{url} is an agent, not a registry; a registry has port {REGISTRY_PORT} by default",
            hint=_of_registry(origin, attempt),
        )
    if isinstance(error, NoSuchPath | Rejected) and origin.path:
        bare = origin._replace(path="")
        text = f"the registry has no path {origin.path}, as it has behind a proxy"
        return NotReached(text, hint=retry(url=str(bare)))
    is_other = isinstance(error, NotARegistry)
    is_away = isinstance(error, Unreachable | TooSlow)
    over_tls = origin._replace(scheme="https")
    if origin.scheme == "http" and (is_other or is_away) and await speaks_tls(str(over_tls)):
        ca = attempt.context.ca or "FILE"
        step = retry(url=str(over_tls), ca=ca, allow_plain=_without(origin.host, attempt))
        return NotReached(f"{over_tls} speaks TLS", hint=step)
    return NotReached(f"the registry: {error}", hint=_where(origin)) if is_away else None


async def _not_accepted(error: RegistryError, origin: Origin, attempt: Attempt) -> CommandError:
    """Return what it means that one side does not accept the other."""
    if isinstance(error, NotTls):
        # Without a port, the two schemes mean different ones.
        plain = origin._replace(scheme="http", port=origin.port or HTTPS_PORT)
        return NotReached(f"{origin} does not speak TLS", hint=await _login(plain, attempt))
    if isinstance(error, CertificateRejected):
        hint = attempt.retry(certificate="FILE", certificate_key="FILE")
        return NotReached(not_accepted(attempt.context), hint=hint)
    if isinstance(error, BadCertificate):
        return await _bad_certificate(error, origin, attempt)
    unknown = f"the registry does not know the key {attempt.key}"
    text = unknown if isinstance(error, WrongKey) else f"the registry: {error}"
    return NotReached(text, hint=attempt.other_key)


async def _bad_certificate(error: BadCertificate, origin: Origin, attempt: Attempt) -> CommandError:
    """Return what is wrong with the certificate of a registry: another CA helps with few faults."""
    if isinstance(error, Expired):
        return await expired(str(origin))
    if isinstance(error, WrongName):
        return await _wrong_name(error, origin, attempt)
    hint = COMPARE_CLOCKS if isinstance(error, NotYetValid) else attempt.retry(ca="FILE")
    return NotReached(f"the registry: {error}", hint=hint)


async def _wrong_name(error: WrongName, origin: Origin, attempt: Attempt) -> CommandError:
    """Return which names the certificate has, and the login with one that leads to the host."""
    try:
        names = await names_of(str(origin), attempt.context)
    except NotReached:
        names = []
    # No host has the name of a wildcard, and a loopback name leads to another host.
    is_local = is_loopback_address(origin.host)
    usable = [name for name in names if is_host(name) or ":" in name]
    usable = [name for name in usable if is_local or not _is_loopback(name)]
    text = f"the registry: {error}" + (f"; it is valid for {', '.join(names)}" if names else "")
    if not usable:
        step = attempt.retry(url=str(origin._replace(host="NAME")))
        return NotReached(f"{text}; log in with a name in it", hint=step)
    here = await _addresses(origin)
    for name in usable:
        if here & await _addresses(origin._replace(host=name)):
            return NotReached(text, hint=attempt.retry(url=str(origin._replace(host=name))))
    step = attempt.retry(url=str(origin._replace(host=usable[0])))
    return NotReached(text, hint=f"make {usable[0]} resolve to the address of that host\n{step}")


def _is_loopback(name: str) -> bool:
    return name == "localhost" or is_loopback_address(name)


async def _addresses(origin: Origin) -> set[str]:
    """Return the addresses of a host, none if its name cannot be resolved."""
    with suppress(OSError, UnicodeError):
        async with asyncio.timeout(SECONDS):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(origin.host, origin.port or HTTPS_PORT)
        return {str(each[4][0]) for each in found}
    return set()


def _of_registry(agent: Origin, attempt: Attempt) -> str:
    """Return the login at a registry in place of an agent: nobody knows its host."""
    if is_loopback_address(agent.host):
        return attempt.retry(url=str(agent._replace(port=REGISTRY_PORT)))
    if agent.scheme == "https":
        return attempt.retry(url=f"https://REGISTRY:{REGISTRY_PORT}")
    allowed = [*_without(agent.host, attempt), "ADDRESS"]
    return attempt.retry(url=f"http://ADDRESS:{REGISTRY_PORT}", allow_plain=allowed)


def _without(host: str, attempt: Attempt) -> Sequence[str]:
    """Return what is allowed besides one address: the agents may need it."""
    return [each for each in attempt.context.allow_plain if each != host]


def _where(origin: Origin) -> str:
    """Return where to look if nobody answers."""
    of_port = f" (port {REGISTRY_PORT} by default)" if origin.port is None else ""
    return f"check host and port{of_port}; on that host: systemctl status {REGISTRY_UNIT}"


def failure(error: RegistryError | AgentError, session: Session) -> CommandError:
    """Return an error of a client as one of a command: with what to do next, and a status."""
    file = error if isinstance(error, BadFile) else error.__cause__
    if isinstance(file, BadFile):
        option = (file.setting or "ca").replace("_", "-")
        return WrongUsage(str(file), hint=f"rollcall context set --{option} FILE")
    if isinstance(error, AgentError):
        return _agent_failure(error)
    return _registry_failure(error, session)


def _agent_failure(error: AgentError) -> CommandError:
    if isinstance(error, KeyRejected):
        return NotReached(error.reason, hint=error.hint)
    if not isinstance(error, AgentRejected):
        return NotReached(f"the agent: {error}", hint="rollcall doctor")
    if error.status == HTTPStatus.BAD_REQUEST:
        return WrongUsage(str(error))
    if error.status in NOT_PERMITTED and not error.is_of_setting:
        return NotReached(f"the agent: {error}", hint=AGENT_KEY_STEP)
    return CommandError(str(error), hint=AGENT_STEPS.get(error.status))


def _registry_failure(error: RegistryError, session: Session) -> CommandError:
    if isinstance(error, Rejected | NotFound):
        is_missing = isinstance(error, NotFound)
        return CommandError(f"the registry: {error}", hint="rollcall nodes" if is_missing else None)
    if isinstance(error, WrongKey):
        return _wrong_key(session)
    if isinstance(error, CertificateRejected):
        step = "rollcall context set --certificate FILE --certificate-key FILE"
        return NotReached(not_accepted(session.context), hint=step)
    if isinstance(error, Expired):
        return asyncio.run(expired(session.context.registry))
    steps = (step for kind, step in NEXT_STEPS.items() if isinstance(error, kind))
    return NotReached(f"the registry: {error}", hint=next(steps, "rollcall login --help"))


def _wrong_key(session: Session) -> CommandError:
    """Return which key the registry does not know, with the command that gives it another one."""
    environment = session.environment
    is_variable = bool(environment.get(VARIABLE))
    return NotReached(
        f"the registry does not know the key {key_source(session.context, environment)}",
        hint=f"unset {VARIABLE}, or set it to a key of this registry" if is_variable else KEY_HINT,
    )
