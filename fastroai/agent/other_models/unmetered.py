"""Requests that the account cannot follow: refused inside of a run, unless money is set aside for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import wraps
from types import MethodType
from typing import Any

from pydantic_ai.models import AbstractModel

from fastroai.errors import UnmeteredRequestError
from fastroai.records import RequestRecord
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.budgets.ledger import NO_LIMIT
from fastroai.runtime.budgets.reservation import is_inside_spend
from fastroai.usage import CostCalculator
from fastroai.usage.bounding.surface import sends
from fastroai.usage.prices.request_cost import RequestCost
from fastroai.version import DISTRIBUTION


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


class FollowedMethods:
    """A mixin for a model with a meter: it tells of methods that may send requests past the account.

    A method that PydanticAI has added since is refused in runs with a budget. A method of a user's own class
    runs, and budgets do not see what it sends. Both make the cost of the run incomplete, except in `spend`.
    """

    calculator: CostCalculator

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Follow the methods that a class inherits from PydanticAI and that no class with a meter defines."""
        super().__init_subclass__(**kwargs)
        own = {name for kind in cls.__mro__ if issubclass(kind, FollowedMethods) for name in vars(kind)}
        defined = {name: value for kind in reversed(cls.__mro__) for name, value in vars(kind).items()}
        for name, method in defined.items():
            if name not in own and inspect.isfunction(method) and sends(method, name):
                setattr(cls, name, _followed_function(name, method))

    def __getattr__(self, item: str) -> Any:
        value = super().__getattr__(item)  # type: ignore[misc]  # of PydanticAI's wrapper
        if type(value) is not MethodType or isinstance(value.__self__, type) or not sends(value, item):
            return value
        return _followed(item, value, value.__self__, self.calculator)


def _followed_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        method = MethodType(function, self)
        return _followed(name, method, self.wrapped, self.calculator)(*args, **kwargs)

    return call


def _followed(
    name: str, method: Callable[..., Any], model: Any, calculator: CostCalculator
) -> Callable[..., Any]:
    definers = (kind for kind in type(model).__mro__ if name in vars(kind))
    is_refused = any(kind.__module__.partition(".")[0] == "pydantic_ai" for kind in definers)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        scope = current_scope()
        if scope is not None and not is_inside_spend():
            _tell(scope, model, f"{type(model).__name__}.{name}()", calculator, is_refused)
        return method(*args, **kwargs)

    return call


def _tell(scope: Scope, model: Any, call: str, calculator: CostCalculator, is_refused: bool) -> None:
    """Put a call on record that may send unseen requests; or refuse it, if a budget would count them."""
    if is_refused and _is_limited(scope):
        refuse_in_runs(call, f"see whether a newer FastroAI counts it (pip install -U {DISTRIBUTION})")
    unseen = RequestCost(unpriced_units=(call,))
    record = RequestRecord(
        model=str(model.model_name),
        provider=str(model.system),
        outcome="unmeasured",
        kind="request" if is_refused else "spend",
        bound_usd=None if is_refused else Decimal(0),
        started_at=datetime.now(UTC),
        error=f"the account does not see what {call} sends",
    )
    scope.charge(unseen.on(scope.labelled(record)))
    calculator.warn_incomplete(unseen, record.model, record.provider)


def _is_limited(scope: Scope) -> bool:
    """Return whether a budget or a spend limit around a scope counts money, tokens or requests."""
    bounds = scope.bounds
    return bool(bounds.ceilings) or any(account.room != NO_LIMIT for account in bounds.accounts)
