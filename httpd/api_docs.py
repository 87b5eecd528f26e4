"""GET /swagger.json: the interface, as Swagger 2.0."""

from typing import Any

import msgspec
import yaml
from aiohttp import web

from httpd.bodies import encoded_json_response

# Ten times as quick, where PyYAML was built with libyaml.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SwaggerHandler:
    """Serves the document that lies beside the daemon's api module, written in YAML."""

    def __init__(self, document: str) -> None:
        content: dict[str, Any] = Loader(document).get_single_data()
        self._body = msgspec.json.encode(content)

    async def get(self, _request: web.Request) -> web.Response:
        """Answer with the document; the address is the one that was asked."""
        return encoded_json_response(self._body)
