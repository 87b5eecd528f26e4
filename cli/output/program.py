"""How commands of this program are typed again, for the context that this one was given."""

import re
import shlex

# `login`, and what `context` does to another one, are of no context in use.
COMMAND = re.compile(
    r"(?<![\w/.-])rollcall (?=[a-z])(?!login\b|context (?:list|use|remove)\b|completion\b|man\b)"
)


def program(context: str | None) -> str:
    """Return how a further command begins: with the context, if one was given."""
    return "rollcall" if context is None else f"rollcall --context {shlex.quote(context)}"


def of_context(text: str, context: str | None) -> str:
    """Return a text of this program whose commands name the context, if one was given."""
    return COMMAND.sub(lambda _: f"{program(context)} ", text)
