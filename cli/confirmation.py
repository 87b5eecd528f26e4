"""Questions before a change."""

import sys

import click

from cli.errors import CommandError, WrongUsage


def confirm(question: str, *, answer: str = "add --yes") -> None:
    """Ask on the terminal; CommandError for a no, WrongUsage without a terminal.

    ``answer`` says which options answer there.
    """
    if not sys.stdin.isatty():
        raise WrongUsage(f"there is no terminal to ask at: {question} ({answer})")
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed")
