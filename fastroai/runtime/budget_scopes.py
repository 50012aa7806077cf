"""Budgets in code: a budget around any code, and what is left of those around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT, RequestRecord, Usage, exact_sum, usd_to_microcents
from fastroai.runtime.events import harmless
from fastroai.runtime.facts import RunEvent
from fastroai.runtime.labels import labels_of
from fastroai.runtime.ledger import NO_LIMIT, Account, Room
from fastroai.runtime.scope import Scope, current_scope
from fastroai.usage import UsageReport
from fastroai.usage.limits import limits_of

if TYPE_CHECKING:
    from fastroai.tracing import Tracer
    from fastroai.usage import BudgetLike

OnEvent = Callable[[RunEvent], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left: the least of all budgets around. `None` where nothing limits it; never negative."""

    usd: Decimal | None
    """US dollars that are neither spent nor reserved by requests in flight."""
    tokens: int | None
    requests: int | None
    ms: int | None
    """Milliseconds until the nearest deadline, of a budget or of a timeout."""

    @property
    def microcents(self) -> int | None:
        """`usd` in microcents ($1 = 1,000,000), rounded once, half to even."""
        return None if self.usd is None else usd_to_microcents(self.usd)


class BudgetView:
    """The budgets that some code is under, for code that wants to decide for itself.

        if ctx.budget.remaining.usd is not None and ctx.budget.remaining.usd < Decimal("0.02"):
            question = f"In one sentence: {question}"

    Spend limits, which are kept in a store, are not in it: `await limit.status()` tells of those.
    """

    def __init__(self, scope: Scope) -> None:
        """Look at the budgets of `scope` and of everything around it."""
        self._scope = scope

    @property
    def remaining(self) -> Remaining:
        """What is left now."""
        room = NO_LIMIT
        with self._scope.lock:
            for account in self._accounts():
                room = room.within(self._room_of(account))
        left = self._scope.time_left()
        return Remaining(
            usd=None if room.usd is None else max(room.usd, Decimal(0)),
            tokens=None if room.tokens is None else max(room.tokens, 0),
            requests=None if room.requests is None else max(room.requests, 0),
            ms=None if left is None else max(int(left * 1000), 0),
        )

    @property
    def share(self) -> Decimal:
        """The share that is spent of the budget that is nearest to its end, from 0; 0 without a budget."""
        with self._scope.lock:
            return max((account.share for account in self._accounts()), default=Decimal(0))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time of all budgets around, while a person is waited for."""
        with ExitStack() as stack:
            for scope in self._scope.lineage():
                if scope.time is not None:
                    stack.enter_context(scope.time.paused())
            yield

    def _room_of(self, account: Account) -> Room:
        """Return what is left of one account, with what the runs around this code have set aside."""
        room = account.room
        if room.usd is None:
            return room
        holds = (each.hold for each in self._scope.reserves)
        aside = (hold.left_usd for hold in holds if hold is not None and hold.pays_in(account))
        return replace(room, usd=EXACT.add(room.usd, exact_sum(aside)))

    def _accounts(self) -> Iterator[Account]:
        return iter(()) if self._scope.account is None else self._scope.account.lineage()


class BudgetScope(BudgetView):
    """A budget around any code; made by `budget_scope`."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)

    @property
    def usage(self) -> Usage:
        """What was spent inside so far."""
        return self._scope.spent()

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Every request made inside so far, in the order in which they ended."""
        with self._scope.lock:
            return tuple(self._scope.records)

    def report(self) -> UsageReport:
        """What was spent inside, by step, agent, model, tool and outcome."""
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
                await self._scope.tell()
        except BaseException as error:
            exc_type, exc, traceback = type(error), error, error.__traceback__
            raise
        finally:
            await self._scope.__aexit__(exc_type, exc, traceback)

    def __enter__(self) -> Self:
        if self._scope.budget is not None and self._scope.budget.ms is not None:
            expected = "`async with`; code that is not async cannot be cancelled when its time is over"
            raise ConfigurationError("ms", self._scope.budget.ms, expected)
        self._scope.enter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._scope.leave(exc)


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
    """A budget around any code: every FastroAgent call inside, at any depth and in any task started there.

    It also says whose spending that is, with or without a budget.

        async with budget_scope(Budget(usd="0.50")) as scope:
            await asyncio.gather(*(agent.run(question) for question in questions))
        print(scope.usage.cost_usd)

    With `with` in code that is not async, around `run_sync` calls.

    Args:
        budget: A `Budget`, a `SpendLimit`, or several. Without one, the scope only counts.
        tags: Names to sum what is spent inside by; tags of what is inside come on top.
        tenant: Whose spending it is: another such name, of which there is one.
        name: Name in errors and traces.
        deps: For spend limits whose key is a function of them.
        tracer: Where spans of what is inside go, unless it has a tracer of its own.
        on_event: Told of what happens inside, such as `SpendRecorded`, `BudgetWarning` and `BudgetRefused`;
            it may be async.

    Raises:
        ConfigurationError: a budget, a tag or a tenant that is none.
    """
    parent = current_scope()
    listener = None if on_event is None else harmless(on_event, "on_event")
    scope = Scope(
        "budget",
        name,
        parent=parent,
        limits=None if budget is None else limits_of(budget),
        deps=deps,
        tracer=tracer,
        listener=listener,
        labels=labels_of(tags, tenant),
    )
    scope.count_for_itself()
    return BudgetScope(scope)
