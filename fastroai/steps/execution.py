"""Running one step: its attempts, its clocks, its span."""

from __future__ import annotations

from contextlib import AsyncExitStack
from time import perf_counter
from types import CoroutineType

from fastroai.errors import ConfigurationError
from fastroai.runtime import Clock, Scope
from fastroai.steps.base import BaseStep, DepsT, OutputT
from fastroai.steps.config import ResolvedConfig
from fastroai.steps.context import RunFacts, StepContext
from fastroai.steps.retrying import retry_calls
from fastroai.tracing import attributes, log_metrics


async def run_step(
    step: BaseStep[DepsT, OutputT], *, scope: Scope, facts: RunFacts, deps: DepsT, config: ResolvedConfig
) -> OutputT:
    """Run a step to its output, in `scope`, which must be current, retries and time limits included."""
    started = perf_counter()
    if config.is_plain and scope.tracer is None and scope.budget is None:
        return await _attempt(step, StepContext(scope, facts, deps, config, started))
    async with AsyncExitStack() as stack:
        if (tracer := scope.tracer) is not None:
            trace_id = await stack.enter_async_context(
                tracer.span(
                    attributes.step_span(scope.name),
                    **attributes.step_attributes(step_id=scope.name, run_id=scope.run_id),
                )
            )
            stack.callback(lambda: log_metrics(tracer, trace_id, attributes.usage_attributes(scope.spent())))
        if config.total_timeout is not None:
            clock = await stack.enter_async_context(
                Clock(config.total_timeout, f"step {scope.name!r}, retries included,")
            )
            scope.add_clock(clock)
            stack.callback(scope.remove_clock, clock)
        if scope.time is None and (time := scope.time_budget()) is not None:
            scope.add_clock(await stack.enter_async_context(time))
            stack.callback(scope.remove_clock, time)
        return await _attempts(step, scope, facts, deps, config, started)


async def _attempts(
    step: BaseStep[DepsT, OutputT],
    scope: Scope,
    facts: RunFacts,
    deps: DepsT,
    config: ResolvedConfig,
    started: float,
) -> OutputT:
    context: StepContext[DepsT]

    async def attempt_step(attempt: int) -> OutputT:
        nonlocal context
        scope.attempt = attempt
        context = StepContext(scope, facts, deps, config, started)
        async with Clock(config.timeout, f"step {scope.name!r}", of_attempt=True) as clock:
            context.attach_clock(clock)
            scope.add_clock(clock)
            try:
                return await _attempt(step, context)
            finally:
                scope.remove_clock(clock)

    async def report(attempt: int, error: BaseException, delay: float) -> None:
        await context.report_retry(attempt, error, delay)

    return await retry_calls(
        attempt_step, retries=config.request_retries, delay=config.retry_delay, scope=scope, on_retry=report
    )


async def _attempt(step: BaseStep[DepsT, OutputT], context: StepContext[DepsT]) -> OutputT:
    try:
        awaitable = step.execute(context)
        if not hasattr(awaitable, "__await__"):
            raise ConfigurationError("execute", type(step).__name__, "`async def execute(self, context)`")
        output = await awaitable
        if isinstance(output, CoroutineType):
            output.close()
            raise ConfigurationError("output", output, "a value; await the coroutine: `return await ...`")
        return output
    finally:
        context.end()
        if context.scope.is_open_inside:
            await context.scope.end_inside()
