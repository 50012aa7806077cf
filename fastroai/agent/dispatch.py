"""One attempt at an agent call: its scope, span, clock and hooks around PydanticAI's run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Coroutine, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    contextmanager,
)
from contextvars import copy_context
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from pydantic_ai import Agent, AgentRunResultEvent, RunContext
from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import AgentStreamEvent, ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.output import OutputDataT
from pydantic_ai.result import StreamedRunResult
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT

from fastroai.agent.agent_run import AgentRun, agent_run_of
from fastroai.agent.config import AgentConfig
from fastroai.agent.declared import AgentDeclaration
from fastroai.agent.hooks import Dispatch, call_hook
from fastroai.agent.models import loop_of
from fastroai.agent.own_agent import OwnAgent
from fastroai.agent.quotes.learned import PastCalls
from fastroai.agent.requests.metering import Metered
from fastroai.calls.call import AgentCall
from fastroai.calls.response import ChatResponse, StreamChunk
from fastroai.calls.stream import OnScope, OnStreaming, ResponseEvent, Streaming
from fastroai.errors import (
    BudgetExceeded,
    CallChangedError,
    RunStoreUnavailable,
    RunTakenOver,
    ScopeClosedError,
    StoppedRun,
)
from fastroai.pydantic_ai_private import declared_by
from fastroai.records import in_seconds
from fastroai.runtime import Clock, Scope, Send, current_scope
from fastroai.runtime.budgets.ledger import Account
from fastroai.runtime.concurrency.flow import Flow, current_flow, read_by_this_task
from fastroai.runtime.concurrency.threads import WorkerThreads
from fastroai.runtime.options import check_count, check_timeout
from fastroai.runtime.retrying.failures import leaves, note_agent_call
from fastroai.runtime.scope import current_tool_calls
from fastroai.runtime.spans import span_of
from fastroai.store.record.log_of_scope import log_of, run_of
from fastroai.tracing import Tracer, attributes
from fastroai.usage.limits import Limits, together

if TYPE_CHECKING:
    from fastroai.agent.requests.recorded_requests import CallOnRecord

logger = logging.getLogger("fastroai.agent")

_threads: Final = WorkerThreads()
_GO_ON: Final = (BudgetExceeded, CallChangedError, RunStoreUnavailable, RunTakenOver, ScopeClosedError)
"""Failures after which the same attempt at a call goes on when its run is resumed."""

ItemT = TypeVar("ItemT")


class Attempt(Generic[AgentDepsT, OutputDataT]):
    """One attempt at a call: `async with` opens the scope, span and clock around PydanticAI's run.

    Inside, `await attempt.respond(await attempt.ask())` gives its response.

    It is not a generator, because each event of a run passes through every coroutine around it, and a
    generator would add one.
    """

    __slots__ = (
        "_call",
        "_dispatcher",
        "_keeps_failure",
        "_outer_run",
        "_span",
        "_started",
        "_with_threads",
        "clock",
        "dispatch",
        "run",
        "scope",
    )

    def __init__(self, dispatcher: Dispatcher[AgentDepsT, OutputDataT], call: AgentCall) -> None:
        if call.timeout is not None:
            check_timeout("timeout", call.timeout)
        if call.request_retries is not None:
            check_count("request_retries", call.request_retries)
        self._dispatcher, self._call = dispatcher, call
        parent = current_scope()
        self.scope = scope = Scope(
            "agent",
            dispatcher.name,
            parent=parent,
            limits=together(call.limits, dispatcher.limits),
            deps=call.deps,
            tracer=call.tracer,
            provider_limits=dispatcher.config.provider_limits,
            labels=call.labels,
        )
        scope.reading = read_by_this_task()
        if scope.bounds.account is not None:
            dispatcher.build_fallbacks(scope.bounds.accounts)
        model = call.options.get("model") or dispatcher.agent.model
        self.dispatch = Dispatch(
            agent_name=dispatcher.name,
            model=model if model is None or isinstance(model, str) else model.model_name,
            prompt=call.prompt,
            deps=call.deps,
            attempt=call.attempt,
            run_id=scope.run_id,
            step_id=scope.step_id,
        )
        retries = call.request_retries
        name, number = dispatcher.identity(call, parent)
        self.run = scope.agent_run = AgentRun(
            dispatcher.meter,
            dispatcher.config.request_retries if retries is None else retries,
            name,
            number,
            retry_delay=call.request_retry_delay,
            retry=call.retry,
            classifiers=call.classifiers,
            circuit_breaker=dispatcher.config.circuit_breaker,
        )
        if run_of(scope) is not None:
            from fastroai.agent.requests.recorded_requests import (
                CallOnRecord,  # late: no store keeps most calls
            )

            self.run.on_record = CallOnRecord.of(dispatcher.name, dispatcher.declaration, call)
        self.clock = Clock(dispatcher.timeout_of(call), f"agent {dispatcher.name!r}", of_attempt=True)
        self._span: AbstractAsyncContextManager[None] | None = None
        self._keeps_failure = False

    async def __aenter__(self) -> Self:
        scope, dispatcher = self.scope, self._dispatcher
        await scope.__aenter__()
        # PydanticAI calls functions that are not async in these threads: they may wait for other agents.
        self._with_threads = Agent.using_thread_executor(_threads)
        self._with_threads.__enter__()
        try:
            if scope.tracer is not None:
                span = dispatcher.traced(scope.tracer, scope, self.dispatch)
                await span.__aenter__()
                self._span = span
            if dispatcher.config.on_before_dispatch is not None:
                await call_hook(dispatcher.config.on_before_dispatch, self.dispatch)
            if self.run.on_record is None:
                scope.count_agent_call()
            else:
                self.run.on_record.count(scope, self.run.call, self.run.attempt)
            if self.clock.seconds is not None:
                await self.clock.__aenter__()
                scope.clocks += (self.clock,)
        except BaseException as error:
            await self._close(error)
            raise
        self._started = perf_counter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            try:
                if self.clock.seconds is not None:
                    await self.clock.__aexit__(kind, error, traceback)
            except BaseException as exceeded:
                await self._conclude(exceeded)
                raise
            else:
                await self._conclude(error)
        except BaseException as raised:
            await self._close(raised)
            raise
        await self._close(error)

    async def _conclude(self, error: BaseException | None) -> None:
        """Note how the run ended, end the tasks that are left, learn from its usage, and call the hook."""
        if error is not None:
            await self._note(error)
        await self.run.end_tasks()
        dispatcher, dispatch = self._dispatcher, self.dispatch
        if dispatch.response is not None:
            dispatcher.learned.learn(dispatch.response)
            run = self.run
            if run.on_record is not None and run.last is not None and run.last.record.tool_calls:
                run.on_record.note_end(self.scope, run.call, run.attempt)
        elif dispatch.error is None:
            return  # a cancelled call has no outcome for a hook
        if dispatcher.config.on_after_dispatch is not None:
            try:
                await call_hook(dispatcher.config.on_after_dispatch, dispatch)
            except Exception:
                logger.exception(
                    "on_after_dispatch of agent %r failed; the call is not affected", dispatcher.name
                )

    async def _note(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            if self.scope.parent is not None:
                self.scope.parent.time.keep_stopped(self._stopped())
        elif isinstance(error, Exception):
            self.dispatch.error = error
            await self._put_on_record(error)

    async def _put_on_record(self, error: Exception) -> None:
        """Note on a failure that this call raised it: a resumed flow that it ended makes the call anew.

        If the flow or the step goes on after it, it is on record, and is given back when the run is resumed.
        A call that a budget has stopped, or that has changed, goes on instead. A call of `ctx.run` is not
        known by its place alone.
        """
        scope, log, run = self.scope, log_of(self.scope), self.run
        if log is None or any(isinstance(leaf, _GO_ON) for leaf in leaves(error)):
            return
        if self._is_direct:
            from fastroai.runtime.facts import FailedAgentCall  # late: only flows know calls by their place

            note_agent_call(error, FailedAgentCall(log.place(scope), run.call, run.attempt))
        if self._keeps_failure and run.on_record is not None:
            await run.on_record.put_failure_on_record(scope, run.call, run.attempt, error)

    @property
    def _is_direct(self) -> bool:
        """Whether the code of a flow makes the call, and not `ctx.run`."""
        return self.scope.flow_run is not None and self._call.call is None

    def raise_known_failure(self, on_record: CallOnRecord) -> None:
        """Raise the failure of this attempt that is on record, unless it made the run fail.

        Only for a call whose answer comes as a whole: code that reads a stream may have used a part of it.
        """
        self._keeps_failure = self._is_direct or self._call.call is not None
        if self._keeps_failure:
            failed = on_record.known_failure(self.scope, self.run.call, self.run.attempt)
            if failed is not None:
                raise failed

    async def _close(self, error: BaseException | None) -> None:
        kind = None if error is None else type(error)
        traceback = None if error is None else error.__traceback__
        try:
            try:
                if self._span is not None:
                    await self._span.__aexit__(kind, error, traceback)
            except BaseException as raised:
                await self.scope.__aexit__(type(raised), raised, raised.__traceback__)
                raise
            else:
                await self.scope.__aexit__(kind, error, traceback)
        except BudgetExceeded as stop:
            stop.stopped_runs.append(self._stopped())
            raise
        else:
            if error is not None and isinstance(error, BudgetExceeded):
                error.stopped_runs.append(self._stopped())
        finally:
            self._with_threads.__exit__(None, None, None)

    def _stopped(self) -> StoppedRun:
        return StoppedRun(self._dispatcher.name, _to_go_on_with(self.run.messages))

    def ask(self) -> Coroutine[Any, Any, AgentRunResult[OutputDataT]]:
        """Return PydanticAI's run of the call, to be awaited."""
        self.run.refuses_cut_answers = True
        agent, call = self._dispatcher.agent, self._call
        handler = call.event_stream_handler or agent.event_stream_handler
        if handler is not None:
            return self._run_watched(handler)
        return agent.run(call.prompt, output_type=call.output_type, **self._dispatcher.arguments(call))

    async def _run_watched(self, handler: EventStreamHandler[AgentDepsT]) -> AgentRunResult[OutputDataT]:
        with _watched(handler) as watched:
            result: AgentRunResult[OutputDataT] = await self._dispatcher.agent.run(
                self._call.prompt,
                output_type=self._call.output_type,
                event_stream_handler=watched,
                **self._dispatcher.arguments(self._call),
            )
        return result

    def outside_of_clock(self, send: Send[ItemT]) -> Send[ItemT]:
        """Return a sender that pauses the clock for the time that the consumer takes."""
        if self.clock.seconds is None:
            return send

        async def deliver(item: ItemT) -> None:
            with self.clock.paused():
                await send(item)

        return deliver

    async def respond(self, result: AgentRunResult[OutputDataT]) -> ChatResponse[OutputDataT]:
        """Return the response, after open requests of the scope were charged to it."""
        if self.scope.open_inside:
            await self.scope.end_inside()  # ends streams that its tools have left open
        self.scope.write_off_in_flight()
        response = ChatResponse.of(
            result,  # pyright: ignore[reportArgumentType]
            self.scope,
            output_tools=self.run.output_tools,
            processing_time_ms=(perf_counter() - self._started) * 1000,
        )
        self.dispatch.response = response
        return response  # pyright: ignore[reportReturnType]


@dataclass(slots=True)
class Dispatcher(Generic[AgentDepsT, OutputDataT]):
    """Makes attempts at calls of one agent, and learns from them."""

    name: str
    agent: AbstractAgent[AgentDepsT, OutputDataT]
    meter: Metered
    meter_each_run: bool
    """Whether the agent does not have the meter yet, so that each run must bring it."""
    deferred_model: str | None
    config: AgentConfig
    limits: Limits | None
    learned: PastCalls = field(default_factory=PastCalls)
    """Its past answered calls, from which quotes expect the next one."""
    declaration: AgentDeclaration = field(init=False)
    """What the agent declares for its calls."""

    def __post_init__(self) -> None:
        self.declaration = AgentDeclaration(self.agent, self.deferred_model)

    async def run(self, call: AgentCall) -> ChatResponse[OutputDataT]:
        """Make one attempt at a call, and return its response."""
        async with Attempt(self, call) as attempt:
            if attempt.run.on_record is not None:
                attempt.raise_known_failure(attempt.run.on_record)
            if call.options.get("model") is not None or self.deferred_model is not None:
                await self.load_model(call)
            return await attempt.respond(await attempt.ask())

    async def stream_chunks(
        self,
        call: AgentCall,
        send: Send[StreamChunk[OutputDataT]],
        on_scope: OnScope,
        on_streaming: OnStreaming,
    ) -> None:
        """Make a streamed attempt at a call, and send its answer as it grows, then the response."""
        if call.before is not None:
            call = await call.before(call)
        async with Attempt(self, call) as attempt:
            on_scope(attempt.scope)
            await self.load_model(call)
            async with self.agent.run_stream(
                call.prompt, output_type=call.output_type, **self.arguments(call)
            ) as streamed:
                streaming = Streaming(streamed, copy_context(), attempt.run.stop)
                on_streaming(streaming)
                await _send_answer(streaming, attempt.run, attempt.outside_of_clock(send))
            if attempt.run.is_stopped and _settled(streamed) is None:
                return  # what has come of the answer is no valid output
            response = await attempt.respond(streamed.result)
        if call.after is not None:
            call.after(response.new_messages())
        await send(StreamChunk(output=response.output, is_final=True, usage_data=response))

    async def stream_events(
        self,
        call: AgentCall,
        send: Send[AgentStreamEvent | AgentRunResultEvent[OutputDataT] | ResponseEvent[OutputDataT]],
        on_scope: OnScope,
    ) -> None:
        """Make an attempt at a call, and send PydanticAI's events, then the response."""
        async with Attempt(self, call) as attempt:
            on_scope(attempt.scope)
            await self.load_model(call)
            result: AgentRunResult[OutputDataT] | None = None
            async with self.agent.run_stream_events(
                call.prompt, output_type=call.output_type, **self.arguments(call)
            ) as events:
                deliver = attempt.outside_of_clock(send)
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        result = event.result
                    await deliver(event)
            assert result is not None, "PydanticAI ends a run's events with its result"
            response = await attempt.respond(result)
        await send(ResponseEvent(response))

    def identity(self, call: AgentCall, parent: Scope | None) -> tuple[str, int]:
        """Return the name of this call in its run, and its attempt: counted by the caller, or else here."""
        if call.call is not None:
            return call.call, call.attempt
        if parent is None or log_of(parent) is None:
            return "", call.attempt
        outer = agent_run_of(parent)
        own = f"{self.name}#{parent.count_inside(self.name, current_tool_calls.get().key)}"
        attempt = 1
        if outer is not None and outer.call:
            own, attempt = f"{outer.call}/{own}", outer.attempt
        if parent.flow_run is not None and (run := run_of(parent)) is not None:
            attempt = max(attempt, run.recorded.used_in_call(run.place(parent), own).attempt)
        return own, attempt

    def build_fallbacks(self, accounts: Iterable[Account]) -> None:
        """Build the models that budgets may step down to, so that errors come now and not when needed."""
        for each in accounts:
            if each.budget.fallback is not None:
                self.meter.fallback_model(each.budget.fallback)

    def traced(self, tracer: Tracer, scope: Scope, dispatch: Dispatch) -> AbstractAsyncContextManager[None]:
        """Return the span of an attempt."""
        described = {
            **attributes.agent_attributes(
                name=self.name, model=dispatch.model, run_id=scope.run_id, attempt=dispatch.attempt
            ),
            **attributes.label_attributes(*scope.bounds.labels),
        }
        return span_of(scope, tracer, attributes.agent_span(self.name), described)

    def timeout_of(self, call: AgentCall) -> float | None:
        """Return the seconds that an attempt at a call may take."""
        if call.timeout is not None:
            return in_seconds(call.timeout)
        own, default = in_seconds(self.config.timeout), call.default_timeout
        if own is None or default is None:
            return default if own is None else own
        return min(own, default)

    def arguments(self, call: AgentCall) -> dict[str, Any]:
        """Return the arguments that all run methods of PydanticAI take."""
        model = call.options.get("model")
        model = self.deferred_model if model is None else model
        passed: dict[str, Any] = {
            **call.options,
            "deps": call.deps,
            "message_history": call.message_history,
            "model": self.meter.models.get(model) if isinstance(model, str) else model,
            "infer_name": False,
        }
        if self.meter_each_run or (isinstance(self.agent, OwnAgent) and self.agent.is_overridden):
            passed["capabilities"] = [self.meter, *(call.options.get("capabilities") or ())]
        return passed

    def asked_model(self, model: Model | str | None) -> Model | None:
        """Return the model that a call asks, if it gives this one."""
        known: Any = declared_by(self.agent).model or model or self.deferred_model or self.agent.model
        return self.meter.models.get(known) if isinstance(known, str) else known

    async def load_model(self, call: AgentCall) -> None:
        """Build the model that a call only names, so that `arguments` finds it and blocks no loop."""
        model = call.options.get("model")
        reference = self.deferred_model if model is None else model
        if isinstance(reference, str):
            await self.meter.models.load(reference)

    def home(self, model: Model | str | None) -> asyncio.AbstractEventLoop | None:
        """Return the running loop to which a client of the model is bound, if it cannot use another."""
        model = model or self.agent.model
        if not isinstance(model, Model) or self.meter.models.has_built(model):
            return None
        return loop_of(model)


async def _send_answer(
    streaming: Streaming[OutputDataT], run: AgentRun, send: Send[StreamChunk[OutputDataT]]
) -> None:
    """Send an answer as it grows, to its end or until it is stopped."""
    streamed = streaming.result
    if (settled := _settled(streamed)) is not None:  # without an answer that could be streamed
        if isinstance(settled.output, str):
            await send(StreamChunk(content=settled.output))
        return
    try:
        async for response in streamed.stream_response(debounce_by=None):
            if run.is_stopped:
                break
            await send(StreamChunk(response=response))
            if response.state != "incomplete":
                # The tools of the answer run next. This waits until the reader has validated all before.
                await send(StreamChunk())
    except ModelAPIError:
        if not run.is_stopped:
            raise
    if run.is_stopped:
        await streaming.settle()
        await send(StreamChunk(response=streamed.response))


def _settled(streamed: StreamedRunResult[AgentDepsT, OutputDataT]) -> AgentRunResult[OutputDataT] | None:
    """Return the result of a run that has ended without a streamed answer; `None` for any other."""
    try:
        return streamed.result
    except UserError:
        return None


@contextmanager
def _watched(handle: EventStreamHandler[AgentDepsT]) -> Iterator[EventStreamHandler[AgentDepsT]]:
    """Wrap an event handler: while it is busy with something else, nobody waits for the requests inside."""
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
    """Return the messages from which a run can go on, without a cut answer or an empty message at the end.

    PydanticAI would take the beginning of a streamed answer for all of it. Tool calls without a return are
    made again. If other calls beside them had returned, PydanticAI keeps those returns and tells the model
    which calls were interrupted.
    """
    last = messages[-1] if messages else None
    if last is not None and last.state == "interrupted" and (last.kind == "response" or not last.parts):
        return messages[:-1]
    return messages
