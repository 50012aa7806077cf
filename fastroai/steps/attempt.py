"""The state of one attempt at a step: its clock, whether it is over, and spending that is still uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from fastroai.errors import BudgetExceeded, FastroAIError
from fastroai.records import RequestRecord
from fastroai.runtime import Clock, record_spending
from fastroai.runtime.budgets.admission import unknown_cost
from fastroai.runtime.budgets.crossings import crossing
from fastroai.runtime.budgets.shared_reservation import SharedCharge, charge_shared, unbooked_stop
from fastroai.runtime.budgets.stops import refused
from fastroai.runtime.scope import Scope, Scoped
from fastroai.steps.durability import record_own_spending


class AttemptState:
    """The state of one attempt at a step, which the step's context and the code that runs steps share."""

    __slots__ = ("clock", "is_over", "refusal", "step", "uncertain")

    def __init__(self, step: Scoped, clock: Clock | None = None) -> None:
        self.step = step
        """The step, with its scope."""
        self.clock = clock
        """The clock of this attempt, which calls of agents pause."""
        self.is_over = False
        """Whether this attempt is over. Then the context refuses calls by code that still holds it."""
        self.refusal: FastroAIError | None = None
        """The error that `record_usage` raised. It ends the step, even if the code of the step goes on."""
        self.uncertain: Sequence[SharedCharge] = ()
        """Recorded spending of which the step does not know yet whether it crossed a spend limit."""

    def clock_paused(self) -> AbstractContextManager[None]:
        """Return a context in which the clock of this attempt stands still."""
        return nullcontext() if self.clock is None else self.clock.paused()

    def charge(self, scope: Scope, record: RequestRecord) -> None:
        """Charge spending that has happened in `scope`: that of the step, or one inside of it.

        Raises:
            BudgetExceeded: a budget was crossed before this spending, which is charged.
            UnpricedModelError: its cost is not fully known, under a budget of money or a spend limit.
        """
        own = self.step.scope
        crossed, stop = crossing(scope), self._shared_stop(scope)
        ends_step = scope is own or crossing(own) is not None
        record_spending(scope, record)
        record_own_spending(scope, record)
        self.uncertain = [*self.uncertain, *charge_shared(scope, record)]
        if crossed is not None:
            stop = crossed.stop(scope, "recorded")
        if stop is not None:
            scope.note(refused(scope, stop))
        refusal = stop or unknown_cost(scope, record)
        if ends_step:
            self.refusal = refusal
        if refusal is not None:
            raise refusal

    async def end_spending(self) -> None:
        """Wait until charged spending is in the accounts of spend limits.

        Raises:
            BudgetExceeded: `charge` raised it, and the code of the step has caught it.
            UnpricedModelError: likewise.
        """
        await self.in_the_books()
        if self.refusal is not None:
            raise self.refusal
        await self.step.scope.tree.tell()

    async def in_the_books(self) -> None:
        """Wait until charged spending is in the accounts of spend limits, where listeners find it."""
        for charge in self.uncertain:
            await charge.wait()
            charge.note_settled()

    def _shared_stop(self, scope: Scope) -> BudgetExceeded | None:
        """Return the error of a spend limit that charged spending is known to have crossed."""
        charges = self.uncertain
        done = [charge for charge in charges if charge.is_done]
        self.uncertain = [charge for charge in charges if charge not in done]
        stops = [charge.note_settled() for charge in done]
        return next(filter(None, stops), None) or unbooked_stop(scope)
