"""Performs what the state machine decides. It has no opinion about what runs next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from contextvars import copy_context
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from fastroai.errors import BudgetExceeded, RunStoreUnavailable, RunTakenOver, StepExecutionError
from fastroai.pipelines.machine import (
    Cancelled,
    CancelSteps,
    Command,
    Event,
    Failed,
    Finish,
    PipelineMachine,
    SkipStep,
    Started,
    StartStep,
    Succeeded,
)
from fastroai.pipelines.plan import Plan
from fastroai.runs.nesting import NestedStep
from fastroai.runs.on_record import StepsOnRecord
from fastroai.runs.usage import StepTiming
from fastroai.runtime import (
    NO_RETRIES_USED,
    RunFinished,
    Scope,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from fastroai.runtime.facts import (
    StepFinished,
)
from fastroai.runtime.failures import leaves
from fastroai.runtime.isolation import InContext
from fastroai.runtime.tasks import end_tasks, let_answers_arrive
from fastroai.steps import BaseStep, ConversationState, ResolvedConfig
from fastroai.steps.context import RunFacts
from fastroai.steps.contracts import BoundContract
from fastroai.steps.durability import restore_spending
from fastroai.steps.execution import run_step
from fastroai.tracing import NoOpTracer, Tracer

_NO_TRACER = NoOpTracer()

STEPS_BETWEEN_PAUSES = 200
"""A worker lets others run after so many steps, however short they are."""


class PipelineRunner:
    """One run of a pipeline, inside its scope.

    Steps run in workers, which are tasks. A worker runs what is ready, one step after the other; when a step
    waits for something while others are ready, another worker takes those. So everything that can run
    does, and steps that never wait, and chains, need no task each.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        steps: Mapping[str, BaseStep[Any, Any]],
        configs: Mapping[str, ResolvedConfig],
        contracts: Mapping[str, BoundContract],
        machine: PipelineMachine,
        scope: Scope,
        facts: RunFacts,
        deps: Any,
        tracer: Tracer | None,
        on_record: StepsOnRecord | None = None,
    ) -> None:
        self.plan, self.steps, self.configs, self.machine = plan, steps, configs, machine
        self.contracts, self.scope, self.facts, self.deps, self.tracer = contracts, scope, facts, deps, tracer
        self.on_record = on_record
        self.errors: dict[str, BaseException] = {}
        self.skipped: dict[str, str] = {}
        self.timings: dict[str, StepTiming] = {}
        self.step_scopes: dict[str, Scope] = {}
        self.failure: BaseException | None = None
        """What stopped the run, if a failure did."""
        self._ready: deque[str] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._in_step: dict[str, asyncio.Task[None]] = {}
        self._stopping = self._is_over = False
        self.began_at = datetime.now(UTC)
        self.ended_at: datetime | None = None
        self._origin = perf_counter() - (0.0 if on_record is None else on_record.elapsed)

    async def run(self) -> None:
        """Run to the end. What failed is in `failure` and `errors`; only cancellation is raised."""
        try:
            await self._handle(Started())
            self._keep_going()
            await self._finished
        finally:
            self._stopping = self._is_over = True
            await end_tasks(self._workers)
            self.ended_at = datetime.now(UTC)

    def finished(self, duration_ms: float) -> RunFinished:
        """What listeners are told at the end."""
        return RunFinished(
            **self.scope.place(), usage=self.scope.spent(), duration_ms=duration_ms, error=self.failure
        )

    # --- workers ---

    def _keep_going(self) -> None:
        """See that someone takes what is ready: the worker that calls this is about to wait."""
        if self._ready:
            self._add_worker(self._work())

    def _add_worker(self, work: Coroutine[Any, Any, None]) -> None:
        worker = self._loop.create_task(work)
        self._workers.add(worker)
        # Not in the worker itself: one that is cancelled before it has begun never runs a line.
        worker.add_done_callback(self._on_worker_done)

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if worker.cancelled() and not self._finished.done():
            self._finished.cancel()

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        done = 0
        try:
            while self._ready:
                await self._handle(await self._run_step(self._ready.popleft(), worker))
                done += 1
                if done % STEPS_BETWEEN_PAUSES == 0:
                    await asyncio.sleep(0)
        except BaseException as error:
            # Whoever waits for the run raises it; a task that nobody awaits would only complain.
            if not self._finished.done():
                self._finished.set_exception(error)
            elif not isinstance(error, Exception | asyncio.CancelledError):
                raise

    def _cancel_steps(self) -> None:
        """Cancel what runs; a worker that is between steps has nothing to cancel, and starts no other.

        Where a budget is used up, answers that were paid for from it reach their steps first.
        """
        self._stopping = True
        if isinstance(self.failure, BudgetExceeded):
            self._add_worker(self._cancel_soon())
        else:
            self._cancel_running()

    async def _cancel_soon(self) -> None:
        await let_answers_arrive()
        self._cancel_running()

    def _cancel_running(self) -> None:
        for worker in self._in_step.values():
            worker.cancel()

    # --- decisions ---

    async def _handle(self, event: Event) -> None:
        """Let the machine decide, and do it; steps that had finished before this process have so again."""
        await self._decide(event)
        while self.on_record is not None and (step_id := self.on_record.next_reused()) is not None:
            output = self.facts.outputs.values[step_id] = self.on_record.output(step_id)
            scope = self._step_scope(step_id)
            scope.degraded = self.on_record.was_degraded(step_id)
            scope.close()
            self.timings[step_id] = StepTiming(*self.on_record.timing(step_id))
            await self._decide(_succeeded(step_id, output, reused=True))

    async def _decide(self, event: Event) -> None:
        if self._is_over:
            return  # cancelled from outside: what ends now makes room for nothing
        commands = self.machine.handle(event)
        if self.on_record is not None:
            self._write_down(commands, self.on_record)
        if self.scope.listener is not None:
            await self._tell(commands)
        for command in commands:
            if isinstance(command, StartStep):
                if self.on_record is not None and self.on_record.has_finished(command.step_id):
                    self.on_record.reuse(command.step_id)
                else:
                    self._ready.append(command.step_id)
            elif isinstance(command, SkipStep):
                self.skipped[command.step_id] = command.cause
            elif isinstance(command, CancelSteps):
                self._cancel_steps()
            else:
                self._finish(command)

    def _write_down(self, commands: list[Command], on_record: StepsOnRecord) -> None:
        for command in commands:
            if isinstance(command, StartStep) and not on_record.has_finished(command.step_id):
                on_record.started(command.step_id, command.cause)
            elif isinstance(command, SkipStep):
                on_record.skipped(command.step_id, command.cause)

    async def _tell(self, commands: list[Command]) -> None:
        self._keep_going()
        for command in commands:
            if isinstance(command, StartStep | SkipStep):
                if self.on_record is not None and self.on_record.has_finished(command.step_id):
                    continue
                event_type = StepStarted if isinstance(command, StartStep) else StepSkipped
                await self.scope.emit(
                    event_type(
                        run_id=self.scope.run_id,
                        pipeline=self.facts.pipeline,
                        path=self.facts.path,
                        step_id=command.step_id,
                        cause=command.cause,
                    )
                )

    def _finish(self, command: Finish) -> None:
        for step_id in self.plan.dependencies:
            if step_id not in self.step_scopes and step_id not in self.skipped:
                self.skipped[step_id] = command.cause
        if not self._finished.done():
            self._finished.set_result(None)

    # --- steps ---

    async def _run_step(self, step_id: str, worker: asyncio.Task[None]) -> Event:
        if self._stopping:
            return Cancelled(step_id)
        config = self.configs[step_id]
        scope = self._step_scope(step_id)
        context = copy_context()
        context.run(scope.make_current)
        error: BaseException | None = None
        output: object = None
        entry: StepFinished | None = None
        started = perf_counter()
        self._in_step[step_id] = worker
        try:
            output = await InContext(
                run_step(
                    self.steps[step_id],
                    scope=scope,
                    facts=self.facts,
                    deps=self.deps,
                    config=config,
                    contract=self.contracts.get(step_id),
                    used=NO_RETRIES_USED if self.on_record is None else self.on_record.retries_used(step_id),
                ),
                context,
                self._keep_going,
            )
            if self.on_record is not None:
                duration_ms = (perf_counter() - started) * 1000
                nested = isinstance(self.steps[step_id], NestedStep)
                entry = self.on_record.entry_of(step_id, scope, output, duration_ms, nested=nested)
        except BaseException as raised:
            error = raised
        finally:
            del self._in_step[step_id]
        if scope.is_open_inside:
            self._keep_going()
            await scope.end_inside()
        scope.close(error)
        finished = perf_counter()
        timing = StepTiming((started - self._origin) * 1000, (finished - self._origin) * 1000)
        self.timings[step_id] = timing
        if error is not None:
            return await self._on_error(step_id, scope, error)
        if self.on_record is not None and entry is not None:
            self._keep_going()
            await self.on_record.finished(entry)
        self.facts.outputs.values[step_id] = output
        if self.scope.listener is not None:
            self._keep_going()
            await self.scope.emit(
                StepFinished(
                    run_id=self.scope.run_id,
                    pipeline=self.facts.pipeline,
                    path=self.facts.path,
                    step_id=step_id,
                    output=output,
                    usage=scope.spent(),
                    duration_ms=timing.duration_ms,
                )
            )
        return _succeeded(step_id, output)

    def _step_scope(self, step_id: str) -> Scope:
        config = self.configs[step_id]
        scope = Scope(
            "step",
            step_id,
            parent=self.scope,
            limits=config.limits,
            deps=self.deps,
            tracer=self.tracer if config.trace else _NO_TRACER,
        )
        self.step_scopes[step_id] = scope
        if self.on_record is not None:
            restore_spending(scope)
        return scope

    async def _on_error(self, step_id: str, scope: Scope, error: BaseException) -> Event:
        if isinstance(error, asyncio.CancelledError) and self._stopping:
            return Cancelled(step_id)
        if not isinstance(error, Exception | asyncio.CancelledError):
            raise error  # KeyboardInterrupt and the like are not a step's outcome
        if isinstance(error, RunStoreUnavailable | RunTakenOver):
            raise error  # whatever the step says of its errors: nothing that it does can be put on record
        self.errors[step_id] = error
        if self.on_record is not None:
            config, duration_ms = self.configs[step_id], self.timings[step_id].duration_ms
            self.on_record.failed(step_id, scope, config, error, duration_ms)
        stop = next(filter(self._stops_the_run, leaves(error)), None)
        if self.failure is None and (stop is not None or step_id not in self.machine.exempt):
            self.failure = stop
            if stop is None:
                self.failure = StepExecutionError(step_id, error)
                self.failure.__cause__ = error
        if self.scope.listener is not None:
            await self.scope.emit(
                StepFailed(
                    run_id=self.scope.run_id,
                    pipeline=self.facts.pipeline,
                    path=self.facts.path,
                    step_id=step_id,
                    error=error,
                    usage=scope.spent(),
                    duration_ms=self.timings[step_id].duration_ms,
                )
            )
        return Failed(step_id, fatal=stop is not None)

    def _stops_the_run(self, error: BaseException) -> bool:
        """Whether a failure is not the step's own: a budget set above it, or cancellation from inside."""
        if isinstance(error, BudgetExceeded):
            return self.scope.is_within(error.scope_path)
        return isinstance(error, asyncio.CancelledError)


def _succeeded(step_id: str, output: object, *, reused: bool = False) -> Succeeded:
    return Succeeded(step_id, isinstance(output, ConversationState) and output.is_incomplete, reused)
