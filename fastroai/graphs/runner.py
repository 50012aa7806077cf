"""Performs what the state machine decides. It has no opinion about what runs next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import Any, Final, cast

from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    GraphStopped,
    RunStoreUnavailable,
    RunTakenOver,
    StepExecutionError,
    TimeLimitExceeded,
)
from fastroai.graphs.branches import Fork
from fastroai.graphs.decide_step import DecideStep
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
from fastroai.graphs.memory import Selected
from fastroai.graphs.on_record import VisitsOnRecord
from fastroai.graphs.outputs import NodeOutputs
from fastroai.graphs.replay import PastVisit, Replay, Start
from fastroai.graphs.reporting import GraphReports
from fastroai.graphs.routing import Decision
from fastroai.graphs.run_events import GraphFinished
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.surprises import warn_of
from fastroai.graphs.talk import Talk
from fastroai.graphs.thread import Phase
from fastroai.graphs.visits import VisitRecord, decision_name
from fastroai.graphs.writes import writes_of
from fastroai.runs.on_record import failure_of
from fastroai.runtime import Scope
from fastroai.runtime.failures import leaves
from fastroai.runtime.isolation import InContext
from fastroai.runtime.tasks import end_tasks, let_answers_arrive
from fastroai.runtime.wakeup import running_loop
from fastroai.steps import BaseStep, ConversationState, ResolvedConfig
from fastroai.steps.context import RunFacts
from fastroai.steps.durability import restore_spending
from fastroai.steps.execution import run_step
from fastroai.steps.retrying import NO_RETRIES_USED
from fastroai.steps.visits import NodeVisit
from fastroai.store.entries import AnyEntry
from fastroai.store.signals import Signal
from fastroai.tracing import NoOpTracer, Tracer

_NO_TRACER: Final = NoOpTracer()

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
        self.scope, self.facts, self.deps, self.tracer = scope, facts, deps, tracer
        self.on_record = on_record
        self.visits: dict[Visit, VisitRecord] = {}
        self.decisions: dict[Visit, VisitRecord] = {}
        self.finish: Finish | None = replay.finish
        """How it ended."""
        self.failure: BaseException | None = None
        """What stopped the run, if a failure did."""
        self.times: list[datetime] = []
        """When the events of the machine came, in this process."""
        self._reports = GraphReports(scope, facts)
        self._active: dict[Visit, asyncio.Task[None]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._timers: dict[Fork, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._is_over = self._is_told = False
        self.began_at = datetime.now(UTC)
        self.ended_at: datetime | None = None
        self._origin = perf_counter() - (0.0 if on_record is None else on_record.elapsed)

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
            for timer in self._timers.values():
                timer.cancel()
            await end_tasks(self._workers)
            self._conclude()

    def _conclude(self) -> None:
        self.ended_at = datetime.now(UTC)
        if self.finish is None or self.failure is not None:
            return
        error = self.finish.error
        if error is not None or self.finish.status in ("failed", "budget_exceeded"):
            if error is None:
                error = GraphStopped(self.setup.name, self.finish.status, self.finish.cause)
            elif self.finish.status == "failed" and self._failed_node(error) is not None:
                wrapped = StepExecutionError(self._failed_node(error) or "", error)
                wrapped.__cause__ = error
                error = wrapped
            self.failure = error

    def _failed_node(self, error: BaseException) -> str | None:
        return next((node for node, failed in self.machine.failures.items() if failed is error), None)

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
        """At once: nothing starts any more when this returns."""
        if not self._is_over and self.finish is None:
            self._spawn(self._carry_out_alone(event, self._take_in(event)))

    async def _carry_out_alone(self, event: Event, commands: Sequence[Command]) -> None:
        await self._work(await self._carry_out(event, commands, spawn_all=True))

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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        worker = self._loop.create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._on_worker_done)

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
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

    async def _handle_alone(
        self, event: Event, make_entries: Callable[[VisitsOnRecord], Sequence[AnyEntry]] | None = None
    ) -> None:
        await self._work(await self._handle(event, make_entries))

    # --- decisions of the machine ---

    async def _begin(self) -> None:
        for past in self._replay.past:
            self._reopen(past)
        self.times.extend([self.began_at] * len(self.machine.journal))
        for fork in dict.fromkeys(branch.fork for branch in self.machine.open_branches.values()):
            self._start_timer(fork)
        starts: list[Command] = [*self._replay.untold, *self._replay.starts.values()]
        if self.on_record is not None:
            self.on_record.note(self.on_record.of_commands(starts))
        if self.finish is not None:
            starts.append(self.finish)
        self._act(starts, spawn_all=True)

    def _reopen(self, past: PastVisit) -> None:
        """A visit that was over in an earlier process: what it has spent counts here too."""
        record = self._open(past.visit, past.branch, is_decision=past.is_decision)
        record.scope.degraded = past.degraded
        record.scope.close()
        record.error = past.error
        if self.on_record is not None:
            record.finished_ms = self.on_record.milliseconds(past.ended_at)
            record.started_ms = max(0.0, record.finished_ms - past.duration_ms)

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
                    self._start_timer(fork)
                case Joined(fork):
                    self._threads.join(fork)
                    self._stop_timer(fork)
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
            self._cancel_at_once(visits)

    async def _cancel_soon(self, visits: Sequence[Visit]) -> None:
        await let_answers_arrive()
        self._cancel_at_once(visits)

    def _cancel_at_once(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            if (worker := self._active.get(visit)) is not None:
                worker.cancel()

    # --- time limits of branches ---

    def _start_timer(self, fork: Fork | None) -> None:
        if fork is not None and (seconds := self.setup.branch_timeout) is not None:
            self._timers[fork] = self._loop.call_later(seconds, self._on_timeout, fork, seconds)

    def _stop_timer(self, fork: Fork) -> None:
        if (timer := self._timers.pop(fork, None)) is not None:
            timer.cancel()

    def _on_timeout(self, fork: Fork, seconds: float) -> None:
        self._timers.pop(fork, None)
        self._spawn(self._time_out(fork, seconds))

    async def _time_out(self, fork: Fork, seconds: float) -> None:
        """All branches of a fork have the same time; those that go on fail, in the order of the edges."""
        for branch in fork.branches:
            identity = branch.identity
            if identity in self.machine.open_branches and not self._is_over:
                event = BranchTimedOut(identity, TimeLimitExceeded(f"branch {identity!r}", seconds))
                start = await self._handle(event, partial(_timed_out, event), spawn_all=True)
                assert start is None, "everything that starts has a worker of its own"

    # --- visits ---

    def _open(self, visit: Visit, branch: str, *, is_decision: bool = False) -> VisitRecord:
        config = self.setup.decider_config if is_decision else self.setup.configs[visit.node]
        scope = Scope(
            "step",
            decision_name(visit.node) if is_decision else visit.node,
            parent=self.scope,
            limits=config.limits,
            deps=self.deps,
            tracer=self.tracer if config.trace else _NO_TRACER,
            ordinal=visit.number,
        )
        if self.on_record is not None:
            restore_spending(scope)
        record = VisitRecord(scope, branch, (perf_counter() - self._origin) * 1000)
        (self.decisions if is_decision else self.visits)[visit] = record
        return record

    async def _run_node(self, start: StartNode) -> Start | None:
        visit = start.visit
        if not self.machine.is_wanted(visit):
            await self._cancelled(visit, {}, 1)
            return None
        record = self._open(visit, start.branch.identity)
        node_visit = self._node_visit(start, record.scope)
        if self.scope.listener is not None:
            await self._reports.started(start)
        entries: list[AnyEntry] = []
        phase: Phase | None = None
        written: dict[str, object] = {}
        output: object = None
        try:
            output = await self._run_step(
                visit,
                self.setup.nodes[visit.node].step,
                self.setup.configs[visit.node],
                record,
                self._facts(start, node_visit),
                node_visit,
            )
            written = self._writes(visit.node, output, node_visit)
            phase = _phase(node_visit, written)
            entries = self._result_entries(visit, record, output, phase)
        except BaseException as error:
            self._close(record, error)
            return await self._failed(start, record, node_visit, error)
        self._close(record)
        self._threads.add(start.branch, visit, written, None, phase)
        event = Succeeded(visit, output, written)
        return await self._handle(event, lambda _: entries, is_result=True)

    async def _run_step(
        self,
        visit: Visit,
        step: BaseStep[Any, Any],
        config: ResolvedConfig,
        record: VisitRecord,
        facts: RunFacts,
        node_visit: NodeVisit | None,
    ) -> object:
        context = copy_context()
        context.run(record.scope.make_current)
        worker = asyncio.current_task()
        assert worker is not None
        used = NO_RETRIES_USED
        if self.on_record is not None:
            used = self.on_record.retries_used(visit, is_decision=node_visit is None)
        self._active[visit] = worker
        try:
            output = await InContext(
                run_step(
                    step,
                    scope=record.scope,
                    facts=facts,
                    deps=self.deps,
                    config=config,
                    contract=None if node_visit is None else self.setup.contracts.get(visit.node),
                    used=used,
                ),
                context,
            )
        finally:
            del self._active[visit]
            if record.scope.is_open_inside:
                await record.scope.end_inside()
        if isinstance(output, ConversationState) and output.is_incomplete:
            expected = "an output: in a graph, a node among pause_nodes asks a person"
            raise ConfigurationError("output", output, expected)
        return output

    def _close(self, record: VisitRecord, error: BaseException | None = None) -> None:
        record.error = error
        record.scope.close(error)
        record.finished_ms = (perf_counter() - self._origin) * 1000

    def _node_visit(self, start: StartNode, scope: Scope) -> NodeVisit:
        visit, branch = start.visit, start.branch
        focus = self.setup.nodes[visit.node].focus

        def on_write(key: str, value: object) -> None:
            if self.on_record is not None:
                self.on_record.wrote(visit, scope.attempt, key, value)

        return NodeVisit(
            visit.number,
            goal=self.setup.goal,
            writes=self.setup.writes(visit.node),
            errors=cast("Mapping[str, BaseException]", branch.errors),
            new_talk=lambda: self._threads.talk(branch, visit, focus),
            on_write=on_write,
        )

    def _facts(self, start: StartNode, node_visit: NodeVisit | None) -> RunFacts:
        of_run, plan, branch = self.facts, self.setup.plan, start.branch
        reads = plan.reads.get(start.visit.node)
        return RunFacts(  # `replace` takes three times as long
            pipeline=of_run.pipeline,
            path=of_run.path,
            inputs=branch.memory if reads is None else Selected(branch.memory, reads),
            outputs=NodeOutputs(plan.edges.keys(), branch.befores, branch.outputs),
            calculator=of_run.calculator,
            shared=of_run.shared,
            declared=of_run.declared,
            once=of_run.once,
            visit=node_visit,
        )

    def _writes(self, node: str, output: object, node_visit: NodeVisit) -> dict[str, object]:
        if node in self.setup.plan.pauses:
            return dict(node_visit.written)  # its output is a question; the answer is written
        return writes_of(node, output, self.setup.writes(node), node_visit.written)

    def _result_entries(
        self, visit: Visit, record: VisitRecord, output: object, phase: Phase | None
    ) -> list[AnyEntry]:
        if self.on_record is None:
            return []
        duration_ms = (perf_counter() - self._origin) * 1000 - record.started_ms
        result = self.on_record.succeeded(visit, record.scope, output, duration_ms)
        said = [] if phase is None else [self.on_record.said(visit, record.scope.attempt, phase)]
        return [*said, result]

    # --- failures ---

    async def _failed(
        self, start: StartNode, record: VisitRecord, node_visit: NodeVisit, error: BaseException
    ) -> Start | None:
        visit, written = start.visit, node_visit.written
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
                *(
                    []
                    if phase is None or phase.compaction is None
                    else [on_record.said(visit, attempt, phase)]
                ),
                on_record.failed(
                    visit,
                    record.scope.attempt,
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
        record = self._open(visit, ask.branch.identity, is_decision=True)
        assert self.setup.decider is not None
        step = DecideStep(self.setup.decider, self.setup, visit.node, ask.output)
        facts = self._facts(StartNode(visit, ask.branch, ask.cause), None)
        try:
            decision = await self._run_step(visit, step, self.setup.decider_config, record, facts, None)
            assert isinstance(decision, Decision)
        except BaseException as error:
            self._close(record, error)
            if isinstance(error, asyncio.CancelledError) and not self.machine.is_wanted(visit):
                await self._take_cancelled(Cancelled(visit), record.scope.attempt, is_decision=True)
                return None
            stop = self._stop_by(error)
            if stop is None:
                raise
            await self._handle(stop, spawn_all=True)
            await self._take_cancelled(Cancelled(visit), record.scope.attempt, is_decision=True)
            return None
        self._close(record)
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
