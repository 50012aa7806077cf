"""The limits of a scope: the arguments `budget=` and `cost_budget=` in one form."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.usage.budget import Budget
from fastroai.usage.shared.spend_amounts import TOO_MUCH_USD
from fastroai.usage.shared.spend_limit import SpendLimit

if TYPE_CHECKING:
    from fastroai.usage.shared.spend_store import SpendAccount, SpendStore

_MOST_USD: Final = TOO_MUCH_USD - 1

BudgetLike: TypeAlias = Budget | SpendLimit | Sequence[Budget | SpendLimit]
"""A budget, a spend limit, or several of these, all of which hold."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Spend limits with one account, in which they count. The lowest is in force."""

    limits: tuple[SpendLimit, ...]
    """The limit; several if any of them can be the lowest, because functions say the amounts."""
    account: SpendAccount
    tenant: str | None = None
    """The tenant of the runs to which the limit applies."""

    @property
    def limit(self) -> SpendLimit:
        """The limit that says how the account is used."""
        return self.limits[0]

    @property
    def digest(self) -> str:
        """A hash of the window and key of the account, for records that anybody may read."""
        return hashlib.sha256(f"{self.account.window}:{self.account.key}".encode()).hexdigest()[:16]

    async def usd(self) -> Decimal:
        """Return the limit in US dollars, as it is now.

        Raises:
            ConfigurationError: as `SpendLimit.amount_for`.
        """
        return min([await limit.amount_for(self.account.key, self.tenant) for limit in self.limits])

    @property
    def known_usd(self) -> Decimal:
        """The limit in US dollars, as functions said last; before that, the highest possible."""
        known = (limit.last_amount_for(self.account.key, self.tenant) for limit in self.limits)
        return min((amount for amount in known if amount is not None), default=_MOST_USD)

    def lower(self, other: Ceiling) -> Ceiling:
        """Return the lower of two ceilings of one account; both as one if a function says an amount."""
        if callable(self.limit.usd) or callable(other.limit.usd):
            return replace(self, limits=(*dict.fromkeys((*self.limits, *other.limits)),))
        return other if other.limit.usd < self.limit.usd else self

    @property
    def waits(self) -> bool:
        """Whether runs that meet the limit wait for the next window."""
        return all(limit.on_limit == "wait" for limit in self.limits)

    @property
    def deadline(self) -> timedelta | None:
        """The longest that a run waits; `None` without a bound."""
        known = (limit.deadline for limit in self.limits)
        return min((deadline for deadline in known if deadline is not None), default=None)

    @property
    def place(self) -> tuple[SpendStore, SpendAccount]:
        """The account, with its store: the same account in two stores is two accounts."""
        return self.limit.store, self.account


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on the spending of a scope: its own budgets, and spend limits that it shares with others.

    All of them hold. The budgets that were set for the most specific place come first.
    """

    budgets: tuple[Budget, ...] = ()
    spend_limits: tuple[SpendLimit, ...] = ()

    def ceilings(self, deps: object, tenant: str | None = None) -> tuple[Ceiling, ...]:
        """Return the ceilings of these limits, whatever their tags.

        Raises:
            ConfigurationError: a key function failed, or gave no key; or there is no tenant, and a limit
                counts by tenant.
        """
        return tuple(
            Ceiling((limit,), limit.account_for(deps, tenant), tenant) for limit in self.spend_limits
        )


NO_LIMITS: Final = Limits()


def ceilings_for(tags: Collection[str], ceilings: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    """Return those ceilings that apply to spending with these tags: for each account once, the lowest.

    They are sorted, so that all requests reserve in the same order: none wait for each other in a circle.
    """
    lowest: dict[tuple[SpendStore, SpendAccount], Ceiling] = {}
    for ceiling in ceilings:
        if ceiling.limit.tag is None or ceiling.limit.tag in tags:
            known = lowest.get(ceiling.place)
            lowest[ceiling.place] = ceiling if known is None else known.lower(ceiling)
    return tuple(sorted(lowest.values(), key=_place))


def together(*limits: Limits | None) -> Limits | None:
    """Return limits, from the most specific place to the least, as one; `None` if there are none.

    Every place that takes a budget adds it to the others: none replaces or lifts another one.
    """
    given = [one for one in limits if one is not None]
    if len(given) < 2:
        return given[0] if given else None
    budgets: list[Budget] = []
    for budget in chain.from_iterable(one.budgets for one in given):
        if all(budget is not known for known in budgets):
            budgets.append(budget)
    return Limits(tuple(budgets), tuple(chain.from_iterable(one.spend_limits for one in given)))


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
        raise ConfigurationError("cost_budget", cost_budget, "no value, because budget= is given too")
    if isinstance(cost_budget, bool) or not isinstance(cost_budget, int) or cost_budget < 1:
        expected = "microcents ($1 = 1,000,000), a whole number from 1; for dollars: budget=Budget(usd=...)"
        raise ConfigurationError("cost_budget", cost_budget, expected)
    return Limits((Budget(microcents=cost_budget),))


def _limits(budget: BudgetLike) -> Limits:
    given = (budget,) if isinstance(budget, Budget | SpendLimit) else budget
    expected = "a Budget, a SpendLimit, or a list of these; cost_budget= takes microcents"
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise ConfigurationError("budget", budget, expected)
    budgets = tuple(one for one in given if isinstance(one, Budget))
    spend_limits = tuple(one for one in given if isinstance(one, SpendLimit))
    if len(budgets) + len(spend_limits) < len(given):
        raise ConfigurationError("budget", budget, expected)
    return Limits(budgets, spend_limits)
