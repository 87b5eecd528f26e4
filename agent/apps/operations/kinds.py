"""The one table of operations: how each is planned, carried out and recovered."""

from agent.apps import requests
from agent.apps.operations.create import carry_out_create, plan_create, recover_create
from agent.apps.operations.data import Export, export_data, plan_restore, recover_export
from agent.apps.operations.keep_up import (
    found_up,
    leave_down,
    restart_unhealthy,
    set_autostart,
    start_down,
)
from agent.apps.operations.lifecycle import (
    carry_out_delete,
    carry_out_start,
    carry_out_stop,
    plan_delete,
    plan_restart,
    plan_start,
    plan_stop,
    recover_start,
)
from agent.apps.operations.password import (
    apply_pending,
    carry_out_password,
    plan_password,
    recover_password,
)
from agent.apps.operations.replace import (
    carry_out_replacement,
    plan_rebuild,
    recover_replacement,
)
from agent.apps.operations.rollback import plan_rollback
from agent.apps.operations.update import (
    carry_out_limits,
    plan_add_label,
    plan_remove_label,
    plan_update,
)
from agent.apps.runner.runner import Operations
from agent.journal import (
    CreateEntry,
    DeleteEntry,
    ExportEntry,
    LimitsEntry,
    PasswordEntry,
    ReplacedEntry,
    ReplaceEntry,
    StartEntry,
    StopEntry,
)

OPERATIONS = Operations(
    plan={
        requests.Create: plan_create,
        requests.Update: plan_update,
        requests.Rebuild: plan_rebuild,
        requests.Rollback: plan_rollback,
        requests.Start: plan_start,
        requests.Stop: plan_stop,
        requests.Restart: plan_restart,
        requests.Delete: plan_delete,
        requests.SetPassword: plan_password,
        requests.AddLabel: plan_add_label,
        requests.RemoveLabel: plan_remove_label,
        requests.Restore: plan_restore,
    },
    carry_out={
        CreateEntry: carry_out_create,
        ReplaceEntry: carry_out_replacement,
        LimitsEntry: carry_out_limits,
        StartEntry: carry_out_start,
        StopEntry: carry_out_stop,
        DeleteEntry: carry_out_delete,
        PasswordEntry: carry_out_password,
    },
    recover={
        CreateEntry: recover_create,
        ReplaceEntry: recover_replacement,
        ReplacedEntry: recover_replacement,
        LimitsEntry: carry_out_limits,
        StartEntry: recover_start,
        StopEntry: carry_out_stop,
        DeleteEntry: carry_out_delete,
        PasswordEntry: recover_password,
        ExportEntry: recover_export,
    },
    act={
        Export: export_data,
        requests.StartDown: start_down,
        requests.FoundUp: found_up,
        requests.LeaveDown: leave_down,
        requests.RestartUnhealthy: restart_unhealthy,
        requests.LetStart: set_autostart,
        requests.LeaveStopped: set_autostart,
        requests.ApplyPassword: apply_pending,
    },
)
