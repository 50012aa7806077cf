"""One run, from what it is asked for with to its end: what pipelines and graphs share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any, Literal

from pydantic import JsonValue

from fastroai.contracts.accepted import Accepted
from fastroai.errors import BudgetExceeded, StepExecutionError
from fastroai.records import first_given
from fastroai.runs.around import ended_on_record, entered
from fastroai.runs.inputs import check_inputs
from fastroai.runs.machine import Decision
from fastroai.runs.request import RunRequest
from fastroai.runs.runner import Runner
from fastroai.runtime import RunFinished, RunStarted, Scope
from fastroai.runtime.facts import Part, PauseRequested, StopRequested
from fastroai.runtime.failures import leaves
from fastroai.steps import PipelineConfig
from fastroai.steps.durability import restore_spending
from fastroai.steps.hooks import RunHooks
from fastroai.steps.once import OnceRegister
from fastroai.store.log import Log, log_of
from fastroai.store.runs import DurableRun
from fastroai.store.signals import Signal, heeding_signals
from fastroai.tracing import attributes
from fastroai.usage.limits import Limits


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has begun."""

    scope: Scope
    part: Part
    inputs: Mapping[str, object]
    log: Log
    once: OnceRegister
    started: RunStarted
    """That it began in this process."""

    @property
    def kept(self) -> DurableRun | None:
        """The run on record that it is, or is a part of."""
        return self.log.run


class Execution:
    """Runs one pipeline or graph, any number of times."""

    def __init__(
        self,
        kind: Literal["pipeline", "graph"],
        name: str,
        config: PipelineConfig,
        limits: Limits | None,
        hooks: RunHooks,
        accepts: Accepted | None,
    ) -> None:
        self._kind: Literal["pipeline", "graph"] = kind
        self._name, self._config, self._limits, self._hooks, self._accepts = (
            name,
            config,
            limits,
            hooks,
            accepts,
        )
        self._live: dict[str, list[Runner]] = {}
        """What is running in this process, by the id of the run, which those nested in each other share."""

    # --- from outside ---

    def heed(self, run_id: str, signal: Signal) -> bool:
        """Do what is asked of a run of this process; whether there is such a run."""
        live = tuple(self._live.get(run_id, ()))
        scopes = {runner.scope for runner in live}
        for runner in live:
            # What is around ends what is inside.
            if scopes.isdisjoint(islice(runner.scope.lineage(), 1, None)):
                _heed(runner, signal)
        return bool(live)

    # --- running ---

    def scope(self, request: RunRequest[Any]) -> Scope:
        """The scope of a run, under the current one; not entered yet."""
        return request.scope(self._kind, self._name, self._config, self._limits, self._hooks)

    @asynccontextmanager
    async def opened(
        self, request: RunRequest[Any], scope: Scope, definition: Mapping[str, JsonValue]
    ) -> AsyncGenerator[OpenRun]:
        """Open a run in its scope: span, clock, inputs that are checked, log."""
        async with scope, AsyncExitStack() as stack:
            await entered(
                stack,
                scope,
                span=attributes.run_span(self._kind, self._name),
                facts=attributes.run_attributes(self._kind, name=self._name, run_id=scope.run_id),
                seconds=first_given(self._config.total_timeout, default=None),
            )
            inputs = await check_inputs(self._accepts, dict(request.inputs or {}), scope)
            started = RunStarted(part=scope.part, definition=dict(definition), inputs=inputs)
            log = await self._log(stack, request, scope, started)
            once = stack.enter_context(OnceRegister.of_run())
            yield OpenRun(scope, scope.part, inputs, log, once, started)

    async def _log(
        self,
        stack: AsyncExitStack,
        request: RunRequest[Any],
        scope: Scope,
        started: RunStarted,
    ) -> Log:
        if request.opening is not None:
            run = await request.opening.open(started.inputs)
            scope.log = log = Log(scope, run)
            run.scope, scope.on_record = scope, True
            await stack.enter_async_context(ended_on_record(log))
            scope.restore(run.recorded.charges(), run.recorded.agent_calls())
            return log
        if (around := log_of(scope)) is not None:
            if around.run is not None:
                restore_spending(scope)
            return around
        scope.log = log = Log(scope)
        await stack.enter_async_context(ended_on_record(log))
        log.note(started)
        return log

    async def perform(
        self,
        run: OpenRun,
        runner: Runner,
        request: RunRequest[Any],
        decisions: Sequence[Decision],
    ) -> RunFinished:
        """Carry a run out, tell listeners of its start and its end, and say how it ended."""
        async with self._heeding(run, runner, request):
            if (listening := run.scope.listener is not None):
                await run.scope.emit(run.started)
            began = perf_counter()
            try:
                await runner.run(decisions)
            finally:
                run.scope.write_off_in_flight()  # they count at their bounds in what is told of the run
            finish = runner.finish
            assert finish is not None
            finish.duration_ms, finish.spent_in = (perf_counter() - began) * 1000, run.scope
            finish.raised = _of_run(finish, run.scope)
            if listening:
                await run.scope.emit(finish)
            if run.log.scope is run.scope:
                run.log.finished = finish
            return finish

    @asynccontextmanager
    async def _heeding(
        self, run: OpenRun, runner: Runner, request: RunRequest[Any]
    ) -> AsyncGenerator[None]:
        """Let `pause` and `cancel` reach the run, from this process and from others."""
        run_id, opening = run.scope.run_id, request.opening
        self._live.setdefault(run_id, []).append(runner)
        try:
            if opening is None or run.kept is None:
                yield
                return
            async with heeding_signals(
                run.kept.store, run_id, lambda signal: _heed(runner, signal), after=opening.last_signal
            ):
                yield
        finally:
            live = self._live[run_id]
            live.remove(runner)
            if not live:
                del self._live[run_id]


def _heed(runner: Runner, signal: Signal) -> None:
    runner.heed(PauseRequested() if signal == "pause" else StopRequested(reason="cancel was requested"))


def _of_run(finish: RunFinished, scope: Scope) -> BaseException | None:
    """What a run raises: the failure of a step says which it was, a budget speaks for itself."""
    raised = finish.raised
    if raised is None:
        return None
    if finish.step_id:
        wrapped = StepExecutionError(finish.step_id, raised)
        wrapped.__cause__ = raised
        return wrapped
    budgets = (leaf for leaf in leaves(raised) if isinstance(leaf, BudgetExceeded))
    return next((leaf for leaf in budgets if scope.is_within(leaf.scope_path)), raised)
