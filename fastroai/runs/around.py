"""The parts around a run: its span, its clock, its log, and the last fact in the log."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import perf_counter
from types import TracebackType
from typing import Final

import anyio

from fastroai.errors import BudgetExceeded, FastroAIError, StepExecutionError, TimeLimitExceeded
from fastroai.records import RunKind
from fastroai.runtime import Clock, Scope, classify
from fastroai.runtime.concurrency.tasks import to_its_end
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import ReasonCode, RunFinished
from fastroai.runtime.retrying.failures import agent_calls_of, failed_calls_of
from fastroai.runtime.spans import span_of
from fastroai.steps.durability import failure_facts
from fastroai.store.record.log import Log
from fastroai.store.record.runs import DurableRun
from fastroai.tracing import attributes

LAST_WORDS: Final = 5.0
"""Seconds that a failed or cancelled run may take to put its end on record."""

logger = logging.getLogger("fastroai.runs")


async def entered(stack: AsyncExitStack, scope: Scope, kind: RunKind, seconds: float | None) -> None:
    """Open the span of a run, and start its clock, until `stack` ends.

    If the run is inside of a step, the clock of the attempt at that step stands still meanwhile.
    """
    if scope.parent is not None:
        stack.enter_context(scope.time.nesting())
    if (tracer := scope.tracer) is not None:
        described = attributes.run_attributes(kind, name=scope.name, run_id=scope.run_id)
        described |= attributes.label_attributes(*scope.bounds.labels)
        span = attributes.run_span(kind, scope.name)
        await stack.enter_async_context(span_of(scope, tracer, span, described))
    if seconds is not None:
        clock = Clock(seconds, f"{scope.kind} {scope.name!r}")
        await stack.enter_async_context(scope.time.bounded(clock))


class EndOnRecord(AbstractAsyncContextManager[object]):
    """Makes sure that the log says how the run of `log.scope` ended, in whichever way it ends."""

    def __init__(self, log: Log, began: float) -> None:
        """`began` is the start of the run, as a value of `perf_counter`."""
        self._log, self._began = log, began

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if (scope := self._log.scope).open_inside:
                await scope.end_inside()  # streams that were left open end with the run
        except BaseException as error:
            await self._failed(error)
            raise
        if exc is None:
            await self._succeeded()
        else:
            await self._failed(exc)

    async def _succeeded(self) -> None:
        log = self._log
        ended = log.finished or RunFinished(status="finished", reason_code="completed", part=log.scope.part)
        if log.run is None:
            log.end(ended)
        elif log.is_let_go and ended.reason_code == "pause_requested":
            await log.run.let_go(log.scope.spent())
        else:
            await log.run.end(ended, log.scope.spent())

    async def _failed(self, error: BaseException) -> None:
        log = self._log
        over = (clock.exceeded() for clock in log.scope.clocks if clock.ran_out)
        ended = _last_fact(log, next(over, error), self._began)
        if log.run is None:
            log.end(ended)
        else:
            # Shielded, because a cancelled anyio scope interrupts every await, again and again.
            with anyio.CancelScope(shield=True):
                await _end(log.run, log, ended, error)


async def _end(run: DurableRun, log: Log, ended: RunFinished, error: BaseException) -> None:
    """Put a failure on record, unless the journal itself failed, or the process is about to exit."""
    if run.journal.failure is not None or not isinstance(error, Exception | asyncio.CancelledError):
        await run.release()
        return
    try:
        is_let_go = ended.status == "cancelled" and _lets_go(log)
        end = run.let_go(log.scope.spent()) if is_let_go else run.end(ended, log.scope.spent())
        # A program that ends cancels all tasks, and those who own them cancel them once more.
        await to_its_end(asyncio.wait_for(end, LAST_WORDS))
    except (FastroAIError, TimeoutError) as failure:
        logger.warning(
            "run %r: the end of the run could not be written to the store: %s", run.run_id, failure
        )
        await run.release()


def _lets_go(log: Log) -> bool:
    """Return whether a run whose task was cancelled goes on in another process, instead of being cancelled.

    It does if this process was asked to let go of it, or has taken it up for somebody else and ends now. A
    step that raises `CancelledError` by itself cancels the run, for it would do so in every process.
    """
    if log.is_cancelling:
        return False
    task = asyncio.current_task()
    return log.is_let_go or (log.is_handed_over and task is not None and task.cancelling() > 0)


def _last_fact(log: Log, error: BaseException, began: float) -> RunFinished:
    """Return the machine's last fact if its error is raised; else one for an error from around the run."""
    if log.finished is not None and log.finished.raised is error:
        ended = log.finished
    else:
        ended = how_it_ended(error)
        ended.part, ended.duration_ms = log.scope.part, (perf_counter() - began) * 1000
        ended.resume_at = log.resume_at
    ended.agent_calls, ended.failed_calls = agent_calls_of(error), failed_calls_of(error)
    return ended


def how_it_ended(error: BaseException) -> RunFinished:
    """Return the last fact of a run that ended with an exception."""
    if not isinstance(error, Exception) or isinstance(error, asyncio.CancelledError):
        return RunFinished(status="cancelled", reason=str(error), reason_code="cancelled", raised=error)
    failure = failure_of_run(error)
    code: ReasonCode = "error"
    if isinstance(error, StepExecutionError):
        code = "step_failed"
    elif isinstance(error, BudgetExceeded):
        code = "budget_exceeded"
    elif isinstance(error, TimeLimitExceeded):
        code = "timed_out"
    return RunFinished(
        status="failed", reason=failure.message, reason_code=code, failure=failure, raised=error
    )


def failure_of_run(error: BaseException) -> FailureFacts:
    """Return an exception of a run as data. The class of a `StepExecutionError` is that of the original."""
    original = error.original_error if isinstance(error, StepExecutionError) else error
    return failure_facts(error, classify(original))
