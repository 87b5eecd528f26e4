"""The operations on an app, as functions of the host."""

from collections.abc import Mapping
from functools import partial

from agent.apps.host import Host
from agent.apps.operations.create import recover_create
from agent.apps.operations.export import recover_export
from agent.apps.operations.lifecycle import recover_delete, recover_start, recover_stop
from agent.apps.operations.password import recover_password
from agent.apps.operations.rebuild import recover_replacement
from agent.apps.operations.update import recover_limits
from agent.apps.runner.runner import Recover
from agent.journal import (
    CreateEntry,
    DeleteEntry,
    Entry,
    ExportEntry,
    LimitsEntry,
    PasswordEntry,
    ReplacedEntry,
    ReplaceEntry,
    StartEntry,
    StopEntry,
)


def recoveries(host: Host) -> Mapping[type[Entry], Recover]:
    """Return what finishes or undoes an operation that broke off, by the type of its entry."""
    return {
        CreateEntry: partial(recover_create, host),
        ReplaceEntry: partial(recover_replacement, host),
        ReplacedEntry: partial(recover_replacement, host),
        LimitsEntry: partial(recover_limits, host),
        StartEntry: partial(recover_start, host),
        StopEntry: partial(recover_stop, host),
        DeleteEntry: partial(recover_delete, host),
        PasswordEntry: partial(recover_password, host),
        ExportEntry: partial(recover_export, host),
    }
