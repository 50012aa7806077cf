"""Requests that the account cannot follow: refused inside of a run, unless money is set aside for them."""

from __future__ import annotations

from pydantic_ai.models import AbstractModel

from fastroai.errors import UnmeteredRequestError
from fastroai.runtime import current_scope
from fastroai.steps.reserving import is_inside_spend


def refuse_in_runs(call: str, instead: str) -> None:
    """Let a call through outside of runs, and inside of `spend`, which reserves and charges what it costs.

    Raises:
        UnmeteredRequestError: anywhere else.
    """
    scope = current_scope()
    if scope is not None and not is_inside_spend():
        raise UnmeteredRequestError(call, scope.path, f"{instead}, or reserve what it costs with spend()")


def refuse_session(model: AbstractModel) -> None:
    """Refuse inside of runs what begins a realtime session, or speaks in one.

    Raises:
        UnmeteredRequestError: inside of a run, and not of `spend`.
    """
    refuse_in_runs(
        f"a realtime session with {model.model_id}", "open and use it outside of any run and budget_scope"
    )
