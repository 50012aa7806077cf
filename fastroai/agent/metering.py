"""The one place where model requests are admitted, priced and charged.

A capability puts a `MeteredModel` around every leaf model of a run, inside fallback models and other
wrappers too. PydanticAI asks for it before each request, after all hooks, so it sees the final model and
settings, and it is the same for `run`, `run_stream`, `run_stream_events` and `iter`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from pydantic_ai import RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestContext,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from fastroai.agent.agent_run import AgentRun, current_agent_run
from fastroai.agent.models import ModelCache
from fastroai.agent.replay import KnownResponse, RequestOnRecord, execute_tool
from fastroai.agent.request_attempt import RequestAttempt
from fastroai.agent.request_terms import Terms, rejects_answer
from fastroai.errors import CircuitOpenError
from fastroai.runtime import (
    RetriesUsed,
    Retry,
    RetryRules,
    Scope,
    current_scope,
    is_transport_failure,
    step_down_if_due,
)
from fastroai.store.runs import current_durable_run
from fastroai.tracing import attributes, log_metrics
from fastroai.usage import (
    CostCalculator,
    ModelFallback,
    base_url_of,
)

REQUEST_RETRY_DELAY: Final = 0.5
"""Seconds; the base of the backoff between attempts at a request, as in the providers' own SDKs."""


@dataclass(init=False)
class Metered(AbstractCapability[Any]):
    """Charges a plain PydanticAI agent's requests to the FastroAI run that it is called in.

    A `FastroAgent` has it already. Outside of any FastroAI run it does nothing.

        researcher = Agent("openai:gpt-5-mini", capabilities=[Metered()])
    """

    calculator: CostCalculator = field(repr=False)
    request_retries: int

    def __init__(self, cost_calculator: CostCalculator | None = None, *, request_retries: int = 0) -> None:
        """Meter with `cost_calculator`'s prices.

        Args:
            cost_calculator: Prices; those of genai-prices by default.
            request_retries: Extra attempts at a request after a transport failure. Leave it at 0 where the
                model's own SDK retries, which a model that PydanticAI builds does.
        """
        super().__init__()
        self.calculator = cost_calculator or CostCalculator()
        self.request_retries = request_retries
        self._wrapped: dict[int, tuple[Model, Model]] = {}
        self._fallbacks = ModelCache()

    def fallback_model(self, fallback: ModelFallback) -> Model:
        """The model that a budget steps down to."""
        return self._fallbacks.get(fallback.use) if isinstance(fallback.use, str) else fallback.use

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Note the task that the hooks around the run are in."""
        self._note_task()
        return await handler()

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Note the task that a stream is in, and whether an answer is asked for again."""
        self._note_task()
        run = current_agent_run.get()
        if run is not None and run.meter is self:
            run.rejects_answer = rejects_answer(request_context.messages)
        return request_context

    def _note_task(self) -> None:
        run = current_agent_run.get()
        if run is not None and run.meter is self:
            run.add_task()

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Put results of tools on record, in runs that are; those that are there need no call."""
        durable, scope, run = current_durable_run.get(), current_scope(), current_agent_run.get()
        if durable is None or scope is None:
            return await handler(args)
        return await execute_tool(
            durable,
            scope,
            agent_call="" if run is None else run.call,
            attempt=1 if run is None else run.attempt,
            call=call,
            tool=tool_def,
            args=args,
            handler=handler,
        )

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Meter every leaf of the model that serves a request."""
        known = self._wrapped.get(id(model))
        if known is not None and known[0] is model:
            return known[1]
        wrapper = self._meter(model)
        if not isinstance(wrapper, MeteredModel):
            wrapper = OwnedModel(wrapper)
        if len(self._wrapped) >= 16:
            self._wrapped.clear()
        self._wrapped[id(model)] = (model, wrapper)
        return wrapper

    def _meter(self, model: Model) -> Model:
        if isinstance(model, MeteredModel):
            return model
        if isinstance(model, FallbackModel):
            fallback = copy.copy(model)
            fallback.models = [self._meter(candidate) for candidate in model.models]
            return fallback
        if isinstance(model, WrapperModel):
            wrapper = copy.copy(model)
            wrapper.wrapped = self._meter(model.wrapped)
            return wrapper
        return MeteredModel(model, self)


class OwnedModel(WrapperModel):
    """A model that belongs to the agent, which opens and closes it; a request must do neither.

    A `FallbackModel` would wait at its lock otherwise, which several event loops must not share.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return None


class MeteredModel(OwnedModel):
    """A model whose requests are admitted, retried, priced and charged in the scope that they happen in."""

    def __init__(self, wrapped: Model, meter: Metered) -> None:
        super().__init__(wrapped)
        self._meter = meter

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request, and again after a transport failure."""
        scope = current_scope()
        if scope is None:
            return await self.wrapped.request(messages, model_settings, model_request_parameters)
        terms = self._terms(messages, model_settings, model_request_parameters, streamed=False)
        on_record = self._on_record(scope, terms)
        if on_record is not None and (known := on_record.replay()) is not None:
            return self._replayed(known)
        before: Retry | None = None
        while True:
            attempt = self._attempt(scope, terms, before, on_record)
            try:
                return await self._send(attempt)
            except Exception as error:
                before = await self._wait_or_raise(attempt, error)

    async def _send(self, attempt: RequestAttempt) -> ModelResponse:
        async with AsyncExitStack() as stack:
            trace_id = await self._open_span(stack, attempt)
            reservation = await attempt.admit()
            terms = attempt.terms
            try:
                with reservation.around(), attempt.cost_headers.listen():
                    response = await terms.wrapped.request(terms.messages, terms.settings, terms.parameters)
            except BaseException as error:
                attempt.fail(error)
                await self._conclude(attempt, trace_id, error=error)
                raise
            attempt.settle(response)
            await self._conclude(attempt, trace_id, response)
        await attempt.check_whole(response)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Open a stream, and again after a transport failure before its first chunk."""
        scope = current_scope()
        if scope is None:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                yield stream
            return
        terms = self._terms(messages, model_settings, model_request_parameters, streamed=True)
        on_record = self._on_record(scope, terms)
        if on_record is not None and (known := on_record.replay()) is not None:
            yield CompletedStreamedResponse(
                self._replayed(known), model_request_parameters=model_request_parameters, replay_events=True
            )
            return
        before: Retry | None = None
        while True:
            attempt = self._attempt(scope, terms, before, on_record)
            async with AsyncExitStack() as stack:
                trace_id = await self._open_span(stack, attempt)
                reservation = await attempt.admit()
                terms_now = attempt.terms
                failure: Exception | None = None
                try:
                    with reservation.interruption.of_task():
                        stream = await stack.enter_async_context(
                            terms_now.wrapped.request_stream(
                                terms_now.messages, terms_now.settings, terms_now.parameters, run_context
                            )
                        )
                except BaseException as error:
                    attempt.fail(error)
                    await self._conclude(attempt, trace_id, error=error)
                    if not isinstance(error, Exception):
                        raise
                    failure = error
                else:
                    attempt.open(stream)
                    scope.on_close(attempt.abandon_forgotten)
                    try:
                        with reservation.around():
                            yield stream
                    except BaseException as error:
                        response = stream.get()
                        attempt.abandon(response, error)
                        await self._conclude(attempt, trace_id, error=error)
                        if isinstance(error, Exception):  # what is wrong with an answer that was paid to here
                            await attempt.check_paid(response)
                        raise
                    finally:
                        scope.forget_closer(attempt.abandon_forgotten)
                    response = stream.get()
                    attempt.abandon(response, None)
                    await self._conclude(attempt, trace_id, response)
                    await attempt.check_whole(response)
                    return
            before = await self._wait_or_raise(attempt, failure)

    def _attempt(
        self, scope: Scope, terms: Terms, before: Retry | None, on_record: RequestOnRecord | None
    ) -> RequestAttempt:
        if before is None:
            used = RetriesUsed() if on_record is None else on_record.used
            return RequestAttempt(scope, step_down_if_due(scope, terms), self._run(), used, on_record)
        return RequestAttempt(
            scope,
            step_down_if_due(scope, terms),
            self._run(),
            used=before.used,
            on_record=on_record,
            backoff_ms=before.delay * 1000,
        )

    async def _wait_or_raise(self, attempt: RequestAttempt, error: Exception) -> Retry:
        """Wait until the next attempt; raise the failure where there is none to follow."""
        if not is_transport_failure(error) or isinstance(error, CircuitOpenError):
            raise error
        retry = self._retry_rules().next(error, attempt.used, attempt.scope)
        if retry is None:
            raise error
        attempt.mark_retried()
        await asyncio.sleep(retry.delay)
        return retry

    def _terms(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        *,
        streamed: bool,
    ) -> Terms:
        terms = Terms(self._meter, self.wrapped, messages, settings, parameters, streamed)
        if (run := self._run()) is not None:
            run.output_tools.update(tool.name for tool in parameters.output_tools)
            if run.last is not None and run.rejects_answer:
                run.last.mark("retried")
        return terms

    def _on_record(self, scope: Scope, terms: Terms) -> RequestOnRecord | None:
        """Its place in the run, where that is on record."""
        durable, run = current_durable_run.get(), current_agent_run.get()
        if durable is None:
            return None
        call = "" if run is None else run.call
        if run is not None and run.meter is not self._meter:
            call = f"{call}/"  # a plain agent, called by a tool
        return RequestOnRecord.of(
            durable,
            scope,
            call=call,
            attempt=1 if run is None else run.attempt,
            model=f"{terms.provider}:{terms.model}",
            messages=terms.messages,
            settings=terms.settings,
            parameters=terms.parameters,
            rejects=run is not None and run.meter is self._meter and run.rejects_answer,
        )

    def _replayed(self, known: KnownResponse) -> ModelResponse:
        """A response that was paid for before: the latest of this run, as if it had just come."""
        if (run := self._run()) is not None:
            run.last, run.call = known.charge, known.call
        return known.response

    def _run(self) -> AgentRun | None:
        run = current_agent_run.get()
        return run if run is not None and run.meter is self._meter else None

    def _retry_rules(self) -> RetryRules:
        run = self._run()
        if run is None:
            return RetryRules.counted(self._meter.request_retries, REQUEST_RETRY_DELAY)
        if run.retry is not None:
            return RetryRules(run.retry, run.classifiers)
        return RetryRules.counted(run.request_retries, REQUEST_RETRY_DELAY, run.classifiers)

    async def _open_span(self, stack: AsyncExitStack, attempt: RequestAttempt) -> str:
        tracer, terms = attempt.scope.tracer, attempt.terms
        if tracer is None:
            return ""
        return await stack.enter_async_context(
            tracer.span(
                attributes.request_span(terms.model),
                **attributes.request_attributes(
                    model=terms.model,
                    provider=terms.provider,
                    base_url=base_url_of(terms.wrapped),
                    streamed=terms.streamed,
                    attempt=attempt.used.attempt,
                ),
            )
        )

    async def _conclude(
        self,
        attempt: RequestAttempt,
        trace_id: str,
        response: ModelResponse | None = None,
        *,
        error: BaseException | None = None,
    ) -> None:
        """Note the end of a request on record and in its span, and tell who wants to know."""
        assert attempt.charge is not None
        assert attempt.reservation is not None
        await attempt.note_end(response, error)
        tracer = attempt.scope.tracer
        if tracer is not None and trace_id:
            log_metrics(tracer, trace_id, attributes.response_attributes(attempt.charge.record))
            if attempt.held_back:
                log_metrics(tracer, trace_id, {attributes.LIMIT_WAITED_MS: attempt.waited_ms})
            if attempt.reservation.is_limited:
                log_metrics(tracer, trace_id, attempt.budget_attributes())
        # Whoever is cancelled has no time to wait for listeners; they are told with the next event.
        if error is None or isinstance(error, Exception):
            await attempt.reservation.conclude()
