"""Options and arguments that several commands have."""

from typing import Annotated

import typer

from cli.completion import complete_apps, complete_hosts, complete_labels

Hosts = Annotated[
    list[str] | None,
    typer.Argument(metavar="[HOST]...", help="Hosts by name.", autocompletion=complete_hosts),
]
Host = Annotated[
    str, typer.Argument(metavar="HOST", help="The host.", autocompletion=complete_hosts)
]
App = Annotated[
    str, typer.Argument(metavar="HOST/NAME", help="The app.", autocompletion=complete_apps)
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait until the app has stayed up, and is healthy.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="LABEL",
        help="Only nodes with this label, such as service:web; may be repeated.",
        autocompletion=complete_labels,
    ),
]
Prefixes = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix", metavar="TEXT", help="Only nodes with a label that begins so; may be repeated."
    ),
]
Kv = Annotated[
    list[str] | None,
    typer.Option(
        "--kv", metavar="KEY:VALUE", help="Only nodes with this in their kv; may be repeated."
    ),
]
