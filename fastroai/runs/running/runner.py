"""The runner, which performs the decisions of a state machine and makes none itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import Any, Final, Literal, assert_never

from fastroai.errors import (
    BudgetExceeded,
    CallChangedError,
    RunStoreUnavailable,
    RunTakenOver,
    error_chain,
)
from fastroai.human.halting import is_halt
from fastroai.runs.execution import OpenRun
from fastroai.runs.request import RunRequest
from fastroai.runs.running.machine import Cancel, Changed, Decision, Machine, Outcome, Told, Unit
from fastroai.runs.running.units import BegunUnit, BegunUnits, Past
from fastroai.runs.running.work import Work
from fastroai.runtime import NO_RETRIES_USED, Scope
from fastroai.runtime.budgets.bounds import NO_BOUNDS
from fastroai.runtime.concurrency.isolation import going_on
from fastroai.runtime.concurrency.tasks import end_tasks
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import (
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepSkipped,
    StepStarted,
    StopRequested,
    UnitDecision,
)
from fastroai.runtime.retrying.failures import leaves
from fastroai.runtime.scope import make_current
from fastroai.steps.durability import failure_of, restore_spending
from fastroai.store.record.packed import MOST_UNPACKED
from fastroai.store.record.runs import DurableRun
from fastroai.tracing import NoOpTracer

_NO_TRACER: Final = NoOpTracer()

_GIVES_OUTPUT: Final = (StepFinished, QuestionAsked)

UNITS_BETWEEN_PAUSES: Final = 200
"""Units after which a worker lets other tasks run, however short the units are."""


class Runner:
    """One run of a pipeline or graph, inside its scope.

    Units run in workers, which are tasks. A worker runs the units that are ready, one after the other. When
    its unit waits for something while others are ready, another worker takes those. So every unit that can
    run does, and chains of units and units that never wait need no task each.
    """

    def __init__(
        self,
        machine: Machine,
        work: Work,
        opened: OpenRun,
        request: RunRequest[Any],
        *,
        scope_around: Callable[[str], Scope] | None = None,
    ) -> None:
        """Make the runner of a run that has begun.

        `scope_around` returns the parent scope of a unit, by its step, if it is not the scope of the run.
        """
        self._machine, self._work, self._scope_around = machine, work, scope_around
        self.scope, self._log, self._part = opened.scope, opened.log, opened.part
        self._deps, self._tracer = request.deps, request.tracer_of(self.scope.parent)
        self.units = BegunUnits()
        """The units that were started."""
        self.skipped: dict[str, str] = {}
        """Causes of skipped steps, by step id."""
        self.is_told = False
        """Whether listeners were told of the end of the run."""
        self.finish: RunFinished | None = None
        """The decision of the machine that ended or paused the run."""
        self._ready: deque[StepStarted] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._cancelled: dict[Unit, str] = {}
        """Causes of cancellations, by unit."""
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._is_over = False
        self._began, run = opened.began, opened.kept
        elapsed = 0.0 if run is None else run.elapsed
        self._before = 0.0 if run is None else self._seconds_before(run, elapsed)
        self.origin = self._began - (elapsed - self._before)
        """Start of the run, perhaps in an earlier process, as a value of `perf_counter`."""

    def _seconds_before(self, run: DurableRun, elapsed: float) -> float:
        """Return the seconds from the start of the outermost run, kept by a store, to that of this one."""
        if not self._part.place:
            return 0.0
        history = run.recorded.history(self._part.place)
        first = next((entry for _, entry in history if not isinstance(entry, RunResumed)), None)
        return elapsed if first is None else max(0.0, first.timestamp - run.recorded.opened.timestamp)

    # --- the run ---

    async def run(self, decisions: Sequence[Decision]) -> None:
        """Carry out decisions, and those that follow, to the end. Failures of steps are not raised."""
        self._note(decisions)
        try:
            if self.scope.listener is not None:
                await self._tell(None, decisions)
            self._act(decisions)
            self._keep_going()
            await self._finished
        except asyncio.CancelledError:
            self.stop("the task that ran it was cancelled")
            raise
        finally:
            self._is_over = True
            await end_tasks(self._workers)

    def heed(self, request: PauseRequested | StopRequested) -> None:
        """Pause after the running units, or stop. Works from any thread."""
        if running_loop() is self._loop:
            self._heed(request)
            return
        with suppress(RuntimeError):  # the loop is closed, so the run has ended
            self._loop.call_soon_threadsafe(self._heed, request)

    def _heed(self, request: PauseRequested | StopRequested) -> None:
        """Take in a request at once: after this call, no further unit starts."""
        if not self._is_over and self.finish is None:
            self.tell(request)

    @property
    def milliseconds(self) -> float:
        """Milliseconds that the run has taken so far in this process."""
        return (perf_counter() - self._began) * 1000

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps or nodes with which the run goes on if it is resumed."""
        return self._machine.resume_at

    def stop(self, reason: str) -> None:
        """Stop the run without waiting for units, and let the machine know."""
        if not self._is_over and self.finish is None:
            request = StopRequested(reason=reason, part=self._part)
            self._is_over = True
            decisions = self._machine.handle(request)
            self._log.note(request)
            self._note(decisions)

    def tell(self, fact: Told, stored: Fact | None = None) -> None:
        """Let the machine take in a fact that is no outcome of a unit. `stored` is its form for a store."""
        fact.part = self._part
        decisions = self._machine.handle(fact)
        if stored is not None:
            stored.part, stored.timestamp = self._part, fact.timestamp
        self._log.note(fact, stored)
        self._note(decisions)
        for decision in decisions:  # cancel at once, before listeners are told
            if isinstance(decision, Cancel):
                self._cancel(decision)
        self._add_worker(partial(self._aside, fact, decisions))

    async def _aside(self, fact: Told, decisions: Sequence[Decision]) -> None:
        if self.scope.listener is not None:
            await self._tell(fact, decisions)
        self._act([decision for decision in decisions if not isinstance(decision, Cancel)])
        await self._take()

    # --- workers ---

    def _keep_going(self) -> None:
        """Add a worker if units are ready, because the calling worker is about to wait."""
        if self._ready:
            self._add_worker(self._take)

    def _add_worker(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        worker = self._loop.create_task(self._watched(work))
        self._workers.add(worker)
        # Not in the worker itself: one that is cancelled before it has begun never runs a line.
        worker.add_done_callback(self._on_worker_done)

    async def _watched(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a worker, and pass its exception to the task that awaits the run; nobody awaits the worker."""
        try:
            await work()
        except BaseException as error:
            if not self._finished.done():
                self._finished.set_exception(error)
            elif not isinstance(error, Exception | asyncio.CancelledError):
                raise

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled():
            worker.exception()  # an interrupt has left the loop, and asyncio would log that it was lost
        elif not self._finished.done():
            self._finished.cancel()

    async def _take(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        done, run = 0, self._log.run
        while self._ready and not self._is_over:
            fact, stored = await self._perform(self._ready.popleft(), worker)
            if self._is_over:
                return  # the run was cancelled from outside: nothing may start any more
            decisions = self._decide(fact, stored)
            if run is not None and isinstance(fact, _GIVES_OUTPUT):
                self._keep_going()
                await run.journal.kept()
                if self._is_over:
                    return
            if self.scope.listener is not None:
                await self._tell(fact, decisions)
            self._act(decisions)
            done += 1
            if done % UNITS_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)

    # --- decisions ---

    def _decide(self, fact: Outcome, stored: Fact | None) -> Sequence[Decision]:
        """Let the machine decide on the outcome of a unit, and put the outcome and the decisions on record.

        Nothing is awaited in between, so facts are noted in the order in which the machine takes them in.
        """
        if isinstance(fact, _GIVES_OUTPUT):
            self._work.settled(fact)
        decisions, run = self._machine.handle(fact), self._log.run
        if run is None:
            newest = self._log.live.newest
            newest.append(fact)
            for decision in decisions:
                if isinstance(decision, UnitDecision):
                    newest.append(decision)
            if len(newest) > MOST_UNPACKED:
                self._log.live.pack()
        else:
            self._log.note(fact, stored)
            self._note(decisions)
        return decisions

    def _note(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, UnitDecision):
                self._log.note(decision, None if self._log.run is None else self._work.stored(decision))

    async def _tell(self, fact: Told | None, decisions: Sequence[Decision]) -> None:
        self._keep_going()
        if fact is not None:
            await self.scope.emit(fact)
        for decision in decisions:
            if isinstance(decision, UnitDecision):
                await self.scope.emit(decision)

    def _act(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case StepStarted():
                    self._ready.append(decision)
                case RunFinished():
                    self.finish = decision
                    if not self._finished.done():
                        self._finished.set_result(None)
                case Cancel():
                    self._cancel(decision)
                case Changed():
                    self._work.follow(decision)
                case StepSkipped(step_id=step_id, cause=cause):
                    self.skipped[step_id] = cause
                case UnitDecision():
                    pass  # already on record; other decisions follow from it
                case _:
                    assert_never(decision)

    def _cancel(self, decision: Cancel) -> None:
        """Cancel units that run. A unit that has not begun ends when it would begin."""
        for unit in decision.units:
            self._cancelled.setdefault(unit, decision.cause)
        for unit in decision.units:
            begun = self.units.open.get(unit)
            if begun is not None and begun.worker is not None:
                scope = begun.opened
                if decision.answers_first and scope is not None and scope.receiving:
                    scope.when_handed_on = partial(self._cancel_when_it_waits, begun)
                else:
                    begun.worker.cancel()

    def _cancel_when_it_waits(self, begun: BegunUnit) -> None:
        """Cancel a unit that has its answer, at the next point where the unit waits for something."""
        worker = begun.worker
        if worker is None:
            return
        is_its_own = running_loop() is self._loop and asyncio.current_task() is worker
        if is_its_own:
            worker.cancel()  # takes effect where it next waits
        else:
            self._loop.call_soon_threadsafe(_cancel_now, begun)

    # --- units ---

    def _begin(self, started: StepStarted) -> BegunUnit:
        """Begin a unit, which has no scope yet."""
        step_id, visit, units = started.step_id, started.visit, self.units
        around = self.scope if self._scope_around is None else self._scope_around(step_id)
        begun = BegunUnit(step_id, visit, around, (perf_counter() - self.origin) * 1000)
        units.open[step_id, visit] = begun
        if len(units.open) > units.pack_above:
            units.pack()
        return begun

    def _open_if_needed(self, begun: BegunUnit) -> None:
        """Open the scope of a unit if something is to be counted or shown there from the beginning."""
        around, config, run = begun.around, self._work.configs[begun.name], self._log.run
        assert around is not None
        bounds, tracer = around.bounds, self._tracer if config.trace else _NO_TRACER
        if (
            run is not None
            or tracer is not None
            or around.tracer is not None
            or config.limits is not None
            or (bounds is not NO_BOUNDS and (bounds.account is not None or bounds.ceilings))
        ):
            begun.opened = Scope(
                "step",
                begun.name,
                parent=around,
                limits=config.limits,
                deps=self._deps,
                tracer=tracer,
                ordinal=begun.visit,
            )
            if run is not None:
                restore_spending(begun.opened)

    def reopen(self, past: Past) -> None:
        """Add a unit that was over in an earlier process, with the usage that it had there."""
        begun, place, run = self._begin(past.started), past.started.place, self._log.run
        begun.error, begun.degraded, begun.is_over = past.error, past.degraded, True
        if run is not None:
            if run.recorded.requests.charges(place):
                restore_spending(begun.scope)
            else:
                run.recorded.come_again(("call", place))
            finished_ms = max(0.0, past.ended_at - run.recorded.opened.timestamp - self._before) * 1000
            begun.started_ms = max(0.0, finished_ms - past.duration_ms)
            begun.duration_ms = finished_ms - begun.started_ms

    async def _perform(self, started: StepStarted, worker: asyncio.Task[None]) -> tuple[Outcome, Fact | None]:
        """Run a unit. Return its outcome, and the form of the outcome for a store if that differs."""
        unit, run = (started.step_id, started.visit), self._log.run
        if self._cancelled and (cause := self._cancelled.get(unit)) is not None:
            fact = self._as_cancelled(started, cause, 1)
            self._work.cut_short(started, fact)
            return fact, None
        begun = self._begin(started)
        self._open_if_needed(begun)
        run_inside = copy_context().run
        run_inside(make_current, begun)
        used = NO_RETRIES_USED if run is None else run.recorded.used(("step", started.place))
        begun.worker = worker
        try:
            performed = self._work.perform(started, begun, used)
            try:
                waits_for = run_inside(performed.send, None)
            except StopIteration as end:
                output = end.value
            else:
                self._keep_going()
                output = await going_on(performed, run_inside, waits_for)
            if (scope := begun.opened) is not None and scope.open_inside:
                self._keep_going()
                await scope.end_inside()
            self._end(begun)
            finished, stored = self._work.finished(started, begun, output), None
            if run is not None:
                stored = self._work.stored(finished)
                run.journal.check(finished if stored is None else stored)
        except BaseException as error:
            begun.worker = None
            if unit in self._cancelled:
                await self._uncancel(worker, isinstance(error, asyncio.CancelledError))
            outcome = await self._raised(started, begun, error)
            if run is None or not isinstance(outcome, StepFailed):
                return outcome, None
            return outcome, self._work.stored(outcome)
        begun.worker = None
        if self._cancelled and unit in self._cancelled:
            await self._uncancel(worker, False)
        if (scope := begun.opened) is not None:
            scope.close()
            if not scope.has_spent and scope.span is None:
                begun.opened = None
        return finished, stored

    def _end(self, begun: BegunUnit) -> None:
        begun.duration_ms = (perf_counter() - self.origin) * 1000 - begun.started_ms
        begun.is_over = True
        if (scope := begun.opened) is not None:
            begun.attempt, begun.degraded = scope.attempt, scope.degraded

    async def _uncancel(self, worker: asyncio.Task[None], has_been_raised: bool) -> None:
        """Undo the cancellation of a worker, which was meant for the unit that has ended."""
        if not has_been_raised:  # still pending, so it is raised here; or swallowed by the unit, so it is not
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self._is_over:
                    raise
        if worker.cancelling():
            worker.uncancel()

    async def _raised(self, started: StepStarted, begun: BegunUnit, error: BaseException) -> Outcome:
        """Return the outcome of a unit that raised an exception; raise the exception if it ends the run."""
        unit, scope = (started.step_id, started.visit), begun.scope
        if scope.open_inside:
            self._keep_going()
            await scope.end_inside()
        self._end(begun)
        if is_halt(error):
            scope.close()
            halted = self._as_halted(started, begun)
            self._work.cut_short(started, halted)
            return halted
        scope.close(error)
        begun.error = error
        if isinstance(error, asyncio.CancelledError):
            if unit not in self._cancelled and not self._is_over:
                raise error  # the task was cancelled from outside, and with it the run
            cancelled = self._as_cancelled(started, self._cancelled.get(unit, "the run ended"), scope.attempt)
            self._work.cut_short(started, cancelled)
            return cancelled
        if not isinstance(error, Exception):
            raise error  # KeyboardInterrupt and the like are not a unit's outcome
        if isinstance(error, RunStoreUnavailable | RunTakenOver):
            raise error  # whatever `on_error` says: nothing more of the run can be put on record
        if self._deps is None and isinstance(error, AttributeError) and error.obj is None:
            error.add_note(f"ctx.deps of step {started.step_id!r} is None: the run was given no deps=")
        failed = StepFailed(
            started.step_id,
            failure_of(scope, self._work.configs[started.step_id], error),
            visit=started.visit,
            branch=started.branch,
            part=self._part,
            attempt=scope.attempt,
            budget=self._whose_budget(error),
            call_changed=any(isinstance(one, CallChangedError) for one in error_chain(error)),
            duration_ms=begun.duration_ms,
            raised=error,
            spent_in=begun,
        )
        self._work.failed(started, failed)
        return failed

    def _as_halted(self, started: StepStarted, begun: BegunUnit) -> StepHalted:
        return StepHalted(
            started.step_id,
            self._log.waits_in(started.place),
            visit=started.visit,
            branch=started.branch,
            part=self._part,
            attempt=begun.attempt,
            duration_ms=begun.duration_ms,
        )

    def _as_cancelled(self, started: StepStarted, cause: str, attempt: int) -> StepCancelled:
        return StepCancelled(
            started.step_id,
            cause,
            visit=started.visit,
            branch=started.branch,
            part=self._part,
            attempt=attempt,
        )

    def _whose_budget(self, error: Exception) -> Literal["own", "outer"] | None:
        budgets = [leaf for leaf in leaves(error) if isinstance(leaf, BudgetExceeded)]
        if not budgets:
            return None
        return "outer" if any(self.scope.is_within(one.scope_path) for one in budgets) else "own"


def _cancel_now(begun: BegunUnit) -> None:
    if begun.worker is not None:
        begun.worker.cancel()
