"""The log, and the run on record, that a scope belongs to. Outside of runs, no module of logs is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastroai.runtime import Scope
    from fastroai.store.record.log import Log
    from fastroai.store.record.runs import DurableRun


def log_of(scope: Scope | None) -> Log | None:
    """Return the log of the run that a scope belongs to; `None` outside of runs."""
    log: Any = None if scope is None else scope.log
    found: Log | None = log
    return found


def run_of(scope: Scope | None) -> DurableRun | None:
    """Return the run on record that a scope belongs to; `None` if no store keeps the run."""
    log: Any = None if scope is None else scope.log
    return None if log is None else log.run
