"""Requests that the account cannot follow: refused inside of a run, unless money is set aside for them."""

from __future__ import annotations

from decimal import Decimal
from functools import wraps
from types import MethodType
from typing import Any, Final

from pydantic_ai.models import AbstractModel

from fastroai.callers import warn_caller
from fastroai.errors import UnmeteredRequestError
from fastroai.records import RequestRecord
from fastroai.runtime import Scope, current_scope
from fastroai.steps.reserving import is_inside_spend
from fastroai.usage.pricing import UnpricedModelWarning
from fastroai.usage.surface import sends

_NEWER: Final = "ask whether a newer version of FastroAI counts it"


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


def followed(name: str, value: Any) -> Any:
    """Return an attribute of a model; a method that may send requests past the account is told when it is called.

    A method that PydanticAI has added since is refused in runs with a budget. A method of a user's own class
    runs, and budgets do not see what it sends. Both make the cost of the run incomplete, except in `spend`.
    """
    if not isinstance(value, MethodType) or isinstance(value.__self__, type) or not sends(value, name):
        return value
    model, method = value.__self__, value
    is_pydantic_ais = any(
        name in vars(kind) and kind.__module__.partition(".")[0] == "pydantic_ai"
        for kind in type(model).__mro__
    )

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        scope = current_scope()
        if scope is not None and not is_inside_spend():
            _tell(scope, model, f"{type(model).__name__}.{name}()", is_refused=is_pydantic_ais)
        return method(*args, **kwargs)

    return call


def _tell(scope: Scope, model: Any, call: str, *, is_refused: bool) -> None:
    """Put a call on record whose requests the account does not see; or refuse it where a budget counts them."""
    if is_refused and _is_limited(scope):
        refuse_in_runs(call, _NEWER)
    tags, tenant = scope.labels
    unseen = RequestRecord(
        model=str(model.model_name),
        provider=str(model.system),
        outcome="unmeasured",
        kind="request" if is_refused else "spend",
        bound_usd=None if is_refused else Decimal(0),
        unpriced_units=(call,),
        agent=scope.name if scope.kind == "agent" else None,
        step_id=scope.step_id,
        variant=scope.variant,
        tags=tags,
        tenant=tenant,
        error=f"the account does not see what {call} sends",
    )
    scope.charge(unseen)
    warn_caller(
        f"some costs are incomplete: {unseen.error}; reserve its cost with spend()", UnpricedModelWarning
    )


def _is_limited(scope: Scope) -> bool:
    """Return whether a budget or a spend limit around a scope counts money, tokens or requests."""
    accounts = () if scope.account is None else scope.account.lineage()
    limits = (
        limit
        for account in accounts
        for limit in (account.budget.usd, account.budget.tokens, account.budget.requests)
    )
    return bool(scope.ceilings) or any(limit is not None for limit in limits)
