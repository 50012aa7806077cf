"""What a crossed budget refuses: spending that has happened is kept, and nothing new begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from fastroai.errors import BudgetExceeded, SpendLimitExceeded, SpendStoreUnavailable
from fastroai.runtime.budgets.in_line import open_accounts
from fastroai.runtime.budgets.shared_reservation import allow, crossed_stop
from fastroai.runtime.budgets.stops import refused, stop_of

if TYPE_CHECKING:
    from fastroai.runtime.budgets.ledger import Account, Measure
    from fastroai.runtime.scope import Scope


class Crossing(NamedTuple):
    """A budget of which more is spent than it allows."""

    account: Account
    measure: Measure

    def stop(self, scope: Scope, stopped: Literal["step", "recorded"]) -> BudgetExceeded:
        """Return the error for a step or a charge in `scope` that comes after the crossing."""
        stop = stop_of(scope, self.account, self.measure, None)
        stop.stopped = stopped
        return stop


def crossing(scope: Scope) -> Crossing | None:
    """Return the outermost budget around `scope` that is crossed; `None` if all hold."""
    with scope.tree.lock:
        crossed = [
            Crossing(account, measure)
            for account in open_accounts(scope)
            if (measure := account.crossed) is not None
        ]
    return crossed[-1] if crossed else None


async def refuse_if_crossed(scope: Scope) -> None:
    """Refuse to begin a step in `scope` under a budget or a spend limit that is crossed.

    The store of a spend limit is asked only if the limit may be crossed: its store said so after the last
    charge of this run, or the run was resumed. Functions that say the amounts of limits are asked always, so
    that charges of the step find them.

    Raises:
        BudgetExceeded: a budget or a spend limit is crossed.
        ConfigurationError: the function that says the amount of a spend limit failed.
        SpendStoreUnavailable: the store of a spend limit cannot be asked, and the limit does not allow for
            that.
    """
    crossed = crossing(scope)
    stop = None if crossed is None else crossed.stop(scope, "step")
    if stop is None and scope.bounds.ceilings:
        stop = await _shared_stop(scope)
    if stop is not None:
        if not stop.may_wait:
            await scope.emit(refused(scope, stop))
        raise stop


async def _shared_stop(scope: Scope) -> SpendLimitExceeded | None:
    for ceiling in scope.bounds.ceilings:
        coded_usd = await ceiling.usd()
        if ceiling.place not in scope.tree.unsure:
            continue
        try:
            balance = await ceiling.limit.store.balance(ceiling.account)
        except SpendStoreUnavailable as error:
            allow(ceiling, error)
            continue
        if (stop := crossed_stop(ceiling, scope, coded_usd, balance, "step")) is not None:
            stop.may_wait, stop.deadline = ceiling.waits, ceiling.deadline
            return stop
        scope.tree.unsure.discard(ceiling.place)
    return None
