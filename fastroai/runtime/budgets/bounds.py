"""The bounds of spending: a scope without any of its own shares those of the scope around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from fastroai.runtime.events import BudgetWarning, Listener, of_warnings
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.usage.limits import ceilings_for

if TYPE_CHECKING:
    from fastroai.runtime.budgets.in_flight import SetAside
    from fastroai.runtime.budgets.ledger import Account
    from fastroai.runtime.providers.provider_limits import ProviderLimits
    from fastroai.usage import Budget
    from fastroai.usage.limits import Ceiling


class LeftBehind(NamedTuple):
    """The budget or run on record that a forked process cannot use, because its parent process has it."""

    left: Literal["budget", "run"]
    """A budget, which counts in one process only; or a run on record, whose log has one writer."""
    path: tuple[str, ...]
    """Path of the scope with the innermost budget, else of the innermost scope."""
    process: int
    """Id of the process that has the budget or the run."""


class Bounds(NamedTuple):
    """The limits of spending in a scope, and the labels by which it is counted."""

    labels: Labels = NO_LABELS
    """The tags and the tenant of spending in the scope."""
    account: Account | None = None
    """The account of the scope's first budget, else of the nearest budget above; `None` without one."""
    all_ceilings: tuple[Ceiling, ...] = ()
    """The spend limits of the scope and of those above, also those for tags that the scope lacks."""
    ceilings: tuple[Ceiling, ...] = ()
    """The spend limits that apply in the scope."""
    reserves: tuple[SetAside, ...] = ()
    """The money that is set aside for the runs around the scope, innermost first."""
    provider_limits: tuple[ProviderLimits, ...] = ()
    """The provider limits that apply in the scope, all of them at once."""
    estimated: tuple[Budget, ...] | None = None
    """The budgets around an estimate that is made in the scope; `None` if the scope is of a real run."""
    forked: LeftBehind | None = None
    """Why nothing may be spent here: the budget or run is in the process that forked this one."""

    @property
    def accounts(self) -> Iterator[Account]:
        """The accounts of all budgets around, innermost first."""
        return iter(()) if self.account is None else self.account.lineage()

    def labelled(self, labels: Labels) -> Bounds:
        """Return the bounds of spending that has these labels, too."""
        labels = labels.inside(self.labels)
        return self._replace(labels=labels, ceilings=ceilings_for(labels.tags, self.all_ceilings))

    def under(self, ceilings: Iterable[Ceiling]) -> Bounds:
        """Return the bounds of spending that is under these spend limits, too."""
        together = tuple(dict.fromkeys((*self.all_ceilings, *ceilings)))
        return self._replace(all_ceilings=together, ceilings=ceilings_for(self.labels.tags, together))

    def drawing_on(self, reserve: SetAside) -> Bounds:
        """Return the bounds of spending that draws on money that is set aside."""
        return self._replace(reserves=(reserve, *self.reserves))

    def alerts(self, own: Iterable[Account], around: Bounds) -> Iterator[Listener]:
        """Yield listeners that call `on_warning` with warnings of a scope's own accounts and spend limits."""
        for account in own:
            if account.budget.on_warning is not None:
                yield of_warnings(account.budget.on_warning, partial(_is_of_budget, account))
        for ceiling in self.all_ceilings[len(around.all_ceilings) :]:
            if ceiling.limit.on_warning is not None:
                yield of_warnings(ceiling.limit.on_warning, partial(_is_of_limit, ceiling))


def _is_of_budget(account: Account, warning: BudgetWarning) -> bool:
    return warning.budget is account.budget and warning.scope_path == account.path


def _is_of_limit(ceiling: Ceiling, warning: BudgetWarning) -> bool:
    usd = ceiling.limit.usd
    return (warning.key, warning.window) == (ceiling.account.key, ceiling.account.window) and (
        callable(usd) or (warning.coded_usd or warning.limit_usd) == usd
    )


NO_BOUNDS: Final = Bounds()
