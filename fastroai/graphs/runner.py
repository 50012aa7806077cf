"""Performs what the state machine decides. It has no opinion about what runs next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fastroai.errors import (
    BudgetExceeded,
    GraphStopped,
    RunStoreUnavailable,
    RunTakenOver,
    StepExecutionError,
    TimeLimitExceeded,
)
from fastroai.graphs.branch_times import BranchTimes
from fastroai.graphs.branches import Branch
from fastroai.graphs.events import (
    AskDecider,
    BranchTimedOut,
    Cancelled,
    CancelVisit,
    Command,
    Decided,
    Ending,
    Event,
    Failed,
    Finish,
    Forked,
    Joined,
    PauseRequested,
    RouteNode,
    StartNode,
    Stopped,
    Succeeded,
    Visit,
)
from fastroai.graphs.on_record import VisitsOnRecord
from fastroai.graphs.replay import Replay, Start
from fastroai.graphs.reporting import GraphReports
from fastroai.graphs.run_events import GraphFinished
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.surprises import warn_of
from fastroai.graphs.talk import Talk
from fastroai.graphs.thread import Phase
from fastroai.graphs.visit_runner import VisitRunner
from fastroai.graphs.visits import VisitRecord
from fastroai.runs.on_record import failure_of
from fastroai.runtime import Scope
from fastroai.runtime.failures import leaves
from fastroai.runtime.tasks import end_tasks, let_answers_arrive
from fastroai.runtime.wakeup import running_loop
from fastroai.steps.context import RunFacts
from fastroai.steps.visits import NodeVisit
from fastroai.store.entries import AnyEntry
from fastroai.store.signals import Signal
from fastroai.tracing import Tracer

NODES_BETWEEN_PAUSES: Final = 200
"""A worker lets others run after so many nodes, however short they are."""


class GraphRunner:
    """One run of a graph, inside its scope.

    Each branch runs in a worker, which is a task: node after node, until it forks, when others join it, or
    it comes to an end.
    """

    def __init__(
        self,
        *,
        replay: Replay,
        scope: Scope,
        facts: RunFacts,
        deps: Any,
        tracer: Tracer | None,
        on_record: VisitsOnRecord | None,
    ) -> None:
        """From where `replay` is, which is the beginning of a new run."""
        self.setup: GraphSetup = replay.setup
        self.machine, self._threads, self._replay = replay.machine, replay.threads, replay
        self.scope, self.on_record = scope, on_record
        seconds = self.setup.branch_timeout
        self._times = None if seconds is None else BranchTimes(seconds, self._on_timeout)
        self._nodes = VisitRunner(
            setup=self.setup,
            scope=scope,
            facts=facts,
            deps=deps,
            tracer=tracer,
            threads=replay.threads,
            on_record=on_record,
            times=self._times,
        )
        self.visits: Mapping[Visit, VisitRecord] = self._nodes.visits
        self.decisions: Mapping[Visit, VisitRecord] = self._nodes.decisions
        self.finish: Finish | None = replay.finish
        """How it ended."""
        self.failure: BaseException | None = None
        """What stopped the run, if a failure did."""
        self.began_at = datetime.now(UTC)
        self.times = [self.began_at] * len(self.machine.journal)
        """When the events of the machine came, in this process."""
        self._reports = GraphReports(scope, facts)
        self._workers: set[asyncio.Task[Start | None]] = set()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._is_over = self._is_told = False
        self.ended_at: datetime | None = None

    async def run(self) -> None:
        """Run to the end. What failed is in `failure`; only cancellation is raised."""
        try:
            await self._begin()
            await self._finished
        except asyncio.CancelledError:
            self._stop_at_once("the task that ran it was cancelled")
            raise
        finally:
            self._is_over = True
            await end_tasks(self._workers)
            self._conclude()

    def _conclude(self) -> None:
        self.ended_at = datetime.now(UTC)
        if self.finish is None or self.failure is not None:
            return
        status, error = self.finish.status, self.finish.error
        if error is None and status in ("failed", "budget_exceeded"):
            error = GraphStopped(self.setup.name, status, self.finish.cause)
        self.failure = self._of_node(error) if status == "failed" else error

    def _of_node(self, error: BaseException | None) -> BaseException | None:
        """The failure of a node says which one it was."""
        for node, failure in self.machine.failures.items():
            if failure is error:
                wrapped = StepExecutionError(node, failure)
                wrapped.__cause__ = failure
                return wrapped
        return error

    # --- from outside ---

    async def cut_short(self, error: Exception) -> None:
        """Something around the run has ended it, such as a time limit, perhaps while its end was stored."""
        if self.finish is None or self.finish.status not in ("failed", "budget_exceeded"):
            status: Ending = "budget_exceeded" if isinstance(error, BudgetExceeded) else "failed"
            self.finish = Finish(status, str(error), error)
        self.failure = error
        if not self._is_told and self.ended_at is not None:
            await self.scope.emit(self.finished((self.ended_at - self.began_at).total_seconds() * 1000))

    def heed(self, signal: Signal) -> None:
        """Pause at the next boundary, or stop at once. From any thread."""
        event = PauseRequested() if signal == "pause" else Stopped("cancelled", "cancel was requested")
        if running_loop() is self._loop:
            self._heed(event)
            return
        with suppress(RuntimeError):  # its loop is closed, so the run has ended
            self._loop.call_soon_threadsafe(self._heed, event)

    def _heed(self, event: PauseRequested | Stopped) -> None:
        """At once: nothing starts any more when this returns, and what runs is cancelled, whoever listens."""
        if not self._is_over and self.finish is None:
            commands = self._take_in(event)
            self._nodes.cancel([one.visit for one in commands if isinstance(one, CancelVisit)])
            left = [one for one in commands if not isinstance(one, CancelVisit)]
            self._spawn(self._carry_out(event, left, spawn_all=True))

    def _stop_at_once(self, reason: str) -> None:
        if not self._is_over and self.finish is None:
            self.machine.handle(Stopped("cancelled", reason))
            self.times.append(datetime.now(UTC))

    def finished(self, duration_ms: float) -> GraphFinished:
        """What listeners are told at the end."""
        assert self.finish is not None
        self._is_told = True
        return GraphFinished(
            **self.scope.place(),
            usage=self.scope.spent(),
            duration_ms=duration_ms,
            error=self.failure,
            status=self.finish.status,
            reason=self.finish.cause,
        )

    # --- workers ---

    def _spawn(self, work: Coroutine[Any, Any, Start | None]) -> None:
        worker = self._loop.create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._on_worker_done)

    def _on_worker_done(self, worker: asyncio.Task[Start | None]) -> None:
        self._workers.discard(worker)
        if self._finished.done():
            if not worker.cancelled():
                worker.exception()  # seen: whatever it was, the run has ended of something else
            return
        if worker.cancelled():
            self._finished.cancel()
        elif (error := worker.exception()) is not None:
            self._finished.set_exception(error)

    async def _work(self, start: Start | None) -> None:
        done = 0
        while start is not None:
            start = await self._run_node(start) if isinstance(start, StartNode) else await self._decide(start)
            done += 1
            if done % NODES_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)

    # --- decisions of the machine ---

    async def _begin(self) -> None:
        for past in self._replay.past:
            self._nodes.reopen(past)
        starts: list[Command] = [*self._replay.untold, *self._replay.starts.values()]
        if self.on_record is not None:
            self.on_record.note(self.on_record.of_commands(starts))
        if self.finish is not None:
            starts.append(self.finish)
        self._act(starts, spawn_all=True)

    def _take_in(self, event: Event) -> list[Command]:
        commands = self.machine.handle(event)
        self.times.append(datetime.now(UTC))
        return commands

    async def _handle(
        self,
        event: Event,
        make_entries: Callable[[VisitsOnRecord], Sequence[AnyEntry]] | None = None,
        *,
        is_result: bool = False,
        spawn_all: bool = False,
    ) -> Start | None:
        """Let the machine decide, put it on record, tell of it, do it; gives what this worker goes on with.

        What happens is written in the order in which the machine takes it in: nothing is awaited between.
        """
        commands = self._take_in(event)
        if self.on_record is not None:
            entries = [] if make_entries is None else list(make_entries(self.on_record))
            entries += self.on_record.of_commands(commands)
            if is_result:
                await self.on_record.commit(entries)
            else:
                self.on_record.note(entries)
        return await self._carry_out(event, commands, spawn_all=spawn_all)

    async def _carry_out(self, event: Event, commands: Sequence[Command], *, spawn_all: bool) -> Start | None:
        if self.scope.listener is not None:
            await self._reports.tell(event, commands, self.visits, self.machine.cancelled_for)
        return self._act(commands, spawn_all=spawn_all)

    def _act(self, commands: Sequence[Command], *, spawn_all: bool = False) -> Start | None:
        own: Start | None = None
        cancelled: list[Visit] = []
        for command in commands:
            match command:
                case StartNode() | AskDecider():
                    if own is None and not spawn_all:
                        own = command
                    else:
                        self._spawn(self._work(command))
                case CancelVisit(visit):
                    cancelled.append(visit)
                case Forked(fork):
                    self._threads.fork(fork)
                case Joined(fork):
                    self._threads.join(fork)
                    if self._times is not None:
                        self._times.forget(fork)
                case RouteNode():
                    warn_of(self.setup.name, command)
                case Finish():
                    self.finish = command
                    if not self._finished.done():
                        self._finished.set_result(None)
                case _:
                    pass
        self._cancel_visits(cancelled)
        return own

    def _cancel_visits(self, visits: Sequence[Visit]) -> None:
        """Where a budget is used up, answers that were paid for from it reach their nodes first."""
        stopped = self.machine.stopped
        if visits and stopped is not None and stopped.status == "budget_exceeded":
            self._spawn(self._cancel_soon(visits))
        else:
            self._nodes.cancel(visits)

    async def _cancel_soon(self, visits: Sequence[Visit]) -> None:
        await let_answers_arrive()
        self._nodes.cancel(visits)

    # --- time limits of branches ---

    def _on_timeout(self, branches: Collection[Branch]) -> None:
        if not self._is_over:
            self._spawn(self._time_out(branches))

    async def _time_out(self, branches: Collection[Branch]) -> None:
        """Those that go on fail, what is around others before these, in the order of the edges."""
        assert self._times is not None
        for identity, branch in tuple(self.machine.open_branches.items()):
            if branch in branches and branch.state == "open" and not self._is_over:
                error = TimeLimitExceeded(f"branch {identity!r}", self._times.seconds)
                event = BranchTimedOut(identity, error)
                await self._handle(event, partial(_timed_out, event), spawn_all=True)

    # --- visits ---

    async def _run_node(self, start: StartNode) -> Start | None:
        visit = start.visit
        if not self.machine.is_wanted(visit):
            await self._cancelled(visit, {}, 1)
            return None
        record = self._nodes.open(visit, start.branch.identity)
        node_visit = self._nodes.node_visit(start, record)
        if self.scope.listener is not None:
            await self._reports.started(start)
        entries: list[AnyEntry] = []
        phase: Phase | None = None
        written: dict[str, object] = {}
        output: object = None
        try:
            output = await self._nodes.run_node(start, record, node_visit)
            written = self._nodes.writes(visit.node, output, node_visit)
            phase = _phase(node_visit, written)
            entries = self._result_entries(visit, record, output, phase)
        except BaseException as error:
            self._nodes.close(record, error)
            return await self._failed(start, record, node_visit, error)
        self._nodes.close(record)
        self._threads.add(start.branch, visit, written, None, phase)
        event = Succeeded(visit, output, written)
        return await self._handle(event, lambda _: entries, is_result=True)

    def _result_entries(
        self, visit: Visit, record: VisitRecord, output: object, phase: Phase | None
    ) -> list[AnyEntry]:
        if self.on_record is None:
            return []
        duration_ms = self._nodes.milliseconds(record)
        result = self.on_record.succeeded(visit, record.scope, output, duration_ms)
        said = [] if phase is None else [self.on_record.said(visit, record.scope.attempt, phase)]
        return [*said, result]

    # --- failures ---

    async def _failed(
        self, start: StartNode, record: VisitRecord, node_visit: NodeVisit, error: BaseException
    ) -> Start | None:
        visit, written = start.visit, node_visit.kept
        if isinstance(error, asyncio.CancelledError) and not self.machine.is_wanted(visit):
            await self._cancelled(visit, written, record.scope.attempt)
            return None
        if not isinstance(error, Exception | asyncio.CancelledError):
            raise error  # KeyboardInterrupt and the like are not a node's outcome
        if isinstance(error, RunStoreUnavailable | RunTakenOver):
            raise error  # whatever the edges say: nothing that it does can be put on record
        stop = self._stop_by(error)
        if stop is not None:
            await self._handle(stop, spawn_all=True)
        phase = _phase(node_visit, written, error)
        self._threads.add(start.branch, visit, written, error, phase)

        def entries(on_record: VisitsOnRecord) -> Sequence[AnyEntry]:
            config, attempt = self.setup.configs[visit.node], record.scope.attempt
            return [
                *([on_record.said(visit, attempt, phase)] if phase and phase.compaction else []),
                on_record.failed(
                    visit,
                    attempt,
                    failure_of(visit.node, record.scope, config, error),
                    record.duration_ms,
                    stopped=stop is not None,
                ),
            ]

        return await self._handle(Failed(visit, error, written), entries, spawn_all=True)

    async def _cancelled(self, visit: Visit, written: Mapping[str, object], attempt: int) -> None:
        await self._take_cancelled(Cancelled(visit, dict(written)), attempt, is_decision=False)

    async def _take_cancelled(self, event: Cancelled, attempt: int, *, is_decision: bool) -> None:
        # Where the run is stopped from outside the visit goes on when that is resumed, so it is not over.
        is_over = self.machine.stopped is None or self.machine.stopped.status == "failed"

        def entries(on_record: VisitsOnRecord) -> Sequence[AnyEntry]:
            cause = self.machine.cancelled_for[event.visit]
            cancelled = on_record.cancelled(event, attempt, cause, is_decision=is_decision)
            return [cancelled] if is_over else []

        await self._handle(event, entries, spawn_all=True)

    def _stop_by(self, error: BaseException) -> Stopped | None:
        """What ends the run whatever the edges say: a budget above the node, or cancellation from inside."""
        for leaf in leaves(error):
            if isinstance(leaf, BudgetExceeded) and self.scope.is_within(leaf.scope_path):
                return Stopped("budget_exceeded", str(leaf), leaf)
            if isinstance(leaf, asyncio.CancelledError):
                return Stopped("cancelled", "a node was cancelled from inside", leaf)
        return None

    # --- llm_decide ---

    async def _decide(self, ask: AskDecider) -> Start | None:
        visit = ask.visit
        if not self.machine.is_wanted(visit):
            await self._take_cancelled(Cancelled(visit), 1, is_decision=True)
            return None
        record = self._nodes.open(visit, ask.branch.identity, is_decision=True)
        try:
            decision = await self._nodes.run_decision(ask, record)
        except BaseException as error:
            self._nodes.close(record, error)
            if isinstance(error, asyncio.CancelledError) and not self.machine.is_wanted(visit):
                await self._take_cancelled(Cancelled(visit), record.scope.attempt, is_decision=True)
                return None
            stop = self._stop_by(error)
            if stop is None:
                raise
            await self._handle(stop, spawn_all=True)
            await self._take_cancelled(Cancelled(visit), record.scope.attempt, is_decision=True)
            return None
        self._nodes.close(record)
        event = Decided(visit, decision)
        attempt, duration_ms = record.scope.attempt, record.duration_ms
        return await self._handle(
            event, lambda on_record: [on_record.decided(event, attempt, duration_ms)], is_result=True
        )


def _phase(
    node_visit: NodeVisit, written: Mapping[str, object], error: BaseException | None = None
) -> Phase | None:
    """What the last attempt has said, if it asked any agent."""
    talk = node_visit.talk_so_far
    return talk.phase(written, error) if isinstance(talk, Talk) else None


def _timed_out(event: BranchTimedOut, on_record: VisitsOnRecord) -> Sequence[AnyEntry]:
    return [on_record.timed_out(event)]
