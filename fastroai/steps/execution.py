"""Runs one step: its attempts, its clocks, its span."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter
from types import CoroutineType, MappingProxyType
from typing import Any, Final, cast

from fastroai.calls.call import no_agent
from fastroai.errors import CancelledInside, ConfigurationError
from fastroai.runtime import NO_RETRIES_USED, Clock, RetriesUsed, Retry, Scope
from fastroai.runtime.budgets.crossings import refuse_if_crossed
from fastroai.runtime.concurrency.isolation import is_of_task
from fastroai.runtime.labels import current_row
from fastroai.runtime.scope import Scoped
from fastroai.runtime.spans import span_of
from fastroai.steps.attempt import AttemptState
from fastroai.steps.base import BaseStep, DepsT, OutputT
from fastroai.steps.config import ResolvedConfig, resolve
from fastroai.steps.context import StepContext, StepData, scope_here
from fastroai.steps.contracts import BoundContract, bind_contract
from fastroai.steps.durability import attempts_used, restore_spending, step_retried
from fastroai.steps.retrying import retry_calls
from fastroai.steps.spend_windows import or_wait
from fastroai.store.record.changes import tell_left_over
from fastroai.tracing import NoOpTracer, attributes

_NO_TRACER: Final = NoOpTracer()


def run_step(
    step: BaseStep[DepsT, OutputT],
    *,
    scoped: Scoped,
    data: StepData,
    deps: DepsT,
    config: ResolvedConfig,
    used: RetriesUsed = NO_RETRIES_USED,
    contract: BoundContract | None = None,
) -> Coroutine[Any, Any, OutputT]:
    """Run a step in its scope, which must be current, with retries and time limits. Return its output.

    The first attempt is the one in `used`. Each `StepRetried` says what is used then. `contract` is checked
    around each attempt. A scope with a tracer, limits or a record must be open already.
    """
    started = perf_counter()
    scope, spans, is_bounded = scoped.opened, False, config.total_timeout is not None
    if scope is not None:
        spans = scope.tracer is not None and step.opens_span
        is_bounded = is_bounded or spans or bool(scope.clocks)
    if config.is_plain and not is_bounded:
        return _attempt(step, scoped, data, deps, config, started, contract, used.attempt)

    attempt = partial(_attempt, step, scoped, data, deps, config, started, contract)
    in_time: Callable[[int], Awaitable[OutputT]] = attempt
    if config.timeout is not None:
        in_time = partial(_timed, attempt, scoped, config.timeout)
    attempts = partial(
        retry_calls,
        in_time,
        rules=config.retry_rules,
        scoped=scoped,
        on_retry=partial(_report, scoped),
        used=used,
    )
    return _bounded(attempts, scoped.scope, data, config, spans=spans) if is_bounded else attempts()


async def _report(scoped: Scoped, retry: Retry) -> None:
    scope = scoped.scope
    await scope.emit(step_retried(scope, retry))


async def _bounded(
    attempts: Callable[[], Awaitable[OutputT]],
    scope: Scope,
    data: StepData,
    config: ResolvedConfig,
    *,
    spans: bool,
) -> OutputT:
    """Make the attempts in the span of the step, and within the time limits of all attempts together."""
    async with AsyncExitStack() as stack:
        if spans and (tracer := scope.tracer) is not None:
            described = attributes.step_attributes(
                step_id=scope.name,
                run_id=scope.run_id,
                visit=None if data.visit is None else data.visit.number,
            )
            name = attributes.step_span(scope.name)
            await stack.enter_async_context(span_of(scope, tracer, name, described))
        if config.total_timeout is not None:
            clock = Clock(config.total_timeout, f"step {scope.name!r}, retries included,")
            await stack.enter_async_context(scope.time.bounded(clock))
        if (budget := scope.time.of_budgets) is not None and not budget.is_running:
            await stack.enter_async_context(budget)
        return await attempts()


async def _timed(
    attempt: Callable[[int, Clock], Awaitable[OutputT]], scoped: Scoped, seconds: float, number: int
) -> OutputT:
    """Make an attempt, which has this number, within its time limit."""
    clock = Clock(seconds, f"step {scoped.name!r}", of_attempt=True)
    async with scoped.scope.time.bounded(clock):
        return await attempt(number, clock)


async def _attempt(
    step: BaseStep[DepsT, OutputT],
    scoped: Scoped,
    data: StepData,
    deps: DepsT,
    config: ResolvedConfig,
    started: float,
    contract: BoundContract | None,
    attempt: int,
    clock: Clock | None = None,
) -> OutputT:
    scoped.attempt = attempt
    if (scope := scoped.opened) is not None:
        scope.attempt = attempt
        if scope.bounds.account is not None or scope.bounds.ceilings:
            await or_wait(scope, refuse_if_crossed(scope), "step")
    state = AttemptState(scoped, clock)
    context = StepContext(state, data, deps, config, started, map_step)
    try:
        if contract is not None and contract.has_before:
            await contract.check_before(context)
        execution = awaitable = step.execute(context)
        if type(awaitable) is not CoroutineType and not hasattr(awaitable, "__await__"):
            raise ConfigurationError("execute", type(step).__name__, "`async def execute(self, context)`")
        output = await execution
        if isinstance(output, CoroutineType):
            output.close()
            raise ConfigurationError("output", output, "a value; await the coroutine: `return await ...`")
        if contract is not None and type(output) is not contract.exact:
            output = cast("OutputT", await contract.check_after(context, output))
        if state.uncertain or state.refusal is not None:
            await state.end_spending()
        if scope is not None and scope.log is not None and scope.log.run is not None:
            tell_left_over(scope)
        return output
    except Exception:
        await state.in_the_books()
        raise
    except asyncio.CancelledError as error:
        if scoped.scope.time.ran_out is not None or is_of_task(error):
            raise
        await state.in_the_books()
        raise CancelledInside(context.step_id) from error
    finally:
        state.is_over = True
        if (scope := scoped.opened) is not None and scope.open_inside:
            await scope.end_inside()


def map_step(
    step: object, context: StepContext[Any], data: StepData, number: int
) -> Callable[[int, object], Coroutine[Any, Any, Any]]:
    """Return a function that runs a step inside of another one, in a scope for each item: a `StepMapper`."""
    if not isinstance(step, BaseStep):
        raise no_agent(step)  # a context runs agents itself
    step = step.for_items()
    contract, config = bind_contract(step), resolve(step.config, pipeline=context.config.as_defaults())
    reader, parent = data.reader or context.step_id, scope_here(context)

    async def run_one(index: int, item: object) -> object:
        step_id = f"{context.step_id}[{index}]"
        scope = Scope(
            "step",
            step_id,
            parent=parent,
            limits=config.limits,
            deps=context.deps,
            tracer=None if config.trace else _NO_TRACER,
            listener=config.hooks.listener(step_id),
            ordinal=number,
        )
        restore_spending(scope)
        inputs = MappingProxyType({**data.inputs, "item": item})
        around = current_row.set(index)
        try:
            async with scope:
                return await run_step(
                    step,
                    scoped=scope,
                    data=StepData(data.run, inputs, data.outputs, reader=reader),
                    deps=context.deps,
                    config=config,
                    contract=contract,
                    used=attempts_used(scope),
                )
        finally:
            current_row.reset(around)

    return run_one
