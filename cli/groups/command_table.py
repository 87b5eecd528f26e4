"""The commands by name: the module of each, and the first line of its help."""

import re
import shlex
from collections.abc import Sequence

import click

from cli.groups.completion_words import COMPLETE_WORDS
from cli.groups.lazy_group import Entry, LazyGroup
from cli.output.program import typed

HOST_AND_NAME = re.compile(r"([A-Za-z0-9._-]+)/([a-z0-9_.-]+)", re.ASCII)
CONTEXT = LazyGroup(
    "context",
    {
        name: Entry("cli.commands.login", summary, changes=name != "list")
        for name, summary in {
            "list": "List the contexts.",
            "use": "Use a context from now on.",
            "set": "Change what is given of a context, and keep all else.",
            "remove": "Remove a context; its key file stays where it is.",
        }.items()
    },
    elsewhere={
        **dict.fromkeys(("add", "create", "new"), "rollcall login --help"),
        **dict.fromkeys(("delete", "rm"), "rollcall context remove --help"),
        **dict.fromkeys(("ls", "show"), "rollcall context list"),
    },
    help="List, choose, change and remove contexts.",
)
LOOKING = {
    "show": "Show the record of an app, all of its fields.",
    "logs": "Print the log of an app.",
    "stats": "Show what an app uses now.",
    "ps": "List the processes of an app.",
    "history": (
        "List the revisions of an app, the newest first; `rollback` brings one of them back."
    ),
    "events": "List what happened to an app, the oldest first.",
}
CHANGES = {
    "create": "Create an app, and wait until it runs.",
    "update": (
        "Change fields of an app; if its new container does not stay up, the old one runs again."
    ),
    "start": "Start an app; one that runs is left alone.",
    "stop": "Stop an app; one that is stopped is left alone.",
    "restart": "Stop an app and start it again, in its container; one that is stopped is started.",
    "rebuild": "Pull the image of an app, and replace the container; data, labels and ports stay.",
    "rollback": "Bring an app back to an earlier revision, with the image that it ran.",
    "delete": "Delete an app and its data.",
    "label": "Add a label to an app, such as prometheus:shop, or take it off.",
    "password": "Set the password of the app's user, which is asked for, or read from a pipe.",
}
DATA = {
    "backup": "Copy the files of an app's volumes into a tar, whole or not at all.",
    "restore": "Put the files of a tar in place of those of a stopped app, whole or not at all.",
}
OF_AN_APP = {
    name: Entry(f"cli.commands.{module}", summary, changes=module != "apps")
    for module, summaries in (("apps", LOOKING), ("changes", CHANGES), ("data", DATA))
    for name, summary in summaries.items()
}


def looked_at(arguments: Sequence[str]) -> str | None:
    """Return the command of an app where its name and HOST/NAME stand in another place or order."""
    app, action, others = arguments[0], "".join(arguments[1:2]), arguments[2:]
    if HOST_AND_NAME.fullmatch(app) is None:
        app, action = action, app
        if action not in OF_AN_APP or HOST_AND_NAME.fullmatch(app) is None:
            return None
    if action not in OF_AN_APP:
        return typed("rollcall app show", app)
    if action not in LOOKING and "--dry-run" not in others:
        return f"rollcall app {action} --help"
    return f"rollcall app {shlex.join([action, app, *others])}"


APP = LazyGroup(
    "app",
    OF_AN_APP,
    meant=looked_at,
    elsewhere={
        **dict.fromkeys(("list", "ls"), "rollcall apps"),
        **dict.fromkeys(("del", "remove", "rm"), "rollcall app delete --help"),
        **dict.fromkeys(("get", "inspect", "status"), "rollcall app show --help"),
        "top": "rollcall app stats --help",
        **dict.fromkeys(("add", "deploy", "run"), "rollcall app create --help"),
        "apply": "rollcall apply --help",
    },
    help="Look at one app, and change it.",
)
OF_HOSTS = {
    "login": {
        "login": "Ask the registry at URL from now on, and remember where its key is.",
        "agent-key": (
            "Print the key that is derived for the agent of a host,"
            " and is good for that agent alone."
        ),
    },
    "nodes": {
        "nodes": "List the nodes: all hosts that the registry has heard of, or some of them.",
        "node": (
            "Show what a host says, since when, and which targets come from it,"
            " and why others do not."
        ),
    },
    "forget": {
        "forget": (
            "Take hosts that are gone for good out of the registry, and their targets with them."
        )
    },
    "watch": {"watch": "Follow the nodes until Ctrl-C: all that are there, then each change."},
    "targets": {
        "targets": "List the targets of a service, as Prometheus gets them.",
        "services": (
            "List the services: how many nodes and targets they have, and who asked for them last."
        ),
    },
    "render": {
        "render": "Write a file from the nodes, such as the list of a load balancer, by a template."
    },
    "doctor": {"doctor": "Ask the registry and all hosts what is wrong."},
    "apps": {
        "apps": (
            "List the apps of all hosts, or of some of them."
            " A host that does not answer is a row, too."
        )
    },
    "fleet.rollouts": {
        "rebuild": "Pull the image of an app and replace its container, on many hosts.",
        "update": "Change fields of an app, such as its image, on many hosts.",
        "start": "Start an app on many hosts.",
        "stop": "Stop an app on many hosts.",
        "restart": "Stop an app and start it again, in its container, on many hosts.",
        "rollback": "Bring an app back to the revision before, on many hosts.",
    },
    "fleet.kept": {
        "rollouts": "List the unfinished rollouts of the context, and how to go on with each."
    },
    "fleet.apply": {
        "diff": "Compare a file of apps with what is on the hosts; change nothing.",
        "apply": "Create and change apps until the hosts are as a file says; delete none.",
    },
    "completion": {
        "completion": (
            "Print the script by which a shell completes commands, options,"
            " and names of the registry."
        )
    },
    "man": {"man": "Print the manual page, for `rollcall man | man -l -`."},
}
CHANGING = ("login", "forget", *OF_HOSTS["fleet.rollouts"], "apply", "render")
COMMANDS: dict[str, Entry | click.Command] = {
    **{
        name: Entry(f"cli.commands.{module}", summary, changes=name in CHANGING)
        for module, summaries in OF_HOSTS.items()
        for name, summary in summaries.items()
    },
    "complete-words": COMPLETE_WORDS,
    "context": CONTEXT,
    "app": APP,
}
ELSEWHERE = {
    **{
        name: f"rollcall app {name} --help"
        for name in (*LOOKING, *CHANGES, *DATA)
        if name not in COMMANDS
    },
    **dict.fromkeys(("get", "hosts", "list", "ls"), "rollcall nodes"),
    **dict.fromkeys(("explain", "host"), "rollcall node --help"),
    "status": "rollcall doctor",
    "top": "rollcall app stats --help",
    **dict.fromkeys(("deregister", "unregister"), "rollcall forget --help"),
    "logout": "rollcall context remove --help",
    **dict.fromkeys(("remove", "rm"), "rollcall app delete --help"),
    "deploy": "rollcall update --help",
    "help": "rollcall --help",
    "version": "rollcall --version",
}


def mistaken(command: str, arguments: Sequence[str]) -> str | None:
    """Return what is wrong where a command of a fleet gets HOST/NAME, with what was meant."""
    if command not in OF_HOSTS["fleet.rollouts"] or not arguments:
        return None
    found = HOST_AND_NAME.fullmatch(arguments[0])
    if found is None:
        return None
    host, name = found.groups()
    return (
        f"{arguments[0]!a} is an app on one host, and `rollcall {command}` is for many hosts."
        f" Did you mean `{typed(f'rollcall {command}', name, host)}`"
        f" or `{typed(f'rollcall app {command}', arguments[0])}`?"
    )
