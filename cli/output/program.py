"""How commands of this program are typed again, for the context that this one was given."""

import re
import shlex

# `login`, and what `context` does to another one, are of no context in use.
COMMAND = re.compile(
    r"(?<![\w/.-])rollcall (?=[a-z])(?!login\b|context (?:list|use|remove)\b|completion\b|man\b)"
)

# What a line begins with that a shell takes as it is.
PASTED = re.compile(r"(?:rollcall|chmod|getent) (?!.*[:;,] )")
QUOTED = re.compile(r"'[^']*'")


def program(context: str | None) -> str:
    """Return how a further command begins: with the context, if one was given."""
    return "rollcall" if context is None else f"rollcall --context {shlex.quote(context)}"


def typed(command: str, *arguments: str, options: str = "") -> str:
    """Return a command with its arguments, quoted for a shell, then its options.

    Where an argument begins like an option, as a hostname may, the options are before `--`, and the
    arguments after it.
    """
    is_like_option = any(each.startswith("-") for each in arguments)
    quoted = [shlex.quote(each) for each in arguments]
    last = (options, "--", *quoted) if is_like_option else (*quoted, options)
    return " ".join(filter(None, (command, *last)))


def steps_of(hint: str | None) -> list[str]:
    """Return what to do next, as lines: a command after `next:`, as it is pasted, else advice."""
    lines = (hint or "").splitlines()
    pasted = [PASTED.match(QUOTED.sub("", each)) for each in lines]
    return [
        f"  {'next' if is_pasted else 'advice'}: {each}"
        for is_pasted, each in zip(pasted, lines, strict=True)
    ]


def of_context(text: str, context: str | None) -> str:
    """Return a text of this program whose commands name the context, if one was given."""
    return COMMAND.sub(lambda _: f"{program(context)} ", text)
