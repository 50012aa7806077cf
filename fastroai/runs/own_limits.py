"""The limits that a caller of `execute` or `resume` gives one run, and their form on record."""

from __future__ import annotations

from typing import Any, Final

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.store.record.memo import Memo
from fastroai.usage import Budget, ModelFallback
from fastroai.usage.limits import Limits

_AS_THEY_ARE: Final = (
    "tokens",
    "requests",
    "ms",
    "on_unpriced",
    "on_unbounded",
    "admission",
    "max_tokens_per_request",
)


def limits_to_json(limits: Limits | None) -> list[JsonValue] | None:
    """Return the budgets of limits as plain data; `None` without limits.

    Spend limits, handlers of warnings and models given as objects are code, so they are not on record.
    """
    return None if limits is None else [_to_json(budget) for budget in limits.budgets]


def limits_on_record(recorded: Memo) -> Limits | None:
    """Return the limits that the last call which gave some has given a run; `None` if no call has.

    Raises:
        RunCorrupt: they cannot be read.
    """
    if recorded.budgets is None:
        return None
    try:
        return Limits(tuple(map(_from_json, recorded.budgets)))
    except (ConfigurationError, TypeError) as error:
        raise RunCorrupt(recorded.opened.run_id, 1, f"its budget cannot be read: {error}") from error


def _to_json(budget: Budget) -> JsonValue:
    stored: dict[str, JsonValue] = {name: getattr(budget, name) for name in _AS_THEY_ARE}
    stored["usd"] = None if budget.usd is None else str(budget.usd)
    stored["warn_at"] = list(budget.warn_at)
    if budget.fallback is not None and isinstance(budget.fallback.use, str):
        stored["fallback"] = {"at": budget.fallback.at, "use": budget.fallback.use}
    return stored


def _from_json(stored: Any) -> Budget:
    given = dict(stored)
    if (fallback := given.pop("fallback", None)) is not None:
        given["fallback"] = ModelFallback(**fallback)
    return Budget(**given)
