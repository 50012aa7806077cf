"""What `budget=` can be, in one form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.usage.budget import Budget
from fastroai.usage.spend_limit import SpendLimit
from fastroai.usage.spend_store import SpendAccount, SpendStore

BudgetLike: TypeAlias = Budget | SpendLimit | Sequence[Budget | SpendLimit]
"""A budget, a spend limit, or several spend limits with at most one budget."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A spend limit, with the account in which it counts."""

    limit: SpendLimit
    account: SpendAccount


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a scope: its own budget, and spend limits that it shares with others."""

    budget: Budget | None = None
    spend_limits: tuple[SpendLimit, ...] = ()

    def over(self, other: Limits | None) -> Limits:
        """These in the place of less specific ones: another budget, but all the spend limits of both.

        A ceiling that is shared with others is not lifted by a budget for one call.
        """
        if other is None:
            return self
        return Limits(self.budget or other.budget, (*self.spend_limits, *other.spend_limits))

    def ceilings(
        self, deps: object, tenant: str | None = None, *, within: tuple[Ceiling, ...] = ()
    ) -> tuple[Ceiling, ...]:
        """The spend limits that hold under these and those of `within`, each account once.

        Sorted, so that all requests everywhere reserve in the same order: none waits for another in a circle.

        Raises:
            ConfigurationError: a key function failed, or gave no key; or there is no tenant, and a limit
                counts by tenant.
        """
        if not self.spend_limits:
            return within
        lowest: dict[tuple[SpendStore, SpendAccount], Ceiling] = {}
        own = (Ceiling(limit, limit.account_for(deps, tenant)) for limit in self.spend_limits)
        for ceiling in (*within, *own):
            key = (ceiling.limit.store, ceiling.account)
            known = lowest.get(key)
            if known is None or ceiling.limit.usd < known.limit.usd:
                lowest[key] = ceiling
        return tuple(sorted(lowest.values(), key=_place))


def _place(ceiling: Ceiling) -> tuple[str, str, str]:
    # The store too: the same account in two stores is two accounts.
    return ceiling.account.window, ceiling.account.key, repr(ceiling.limit.store)


def limits_of(budget: BudgetLike | None, cost_budget: int | None = None) -> Limits | None:
    """The one form of `budget=`, or of its short form `cost_budget=` in microcents; `None` for neither.

    Raises:
        ConfigurationError: both are given, or one of them is invalid.
    """
    if cost_budget is None:
        return None if budget is None else _limits(budget)
    if budget is not None:
        raise ConfigurationError("cost_budget", cost_budget, "nothing beside budget=, which it is short for")
    if isinstance(cost_budget, bool) or not isinstance(cost_budget, int) or cost_budget < 1:
        expected = "microcents ($1 = 1,000,000), a whole number from 1; for dollars: budget=Budget(usd=...)"
        raise ConfigurationError("cost_budget", cost_budget, expected)
    return Limits(Budget(microcents=cost_budget))


def _limits(budget: BudgetLike) -> Limits:
    given = (budget,) if isinstance(budget, Budget | SpendLimit) else budget
    expected = "a Budget, a SpendLimit, or a list of these; cost_budget= takes microcents"
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise ConfigurationError("budget", budget, expected)
    budgets = [one for one in given if isinstance(one, Budget)]
    spend_limits = tuple(one for one in given if isinstance(one, SpendLimit))
    if len(budgets) + len(spend_limits) < len(given):
        raise ConfigurationError("budget", budget, expected)
    if len(budgets) > 1:
        raise ConfigurationError("budget", budget, "at most one Budget, which can hold several limits")
    return Limits(budgets[0] if budgets else None, spend_limits)
