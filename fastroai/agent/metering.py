"""The one place where model requests are admitted, priced and charged.

A capability puts a `MeteredModel` around every leaf model of a run, inside fallback models and other
wrappers too. PydanticAI asks for it before each request, after all hooks, so it sees the final model and
settings, and it is the same for `run`, `run_stream`, `run_stream_events` and `iter`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Literal, Self

from pydantic_ai import RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryFeedbackPart,
    ToolCallPart,
    ToolReturnPart,
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
from pydantic_ai.usage import RequestUsage

from fastroai.agent.models import ModelCache
from fastroai.agent.permits import RequestPermit
from fastroai.agent.replay import KnownResponse, RequestOnRecord, execute_tool
from fastroai.errors import AnswerCutError, CircuitOpenError
from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import (
    BudgetRefused,
    BudgetView,
    Charge,
    CircuitBreaker,
    Classifier,
    Reservation,
    RetriesUsed,
    Retry,
    RetryPolicies,
    RetryRules,
    Scope,
    admit,
    billing_of,
    current_scope,
    is_transport_failure,
    step_down_if_due,
)
from fastroai.runtime.tasks import end_task
from fastroai.store.runs import current_durable_run
from fastroai.tracing import AttributeValue, attributes, log_metrics
from fastroai.usage import (
    CostCalculator,
    ModelFallback,
    RequestBound,
    base_url_of,
    prepare_bound,
    request_bound,
)

REQUEST_RETRY_DELAY: Final = 0.5
"""Seconds; the base of the backoff between attempts at a request, as in the providers' own SDKs."""

_LOCAL_SYSTEMS: Final = frozenset({"test", "function"})
"""PydanticAI's models that send nothing anywhere, and give no finish reason."""


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
            run.rejects_answer = _rejects_answer(request_context.messages)
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


@dataclass
class AgentRun:
    """What the meter and one `FastroAgent` run tell each other."""

    meter: Metered
    request_retries: int
    """Extra attempts at each request of this run."""
    call: str = ""
    """What tells this call from others of the same attempt at a step, in a run that is on record."""
    attempt: int = 1
    """Which attempt at that call it is."""
    retry: RetryPolicies | None = None
    """What holds instead of `request_retries`, inside a step that says it."""
    classifiers: tuple[Classifier, ...] = ()
    refuses_cut_answers: bool = False
    """Whether an answer that broke off is a failure; where its text is read as it comes, it is too late."""
    circuit_breaker: CircuitBreaker | None = None
    """The agent's own."""
    output_tools: set[str] = field(default_factory=set)
    """Names of the tools through which the model was asked for structured output."""
    last: Charge | None = None
    """The latest answer of this run."""
    rejects_answer: bool = False
    """Whether the request that is made asks again for what that one was to give."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks of this run that PydanticAI has made: for the hooks around it, and for each stream."""

    def add_task(self) -> None:
        """The running task is one of them."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def end_tasks(self) -> None:
        """End those that are left: PydanticAI forgets one that is cancelled just as it has begun."""
        for task in self.tasks - {asyncio.current_task()}:
            await end_task(task)


current_agent_run: Final[ContextVar[AgentRun | None]] = ContextVar("fastroai_agent_run", default=None)
"""The innermost `FastroAgent` run; plain agents in its tools share it, so readers compare the meter."""


@dataclass
class _Terms:
    """One request, and what admission wants to know of it, computed when it is asked for."""

    meter: Metered
    wrapped: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters
    streamed: bool
    known_bound: RequestBound | None = None

    @property
    def model(self) -> str:
        return self.wrapped.model_name

    @property
    def provider(self) -> str:
        return self.wrapped.system

    @property
    def is_local(self) -> bool:
        return self.provider in _LOCAL_SYSTEMS

    @cached_property
    def priced(self) -> bool:
        return self.meter.calculator.has_price(self.model, self.provider, base_url_of(self.wrapped))

    @cached_property
    def bound(self) -> RequestBound:
        return self.known_bound or request_bound(
            self.meter.calculator, self.wrapped, self.messages, self.settings, self.parameters
        )

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> _Terms | None:
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        if bound is self.bound:
            return self
        if bound is None or bound.output_tokens is None:
            return None
        settings: ModelSettings = {**(self.settings or {}), "max_tokens": bound.output_tokens}
        return replace(self, settings=settings, known_bound=bound)

    def stepped_down(self, fallback: ModelFallback) -> _Terms:
        model = self.meter.fallback_model(fallback)
        return self if model is self.wrapped else replace(self, wrapped=model, known_bound=None)

    def returned_tools(self, output_tools: Collection[str]) -> tuple[str, ...]:
        """The tools whose returns this request brings to the model."""
        names = (part.tool_name for part in self._news() if isinstance(part, ToolReturnPart))
        return tuple(dict.fromkeys(name for name in names if name not in output_tools))

    def _news(self) -> Sequence[ModelRequestPart]:
        return _news(self.messages)


@dataclass
class _Attempt:
    """One attempt at a request, from its admission to its end in the account."""

    scope: Scope
    terms: _Terms
    run: AgentRun | None
    used: RetriesUsed = field(default_factory=RetriesUsed)
    on_record: RequestOnRecord | None = None
    reservation: Reservation[_Terms] | None = None
    stream: StreamedResponse | None = None
    charge: Charge | None = None
    permit: RequestPermit | None = None
    held_back: bool = False
    """Whether a provider limit or a circuit breaker could hold it back."""
    backoff_ms: float = 0.0
    waited_ms: float = 0.0
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=perf_counter)

    async def admit(self) -> Reservation[_Terms]:
        """Wait until it may go out; then it is perhaps another request than was asked for."""
        if self.scope.account is not None or self.scope.ceilings:
            await prepare_bound(self.terms.wrapped, self.terms.messages, self.terms.parameters)
        breaker = None if self.run is None else self.run.circuit_breaker
        if breaker is None and not self.scope.provider_limits:
            self.reservation = await admit(self.scope, self.terms)
        else:
            self.reservation = await self._admit_in_turn(breaker)
        self.terms = self.reservation.terms
        self.waited_ms = (perf_counter() - self.started) * 1000
        self.started_at, self.started = datetime.now(UTC), perf_counter()
        if self.on_record is not None:
            await self._put_on_record(self.on_record)
        return self.reservation

    async def _put_on_record(self, on_record: RequestOnRecord) -> None:
        """Before it goes out, so that it counts whatever becomes of this process."""
        assert self.reservation is not None
        try:
            await prepare_bound(self.terms.wrapped, self.terms.messages, self.terms.parameters)
            bound = self.terms.bound
            record = self._record("unmeasured", error="nothing more was heard of it")
            record = replace(record, bound_usd=bound.cost_usd, bound_tokens=bound.tokens)
            await on_record.sent(record)
        except BaseException as error:
            if self.permit is not None:
                self.permit.give_back()
            released = self._record("released", error=f"not sent: {attributes.error_summary(error)}")
            self.charge = self.reservation.release(released)
            on_record.ended_soon(released, None)  # for whoever is cancelled, it is on record as sent
            raise

    async def _admit_in_turn(self, breaker: CircuitBreaker | None) -> Reservation[_Terms]:
        """Wait for the provider, then for the budgets: whoever holds money waits for nobody's place."""
        terms = self.terms
        while True:
            permit = RequestPermit(self.scope, breaker, terms.wrapped)
            await permit.take(terms.messages, terms.settings, terms.parameters)
            try:
                reservation = await admit(self.scope, terms)
            except BaseException:
                permit.give_back()
                raise
            if reservation.terms.wrapped is terms.wrapped:
                break
            # A budget has stepped down to another model, for which this is no permit.
            terms = replace(terms, wrapped=reservation.terms.wrapped, known_bound=None)
            reservation.give_back()
            permit.give_back()
        reservation.note_place()
        permit.send()
        self.permit, self.held_back = permit, True
        return reservation

    def _end_permit(self, response: ModelResponse | None, error: BaseException | None) -> None:
        """Others may go, and the provider is well, or is not."""
        permit, self.permit = self.permit, None
        if permit is not None:
            measured = response is not None and _is_measured(
                response, streamed=self.terms.streamed, system=self.terms.provider
            )
            permit.end(response if measured else None, error)

    def open(self, stream: StreamedResponse) -> None:
        """A stream is open: the provider answers."""
        self.stream = stream
        if self.permit is not None:
            self.permit.answered()

    def settle(self, response: ModelResponse) -> None:
        """The response arrived: charge its usage, or its bound if it came without or was cut."""
        self._end_permit(response, None)
        assert self.reservation is not None
        if response.state == "suspended" and not response.usage.has_values():
            # Not answered yet: the provider works on, and the request that continues it brings the usage.
            record = self._record("released", response=response, error="suspended, to be continued")
            self.charge = self.reservation.release(record)
            return
        if not _is_measured(response, streamed=self.terms.streamed, system=self.terms.provider):
            self.charge = self.reservation.charge_unmeasured(self._record("unmeasured", response=response))
            return
        calculator = self.terms.meter.calculator
        cost = calculator.price(response, model=self.terms.model, provider=self.terms.provider)
        record = self._record("settled", response=response, cost_usd=cost)
        self.charge = self.reservation.settle(record)
        if cost is None:
            calculator.warn_unpriced(record.model, record.provider)
        else:
            # PydanticAI would look up the list price once more, and not know our overrides.
            response.usage.cost = cost
        if self.run is not None:
            self.run.last = self.charge

    def fail(self, error: BaseException) -> None:
        """No response arrived: charge nothing where that is sure, else its bound."""
        self._end_permit(None, error)
        assert self.reservation is not None
        text = attributes.error_summary(error)
        if billing_of(error) == "released":
            self.charge = self.reservation.release(self._record("released", error=text))
        else:
            self.charge = self.reservation.charge_unmeasured(self._record("unmeasured", error=text))

    def abandon(self, response: ModelResponse, error: BaseException | None) -> None:
        """An open stream ended: charge its usage if it got that far, else its bound.

        Whatever the error is, it refuses nothing any more, and it may be that of whoever read the stream.
        """
        if self.charge is not None:
            return  # when its scope ended
        self._end_permit(response, error)
        assert self.reservation is not None
        if error is None or _is_measured(response, streamed=True, system=self.terms.provider):
            self.settle(response)
            return
        record = self._record("unmeasured", response=response, error=attributes.error_summary(error))
        self.charge = self.reservation.charge_unmeasured(record)

    async def abandon_forgotten(self) -> None:
        """Its scope ends, and whoever read the stream has not closed it: charge it now."""
        assert self.stream is not None
        self.abandon(self.stream.get(), None)

    async def check_uncut(self, response: ModelResponse) -> None:
        """Raise where this is only the beginning of an answer: a budget paid for no more, or it broke off."""
        stop = None if self.reservation is None else self.reservation.short
        if stop is not None and response.finish_reason == "length":
            stop.partial_response = response
            await self.scope.emit(BudgetRefused(**self.scope.place(), error=stop))
            raise stop
        refused = self.run is not None and self.run.refuses_cut_answers
        if refused and self.charge is not None and self.charge.record.cut:
            cut = AnswerCutError(self.terms.model, self.terms.provider)
            cut.partial_response = response
            raise cut

    def budget_attributes(self) -> dict[str, AttributeValue]:
        """For the span of the request."""
        assert self.reservation is not None
        return attributes.budget_attributes(
            reserved_usd=self.terms.bound.cost_usd,
            share=BudgetView(self.scope).share,
            waited_ms=self.waited_ms,
            lowered=self.reservation.short is not None,
        )

    async def note_end(self, response: ModelResponse | None, error: BaseException | None) -> None:
        """Put on record how it ended, and with which response, before anybody uses that."""
        if self.on_record is None:
            return
        assert self.charge is not None
        if response is not None and self._is_cut(response):
            response = None  # whoever comes by again asks again
        if error is None or isinstance(error, Exception):
            await self.on_record.ended(self.charge.record, response)
        else:
            self.on_record.ended_soon(self.charge.record, response)

    def _is_cut(self, response: ModelResponse) -> bool:
        """Whether it is no answer but the beginning of one."""
        is_short = self.reservation is not None and self.reservation.short is not None
        return (is_short and response.finish_reason == "length") or _is_cut(
            response, streamed=self.terms.streamed, model=self.terms.wrapped
        )

    def mark_retried(self) -> None:
        """Another attempt follows."""
        if self.charge is not None:
            with self.scope.lock:
                self.charge.mark("retried")

    def _record(
        self,
        outcome: Literal["settled", "unmeasured", "released"],
        *,
        response: ModelResponse | None = None,
        cost_usd: Decimal | None = None,
        error: str | None = None,
    ) -> RequestRecord:
        output_tools = self.run.output_tools if self.run is not None else ()
        return RequestRecord(
            model=self.terms.model,
            provider=(response.provider_name if response else None) or self.terms.provider,
            outcome=outcome,
            tokens=_tokens(response.usage) if response else Tokens(),
            cost_usd=cost_usd,
            use="kept" if error is None else "failed",
            tools=self.terms.returned_tools(output_tools),
            response_model=response.model_name if response else None,
            response_id=response.provider_response_id if response else None,
            agent=self.scope.name if self.scope.kind == "agent" else None,
            step_id=self.scope.step_id,
            attempt=self.used.attempt,
            backoff_ms=self.backoff_ms,
            waited_ms=self.waited_ms,
            streamed=self.terms.streamed,
            started_at=self.started_at,
            duration_ms=(perf_counter() - self.started) * 1000,
            finish_reason=response.finish_reason if response else None,
            cut=response is not None
            and _is_cut(response, streamed=self.terms.streamed, model=self.terms.wrapped),
            error=error,
        )


def _news(messages: Sequence[ModelMessage]) -> Sequence[ModelRequestPart]:
    """What the model has not been told before."""
    last = messages[-1] if messages else None
    return last.parts if isinstance(last, ModelRequest) else ()


def _rejects_answer(messages: Sequence[ModelMessage]) -> bool:
    """Whether the model is told nothing but that its answer, or each of its calls, is to be made again."""
    news = _news(messages)
    outcomes = {part.outcome for part in news if isinstance(part, ToolReturnPart)}
    told_again = any(isinstance(part, RetryFeedbackPart) for part in news)
    return outcomes == {"retried"} or (not outcomes and told_again)


def _is_measured(response: ModelResponse, *, streamed: bool, system: str) -> bool:
    """Whether the usage of a response is all there.

    A response without a finish reason was cut: the provider may have counted more than it said. Not only a
    streamed one: PydanticAI streams long answers of Anthropic and Bedrock behind `request` as well.
    """
    if response.usage.unmeasured_requests or not response.usage.has_values():
        return False
    if not streamed and response.state != "complete":
        return False
    if system in _LOCAL_SYSTEMS:
        return response.state == "complete"
    return response.finish_reason is not None


def _is_cut(response: ModelResponse, *, streamed: bool, model: Model) -> bool:
    """Whether an answer broke off before its end, as far as its provider lets one know.

    PydanticAI's own models of providers that stream give a finish reason; other models may have none to give.
    For Chat Completions it makes one up, as some providers that are compatible send none; OpenAI does, and
    after that the usage.
    """
    if response.state != "complete":
        return response.state != "suspended"
    if (
        not streamed
        or model.system in _LOCAL_SYSTEMS
        or not type(model).__module__.startswith("pydantic_ai.")
    ):
        return False
    if "finish_reason" in (response.provider_details or {}):
        return False
    made_up = model.system == "openai" and not response.usage.has_values()
    return response.finish_reason is None or made_up


def _tokens(usage: RequestUsage) -> Tokens:
    return Tokens(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        input_audio_tokens=usage.input_audio_tokens,
        cache_audio_read_tokens=usage.cache_audio_read_tokens,
        output_audio_tokens=usage.output_audio_tokens,
        reasoning_tokens=usage.output_reasoning_tokens,
    )


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

    async def _send(self, attempt: _Attempt) -> ModelResponse:
        async with AsyncExitStack() as stack:
            trace_id = await self._open_span(stack, attempt)
            reservation = await attempt.admit()
            terms = attempt.terms
            try:
                with reservation.around():
                    response = await terms.wrapped.request(terms.messages, terms.settings, terms.parameters)
            except BaseException as error:
                attempt.fail(error)
                await self._conclude(attempt, trace_id, error=error)
                raise
            attempt.settle(response)
            await self._conclude(attempt, trace_id, response)
        await attempt.check_uncut(response)
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
                        if isinstance(error, Exception):  # what is wrong with a cut answer is that it is cut
                            await attempt.check_uncut(response)
                        raise
                    finally:
                        scope.forget_closer(attempt.abandon_forgotten)
                    response = stream.get()
                    attempt.abandon(response, None)
                    await self._conclude(attempt, trace_id, response)
                    await attempt.check_uncut(response)
                    return
            before = await self._wait_or_raise(attempt, failure)

    def _attempt(
        self, scope: Scope, terms: _Terms, before: Retry | None, on_record: RequestOnRecord | None
    ) -> _Attempt:
        if before is None:
            used = RetriesUsed() if on_record is None else on_record.used
            return _Attempt(scope, step_down_if_due(scope, terms), self._run(), used, on_record)
        return _Attempt(
            scope,
            step_down_if_due(scope, terms),
            self._run(),
            used=before.used,
            on_record=on_record,
            backoff_ms=before.delay * 1000,
        )

    async def _wait_or_raise(self, attempt: _Attempt, error: Exception) -> Retry:
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
    ) -> _Terms:
        terms = _Terms(self._meter, self.wrapped, messages, settings, parameters, streamed)
        if (run := self._run()) is not None:
            run.output_tools.update(tool.name for tool in parameters.output_tools)
            if run.last is not None and run.rejects_answer:
                run.last.mark("retried")
        return terms

    def _on_record(self, scope: Scope, terms: _Terms) -> RequestOnRecord | None:
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

    async def _open_span(self, stack: AsyncExitStack, attempt: _Attempt) -> str:
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
        attempt: _Attempt,
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
