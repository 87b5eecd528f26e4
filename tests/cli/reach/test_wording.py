"""Requests in the messages of agents are reported as commands."""

import pytest

from cli.reach.session import in_commands


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ("no app; GET /v1/apps lists those", "no app; `rollcall apps web-1` lists those"),
        ("GET /v1/apps/my.shop shows", "`rollcall app show web-1/my.shop` shows"),
        ("see GET /v1/apps/shop.", "see `rollcall app show web-1/shop`."),
        ("GET /v1/apps/shop/events shows", "`rollcall app events web-1/shop` shows"),
        ("(GET /v1/apps/shop/data)", "(`rollcall app backup web-1/shop`)"),
        ("GET /v1/apps/shop/processes", "`rollcall app ps web-1/shop`"),
        ("GET /v1/apps/shop/other", "GET /v1/apps/shop/other"),
        ("GET /v1/usage", "GET /v1/usage"),
        ("GET /v1/apps/{name}/logs", "GET /v1/apps/{name}/logs"),
        ("GET /v1/apps/shop/{what}", "GET /v1/apps/shop/{what}"),
        ("GET /v1/apps_of_all", "GET /v1/apps_of_all"),
        ("it ended:\nGET /v1/apps 200", "it ended:\nGET /v1/apps 200"),
    ],
)
def test_requests_are_commands_but_not_in_lines_of_a_log(said: str, reported: str) -> None:
    assert in_commands(said, "web-1") == reported


def test_commands_begin_as_they_are_typed_for_the_context() -> None:
    reported = in_commands("GET /v1/apps/shop", "web-1", rollcall="rollcall --context lab")

    assert reported == "`rollcall --context lab app show web-1/shop`"
