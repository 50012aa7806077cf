"""What is around a run: its span and its clock, its log, and what listeners are told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Protocol

from fastroai.runs.live_part import LivePart
from fastroai.runtime import Clock, RunFinished, RunStarted, Scope
from fastroai.store.live_log import LiveLog, RunLog, current_live_log
from fastroai.store.runs import current_durable_run
from fastroai.tracing import AttributeValue, attributes, log_metrics


class Runner(Protocol):
    """Runs steps to their end, once."""

    failure: BaseException | None
    """What stopped the run, if a failure did."""

    async def run(self) -> None:
        """Run to the end. What failed is in `failure`; only cancellation is raised."""
        ...

    def finished(self, duration_ms: float) -> RunFinished:
        """What listeners are told at the end."""
        ...


async def entered(
    stack: AsyncExitStack,
    scope: Scope,
    *,
    span: str,
    facts: Mapping[str, AttributeValue],
    seconds: float | None,
) -> None:
    """Open the span of a run, with these attributes, and start the clock of all of it, until `stack` ends.

    Inside of a step, the clock of the attempt at that stands still meanwhile.
    """
    stack.enter_context(scope.nesting())
    if (tracer := scope.tracer) is not None:
        trace_id = await stack.enter_async_context(tracer.span(span, **facts))
        stack.callback(lambda: log_metrics(tracer, trace_id, attributes.usage_attributes(scope.spent())))
    if seconds is not None:
        clock = await stack.enter_async_context(Clock(seconds, f"{scope.kind} {scope.name!r}"))
        scope.add_clock(clock)
        stack.callback(scope.remove_clock, clock)


def log_of(stack: AsyncExitStack, scope: Scope, part: Callable[[LiveLog], LivePart]) -> RunLog:
    """The log of the run that `scope` is, or is a part of; where no store keeps it, `part` tells of it."""
    if (durable := current_durable_run.get()) is not None:
        return RunLog(durable.entries)
    live = current_live_log.get()
    if live is None:
        live = LiveLog(scope)
        stack.callback(current_live_log.reset, current_live_log.set(live))
    live.add(part(live))
    return RunLog(live.entries)


async def run_told(runner: Runner, scope: Scope, steps: tuple[str, ...]) -> None:
    """Run, tell listeners of the start and the end, and raise what stopped the run."""
    if scope.listener is None:
        await _run(runner, scope)
    else:
        started = perf_counter()
        await scope.emit(RunStarted(run_id=scope.run_id, pipeline=scope.name, path=scope.path, steps=steps))
        await _run(runner, scope)
        await scope.emit(runner.finished((perf_counter() - started) * 1000))
    if runner.failure is not None:
        raise runner.failure


async def _run(runner: Runner, scope: Scope) -> None:
    """Run to the end. Requests that are in flight then count at their bounds in what is told of the run."""
    try:
        await runner.run()
    finally:
        scope.write_off_in_flight()
