"""The operations on an app, one class for each."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.apps.operations.create import CreateOperation
from agent.apps.operations.export import ExportOperation
from agent.apps.operations.labels import LabelsOperation
from agent.apps.operations.lifecycle import DeleteOperation, StartOperation, StopOperation
from agent.apps.operations.password import PasswordOperation
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.operations.restore import RestoreOperation
from agent.apps.operations.rollback import RollbackOperation
from agent.apps.operations.update import UpdateOperation
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


@dataclass(frozen=True, kw_only=True)
class Operations:
    """All operations."""

    create: CreateOperation
    update: UpdateOperation
    rebuild: RebuildOperation
    rollback: RollbackOperation
    start: StartOperation
    stop: StopOperation
    delete: DeleteOperation
    labels: LabelsOperation
    password: PasswordOperation
    export: ExportOperation
    restore: RestoreOperation

    def recover(self) -> Mapping[type[Entry], Recover]:
        """Return what finishes or undoes an operation that broke off, by the type of its entry."""
        return {
            CreateEntry: self.create.recover,
            ReplaceEntry: self.rebuild.recover,
            ReplacedEntry: self.rebuild.recover,
            LimitsEntry: self.update.recover,
            StartEntry: self.start.recover,
            StopEntry: self.stop.recover,
            DeleteEntry: self.delete.recover,
            PasswordEntry: self.password.recover,
            ExportEntry: self.export.recover,
        }
