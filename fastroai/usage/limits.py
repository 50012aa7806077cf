"""The limits of a scope: the arguments `budget=` and `cost_budget=` in one form."""

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
    """The limits on the spending of a scope: its own budget, and spend limits that it shares with others."""

    budget: Budget | None = None
    spend_limits: tuple[SpendLimit, ...] = ()

    def over(self, other: Limits | None) -> Limits:
        """Return these limits merged with less specific ones: one budget, but the spend limits of both.

        This budget comes first. A budget for one call does not lift a spend limit that is shared with others.
        """
        if other is None:
            return self
        return Limits(self.budget or other.budget, (*self.spend_limits, *other.spend_limits))

    def ceilings(
        self, deps: object, tenant: str | None = None, *, within: tuple[Ceiling, ...] = ()
    ) -> tuple[Ceiling, ...]:
        """Return the ceilings of these limits and those of `within`: for each account once, the lowest.

        They are sorted, so that all requests reserve in the same order: none wait for each other in a circle.

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
    """Return the limits of `budget=`, or of its short form `cost_budget=` in microcents; `None` without both.

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
