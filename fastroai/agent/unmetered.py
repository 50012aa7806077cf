"""Requests that the account cannot follow: refused inside of a run, unless money is set aside for them."""

from __future__ import annotations

from pydantic_ai.models import AbstractModel

from fastroai.errors import UnmeteredRequestError
from fastroai.runtime import current_scope
from fastroai.steps.reserving import is_inside_spend


def refuse_in_runs(call: str, instead: str) -> None:
    """Refuse a call in a run, unless it is inside of `spend`, which reserves and charges its cost.

    Raises:
        UnmeteredRequestError: the call is inside of a run, and not inside of `spend`.
    """
    scope = current_scope()
    if scope is not None and not is_inside_spend():
        raise UnmeteredRequestError(call, scope.path, f"{instead}, or reserve what it costs with spend()")


def refuse_session(model: AbstractModel) -> None:
    """Refuse to begin a realtime session in a run, or to speak in one.

    Raises:
        UnmeteredRequestError: the call is inside of a run, and not inside of `spend`.
    """
    refuse_in_runs(
        f"a realtime session with {model.model_id}", "open and use it outside of any run and budget_scope"
    )
