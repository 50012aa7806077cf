"""A run of a graph, from what it is asked for with to its result."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, Literal

from pydantic import JsonValue

from fastroai.contracts.accepted import Accepted
from fastroai.errors import BudgetExceeded, TimeLimitExceeded, attach_trace
from fastroai.graphs.events import Ending
from fastroai.graphs.live_trace import GraphPart
from fastroai.graphs.merging import salvage
from fastroai.graphs.on_record import VisitsOnRecord
from fastroai.graphs.questions import questions_of
from fastroai.graphs.replay import Replay, replayed
from fastroai.graphs.result import GraphQuality, GraphResult, GraphUsage
from fastroai.graphs.runner import GraphRunner
from fastroai.graphs.setup import GraphSetup
from fastroai.records import first_given
from fastroai.runs.around import entered, log_of, run_told
from fastroai.runs.inputs import check_inputs
from fastroai.runs.on_record import kept_on_record
from fastroai.runs.openings import Opening
from fastroai.runs.quality import quality_of
from fastroai.runs.request import RunRequest
from fastroai.runtime import Scope
from fastroai.steps import PipelineConfig
from fastroai.steps.context import RunFacts
from fastroai.steps.hooks import RunHooks
from fastroai.steps.once import OnceRegister
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared
from fastroai.store.live_log import RunLog
from fastroai.store.signals import Signal, heeding_signals
from fastroai.tracing import attributes
from fastroai.usage import CostCalculator
from fastroai.usage.limits import Limits

logger = logging.getLogger("fastroai.graphs")


class LiveRun:
    """A run of this process, from the moment at which it is asked for. Signals may come before it is open."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._lock = Lock()
        self._runner: GraphRunner | None = None
        self._early: list[Signal] = []

    def heed(self, signal: Signal) -> None:
        """Do what is asked, as soon as there is something that can. From any thread."""
        with self._lock:
            if self._runner is None:
                self._early.append(signal)
                return
        self._runner.heed(signal)

    def begin(self, runner: GraphRunner) -> None:
        """It can heed signals from here on, and those that have come."""
        with self._lock:
            self._runner = runner
        for signal in self._early:
            runner.heed(signal)


class GraphExecution:
    """Runs one graph, any number of times."""

    def __init__(
        self,
        setup: GraphSetup,
        config: PipelineConfig,
        limits: Limits | None,
        hooks: RunHooks,
        accepts: Accepted | None,
        definition: dict[str, JsonValue],
    ) -> None:
        self._setup, self._config, self._limits, self._hooks = setup, config, limits, hooks
        self._accepts, self._definition = accepts, definition
        self._calculator = CostCalculator()
        self._live: dict[str, list[LiveRun]] = {}
        """What is running in this process, by the id of the run, which those nested in each other share."""

    def heed(self, run_id: str, signal: Signal) -> bool:
        """Do what is asked of a run of this process; whether there is such a run."""
        live = tuple(self._live.get(run_id, ()))
        scopes = {run.scope for run in live}
        for run in live:
            # What is around ends what is inside.
            if scopes.isdisjoint(islice(run.scope.lineage(), 1, None)):
                run.heed(signal)
        return bool(live)

    async def run(self, request: RunRequest[Any], *, forgiving: bool = False) -> GraphResult[Any]:
        """Run to the end, or until it pauses."""
        setup = self._setup
        scope = request.scope("graph", setup.name, self._config, self._limits, self._hooks)
        runner: GraphRunner | None = None
        log: RunLog | None = None
        stopped: Exception | None = None
        try:
            async with scope, AsyncExitStack() as stack:
                live = self._appear(
                    stack, scope
                )  # before anything is awaited: who has begun it can cancel it
                await entered(
                    stack,
                    scope,
                    span=attributes.graph_span(setup.name),
                    facts=attributes.graph_attributes(name=setup.name, run_id=scope.run_id),
                    seconds=first_given(self._config.total_timeout, default=None),
                )
                inputs = await check_inputs(self._accepts, dict(request.inputs or {}), scope)
                on_record = await self._on_record(stack, scope, request, inputs)
                runner = self._runner(stack, scope, request, inputs, on_record, forgiving)
                part = partial(GraphPart, runner=runner, inputs=inputs, definition=self._definition)
                log = log_of(stack, scope, part)
                await _heeding(stack, live, request.opening, on_record)
                live.begin(runner)
                await run_told(runner, scope, tuple(setup.nodes))
                _note_ending(on_record, request, runner)
        except BaseException as error:
            if runner is None or log is None:
                raise
            attach_trace(error, log)
            if not isinstance(error, Exception) or not _is_an_ending(error, runner):
                runner.failure = runner.failure or error
                raise
            stopped = error
            if error is not runner.failure:
                await runner.cut_short(error)
        result = self._result(runner, scope, log, stopped)
        if result.status == "paused" and runner.on_record is None:
            logger.warning("run %r is paused, and no store keeps it: it cannot be resumed", result.run_id)
        return result

    async def _on_record(
        self, stack: AsyncExitStack, scope: Scope, request: RunRequest[Any], inputs: Mapping[str, object]
    ) -> VisitsOnRecord | None:
        if request.opening is None:
            return VisitsOnRecord.nested(scope, self._setup)
        run = await stack.enter_async_context(kept_on_record(await request.opening.open(inputs), scope))
        return VisitsOnRecord(run, scope, self._setup)

    def _runner(
        self,
        stack: AsyncExitStack,
        scope: Scope,
        request: RunRequest[Any],
        inputs: Mapping[str, object],
        on_record: VisitsOnRecord | None,
        forgiving: bool,
    ) -> GraphRunner:
        if on_record is None:
            replay = Replay(self._setup, inputs)
        else:
            run = on_record.run
            replay = replayed(
                self._setup, inputs, run.recorded, on_record.place, run.codec, forgiving=forgiving
            )
        facts = RunFacts(
            pipeline=self._setup.name,
            path=scope.path,
            inputs={},
            outputs=Outputs({}),
            calculator=self._calculator,
            shared=Shared.of(request.context),
            declared=self._setup.declared,
            once=stack.enter_context(OnceRegister.of_run()),
        )
        return GraphRunner(
            replay=replay,
            scope=scope,
            facts=facts,
            deps=request.deps,
            tracer=request.tracer_of(scope.parent),
            on_record=on_record,
        )

    def _appear(self, stack: AsyncExitStack, scope: Scope) -> LiveRun:
        """Let `pause` and `cancel` find a run of this process, until `stack` ends."""
        run = LiveRun(scope)
        self._live.setdefault(scope.run_id, []).append(run)
        stack.callback(self._forget, scope.run_id, run)
        return run

    def _forget(self, run_id: str, run: LiveRun) -> None:
        live = self._live[run_id]
        live.remove(run)
        if not live:
            del self._live[run_id]

    def _result(
        self, runner: GraphRunner, scope: Scope, log: RunLog, stopped: Exception | None
    ) -> GraphResult[Any]:
        machine, finish = runner.machine, runner.finish
        assert finish is not None
        salvage(machine.root, machine.plan.on_conflict)
        reached = (node for node in machine.plan.terminals if node in machine.reached)
        is_completed = finish.status == "completed"
        return GraphResult(
            run_id=scope.run_id,
            status=finish.status,
            quality=_quality(finish.status, runner, scope),
            output=machine.reached[next(reached)] if is_completed else None,
            outputs=dict(machine.root.outputs),
            memory=dict(machine.root.memory),
            path=machine.root.path,
            visits={node: visits for node, visits in machine.visits.items() if visits},
            errors=dict(machine.failures),
            usage=GraphUsage(scope, runner.visits, runner.decisions),
            reason=finish.cause,
            error=stopped,
            resume_at=finish.waiting,
            questions=questions_of(self._setup, machine) if finish.status == "paused" else (),
            log=log,
        )


async def _heeding(
    stack: AsyncExitStack, live: LiveRun, opening: Opening | None, on_record: VisitsOnRecord | None
) -> None:
    """Let `pause` and `cancel` reach a run from other processes."""
    if on_record is not None and opening is not None:
        store, after = on_record.run.store, opening.last_signal
        heeding = heeding_signals(store, live.scope.run_id, live.heed, after=after)
        await stack.enter_async_context(heeding)


def _note_ending(on_record: VisitsOnRecord | None, request: RunRequest[Any], runner: GraphRunner) -> None:
    if on_record is not None and request.opening is not None and runner.finish is not None:
        endings: Mapping[Ending, Literal["waiting", "cancelled"]] = {
            "paused": "waiting",
            "cancelled": "cancelled",
        }
        on_record.run.ends_as = endings.get(runner.finish.status, "finished")


def _is_an_ending(error: Exception, runner: GraphRunner) -> bool:
    """Whether an exception is how the graph ended, and no failure of what is around it."""
    if error is runner.failure:
        return True
    return runner.failure is None and isinstance(error, TimeLimitExceeded | BudgetExceeded)


def _quality(status: Ending, runner: GraphRunner, scope: Scope) -> GraphQuality:
    if status not in ("completed", "paused"):
        return "failed"
    if runner.machine.timed_out:
        return "degraded"
    steps = (record.scope for record in runner.visits.values())
    return quality_of(scope, runner.machine.failures, steps)
