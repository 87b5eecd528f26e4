"""The Swagger document of a daemon, as it is served."""

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from config import VERSION
from httpd.app import swagger_handler


async def test_the_document_has_the_versions_of_the_interface_and_of_the_build() -> None:
    handler = swagger_handler('swagger: "2.0"\ninfo: {title: A daemon, version: "2.0"}\n')

    answer = await handler(make_mocked_request("GET", "/swagger.json"))

    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    assert msgspec.json.decode(answer.body)["info"] == {
        "title": "A daemon",
        "version": "2.0",
        "x-rollcall-version": VERSION,
    }
