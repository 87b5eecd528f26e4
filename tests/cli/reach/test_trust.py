import pytest

from cli.errors import NotReached, WrongUsage
from cli.reach.contexts import Context
from cli.reach.trust import agent_address, checked_registry
from clients.message import Node

CONTEXT = Context(
    registry="https://registry:7655",
    ca="/ca.crt",
    agent_secret_file="/agent-secret",
    allow_plain=["127.0.0.1", "fd00::/8"],
)


def node(url: str | None) -> Node:
    kv = {} if url is None else {"agent.url": url}
    return Node(hostname="web-1", labels=[], kv=kv, last_update=0)


@pytest.mark.parametrize(
    "url",
    ["https://web-1:7656", "https://10.9.9.9:1", "http://127.0.0.1:7656", "http://[fd00::1]:7656"],
)
def test_a_key_goes_over_tls_to_the_nodes_hostname_or_where_the_context_allows(url: str) -> None:
    assert str(agent_address(node(url), CONTEXT)) == url
    assert str(agent_address(node(url + "/"), CONTEXT)) == url


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "web-1:7656",
        "http://web-1:7656",
        "http://localhost:7656",
        "http://127.0.0.2:7656",
        "http://127.0.0.1.evil.example:7656",
        "http://127.0.0.1@evil.example:7656",
        "http://user:secret@127.0.0.1:7656",
        "https://web-1:7656/v1?x=",
        "https://web-1:7656/steal",
        "https://web-1:7656#x",
        "https://web-1:port",
        "https://",
        "ftp://web-1",
        "file:///etc/passwd",
        "https://web-1\n.evil",
        "https://wéb-1",
        "https://a..b",
        "https://.a",
        "https://.",
        "https://" + "a" * 64,
        "https://" + "a." * 127,
    ],
)
def test_a_key_goes_nowhere_else(url: str | None) -> None:
    with pytest.raises(NotReached):
        agent_address(node(url), CONTEXT)


@pytest.mark.parametrize(
    ("registry", "agent", "allowed"),
    [
        ("http://127.0.0.1:7655", "http://127.0.0.1:7656", True),
        ("http://[::1]:7655", "http://127.9.9.9:7656", True),
        ("https://127.0.0.1:7655", "http://[::1]:7656", True),
        ("http://127.0.0.1:7655", "http://localhost:7656", False),
        ("http://127.0.0.1:7655", "http://0.0.0.0:7656", False),
        ("http://127.0.0.1:7655", "http://10.0.0.1:7656", False),
        ("http://127.0.0.1:7655", "http://[::ffff:127.0.0.1]:7656", False),
        ("https://localhost:7655", "http://127.0.0.1:7656", False),
        ("https://10.0.0.1:7655", "http://127.0.0.1:7656", False),
    ],
)
def test_a_loopback_address_of_an_agent_needs_no_permission_beside_one_of_the_registry(
    registry: str, agent: str, *, allowed: bool
) -> None:
    context = Context(registry=registry, ca="/ca.crt", agent_secret_file="/agent-secret")

    if allowed:
        assert str(agent_address(node(agent), context)) == agent
    else:
        with pytest.raises(NotReached, match="no TLS"):
            agent_address(node(agent), context)


def test_no_tls_is_tried_with_a_hostname_that_no_certificate_can_have() -> None:
    odd = Node(hostname="a" * 64, labels=[], kv={"agent.url": "https://web-1"}, last_update=0)

    with pytest.raises(NotReached, match="63"):
        agent_address(odd, CONTEXT)


def test_a_registry_without_tls_has_to_be_allowed_or_at_a_loopback_address() -> None:
    for url in ("https://registry:7655", "http://[fd00::1]", "http://127.1.2.3:1", "http://[::1]"):
        checked_registry(url, CONTEXT)
        checked_registry(f"{url}/rollcall/v-1.0/", CONTEXT)
    for url, step in (
        ("http://localhost:7655", "rollcall login --help"),
        ("http://registry:7655", "rollcall login --help"),
        ("http://10.0.0.1:7655", "rollcall context set --allow-plain 10.0.0.1"),
    ):
        with pytest.raises(WrongUsage, match="no TLS") as rejected:
            checked_registry(url, CONTEXT)
        assert (rejected.value.hint or "").endswith(f": {step}")
