"""Bodies whose fields are not those of an app."""

import msgspec
import pytest

from agent.api.requests import decode_fields
from agent.model import AppChanges
from httpd.errors import BadInput

DECODER = msgspec.json.Decoder(AppChanges)


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ('{"healt": 3}', "`healt`; did you mean `health`? the fields are image, ssh_port,"),
        ('{"name": "shop"}', "`name`; the fields are image,"),
        ('{"zzz": 3}', "`zzz`; the fields are image,"),
        ('{"health": {"pth": "/"}}', "did you mean `path`? the fields are path, command, interval"),
        ('{"pull": "nevr"}', "`$.pull`; `pull` is always or missing or never"),
        ('{"health": "/"}', '`$.health`; `health` is an object with a `path`, such as {"path": "/'),
        ('{"health": {"command": 1}}', "`health` is an object with a `path`"),
        ('{"env": {"A": 1}}', 'is an object of texts, such as {"MODE": "live"}'),
        ('{"command": "httpd"}', 'is an array, such as ["httpd", "-f"]'),
        ('{"data": "/srv"}', "is an array of paths"),
        ('{"cpu": "2"}', "Expected `int`, got `str` - at `$.cpu`"),
    ],
)
def test_what_is_wrong_is_reported_with_what_would_be_right(body: str, reported: str) -> None:
    with pytest.raises(BadInput) as raised:
        decode_fields(body.encode(), DECODER)

    assert reported in str(raised.value)
    assert ("fields are" in str(raised.value)) == ("unknown field" in str(raised.value))


def test_the_shapes_that_are_reported_are_right() -> None:
    for body in (
        b'{"health": {"path": "/"}, "command": ["httpd", "-f"], "env": {"MODE": "live"}}',
        b'{"health": {"command": ["true"]}, "data": ["/var/lib/shop"], "pull": "never"}',
    ):
        decode_fields(body, DECODER)
