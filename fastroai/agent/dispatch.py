"""One attempt at an agent call: its scope, span, clock and hooks around PydanticAI's run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Generic, TypedDict

from pydantic_ai import Agent, AgentCapability, AgentRunResultEvent, RunContext
from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.messages import AgentStreamEvent, ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.output import OutputDataT
from pydantic_ai.result import StreamedRunResult
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT

from fastroai.agent.agent_run import AgentRun, current_agent_run
from fastroai.agent.hooks import AfterDispatch, BeforeDispatch, Dispatch, call_hook
from fastroai.agent.learned import Learned
from fastroai.agent.metering import Metered
from fastroai.agent.models import loop_of, note_loop
from fastroai.agent.own_agent import OwnAgent
from fastroai.agent.replay import count_agent_call
from fastroai.calls.call import AgentCall
from fastroai.calls.response import ChatResponse, StreamChunk
from fastroai.calls.stream import OnScope, ResponseEvent
from fastroai.errors import BudgetExceeded, StoppedRun
from fastroai.runtime import CircuitBreaker, Clock, ProviderLimits, Scope, Send, current_scope
from fastroai.runtime.flow import Flow, current_flow, read_by_this_task
from fastroai.runtime.options import check_count, check_seconds
from fastroai.runtime.threads import WorkerThreads
from fastroai.store.log import run_of
from fastroai.tracing import Tracer, attributes, log_metrics
from fastroai.usage.limits import Limits

logger = logging.getLogger("fastroai.agent")

_threads: Final = WorkerThreads()
_NO_SPAN: Final = nullcontext("")
_UNWATCHED: Final = nullcontext()


class _Identity(TypedDict):
    call: str
    attempt: int


@dataclass(slots=True)
class _Attempt:
    """One attempt at a call while it runs."""

    scope: Scope
    clock: Clock
    dispatch: Dispatch
    run: AgentRun
    trace_id: str
    started: float

    async def respond(self, result: AgentRunResult[OutputDataT]) -> ChatResponse[OutputDataT]:
        await self.scope.end_inside()  # streams that its tools have left open belong to its account
        self.scope.write_off_in_flight()
        response = ChatResponse.of(
            result,
            self.scope,
            output_tools=self.run.output_tools,
            processing_time_ms=(perf_counter() - self.started) * 1000,
            trace_id=self.trace_id,
        )
        self.dispatch.response = response
        return response


@dataclass
class Dispatcher(Generic[AgentDepsT, OutputDataT]):
    """Makes attempts at calls of one agent. Keeps what it has built and learned."""

    name: str
    agent: AbstractAgent[AgentDepsT, OutputDataT]
    meter: Metered
    meter_each_run: bool
    """Whether the agent does not have the meter yet, so that each run must bring it."""
    deferred_model: str | None
    timeout: float | None
    request_retries: int
    limits: Limits | None
    on_before_dispatch: BeforeDispatch | None
    on_after_dispatch: AfterDispatch | None
    provider_limits: ProviderLimits | None = None
    circuit_breaker: CircuitBreaker | None = None
    learned: Learned = field(default_factory=Learned)
    """What its answered calls were like."""

    async def run(self, call: AgentCall) -> ChatResponse[OutputDataT]:
        """One attempt, to its response."""
        async with self._attempt(call) as attempt:
            attempt.run.refuses_cut_answers = True
            handler = call.event_stream_handler or self.agent.event_stream_handler
            with _UNWATCHED if handler is None else _watched(handler) as watched:
                result: AgentRunResult[OutputDataT] = await self.agent.run(
                    call.prompt,
                    output_type=call.output_type,
                    event_stream_handler=watched,
                    **self.arguments(call),
                )
            return await attempt.respond(result)

    async def stream_chunks(
        self, call: AgentCall, send: Send[StreamChunk[OutputDataT]], on_scope: OnScope
    ) -> None:
        """A streamed attempt, chunk by chunk."""
        if call.before is not None:
            call = await call.before(call)
        async with self._attempt(call) as attempt:
            on_scope(attempt.scope)
            async with self.agent.run_stream(
                call.prompt, output_type=call.output_type, **self.arguments(call)
            ) as streamed:
                async for chunk in self._chunks(call, streamed):
                    with attempt.clock.paused():
                        await send(chunk)
            response = await attempt.respond(streamed.result)
        if call.after is not None:
            call.after(response.new_messages())
        await send(StreamChunk(output=response.output, is_final=True, usage_data=response))

    async def _chunks(
        self, call: AgentCall, streamed: StreamedRunResult[AgentDepsT, Any]
    ) -> AsyncGenerator[StreamChunk[OutputDataT]]:
        output_type = self.agent.output_type if call.output_type is None else call.output_type
        if output_type is str:
            async for text in streamed.stream_text(delta=True, debounce_by=None):
                yield StreamChunk(content=text)
            return
        written = 0
        async for output in streamed.stream_output():
            if isinstance(output, str):
                yield StreamChunk(content=output[written:])
                written = len(output)
            else:
                yield StreamChunk(output=output)

    async def stream_events(
        self,
        call: AgentCall,
        send: Send[AgentStreamEvent | AgentRunResultEvent[OutputDataT] | ResponseEvent[OutputDataT]],
        on_scope: OnScope,
    ) -> None:
        """An attempt with PydanticAI's events, and its response as the last one."""
        async with self._attempt(call) as attempt:
            on_scope(attempt.scope)
            result: AgentRunResult[OutputDataT] | None = None
            async with self.agent.run_stream_events(
                call.prompt, output_type=call.output_type, **self.arguments(call)
            ) as events:
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        result = event.result
                    with attempt.clock.paused():
                        await send(event)
            assert result is not None, "PydanticAI ends a run's events with its result"
            response = await attempt.respond(result)
        await send(ResponseEvent(response))

    @asynccontextmanager
    async def _attempt(self, call: AgentCall) -> AsyncGenerator[_Attempt]:
        check_seconds("timeout", call.timeout)
        check_count("request_retries", call.request_retries)
        parent = current_scope()
        scope = Scope(
            "agent",
            self.name,
            parent=parent,
            limits=self.limits if call.limits is None else call.limits.over(self.limits),
            deps=call.deps,
            tracer=call.tracer,
            provider_limits=self.provider_limits,
        )
        scope.reading = read_by_this_task()
        self._build_fallbacks(scope)
        model = call.model or self.agent.model
        if isinstance(model, Model):
            note_loop(model)
            model = model.model_name
        dispatch = Dispatch(
            agent_name=self.name,
            model=model,
            prompt=call.prompt,
            deps=call.deps,
            attempt=call.attempt,
            run_id=scope.run_id,
            step_id=scope.step_id,
        )
        run = AgentRun(
            self.meter,
            self.request_retries if call.request_retries is None else call.request_retries,
            retry_delay=call.request_retry_delay,
            retry=call.retry,
            classifiers=call.classifiers,
            circuit_breaker=self.circuit_breaker,
            **self._identity(call, parent),
        )
        token = current_agent_run.set(run)
        try:
            # PydanticAI calls functions that are not async in these threads: they may wait for other agents.
            with Agent.using_thread_executor(_threads):
                async with scope, self._span(scope, dispatch) as trace_id:
                    if self.on_before_dispatch is not None:
                        await call_hook(self.on_before_dispatch, dispatch)
                    count_agent_call(scope, run.call, run.attempt)
                    try:
                        async with Clock(
                            self._timeout(call), f"agent {self.name!r}", of_attempt=True
                        ) as clock:
                            scope.add_clock(clock)
                            yield _Attempt(scope, clock, dispatch, run, trace_id, perf_counter())
                    except asyncio.CancelledError:
                        if parent is not None:
                            parent.keep_stopped(StoppedRun(self.name, _to_go_on_with(run.messages)))
                        raise
                    except Exception as error:
                        dispatch.error = error
                        raise
                    finally:
                        await run.end_tasks()
                        await self._after(dispatch)
        except BudgetExceeded as stop:
            stop.stopped_runs.append(StoppedRun(self.name, _to_go_on_with(run.messages)))
            raise
        finally:
            current_agent_run.reset(token)

    def _identity(self, call: AgentCall, parent: Scope | None) -> _Identity:
        """What tells this call from others, in a run that is on record: who calls counts, else we do."""
        if call.call is not None:
            return {"call": call.call, "attempt": call.attempt}
        if parent is None or run_of(parent) is None:
            return {"call": "", "attempt": call.attempt}
        outer = current_agent_run.get()
        own = f"{self.name}#{parent.count_inside(self.name)}"
        if outer is None or not outer.call:
            return {"call": own, "attempt": 1}
        return {"call": f"{outer.call}/{own}", "attempt": outer.attempt}

    def _build_fallbacks(self, scope: Scope) -> None:
        """See now that the models can be built which budgets may step down to, not when they are needed."""
        for account in () if scope.account is None else scope.account.lineage():
            if account.budget.fallback is not None:
                self.meter.fallback_model(account.budget.fallback)

    async def _after(self, dispatch: Dispatch) -> None:
        if dispatch.response is None and dispatch.error is None:
            return  # cancelled: nobody waits for what a hook would say
        if dispatch.response is not None:
            self.learned.add(dispatch.response)
        if self.on_after_dispatch is None:
            return
        try:
            await call_hook(self.on_after_dispatch, dispatch)
        except Exception:
            logger.exception("on_after_dispatch of agent %r failed; the call is not affected", self.name)

    def _span(self, scope: Scope, dispatch: Dispatch) -> AbstractAsyncContextManager[str]:
        """Its span; inside, its id, which is empty without a tracer."""
        return _NO_SPAN if scope.tracer is None else self._traced(scope.tracer, scope, dispatch)

    @asynccontextmanager
    async def _traced(self, tracer: Tracer, scope: Scope, dispatch: Dispatch) -> AsyncGenerator[str]:
        async with tracer.span(
            attributes.agent_span(self.name),
            **attributes.agent_attributes(
                name=self.name, model=dispatch.model, run_id=scope.run_id, attempt=dispatch.attempt
            ),
        ) as trace_id:
            try:
                yield trace_id
            finally:
                log_metrics(tracer, trace_id, attributes.usage_attributes(scope.spent()))

    def _timeout(self, call: AgentCall) -> float | None:
        if call.timeout is not None:
            return call.timeout
        if self.timeout is None or call.default_timeout is None:
            return self.timeout if call.default_timeout is None else call.default_timeout
        return min(self.timeout, call.default_timeout)

    def arguments(self, call: AgentCall) -> dict[str, Any]:
        """What every one of PydanticAI's run methods takes."""
        return {
            "conversation": call.conversation,
            "message_history": call.message_history,
            "deferred_tool_results": call.deferred_tool_results,
            "conversation_id": call.conversation_id,
            "run_id": call.run_id,
            "model": self._run_model(call.model),
            "instructions": call.instructions,
            "deps": call.deps,
            "model_settings": call.model_settings,
            "usage_limits": call.usage_limits,
            "cancellation_token": call.cancellation_token,
            "usage": call.usage,
            "metadata": call.metadata,
            "retries": call.retries,
            "infer_name": False,
            "toolsets": call.toolsets,
            "capabilities": self._capabilities(call),
            "workspace": call.workspace,
            "spec": call.spec,
        }

    def _capabilities(self, call: AgentCall) -> Sequence[AgentCapability[Any]] | None:
        is_bare = self.meter_each_run or (isinstance(self.agent, OwnAgent) and self.agent.is_overridden)
        return [self.meter, *(call.capabilities or ())] if is_bare else call.capabilities

    def _run_model(self, model: Model | str | None) -> Model | None:
        reference = self.deferred_model if model is None else model
        return self.meter.models.get(reference) if isinstance(reference, str) else reference

    def home(self, model: Model | str | None) -> asyncio.AbstractEventLoop | None:
        """The running loop that a client of the model is bound to, where there cannot be another."""
        model = model or self.agent.model
        if not isinstance(model, Model) or self.meter.models.has_built(model):
            return None
        return loop_of(model)


@contextmanager
def _watched(handle: EventStreamHandler[AgentDepsT]) -> Iterator[EventStreamHandler[AgentDepsT]]:
    """The same handler; while it is busy with something else, nobody waits for the requests made inside."""
    flow = Flow()

    async def watched(context: RunContext[AgentDepsT], events: AsyncIterable[AgentStreamEvent]) -> None:
        async with aclosing(flow.watched(events)) as watched_events:
            await handle(context, watched_events)

    before = current_flow.get()
    current_flow.set(flow)
    try:
        yield watched
    finally:
        current_flow.set(before)


def _to_go_on_with(messages: list[ModelMessage]) -> list[ModelMessage]:
    """What a run can go on from: without an answer that was cut, and without an empty message at its end.

    PydanticAI would take the beginning of a streamed answer for all of it. Tool calls that have no return yet
    are made again. Where others beside them had returned, PydanticAI keeps those and tells the model which
    ones were interrupted.
    """
    last = messages[-1] if messages else None
    if last is not None and last.state == "interrupted" and (last.kind == "response" or not last.parts):
        return messages[:-1]
    return messages
