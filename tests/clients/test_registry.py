from email.utils import formatdate

import msgspec
import pytest
from aiohttp import web

from clients.errors import (
    BadFile,
    Busy,
    HostnameTaken,
    NotARegistry,
    NotFound,
    NotPermitted,
    OverLimit,
    Redirected,
    RegistryError,
    Rejected,
    WrongKey,
)
from clients.message import TargetGroup
from clients.models import AddressedNode
from clients.registry import RegistryClient
from tests.support.registry.client import HEARTBEAT, KEY, NODE, accept_heartbeat, client, failure_of
from tests.support.registry.fake_servers import HttpServer


async def test_a_heartbeat_is_posted_with_the_key_and_comes_back_as_a_node(
    http_server: HttpServer,
) -> None:
    seen: list[tuple[str, str, object]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.headers["Authorization"], await request.json()))
        return await accept_heartbeat(request)

    async with client(await http_server(handler)) as registry:
        node = await registry.report("web-1", HEARTBEAT)

    assert node == NODE
    assert seen == [("POST", f"Bearer {KEY}", {"labels": ["service:web"], "kv": {"rack": "r12"}})]


async def test_a_replaced_key_is_used_by_the_next_request(http_server: HttpServer) -> None:
    keys = iter(["a" * 20, "b" * 20])
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return await accept_heartbeat(request)

    async with RegistryClient(url=await http_server(handler), key=lambda: next(keys)) as registry:
        await registry.report("web-1", HEARTBEAT)
        await registry.report("web-1", HEARTBEAT)

    assert seen == [f"Bearer {'a' * 20}", f"Bearer {'b' * 20}"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, WrongKey),
        (403, NotPermitted),
        (404, NotFound),
        (405, NotARegistry),
        (409, HostnameTaken),
        (413, Rejected),
        (418, NotARegistry),
        (429, OverLimit),
        (500, Busy),
        (503, Busy),
        (507, Busy),
        (301, Redirected),
        (308, Redirected),
        (204, NotARegistry),
    ],
)
async def test_each_rejection_is_distinguished(
    status: int, kind: type[RegistryError], http_server: HttpServer
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        if status == 204:
            return web.Response(status=204)
        return web.json_response({"message": "the reason"}, status=status)

    failure = await failure_of(await http_server(handler))

    assert type(failure) is kind


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 408, 409, 413, 429, 502, 503])
async def test_an_answer_of_another_server_says_nothing_about_the_request(
    http_server: HttpServer, status: int
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        page = f"<html><body>\n<h1>{status} No\x1b[2J</h1><hr>a proxy" + "x" * 100_000
        return web.Response(status=status, text=page, headers={"Retry-After": "7"})

    failure = await failure_of(await http_server(handler, daemon=None))

    assert type(failure) is NotARegistry
    assert not failure.final
    assert failure.retry_after_seconds is None
    expected = f"it answers {status}, and not as a registry does: {status} No [2J a proxy"
    assert str(failure).startswith(expected)
    assert str(failure).endswith("is the URL right?") is (status == 404)
    assert len(str(failure)) < 300


async def test_the_registrys_own_words_are_reported_without_what_harms_a_terminal(
    http_server: HttpServer,
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"message": "no\x1b[2J\nsuch key" + "x" * 5000}, status=401)

    failure = await failure_of(await http_server(handler))

    assert str(failure).startswith("401: no [2J such key")
    assert len(str(failure)) < 600


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere(http_server: HttpServer) -> None:
    taken = []

    async def thief(request: web.Request) -> web.Response:
        taken.append(request.headers)
        return await accept_heartbeat(request)

    elsewhere = await http_server(thief)

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": elsewhere})

    failure = await failure_of(await http_server(handler))

    assert isinstance(failure, Redirected)
    assert elsewhere in str(failure)
    assert taken == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("soon", None),
        ("-3", None),
        ("1 Jan 9999999999 0:0", None),
        ("9" * 40, 999999999.0),
    ],
)
async def test_retry_after_is_reported(
    header: str, seconds: float | None, http_server: HttpServer
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        headers = {"Retry-After": header}
        return web.json_response({"message": "later"}, status=503, headers=headers)

    failure = await failure_of(await http_server(handler))

    assert isinstance(failure, Busy)
    assert failure.retry_after_seconds == seconds


async def test_a_date_to_retry_after_is_taken_by_the_registrys_own_clock(
    http_server: HttpServer,
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        headers = {"Retry-After": formatdate(1_000_012, usegmt=True)}
        headers["Date"] = formatdate(1_000_000, usegmt=True)
        return web.json_response({"message": "later"}, status=503, headers=headers)

    failure = await failure_of(await http_server(handler))

    assert failure.retry_after_seconds == 12


async def test_a_key_that_cannot_be_read_is_reported_as_our_own_fault(
    http_server: HttpServer,
) -> None:
    def unreadable() -> str:
        raise BadFile("node.key cannot be read: Permission denied")

    async with RegistryClient(url=await http_server(accept_heartbeat), key=unreadable) as registry:
        with pytest.raises(BadFile, match=r"node\.key"):
            await registry.report("web-1", HEARTBEAT)


async def test_a_program_can_ask_for_nodes_targets_and_one_node_and_forget_it(
    http_server: HttpServer,
) -> None:
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path_qs}")
        if request.method == "DELETE":
            return web.json_response({"message": "gone"})
        if request.path.startswith("/prometheus/"):
            return web.json_response([{"targets": ["web-1:80"], "labels": {"a": "b"}}])
        return web.json_response(
            [
                {
                    "hostname": "web-1",
                    "labels": ["service:web"],
                    "kv": {"rack": "r12"},
                    "last_update": 1,
                }
            ]
        )

    url = await http_server(handler)
    async with client(url + "/") as registry:
        nodes = await registry.nodes(
            labels=["service:web"], prefixes=["service:"], kv={"rack": "r 12"}, max_age_seconds=90
        )
        assert nodes == [AddressedNode(**msgspec.structs.asdict(NODE))]
        assert [await registry.node("web-1")] == nodes
        assert await registry.targets("a b") == [TargetGroup(["web-1:80"], {"a": "b"})]
        await registry.forget("web-1", agent_id="id-1")

    assert asked == [
        "GET /nodes?label=service:web&prefix=service:&kv=rack:r+12&max_age=90",
        "GET /nodes/web-1",
        "GET /prometheus/a%20b?format=http_sd",
        "DELETE /nodes/web-1?agent_id=id-1",
    ]
