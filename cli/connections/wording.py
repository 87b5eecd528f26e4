"""What agents say of their API, in the commands of this program."""

import re

from cli.output.program import typed

READ = re.compile(
    r"GET /v1/apps(?:/(?P<name>[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?)(?:/(?P<what>[a-z]+))?)?"
    r"(?![\w/{])",
    re.ASCII,
)
COMMANDS = {
    None: "show",
    "data": "backup",
    "events": "events",
    "history": "history",
    "logs": "logs",
    "processes": "ps",
    "stats": "stats",
}


def in_commands(message: str, hostname: str, *, rollcall: str = "rollcall") -> str:
    """Return an agent's message with commands in place of requests; its further lines stay.

    Those may be lines of an app's log. Commands begin as ``rollcall`` says.
    """

    def command(found: re.Match[str]) -> str:
        if found["name"] is None:
            return f"`{typed(f'{rollcall} apps', hostname)}`"
        action = COMMANDS.get(found["what"])
        if action is None:
            return found[0]
        where = f"{hostname}/{found['name']}"
        return f"`{typed(f'{rollcall} app {action}', where)}`"

    first, *others = message.split("\n")
    return "\n".join([READ.sub(command, first), *others])
