"""The time limits around a scope: which of them are near or over, and what stops their clocks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from operator import itemgetter
from typing import Protocol

from fastroai.errors import StoppedRun, TimeBudgetExceeded
from fastroai.runtime.concurrency.clock import Clock, WorkClock
from fastroai.runtime.tree import Tree


class TimedScope(Protocol):
    """What time limits need to know of a scope."""

    clocks: tuple[Clock, ...]
    """The clocks of the scope itself."""

    @property
    def kind(self) -> str:
        """What the scope is opened for, such as `pipeline` or `step`."""
        ...

    @property
    def step(self) -> TimedScope | None:
        """The innermost step: this one, or one around."""
        ...

    @property
    def tree(self) -> Tree:
        """Its lock is held while the clocks change."""
        ...

    def lineage(self) -> Sequence[TimedScope]:
        """Return this scope and those around it, innermost first."""
        ...


class BudgetClock(Clock):
    """Bounds the time of a scope, by the milliseconds of its budgets."""

    __slots__ = ("_path", "_step_id", "ms", "stopped_runs")

    def __init__(
        self, what: str, ms: int, seconds_before: float, step_id: str | None, path: tuple[str, ...]
    ) -> None:
        """Bound the scope at `path`, of which earlier processes have used `seconds_before`."""
        super().__init__(max(ms / 1000 - seconds_before, 0.0), what)
        self.ms, self._step_id, self._path = ms, step_id, path
        self.stopped_runs: list[StoppedRun] = []
        """The agent runs that the end of the time has stopped."""

    def exceeded(self) -> TimeBudgetExceeded:
        """Return the exception to raise when the time has run out."""
        error = TimeBudgetExceeded(self.ms, self.ms, self._step_id, None, self._path)
        error.stopped_runs = [*self.stopped_runs]
        return error


class TimeLimits:
    """The clocks of a scope and of those around it, which bound the time of the code inside."""

    __slots__ = ("_scope",)

    def __init__(self, scope: TimedScope) -> None:
        self._scope = scope

    def _clocks(self) -> Iterator[Clock]:
        """Yield the clocks, innermost first."""
        return (clock for scope in self._scope.lineage() for clock in scope.clocks)

    @property
    def of_budgets(self) -> BudgetClock | None:
        """The clock of the budgets of the scope itself; `None` if they have no `ms`."""
        return next((clock for clock in self._scope.clocks if isinstance(clock, BudgetClock)), None)

    @asynccontextmanager
    async def bounded(self, clock: Clock) -> AsyncGenerator[Clock]:
        """Bound the time inside by a clock of the scope."""
        async with clock:
            with self.counting(clock):
                yield clock

    @contextmanager
    def counting(self, clock: Clock) -> Iterator[None]:
        """Let a running clock be one of the scope: retries inside heed its deadline."""
        scope = self._scope
        with scope.tree.lock:
            scope.clocks += (clock,)
        try:
            yield
        finally:
            with scope.tree.lock:
                scope.clocks = tuple(one for one in scope.clocks if one is not clock)

    def in_line(self) -> AbstractContextManager[None]:
        """Stop the clocks of attempts at calls and at the step while a request waits in line here."""
        stops = [*self._rests()]
        for scope in self._scope.lineage():
            stops += (clock.paused() for clock in scope.clocks if clock.of_attempt)
            if scope.kind == "step":
                break  # clocks around the step bound more than this request
        return all_of(stops)

    def setting_up(self) -> AbstractContextManager[None]:
        """Stop all clocks around, while the process loads something that it loads once, such as an SDK."""
        paused = (clock.paused() for clock in self._clocks() if not isinstance(clock, WorkClock))
        return all_of([*self._rests(), *paused])

    def nesting(self) -> AbstractContextManager[None]:
        """Stop the clock of the attempt at the step around a nested run, which has time limits of its own."""
        clocks = () if self._scope.step is None else self._scope.step.clocks
        return all_of(clock.paused() for clock in clocks if clock.of_attempt)

    def at_rest(self) -> AbstractContextManager[None]:
        """Let the scope rest on all `WorkClock`s around, while it waits for something before it goes on."""
        return all_of(self._rests())

    def waiting_for_people(self) -> AbstractContextManager[None]:
        """Stop the clocks of all budgets around."""
        return all_of(clock.paused() for clock in self._clocks() if isinstance(clock, BudgetClock))

    def _rests(self) -> Iterator[AbstractContextManager[None]]:
        return (clock.at_rest(self._scope) for clock in self._clocks() if isinstance(clock, WorkClock))

    @property
    def deadline(self) -> tuple[float, str] | None:
        """The nearest deadline: the seconds that are left, and the name of the work; `None` without one."""
        lefts = ((clock.remaining(), clock.what) for clock in self._clocks())
        known = ((left, what) for left, what in lefts if left is not None)
        return min(known, key=itemgetter(0), default=None)

    @property
    def ran_out(self) -> Clock | None:
        """The innermost clock whose time has run out, so that it cancelled the code inside."""
        return next((clock for clock in self._clocks() if clock.ran_out), None)

    @property
    def attempt_ran_out(self) -> bool:
        """Whether the time of an attempt at a call or a step has run out."""
        return any(clock.of_attempt and clock.ran_out for clock in self._clocks())

    def keep_stopped(self, run: StoppedRun) -> None:
        """Keep a stopped agent run for the errors of the budgets whose time has run out."""
        for clock in self._clocks():
            if isinstance(clock, BudgetClock) and clock.ran_out:
                clock.stopped_runs.append(run)


@contextmanager
def all_of(managers: Iterable[AbstractContextManager[None]]) -> Iterator[None]:
    """Enter all context managers."""
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield
