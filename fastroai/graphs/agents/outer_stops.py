"""Failures inside of a node that are not the node's to get over."""

from __future__ import annotations

from fastroai.errors import BudgetExceeded, RunStoreUnavailable, RunTakenOver, ScopeClosedError
from fastroai.runtime import Scope
from fastroai.runtime.failures import leaves


def stops_more_than(scope: Scope, error: Exception) -> bool:
    """Whether a failure in this scope is not its own: of a budget set above it, of the run, of its store."""
    return any(_stops(scope, leaf) for leaf in leaves(error))


def _stops(scope: Scope, error: BaseException) -> bool:
    if isinstance(error, BudgetExceeded):
        return scope.parent is not None and scope.parent.is_within(error.scope_path)
    return isinstance(error, RunStoreUnavailable | RunTakenOver | ScopeClosedError)
