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
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Literal, Self

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import (
    Reservation,
    Scope,
    admit,
    backoff_delay,
    billing_of,
    current_scope,
    is_transport_failure,
    mark_exhausted,
    retry_after,
)
from fastroai.tracing import attributes, log_metrics
from fastroai.usage import CostCalculator, base_url_of, request_bound

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

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Meter every leaf of the model that serves a request."""
        known = self._wrapped.get(id(model))
        if known is not None and known[0] is model:
            return known[1]
        wrapper = self._meter(model)
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
    output_tools: set[str] = field(default_factory=set)
    """Names of the tools through which the model was asked for structured output."""


current_agent_run: Final[ContextVar[AgentRun | None]] = ContextVar("fastroai_agent_run", default=None)
"""The innermost `FastroAgent` run; plain agents in its tools share it, so readers compare the meter."""


@dataclass
class _Terms:
    """What admission wants to know of a request, computed when it is asked for."""

    meter: Metered
    wrapped: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters

    @property
    def model(self) -> str:
        return self.wrapped.model_name

    @property
    def provider(self) -> str:
        return self.wrapped.system

    @cached_property
    def priced(self) -> bool:
        return self.meter.calculator.has_price(self.model, self.provider, base_url_of(self.wrapped))

    @cached_property
    def bound_usd(self) -> Decimal | None:
        bound = request_bound(
            self.meter.calculator, self.wrapped, self.messages, self.settings, self.parameters
        )
        return bound.cost_usd


@dataclass
class _Attempt:
    """One attempt at a request, from its admission to its end in the account."""

    scope: Scope
    terms: _Terms
    reservation: Reservation
    number: int
    streamed: bool
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=perf_counter)

    def settle(self, response: ModelResponse) -> RequestRecord:
        """The response arrived: charge its usage, or its bound if it came without or was cut."""
        if response.state == "suspended" and not response.usage.has_values():
            # Not answered yet: the provider works on, and the request that continues it brings the usage.
            record = self._record("released", response=response, error="suspended, to be continued")
            self.reservation.release(record)
            return record
        if not _is_measured(response, streamed=self.streamed, system=self.terms.provider):
            return self.reservation.charge_unmeasured(self._record("unmeasured", response=response))
        calculator = self.terms.meter.calculator
        cost = calculator.price(response, model=self.terms.model, provider=self.terms.provider)
        record = self._record("settled", response=response, cost_usd=cost)
        self.reservation.settle(record)
        if cost is None:
            calculator.warn_unpriced(record.model, record.provider)
        else:
            # PydanticAI would look up the list price once more, and not know our overrides.
            response.usage.cost = cost
        return record

    def fail(self, error: BaseException) -> RequestRecord:
        """No response arrived: charge nothing where that is sure, else its bound."""
        text = attributes.error_summary(error)
        if billing_of(error) == "released":
            record = self._record("released", error=text)
            self.reservation.release(record)
            return record
        return self.reservation.charge_unmeasured(self._record("unmeasured", error=text))

    def abandon(self, response: ModelResponse, error: BaseException | None) -> RequestRecord:
        """An open stream ended: charge its usage if it got that far, else its bound.

        Whatever the error is, it refuses nothing any more, and it may be that of whoever read the stream.
        """
        if error is None or _is_measured(response, streamed=True, system=self.terms.provider):
            return self.settle(response)
        record = self._record("unmeasured", response=response, error=attributes.error_summary(error))
        return self.reservation.charge_unmeasured(record)

    def _record(
        self,
        outcome: Literal["settled", "unmeasured", "released"],
        *,
        response: ModelResponse | None = None,
        cost_usd: Decimal | None = None,
        error: str | None = None,
    ) -> RequestRecord:
        return RequestRecord(
            model=self.terms.model,
            provider=(response.provider_name if response else None) or self.terms.provider,
            outcome=outcome,
            tokens=_tokens(response.usage) if response else Tokens(),
            cost_usd=cost_usd,
            response_model=response.model_name if response else None,
            response_id=response.provider_response_id if response else None,
            agent=self.scope.name if self.scope.kind == "agent" else None,
            step_id=self.scope.step_id,
            attempt=self.number,
            streamed=self.streamed,
            started_at=self.started_at,
            duration_ms=(perf_counter() - self.started) * 1000,
            finish_reason=response.finish_reason if response else None,
            error=error,
        )


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


class MeteredModel(WrapperModel):
    """A model whose requests are admitted, retried, priced and charged in the scope that they happen in."""

    def __init__(self, wrapped: Model, meter: Metered) -> None:
        super().__init__(wrapped)
        self._meter = meter

    async def __aenter__(self) -> Self:
        # The model inside belongs to the agent, which opens and closes it; a request must do neither.
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return None

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
        terms = self._terms(messages, model_settings, model_request_parameters)
        number = 1
        while True:
            try:
                return await self._send(scope, terms, number)
            except Exception as error:
                await self._wait_or_raise(scope, number, error)
                number += 1

    async def _send(self, scope: Scope, terms: _Terms, number: int) -> ModelResponse:
        async with AsyncExitStack() as stack:
            trace_id = await self._open_span(stack, scope, number, streamed=False)
            attempt = _Attempt(scope, terms, admit(scope, terms), number, streamed=False)
            try:
                response = await self.wrapped.request(terms.messages, terms.settings, terms.parameters)
            except BaseException as error:
                self._close_span(scope, trace_id, attempt.fail(error))
                raise
            self._close_span(scope, trace_id, attempt.settle(response))
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
        terms = self._terms(messages, model_settings, model_request_parameters)
        number = 1
        while True:
            async with AsyncExitStack() as stack:
                trace_id = await self._open_span(stack, scope, number, streamed=True)
                attempt = _Attempt(scope, terms, admit(scope, terms), number, streamed=True)
                failure: Exception | None = None
                try:
                    stream = await stack.enter_async_context(
                        self.wrapped.request_stream(
                            messages, model_settings, model_request_parameters, run_context
                        )
                    )
                except BaseException as error:
                    self._close_span(scope, trace_id, attempt.fail(error))
                    if not isinstance(error, Exception):
                        raise
                    failure = error
                else:
                    try:
                        yield stream
                    except BaseException as error:
                        self._close_span(scope, trace_id, attempt.abandon(stream.get(), error))
                        raise
                    self._close_span(scope, trace_id, attempt.abandon(stream.get(), None))
                    return
            await self._wait_or_raise(scope, number, failure)
            number += 1

    async def _wait_or_raise(self, scope: Scope, number: int, error: Exception) -> None:
        """Wait until the next attempt; raise the failure where there is none to follow."""
        if not is_transport_failure(error):
            raise error
        delay = backoff_delay(number, REQUEST_RETRY_DELAY, retry_after(error))
        if number > self._extra_attempts() or not scope.has_time_for(delay):
            mark_exhausted(error)
            raise error
        await asyncio.sleep(delay)

    def _terms(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> _Terms:
        if (run := self._run()) is not None:
            run.output_tools.update(tool.name for tool in parameters.output_tools)
        return _Terms(self._meter, self.wrapped, messages, settings, parameters)

    def _run(self) -> AgentRun | None:
        run = current_agent_run.get()
        return run if run is not None and run.meter is self._meter else None

    def _extra_attempts(self) -> int:
        run = self._run()
        return self._meter.request_retries if run is None else run.request_retries

    async def _open_span(self, stack: AsyncExitStack, scope: Scope, number: int, *, streamed: bool) -> str:
        if scope.tracer is None:
            return ""
        return await stack.enter_async_context(
            scope.tracer.span(
                attributes.request_span(self.wrapped.model_name),
                **attributes.request_attributes(
                    model=self.wrapped.model_name,
                    provider=self.wrapped.system,
                    base_url=base_url_of(self.wrapped),
                    streamed=streamed,
                    attempt=number,
                ),
            )
        )

    def _close_span(self, scope: Scope, trace_id: str, record: RequestRecord) -> None:
        if scope.tracer is not None and trace_id:
            log_metrics(scope.tracer, trace_id, attributes.response_attributes(record))
