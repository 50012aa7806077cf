"""Budgets in code: a budget around any code, and a view of the money that is left for it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fastroai.errors import ConfigurationError
from fastroai.other_names import other_names
from fastroai.records import EXACT, RequestRecord, Usage, exact_sum, usd_to_microcents
from fastroai.runtime.budgets.ledger import NO_LIMIT, Account, Room
from fastroai.runtime.events import OnEvent, listener_of
from fastroai.runtime.labels import labels_of
from fastroai.runtime.scope import Scope, current_scope
from fastroai.usage.limits import limits_of

if TYPE_CHECKING:
    from fastroai.tracing import Tracer
    from fastroai.usage import BudgetLike
    from fastroai.usage.reports.report import UsageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The amounts that are left to spend here: of each kind, the least that any `Budget` around has left.

    An amount is `None` if no budget limits it, and 0 if it is used up or overdrawn. Spend limits
    (`SpendLimit`) are not included.
    """

    usd: Decimal | None
    """US dollars that are neither spent nor reserved by requests in flight."""
    tokens: int | None
    requests: int | None
    ms: int | None
    """Milliseconds until the nearest deadline, of a budget or of a timeout."""

    @property
    def microcents(self) -> int | None:
        """Money left, in microcents ($1 = 1,000,000), rounded half to even; `None` without a limit."""
        return None if self.usd is None else usd_to_microcents(self.usd)


class BudgetView:
    """The budgets around some code, as `ctx.budget` returns them, for decisions that depend on what is left.

        if ctx.budget.remaining.usd is not None and ctx.budget.remaining.usd < Decimal("0.02"):
            question = f"In one sentence: {question}"

    Spend limits, which a store keeps, are not included: for those, use `await limit.status()`.
    """

    def __init__(self, scope: Scope) -> None:
        """Look at the budgets of `scope` and of everything around it."""
        self._scope = scope

    @property
    def remaining(self) -> Remaining:
        """The amounts that are left now: of each kind, the least that any of the budgets has left.

        Amounts that requests in flight have reserved do not count as left. An amount is `None` if no `Budget`
        limits it, and never negative. Spend limits are not included. The time left (`ms`) also takes timeouts
        into account.
        """
        room = NO_LIMIT
        with self._scope.tree.lock:
            for account in self._scope.bounds.accounts:
                room = room.within(self._room_of(account))
        deadline = self._scope.time.deadline
        return Remaining(
            usd=None if room.usd is None else max(room.usd, Decimal(0)),
            tokens=None if room.tokens is None else max(room.tokens, 0),
            requests=None if room.requests is None else max(room.requests, 0),
            ms=None if deadline is None else max(int(deadline[0] * 1000), 0),
        )

    @property
    def share(self) -> Decimal:
        """The highest spent share of a limit in the budgets around: 0.5 means that half of it is spent.

        Limits on money, tokens and requests count; limits on time and spend limits do not. Requests in flight
        do not count yet. The share is 0 without any such limit, and above 1 if one is exceeded.
        """
        with self._scope.tree.lock:
            return max((account.share for account in self._scope.bounds.accounts), default=Decimal(0))

    def paused(self) -> AbstractContextManager[None]:
        """Return a context manager in which the time of all budgets around, `Budget(ms=...)`, stands still.

        Use it while the code waits for a person: `with ctx.budget.paused():`. Timeouts are not stopped.
        """
        return self._scope.time.waiting_for_people()

    def _room_of(self, account: Account) -> Room:
        """Return the amounts left of one account, with the money that the runs around have set aside."""
        room = account.room
        if room.usd is None:
            return room
        holds = (each.hold for each in self._scope.bounds.reserves)
        aside = (hold.left_usd for hold in holds if hold is not None and hold.pays_in(account))
        return replace(room, usd=EXACT.add(room.usd, exact_sum(aside)))


class BudgetScope(BudgetView):
    """A budget around any code, and a count of the spending inside. `budget_scope` makes it.

    Enter it with `async with`, or with `with` in code that is not async. Everything that it counts can also
    be read after the block.
    """

    @property
    def usage(self) -> Usage:
        """The usage of all agent calls and purchases inside so far: cost, tokens and requests."""
        return self._scope.spent()

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Records of all requests made inside so far, in the order in which the requests ended."""
        with self._scope.tree.lock:
            return tuple(self._scope.spending.records)

    def report(self) -> UsageReport:
        """Return a report of the spending inside so far, which sums it by step, agent, model and so on."""
        from fastroai.usage.reports.report import UsageReport

        return UsageReport.of(self.records)

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._scope.end_inside()
            if exc is None or isinstance(exc, Exception):
                await self._scope.tree.tell()
        except BaseException as error:
            exc_type, exc, traceback = type(error), error, error.__traceback__
            raise
        finally:
            await self._scope.__aexit__(exc_type, exc, traceback)

    def __enter__(self) -> Self:
        if (clock := self._scope.time.of_budgets) is not None:
            expected = "`async with`; code that is not async cannot be cancelled when its time is over"
            raise ConfigurationError("ms", clock.ms, expected)
        self._scope.enter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._scope.leave(exc)


@other_names(
    arguments={
        limit: f"budget_scope(Budget({limit}=…))"
        for limit in ("usd", "microcents", "tokens", "requests", "ms")
    }
)
def budget_scope(
    budget: BudgetLike | None = None,
    *,
    tags: Collection[str] = (),
    tenant: str | None = None,
    name: str = "budget_scope",
    deps: object = None,
    tracer: Tracer | None = None,
    on_event: OnEvent | None = None,
) -> BudgetScope:
    """Set a budget for all FastroAgent calls inside, at any depth and in any task that is started there.

    Calls in pipelines and other runs inside count, too. A call that the budget cannot pay for raises
    `BudgetExceeded`. When the time of a `Budget(ms=...)` is over, the code inside is cancelled, and the block
    raises `TimeBudgetExceeded`. The scope also adds tags and a tenant to the spending inside, with or without
    a budget.

        async with budget_scope(Budget(usd="0.50")) as scope:
            await asyncio.gather(*(agent.run(question) for question in questions))
        print(scope.usage.cost_usd)

    In code that is not async, write `with` instead of `async with`, around `run_sync` calls.

    Args:
        budget: A `Budget`, a `SpendLimit`, or several. Without one, the scope only counts spending.
        tags: Names by which the spending inside is summed; calls inside can add more.
        tenant: The one tenant to which the spending inside belongs; calls inside can name another.
        name: Name in errors and traces.
        deps: Argument for spend limits whose key is a function of the dependencies.
        tracer: Tracer for spans inside, unless an agent or pipeline has a tracer of its own.
        on_event: Function that is called with each event inside, such as `SpendRecorded`, `BudgetWarning` and
            `BudgetRefused`. It may be async. Its exceptions are logged.

    Returns:
        The scope, to enter with `async with` or `with`. `usage`, `records` and `remaining` can be read in it.

    Raises:
        ConfigurationError: an invalid budget, tag or tenant; or, on entering by `with`, a `Budget(ms=...)`,
            which needs `async with`.
    """
    parent = current_scope()
    scope = Scope(
        "budget",
        name,
        parent=parent,
        limits=None if budget is None else limits_of(budget),
        deps=deps,
        tracer=tracer,
        listener=listener_of(on_event),
        labels=labels_of(tags, tenant),
    )
    scope.count_for_itself()
    return BudgetScope(scope)
