"""What can be done to an app, one class for each operation, and what runs them."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.apps.operations.create import CreateOperation
from agent.apps.operations.labels import LabelsOperation
from agent.apps.operations.lifecycle import DeleteOperation, StartOperation, StopOperation
from agent.apps.operations.password import PasswordOperation
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.operations.runner import Recover
from agent.apps.operations.update import UpdateOperation
from agent.model import (
    CreateEntry,
    DeleteEntry,
    Entry,
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
    start: StartOperation
    stop: StopOperation
    delete: DeleteOperation
    labels: LabelsOperation
    password: PasswordOperation

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
        }
