"""GET /swagger.json: the interface, as Swagger 2.0."""

from functools import cached_property
from typing import Any

import msgspec
import yaml
from aiohttp import web

from config import VERSION
from httpd.bodies import encoded_json_response

# Ten times as quick, where PyYAML was built with libyaml.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SwaggerHandler:
    """Serves the daemon's swagger.yml as JSON."""

    def __init__(self, document: str) -> None:
        self._document = document

    async def get(self, _request: web.Request) -> web.Response:
        """Answer with the document."""
        return encoded_json_response(self._body)

    @cached_property
    def _body(self) -> bytes:
        # Made at the first request, which is rare: at the start it would take milliseconds.
        content: dict[str, Any] = Loader(self._document).get_single_data()
        # `version` there is that of the interface.
        content["info"]["x-rollcall-version"] = VERSION
        return msgspec.json.encode(content)
