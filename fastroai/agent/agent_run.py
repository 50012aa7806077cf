"""The state that one run of an agent shares with the meter."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastroai.agent.requests.request_terms import Meter
from fastroai.human.halting import is_halt
from fastroai.runtime import (
    Charge,
    CircuitBreaker,
    Classifier,
    RetryPolicies,
    Scope,
)
from fastroai.runtime.concurrency.tasks import end_task

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage

    from fastroai.agent.requests.recorded_requests import CallOnRecord


class ToolCallsBeside:
    """Calls of tools that run side by side. One that waits for a person ends after the others.

    PydanticAI cancels the others when one raises, and with them requests that are paid for.
    """

    def __init__(self) -> None:
        self._running = 0
        self._are_over = asyncio.Event()

    async def make(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Make a call. Its exceptions pass through; a halt does after the other calls have ended."""
        self._running += 1
        self._are_over.clear()
        try:
            return await call
        except BaseException as error:
            if not is_halt(error):
                raise
            halt = error
        finally:
            self._running -= 1
            if not self._running:
                self._are_over.set()
        await self._are_over.wait()
        raise halt


@dataclass
class AgentRun:
    """The state that one `FastroAgent` run shares with the meter."""

    meter: Meter
    request_retries: int | None
    """Extra attempts at each request of this run; `None` if nobody has said how many."""
    call: str = ""
    """The name of this call among those of the same attempt at a step, in a run that is on record."""
    attempt: int = 1
    """The number of the attempt at this call."""
    on_record: CallOnRecord | None = None
    """This call, compared with what is on record of it; `None` if no store keeps the run."""
    retry_delay: float | None = None
    """Base of the backoff between attempts at a request, in seconds, if the step around sets it."""
    retry: RetryPolicies | None = None
    """Policies instead of `request_retries` and `retry_delay`, if the step around sets them."""
    classifiers: tuple[Classifier, ...] = ()
    refuses_cut_answers: bool = False
    """Whether an answer that broke off is a failure; not if its text was read as it came."""
    is_stopped: bool = False
    """Whether the reader has stopped the answer. The part that has arrived is kept."""
    circuit_breaker: CircuitBreaker | None = None
    """The circuit breaker of the agent itself."""
    output_tools: set[str] = field(default_factory=set)
    """Names of the tools through which the model was asked for structured output."""
    last: Charge | None = None
    """The charge of the latest answer of this run."""
    rejects_answer: bool = False
    """Whether the current request rejects the latest answer, and asks for it again."""
    tool_calls: dict[str, ToolCallsBeside] | None = None
    """Calls of tools, by the outer call inside which they are made: plain agents in tools share this run."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that this run was in, done or not, until it ends: the tasks of hooks around it, of each stream,
    and of the caller."""

    run_id: str | None = None
    """Id that PydanticAI gave the run."""
    messages: list[ModelMessage] = field(default_factory=list)
    """Messages of the run so far: PydanticAI's own list, which grows with the run."""

    def stop(self) -> None:
        """Note that the reader stops the answer."""
        self.is_stopped = True

    def beside(self, outer_call: str) -> ToolCallsBeside:
        """Return the calls of tools inside of an outer call; an empty text stands for none."""
        if self.tool_calls is None:  # made when first needed: most runs are not on record, or call no tools
            self.tool_calls = {}
        return self.tool_calls.setdefault(outer_call, ToolCallsBeside())

    def follow(self, context: RunContext[Any]) -> None:
        """Note the running task, and the messages of the run.

        If a tool runs the same PydanticAI agent again, the messages of that run are ignored.
        """
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        if self.run_id is None or self.run_id == context.run_id:
            self.run_id, self.messages = context.run_id, context.messages

    async def end_tasks(self) -> None:
        """End the tasks that are left: PydanticAI forgets a task that is cancelled just as it has begun."""
        # None is kept: the context of a task holds its scope, which holds this run.
        tasks, self.tasks = self.tasks, set()
        for task in tasks:
            if not task.done() and task is not asyncio.current_task():
                await end_task(task)


def agent_run_of(scope: Scope | None) -> AgentRun | None:
    """Return the innermost `FastroAgent` run. Plain agents in its tools share it: compare the meter."""
    run = None if scope is None else scope.agent_run
    return run if isinstance(run, AgentRun) else None
