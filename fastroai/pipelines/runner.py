"""Performs what the state machine decides. It has no opinion about what runs next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import copy_context
from time import perf_counter
from typing import Any

from fastroai.errors import CostBudgetExceeded, StepExecutionError
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
from fastroai.pipelines.result import StepTiming
from fastroai.runtime import Scope, StepFailed, StepFinished, StepSkipped, StepStarted
from fastroai.runtime.isolation import InContext
from fastroai.steps import BaseStep, ConversationState, ResolvedConfig
from fastroai.steps.context import RunFacts
from fastroai.steps.execution import run_step
from fastroai.tracing import NoOpTracer

_NO_TRACER = NoOpTracer()


class PipelineRunner:
    """One run of a pipeline, inside its scope.

    Steps run in workers, which are tasks. A worker goes on with the first step that its last one made
    ready, and new workers take the others: a chain needs one task, not one for each step.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        steps: Mapping[str, BaseStep[Any, Any]],
        configs: Mapping[str, ResolvedConfig],
        machine: PipelineMachine,
        scope: Scope,
        facts: RunFacts,
        deps: Any,
    ) -> None:
        self.plan, self.steps, self.configs, self.machine = plan, steps, configs, machine
        self.scope, self.facts, self.deps = scope, facts, deps
        self.errors: dict[str, BaseException] = {}
        self.skipped: dict[str, str] = {}
        self.timings: dict[str, StepTiming] = {}
        self.step_scopes: dict[str, Scope] = {}
        self.failure: BaseException | None = None
        """What stopped the run, if a failure did."""
        self._workers: set[asyncio.Task[None]] = set()
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = False
        self._origin = perf_counter()

    async def run(self) -> None:
        """Run to the end. What failed is in `failure` and `errors`; only cancellation is raised."""
        try:
            next_step = await self._perform(self.machine.handle(Started()))
            if next_step is not None:
                self._spawn(next_step)
            await self._finished
        finally:
            await self._end_workers()

    def _spawn(self, step_id: str) -> None:
        worker = asyncio.create_task(self._work(step_id))
        self._workers.add(worker)
        worker.add_done_callback(self._on_worker_done)

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._finished.done():
            return
        if worker.cancelled():
            self._finished.cancel()
        elif (error := worker.exception()) is not None:
            self._finished.set_exception(error)

    async def _end_workers(self) -> None:
        """Cancel and await what still runs, however often we are cancelled meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        self._stopping = True
        while self._workers:
            if not self._finished.done() or cancelled is not None:
                self._cancel_workers()
            try:
                await asyncio.wait(self._workers)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _cancel_workers(self) -> None:
        self._stopping = True
        current = asyncio.current_task()
        for worker in self._workers:
            if worker is not current:
                worker.cancel()

    async def _work(self, step_id: str | None) -> None:
        while step_id is not None:
            event = await self._run_step(step_id)
            step_id = await self._perform(self.machine.handle(event))

    async def _perform(self, commands: list[Command]) -> str | None:
        """Do what was decided; the first step to start is left to the caller."""
        mine: str | None = None
        for command in commands:
            if isinstance(command, StartStep):
                if self.scope.listener is not None:
                    await self.scope.listener(
                        StepStarted(
                            run_id=self.scope.run_id,
                            pipeline=self.facts.pipeline,
                            step_id=command.step_id,
                            cause=command.cause,
                        )
                    )
                if mine is None:
                    mine = command.step_id
                else:
                    self._spawn(command.step_id)
            elif isinstance(command, SkipStep):
                self.skipped[command.step_id] = command.cause
                if self.scope.listener is not None:
                    await self.scope.listener(
                        StepSkipped(
                            run_id=self.scope.run_id,
                            pipeline=self.facts.pipeline,
                            step_id=command.step_id,
                            cause=command.cause,
                        )
                    )
            elif isinstance(command, CancelSteps):
                self._cancel_workers()
            else:
                self._finish(command)
        return mine

    def _finish(self, command: Finish) -> None:
        for step_id in self.plan.dependencies:
            if step_id not in self.step_scopes and step_id not in self.skipped:
                self.skipped[step_id] = command.cause
        if not self._finished.done():
            self._finished.set_result(None)

    async def _run_step(self, step_id: str) -> Event:
        config = self.configs[step_id]
        scope = Scope(
            "step",
            step_id,
            parent=self.scope,
            budget=config.budget,
            tracer=None if config.trace else _NO_TRACER,
        )
        self.step_scopes[step_id] = scope
        context = copy_context()
        context.run(scope.make_current)
        started = perf_counter()
        error: BaseException | None = None
        output: object = None
        try:
            output = await InContext(self._run_in_scope(step_id, scope, config), context)
        except BaseException as raised:
            error = raised
        finished = perf_counter()
        self.timings[step_id] = StepTiming((started - self._origin) * 1000, (finished - self._origin) * 1000)
        if error is not None:
            return await self._on_error(step_id, scope, error)
        self.facts.outputs.values[step_id] = output
        if self.scope.listener is not None:
            await self.scope.listener(
                StepFinished(
                    run_id=self.scope.run_id,
                    pipeline=self.facts.pipeline,
                    step_id=step_id,
                    output=output,
                    usage=scope.spent(),
                    duration_ms=(finished - started) * 1000,
                )
            )
        return Succeeded(step_id, isinstance(output, ConversationState) and output.is_incomplete)

    async def _run_in_scope(self, step_id: str, scope: Scope, config: ResolvedConfig) -> object:
        try:
            output = await run_step(
                self.steps[step_id], scope=scope, facts=self.facts, deps=self.deps, config=config
            )
        except BaseException as error:
            await scope.close(error)
            raise
        await scope.close()
        return output

    async def _on_error(self, step_id: str, scope: Scope, error: BaseException) -> Event:
        if isinstance(error, asyncio.CancelledError) and self._stopping:
            return Cancelled(step_id)
        if not isinstance(error, Exception | asyncio.CancelledError):
            raise error  # KeyboardInterrupt and the like are not a step's outcome
        self.errors[step_id] = error
        fatal = self._stops_the_run(error)
        if self.failure is None and (fatal or step_id not in self.machine.exempt):
            self.failure = error if fatal else StepExecutionError(step_id, error)
            if not fatal:
                self.failure.__cause__ = error
        if self.scope.listener is not None:
            await self.scope.listener(
                StepFailed(
                    run_id=self.scope.run_id,
                    pipeline=self.facts.pipeline,
                    step_id=step_id,
                    error=error,
                    usage=scope.spent(),
                    duration_ms=self.timings[step_id].duration_ms,
                )
            )
        return Failed(step_id, fatal)

    def _stops_the_run(self, error: BaseException) -> bool:
        """Whether a failure is not the step's own: a budget set above it, or cancellation from inside."""
        if isinstance(error, CostBudgetExceeded):
            return len(error.scope_path) <= len(self.scope.path)
        return isinstance(error, asyncio.CancelledError)
