"""Questions before a change."""

import sys

import click

from cli.errors import CommandError, WrongUsage


def confirm(question: str, *, hint: str = "add --yes") -> None:
    """Ask on the terminal; CommandError for a no, WrongUsage with the hint without a terminal."""
    if not sys.stdin.isatty():
        raise WrongUsage(f"there is no terminal to ask at: {question}", hint=hint)
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed")
