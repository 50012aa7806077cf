"""The one place where model requests are admitted, priced and charged.

A capability puts a `MeteredModel` around every leaf model of a run, inside fallback models and other
wrappers too, where it sees the final model and settings. This holds for `run`, `run_stream`,
`run_stream_events` and `iter`. The capability acts before the hooks of all other capabilities, as they can
make requests of their own (`OpenAICompaction` does), and after them, as they can put another model there.
Code of the user gets a metered model, too: `RunContext.model` is a `LentModel`.
"""

from __future__ import annotations

import asyncio
import functools
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pydantic_ai import RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ModelAPIError, SuspendedResponseExpired
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
from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from fastroai.agent.agent_run import AgentRun, agent_run_of
from fastroai.agent.config import DEFAULT_REQUEST_RETRIES, REQUEST_RETRY_DELAY
from fastroai.agent.models import ModelCache, note_loop, providers_of, repeated_by_sdk, retries_of
from fastroai.agent.other_models import batches
from fastroai.agent.other_models.batching import current_batching
from fastroai.agent.other_models.unanswered import Unanswered, continued_job, current_plain_run, works_on
from fastroai.agent.other_models.unmetered import FollowedMethods, refuse_in_runs, refuse_session
from fastroai.agent.quotes.learned import PastRequests, UsualRequest
from fastroai.agent.requests.inner_models import InnerModels
from fastroai.agent.requests.request_attempt import Outgrown, RequestAttempt
from fastroai.agent.requests.request_terms import BatchTerms, CompactionTerms, Terms, rejects_answer
from fastroai.agent.requests.run_responses import (
    RunResponses,
    charge_unmetered,
    current_responses,
    note_metered,
)
from fastroai.errors import BudgetExceeded, CircuitOpenError, ConfigurationError
from fastroai.pydantic_ai_private import id_in_batch, is_batched, lend_model_to_run, refresh_http_client
from fastroai.runtime import NO_RETRIES_USED, Retry, RetryRules, Scope, current_scope, is_transport_failure
from fastroai.runtime.budgets.admission import step_down_if_due
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.scope import current_tool_calls
from fastroai.store.record.log_of_scope import log_of
from fastroai.tracing import Tracer, attributes
from fastroai.usage import (
    CostCalculator,
    ModelFallback,
    base_url_of,
)
from fastroai.usage.money import Amount, ExactUsd, exact_dollars
from fastroai.usage.prices.pricing import calculator_of

if TYPE_CHECKING:
    from pydantic_ai.capabilities import AgentNode
    from pydantic_ai.embeddings import EmbeddingModel
    from pydantic_ai.images import ImageGenerationModel
    from pydantic_ai.models.decision import DecisionModelSettings, DecisionRequest, DecisionResponse
    from pydantic_ai.providers import Provider
    from pydantic_ai.realtime import RealtimeModel

    from fastroai.agent.requests.recorded_requests import KnownResponse, RequestOnRecord

_MOST_KNOWN: Final = 16


@dataclass(init=False)
class Metered(AbstractCapability[Any]):
    """Charges the requests of a plain PydanticAI agent to the FastroAI run or `budget_scope` around the call.

    The budgets there refuse requests that they cannot pay for. A request that fails in transport is sent
    again. If a store keeps the run, the responses and tool results of the agent are on record, and a resumed
    run does not repeat them. A `FastroAgent` does all this by itself. Outside of any run and `budget_scope`,
    this capability does nothing.

        researcher = Agent("openai:gpt-5-mini", capabilities=[Metered()])
    """

    calculator: CostCalculator = field(repr=False)
    request_retries: int | None

    def __init__(
        self, cost_calculator: CostCalculator | None = None, *, request_retries: int | None = None
    ) -> None:
        """Meter with `cost_calculator`'s prices.

        Args:
            cost_calculator: Prices; by default the list prices of genai-prices.
            request_retries: Extra attempts at a request after a transport failure. By default the
                `max_retries` of its settings or of the client of its SDK, which does not retry then; else 2.
                0 for models of embeddings and images that are not given by name, as their SDKs retry.

        Raises:
            ConfigurationError: `cost_calculator` is not a `CostCalculator`.
        """
        super().__init__()
        self.calculator = calculator_of(cost_calculator, CostCalculator())
        self.request_retries = request_retries
        self.past_requests = PastRequests(UsualRequest.of)
        self.unanswered = Unanswered()
        self._metered: tuple[_Known, ...] = ()

    @cached_property
    def models(self) -> ModelCache:
        """The models that were built by name, for the agent of this meter and for budgets over its runs."""
        return ModelCache()

    def get_ordering(self) -> CapabilityOrdering:
        """Return the order "outermost", because other capabilities may make requests, which are metered."""
        return CapabilityOrdering(position="outermost")

    def model(self, model: Model | str) -> Model:
        """Return the model with this meter, for requests that you make without an agent.

            await pydantic_ai.direct.model_request(Metered().model("openai:gpt-5-mini"), messages)

        In a run or `budget_scope`, the cost of its requests is reserved in budgets and charged. Outside, they
        are only sent. If you give a name, the meter retries in a run or `budget_scope`, and the SDK outside,
        as often as `request_retries` says.

        Raises:
            UnknownModelError: the name does not say which provider has the model.
            ConfigurationError: `model` is neither a name nor a model.
            MissingExtraError: the packages of its provider are not installed.
        """
        if not isinstance(model, Model | str):
            raise ConfigurationError("model", model, "'provider:model', or a PydanticAI Model")
        return self._metered_model(self.models.get(model) if isinstance(model, str) else model)

    def purchase_retries(self, built_by_name: bool) -> int:
        """Return how many extra attempts a request for embeddings or images gets: `request_retries`, if set.

        Otherwise, a model that FastroAI has built from its name (`built_by_name`) gets 2, and a model object
        of the user gets none, because its SDK retries by itself.
        """
        if self.request_retries is not None:
            return self.request_retries
        return DEFAULT_REQUEST_RETRIES if built_by_name else 0  # the SDK of the user's own model retries

    def embedding_model(self, model: EmbeddingModel | str) -> EmbeddingModel:
        """Return an embedding model whose requests are reserved in budgets and charged.

            embedder = Embedder(Metered().embedding_model("openai:text-embedding-3-small"))

        Like other spending outside of model requests, embeddings do not count in `Budget(requests=)`.

        Raises:
            ConfigurationError: `model` is neither a name nor an embedding model.
            MissingExtraError: the packages of its provider are not installed.
        """
        from pydantic_ai.embeddings import EmbeddingModel  # slow to load, and few need it

        from fastroai.agent.other_models.embeddings import MeteredEmbeddingModel

        if not isinstance(model, EmbeddingModel | str):
            raise ConfigurationError("model", model, "'provider:model', or a PydanticAI EmbeddingModel")
        return MeteredEmbeddingModel(model, self.calculator, self.purchase_retries(isinstance(model, str)))

    def image_model(
        self, model: ImageGenerationModel | str, *, most_usd: Amount | None = None
    ) -> ImageGenerationModel:
        """Return a model that makes images, whose requests are reserved in budgets and charged.

            generator = ImageGenerator(Metered().image_model("openai:gpt-image-2", most_usd="0.25"))

        Like other spending outside of model requests, images do not count in `Budget(requests=)`.

        Args:
            model: The model, or its name.
            most_usd: The most that one call can cost, in US dollars. Budgets of money need it where nothing
                documented bounds the images; elsewhere it replaces the documented bound.

        Raises:
            ConfigurationError: `model` is neither a name nor a model that makes images, or `most_usd` is not
                a valid amount.
            MissingExtraError: the packages of its provider are not installed.
        """
        from pydantic_ai.images import ImageGenerationModel  # slow to load, and few need it

        from fastroai.agent.other_models.images import MeteredImageModel

        if not isinstance(model, ImageGenerationModel | str):
            raise ConfigurationError("model", model, "'provider:model', or a PydanticAI ImageGenerationModel")
        return MeteredImageModel(
            model,
            self.calculator,
            None if most_usd is None else exact_dollars("most_usd", most_usd),
            self.purchase_retries(isinstance(model, str)),
        )

    def realtime_model(self, model: RealtimeModel | str) -> RealtimeModel:
        """Return a copy of a realtime model that refuses sessions inside of runs and of `budget_scope`.

        FastroAI cannot follow what a session costs. To open one there, or to speak in one that was opened
        outside, raises `UnmeteredRequestError`, except inside `spend`, which sets aside what it may cost:

            async with ctx.spend("0.50") as purchase, agent.realtime(model).session() as session:
                ...
                purchase.settle("0.21")

        Raises:
            ConfigurationError: `model` is neither a name nor a realtime model.
            MissingExtraError: the packages of its provider are not installed.
        """
        from pydantic_ai.realtime import RealtimeModel  # slow to load, and few need it

        from fastroai.agent.other_models.realtime import metered_realtime

        if not isinstance(model, RealtimeModel | str):
            raise ConfigurationError("model", model, "'provider:model', or a PydanticAI RealtimeModel")
        return metered_realtime(model)

    def fallback_model(self, fallback: ModelFallback) -> Model:
        """Return the model that a budget steps down to: the one in `fallback`, or the one built by its name.

        Raises:
            UnknownModelError: the name does not say which provider has the model.
            MissingExtraError: the packages of its provider are not installed.
        """
        if isinstance(fallback.use, str):
            return self.models.get(fallback.use)
        # As PydanticAI does for the model of a run: it gets a new client if the last loop has ended.
        refresh_http_client(OwnedModel(fallback.use))
        return fallback.use

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Give the context of an agent's run a metered model, and return this capability.

        PydanticAI calls this when a run begins. It also calls this when a realtime session is opened, and
        when the token is requested with which a browser opens one. Inside a run, these two are refused.

        Raises:
            UnmeteredRequestError: the call is inside of a run, and not inside of `spend`.
        """
        if not isinstance(ctx.model, Model):  # else a RealtimeModel, a class that takes time to import
            refuse_session(ctx.model)
        else:
            ctx.model = self._lent_model(ctx.model)  # for others that build what they need for the run
        return self

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent, return its result, and charge the responses of the run that no meter has seen.

        Other code has asked a model for these and put them into the run. They are charged as unmeasured
        requests, at the price of their usage, also if the run fails. Outside of any run and `budget_scope`,
        this only runs the agent. PydanticAI calls this around each run.
        """
        scope = current_scope()
        if scope is None:
            return await handler()
        responses = RunResponses(current_responses.get())
        current_responses.set(
            responses
        )  # PydanticAI calls this method in a context of its own, which the run inherits
        try:
            run = agent_run_of(scope)
            if run is not None and run.meter is self:
                run.follow(ctx)
                return await handler()
            plain_run = object()
            current_plain_run.set(plain_run)
            try:
                return await handler()
            finally:
                await self.unanswered.leave(plain_run)
        finally:
            for response in responses.unmetered(ctx.run_id):
                charge_unmetered(scope, response, self.calculator)

    async def before_node_run(self, ctx: RunContext[Any], *, node: AgentNode[Any]) -> AgentNode[Any]:
        """Return the node unchanged, after noting the messages of the run so far.

        Each `RunContext` that PydanticAI makes from here on has a metered model as its `model`. PydanticAI
        calls this before each node of the agent's graph.
        """
        if (responses := current_responses.get()) is not None:
            responses.messages = ctx.messages
        model = ctx.model
        if (
            not (isinstance(model, LentModel) and model.meter is self)
            and isinstance(model, Model)
            and self._lent_model(model) is not model
        ):
            lend_model_to_run(node, self._lent_model)
        return node

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the model of the request by a metered one, and return the request context.

        A metered model reserves the cost in budgets, sends the request, tries again after a transport
        failure, and charges the cost. PydanticAI calls this before each request.
        """
        run = agent_run_of(current_scope())
        if run is not None and run.meter is self:
            run.follow(ctx)
            if run.last is not None or run.call:  # else no batch is known, neither in this run nor on record
                run.rejects_answer = rejects_answer(request_context.messages)
        request_context.model = self._metered_model(request_context.model)
        return request_context

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return a metered model for one that a hook has put in place of the metered one.

        Returns `None` if the model is metered already, so that it is used as it is. PydanticAI calls this
        when a request is complete, after all other hooks.
        """
        metered = model
        if not _is_metered(model, MeteredModel) or _is_metered(model, LentModel):
            metered = self._metered_model(model)
            metered = metered if isinstance(metered, MeteredModel) else OwnedModel(metered)
        if (batching := current_batching.get()) is not None:
            metered = batching.get_wrapper_model(metered) or metered
        if is_batched(metered) and isinstance(of := metered.wrapped, MeteredModel):
            metered = BatchedOnRecord(metered, of)
        return None if metered is model else metered

    def _metered_model(self, model: Model) -> Model:
        return self._known(model).metered

    def _lent_model(self, model: Model) -> Model:
        return self._known(model).lent

    def _known(self, model: Model) -> _Known:
        loop = running_loop()
        for known in self._metered:
            if (known.model is model or known.lent is model) and known.loop is loop:
                break
        else:
            metered, lent = self._replaced(model, self._own), self._replaced(model, self._lent)
            known = _Known(model, loop, metered, lent, providers_of(metered))
            self._metered = (known, *self._metered[: _MOST_KNOWN - 1])
        if known.providers:
            note_loop(known.providers, loop)
        return known

    def _replaced(self, model: Model, replace: Callable[[Model], MeteredModel]) -> Model:
        inner = InnerModels(is_leaf=lambda each: isinstance(each, MeteredModel), beside=self._lent)
        return inner.replaced(model, replace)

    def _own(self, model: Model) -> MeteredModel:
        if isinstance(model, MeteredModel):
            if model.meter is self and not isinstance(model, LentModel):
                return model
            model = model.wrapped
        return MeteredModel(self.models.here(model), self)

    def _lent(self, model: Model) -> MeteredModel:
        if isinstance(model, LentModel) and model.meter is self:
            return model
        return LentModel(model.wrapped if isinstance(model, MeteredModel) else model, self)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Call a tool, put its result on record, and return it. If it is on record already, return that.

        The result is on record only if a store keeps the run; otherwise the tool is called each time. An
        exception of the tool for the model, such as `ModelRetry`, is a result too, and is raised again. A
        tool with the metadata `{"repeatable": True}` is called each time. PydanticAI calls this around each
        tool call.

        Raises:
            ValueNotStorable: a store keeps the run, and cannot store the result.
        """
        scope = current_scope()
        run = agent_run_of(scope)
        if scope is not None and scope.receiving:
            scope.hand_on()
        if scope is None or (log := log_of(scope)) is None:
            return await handler(args)
        from fastroai.agent.requests.recorded_requests import execute_tool  # late: only runs have a log

        made = execute_tool(
            log,
            scope,
            agent_call="" if run is None else run.call,
            attempt=1 if run is None else run.attempt,
            anew="" if run is None or run.on_record is None else run.on_record.anew,
            call=call,
            tool=tool_def,
            args=args,
            handler=handler,
        )
        if run is None or log.run is None:
            return await made
        return await run.beside(current_tool_calls.get().key).make(made)


class _Known(NamedTuple):
    """A model that was metered for an event loop."""

    model: Model
    loop: AbstractEventLoop | None
    metered: Model
    """The model for requests of the agent itself."""
    lent: Model
    """The model for code of the user, as `RunContext.model`."""
    providers: Sequence[Provider[Any]]
    """The clients of the model, which it uses on that loop."""


def _is_metered(model: Model, kind: type[MeteredModel]) -> bool:
    """Return whether each leaf of a model is metered by this class, or one derived from it."""
    if isinstance(model, MeteredModel):
        return isinstance(model, kind)
    if isinstance(model, FallbackModel):
        return all(_is_metered(candidate, kind) for candidate in model.models)
    return isinstance(model, WrapperModel) and _is_metered(model.wrapped, kind)


def _as_sent(attempt: RequestAttempt, terms: Terms) -> Terms:
    """Return the terms for another admission of a request that was larger than it was admitted."""
    seen = attempt.outgrown
    assert seen is not None
    if seen.wrapped is not terms.wrapped:  # a budget has stepped down to another model
        return seen
    return replace(terms, besides=seen.besides, besides_in=seen.besides_in, known_bound=None)


class OwnedModel(WrapperModel):
    """A model that belongs to the agent, which opens and closes it; a request must do neither.

    Else a `FallbackModel` would wait at its lock, which several event loops must not share.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


class MeteredModel(FollowedMethods, OwnedModel):
    """A model whose requests are admitted, retried, priced and charged in the scope that they happen in.

    The methods that it does not override send nothing that is billed: they count tokens, and ask about
    batches or cancel them.
    """

    def __init__(self, wrapped: Model, meter: Metered) -> None:
        super().__init__(wrapped)
        self.meter, self.calculator = meter, meter.calculator

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request, and again after a transport failure; or ask for an answer that is in progress."""
        scope = current_scope()
        if scope is None:
            settings = self._outside_of_runs(model_settings)
            return await self.wrapped.request(messages, settings, model_request_parameters)
        job = continued_job(messages)
        if job is not None and (waiting := self._waiting(scope, job)) is not None:
            ask = functools.partial(
                waiting.terms.wrapped.request, messages, model_settings, model_request_parameters
            )
            response = await self._ask_about(waiting, ask)
            note_metered(response)
            return response
        terms = Terms(
            self.meter, self.wrapped, messages, model_settings, model_request_parameters, streamed=False
        )
        run = self._run(scope)
        self._note_parameters(run, model_request_parameters)
        response = await self._answer(scope, terms, run)
        note_metered(response)
        return response

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        """Have the provider shorten messages, in a request that is billed like any other."""
        scope = current_scope()
        if scope is None:
            settings = self._outside_of_runs(request_context.model_settings)
            request_context = replace(request_context, model_settings=settings)
            return await self.wrapped.compact_messages(request_context, instructions=instructions)
        terms = CompactionTerms(
            self.meter,
            self.wrapped,
            list(request_context.messages),
            request_context.model_settings,
            request_context.model_request_parameters,
            streamed=False,
            context=request_context,
            instructions=instructions,
        )
        response = await self._answer(scope, terms, self._run(scope))
        note_metered(response)
        return response

    def _outside_of_runs(self, settings: ModelSettings | None) -> ModelSettings | None:
        """Return the settings of a request that this meter does not retry: its SDK does instead."""
        if not self.meter.models.has_built(self.wrapped):
            return settings
        return repeated_by_sdk(self.wrapped, settings, self.meter.request_retries)

    async def _answer(self, scope: Scope, terms: Terms, run: AgentRun | None) -> ModelResponse:
        on_record = self._on_record(scope, terms)
        if (answer := await self._answer_on_record(scope, terms, run, on_record)) is not None:
            return answer
        if on_record is not None and on_record.cut_at is not None:
            terms = terms.longer_than(on_record.cut_at)
        before: Retry | None = None
        beginning: ModelResponse | None = None
        while True:
            attempt = self._attempt(scope, terms, run, before, on_record)
            try:
                if scope.tracer is None:
                    response = await self._send(attempt, "")
                else:
                    async with self._span(scope.tracer, attempt) as trace_id:
                        response = await self._send(attempt, trace_id)
                if attempt.lowered_to is None or not attempt.is_asked_again:
                    if attempt.charge is not None:
                        await attempt.check_whole(response)
                    return response
                terms, beginning, before = terms.longer_than(attempt.lowered_to), response, None
            except Outgrown:
                terms = _as_sent(attempt, terms)
            except BudgetExceeded as stop:
                if stop.partial_response is None:
                    stop.partial_response = beginning
                raise
            except Exception as error:
                before = await self._wait_or_raise(attempt, error)

    async def _send(self, attempt: RequestAttempt, trace_id: str) -> ModelResponse:
        reservation = await attempt.admit()
        try:
            with reservation.around():
                response = await attempt.send()
        except BaseException as error:
            attempt.fail(error)
            await attempt.conclude(trace_id, error=error)
            raise
        if response.state != "suspended" or not self._keeps(attempt, response):
            attempt.settle(response)
            await attempt.conclude(trace_id, response)
        else:
            await attempt.answered_later(response)
        return response

    async def _ask_about(
        self, attempt: RequestAttempt, ask: Callable[[], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Ask for the answer to a request that the provider works on, and again after a transport failure."""
        used = attempt.used
        while True:
            try:
                response = await self._collect(attempt, ask)
            except Exception as error:
                attempt.used = (await self._wait_or_raise(attempt, error)).used
            else:
                attempt.used = used
                return response

    async def _collect(
        self, attempt: RequestAttempt, ask: Callable[[], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        async with self._span_or_none(attempt) as trace_id:
            with attempt.reservation.around():
                response = await ask()
            if attempt.charge is not None or self._keeps(attempt, response):
                return response
            attempt.settle(response)
            await attempt.conclude(trace_id, response)
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
            settings = self._outside_of_runs(model_settings)
            async with self.wrapped.request_stream(
                messages, settings, model_request_parameters, run_context
            ) as stream:
                yield stream
            return
        run = self._run(scope)
        waiting = self._waiting(scope, continued_job(messages))
        terms = Terms(
            self.meter, self.wrapped, messages, model_settings, model_request_parameters, streamed=True
        )
        on_record: RequestOnRecord | None = None
        if waiting is None:
            self._note_parameters(run, model_request_parameters)
            on_record = self._on_record(scope, terms)
            if (answer := await self._answer_on_record(scope, terms, run, on_record)) is not None:
                note_metered(answer)
                yield CompletedStreamedResponse(
                    answer, model_request_parameters=model_request_parameters, replay_events=True
                )
                return
        before: Retry | None = None
        while True:
            attempt = waiting or self._attempt(scope, terms, run, before, on_record)
            async with AsyncExitStack() as stack:
                trace_id = await stack.enter_async_context(self._span_or_none(attempt))
                reservation = await attempt.admit() if waiting is None else attempt.reservation
                settings = attempt.terms.sent_settings if waiting is None else model_settings
                failure: Exception | None = None
                try:
                    with (
                        reservation.interruption.of_task(),
                        nullcontext() if waiting is not None else attempt.on_the_wire(),
                    ):
                        stream = await stack.enter_async_context(
                            attempt.terms.wrapped.request_stream(
                                messages, settings, model_request_parameters, run_context
                            )
                        )
                except BaseException as error:
                    if waiting is None:
                        attempt.fail(error)
                        await attempt.conclude(trace_id, error=error)
                    if not isinstance(error, Exception):
                        raise
                    failure = error
                else:
                    attempt.open(stream)
                    scope.on_close(attempt.abandon_forgotten)
                    try:
                        with reservation.around(reading=True):
                            yield stream
                    except BaseException as error:
                        response = stream.get()
                        note_metered(response)
                        attempt.abandon(response, error)
                        await attempt.conclude(trace_id, error=error)
                        if isinstance(error, Exception):  # a budget may have paid for no more of the answer
                            await attempt.check_paid(response)
                        raise
                    finally:
                        scope.forget_closer(attempt.abandon_forgotten)
                    response = stream.get()
                    note_metered(response)
                    if self._keeps(attempt, response):
                        await attempt.answered_later(response)
                        return
                    attempt.abandon(response, None)
                    await attempt.conclude(trace_id, response)
                    await attempt.check_whole(response)
                    return
            if isinstance(failure, Outgrown):
                terms = _as_sent(attempt, terms)
            else:
                before = await self._wait_or_raise(attempt, failure)

    # --- answers that the provider works on after the request has returned ---

    def _keeps(self, attempt: RequestAttempt, response: ModelResponse) -> bool:
        """Return whether the provider still works on an answer; if so, keep its reservation until then."""
        if attempt.charge is not None or not works_on(attempt.terms.wrapped, response):
            return False
        attempt.job = response.provider_response_id or attempt.job  # a continued stream may not repeat its id
        self.meter.unanswered.keep(attempt, self._run_or(attempt.scope))
        attempt.answered()
        return True

    async def _answer_on_record(
        self, scope: Scope, terms: Terms, run: AgentRun | None, on_record: RequestOnRecord | None
    ) -> ModelResponse | None:
        """Return the answer on record, or collect one for which an earlier process did not wait.

        Returns `None` if there is none, or none any more: then the request is sent.
        """
        if on_record is None or (known := await on_record.replay()) is None:
            return None
        if not known.is_pending:
            return self._replayed(known, terms)
        attempt = batches.rejoined(scope, terms, run, on_record, known)
        self.meter.unanswered.keep(attempt, self._run_or(scope))
        messages = [*terms.messages, known.response]
        ask = functools.partial(terms.wrapped.request, messages, terms.settings, terms.parameters)
        try:
            return await self._collect(attempt, ask)
        except ModelAPIError:
            return known.response  # PydanticAI asks again, and cancels the work if it gives up
        except SuspendedResponseExpired:
            await attempt.give_up()
            attempt.mark_retried()
            return None

    def _waiting(self, scope: Scope, job: str | None) -> RequestAttempt | None:
        return None if job is None else self.meter.unanswered.find(self._run_or(scope), job)

    def _run_or(self, scope: Scope) -> object:
        """Return the run that a request is made in, or the scope of a request without an agent."""
        return self._run(scope) or current_plain_run.get() or scope

    async def cancel_suspended_response(self, response: ModelResponse) -> None:
        """Cancel an answer that the provider works on, and charge its bound."""
        scope = current_scope()
        attempt = None if scope is None else self._waiting(scope, response.provider_response_id)
        if attempt is None:
            await self.wrapped.cancel_suspended_response(response)
            return
        try:
            await attempt.terms.wrapped.cancel_suspended_response(response)
        finally:
            await attempt.give_up()

    async def decide(
        self, request: DecisionRequest, model_settings: DecisionModelSettings
    ) -> DecisionResponse:
        """Ask a decision model without a request of an agent, outside of runs.

        Raises:
            UnmeteredRequestError: the call is inside of a run, and not inside of `spend`.
        """
        refuse_in_runs(
            f"decide() of {self.system}:{self.model_name}",
            "run an agent on the model, with the questions as the fields of its output_type",
        )
        # Only a `DecisionModel` has this method; `Model`, the declared type, does not.
        response: DecisionResponse = await self.wrapped.decide(request, model_settings)  # type: ignore[attr-defined]
        return response

    # --- batches ---

    async def batch_encode(self, request: BatchRequest) -> EncodedBatchRequest:
        """Admit and encode a request, as `BatchModelRequests` asks for it: without an id of its own yet.

        Raises:
            UnmeteredRequestError: it has an id, so the caller makes a batch of its own.
        """
        scope = current_scope()
        if scope is None:
            return await self.wrapped.batch_encode(request)
        if request.custom_id:
            refuse_in_runs(
                f"a batch of {self.system}:{self.model_name} by model_request_batch() or batch_encode()",
                "use the capability BatchModelRequests and one agent run for each request, or make the "
                "batch outside of any run and budget_scope",
            )
            return await self.wrapped.batch_encode(request)
        run = self._run_or(scope)
        if run is not scope:
            await self.meter.unanswered.give_up(run)  # no answer came: it is sent in another batch
        terms = self._in_batch(request.messages, request.model_settings, request.model_request_parameters)
        own_run = self._run(scope)
        self._note_parameters(own_run, request.model_request_parameters)
        on_record = self._on_record(scope, terms)
        if on_record is not None:
            on_record.count_earlier()
        attempt = self._attempt(scope, terms, own_run, None, on_record)
        encoded = await batches.encode(attempt, request)
        self.meter.unanswered.keep(attempt, run)
        return encoded

    def _in_batch(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> BatchTerms:
        return BatchTerms(self.meter, self.wrapped, messages, settings, parameters, streamed=False)

    async def _batched_before(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse | None:
        """Return the answer to a request in a batch that is on record, or what says which batch has it.

        The request of such a batch is reserved again. Returns `None` if nothing is on record.
        """
        scope = current_scope()
        terms = self._in_batch(messages, settings, parameters)
        on_record = None if scope is None else self._on_record(scope, terms)
        if scope is None or on_record is None or (known := await on_record.replay()) is None:
            return None
        run = self._run(scope)
        self._note_parameters(run, parameters)
        if not known.is_pending:
            note_metered(known.response)
            return self._replayed(known, terms)
        attempt = batches.rejoined(scope, terms, run, on_record, known)
        self.meter.unanswered.keep(attempt, self._run_or(scope))
        return known.response

    async def _note_batch(self, pending: ModelResponse) -> None:
        """Put on record in which batch a request is, if the response says that it waits in one."""
        attempt = self._in_batch_of(pending)
        if attempt is not None:
            await attempt.answered_later(pending)

    def _leaves_batch_running(self, pending: ModelResponse) -> bool:
        """Return whether a later process collects the answer to a request in a batch."""
        attempt = self._in_batch_of(pending)
        return attempt is not None and attempt.is_collected_later

    def _in_batch_of(self, pending: ModelResponse) -> RequestAttempt | None:
        scope = current_scope()
        return None if scope is None else self._waiting(scope, id_in_batch(pending))

    async def batch_create(self, requests: Sequence[EncodedBatchRequest]) -> Batch:
        """Send a batch. Its requests may be from many runs, and the task that sends it in none of them."""
        return await batches.create(self.wrapped, requests)

    async def batch_results(self, batch: Batch) -> list[BatchResult]:
        """Read the results of a batch; `batch_decode` charges each result."""
        return await batches.results(self.wrapped, batch)

    def batch_decode(self, result: BatchResult, request: BatchRequest) -> ModelResponse:
        """Read the result of a request, and charge it.

        Raises:
            UnmeteredRequestError: this run has not sent it, so nothing is reserved for it.
        """
        scope = current_scope()
        if scope is None:
            return self.wrapped.batch_decode(result, request)
        attempt = self._waiting(scope, result.custom_id)
        if attempt is None:
            refuse_in_runs(
                f"the result of a batch of {self.system}:{self.model_name} that this run has not sent",
                "collect it outside of any run and budget_scope",
            )
            return self.wrapped.batch_decode(result, request)
        response = batches.decode(attempt, result, request)
        note_metered(response)
        return response

    def _attempt(
        self,
        scope: Scope,
        terms: Terms,
        run: AgentRun | None,
        before: Retry | None,
        on_record: RequestOnRecord | None,
    ) -> RequestAttempt:
        if scope.bounds.account is not None:
            terms = step_down_if_due(scope, terms)  # pyright: ignore[reportArgumentType]
        if before is not None:
            return RequestAttempt(scope, terms, run, before.used, on_record, backoff_ms=before.delay * 1000)
        used = NO_RETRIES_USED if on_record is None else on_record.used
        return RequestAttempt(scope, terms, run, used, on_record)

    async def _wait_or_raise(self, attempt: RequestAttempt, error: Exception) -> Retry:
        """Wait until the next attempt, or raise the failure if no attempt follows."""
        if not is_transport_failure(error) or isinstance(error, CircuitOpenError):
            raise error
        retry = self._retry_rules(attempt.terms).next(error, attempt.used, attempt.scope)
        if retry is None:
            raise error
        attempt.mark_retried()
        with attempt.scope.time.at_rest():
            await asyncio.sleep(retry.delay)
        return retry

    def _note_parameters(self, run: AgentRun | None, parameters: ModelRequestParameters) -> None:
        if run is not None:
            if parameters.output_tools:
                run.output_tools.update(tool.name for tool in parameters.output_tools)
            if run.last is not None and run.rejects_answer:
                run.last.mark("retried")

    def _on_record(self, scope: Scope, terms: Terms) -> RequestOnRecord | None:
        """Return the place of the request in the log of its run; `None` if no run has a log."""
        log = log_of(scope)
        if log is None:
            return None
        from fastroai.agent.requests.recorded_requests import RequestOnRecord  # late: only runs have a log

        run = agent_run_of(scope)
        call = "" if run is None else run.call
        own = self._run(scope)
        if run is not None and own is None:
            call = f"{call}/"  # code of the user, or a plain agent, called by a tool
        return RequestOnRecord.of(
            log,
            scope,
            terms,
            call=call,
            attempt=1 if run is None else run.attempt,
            rejects=own is not None and own.rejects_answer,
            of_call=None if own is None else own.on_record,
        )

    def _replayed(self, known: KnownResponse, terms: Terms) -> ModelResponse:
        """Return a response that was paid for before, and note it as if it had just come."""
        if (run := self._run(current_scope())) is not None:
            run.call = known.sent.request.call
            if terms.kind != "compaction":
                run.last = known.sent
        if known.response.usage.cost is not None:
            known.response.usage.cost = ExactUsd(known.response.usage.cost)
        return known.response

    def _run(self, scope: Scope | None) -> AgentRun | None:
        """Return the run that a request belongs to: as one of the agent's own, not of code inside of it."""
        run = agent_run_of(scope)
        return run if run is not None and run.meter is self.meter else None

    def _retry_rules(self, terms: Terms) -> RetryRules:
        run = agent_run_of(current_scope())
        if run is None or run.meter is not self.meter:
            return RetryRules.counted(
                retries_of(terms.wrapped, terms.settings, self.meter.request_retries), REQUEST_RETRY_DELAY
            )
        if run.retry is not None:
            return RetryRules(run.retry, run.classifiers)
        delay = REQUEST_RETRY_DELAY if run.retry_delay is None else run.retry_delay
        retries = retries_of(terms.wrapped, terms.settings, run.request_retries)
        return RetryRules.counted(retries, delay, run.classifiers)

    def _span_or_none(self, attempt: RequestAttempt) -> AbstractAsyncContextManager[str]:
        """Return the span of an attempt. It gives the id of the trace, which is empty without a tracer."""
        tracer = attempt.scope.tracer
        return nullcontext("") if tracer is None else self._span(tracer, attempt)

    def _span(self, tracer: Tracer, attempt: RequestAttempt) -> AbstractAsyncContextManager[str]:
        terms = attempt.terms
        return tracer.span(
            attributes.request_span(terms.model),
            **attributes.request_attributes(
                model=terms.model,
                provider=terms.provider,
                base_url=base_url_of(terms.wrapped),
                streamed=terms.streamed,
                attempt=attempt.used.attempt,
            ),
            **attributes.label_attributes(*attempt.scope.bounds.labels),
        )


class LentModel(MeteredModel):
    """The metered model of an agent's run, as code of the user has it: `RunContext.model`.

    Its requests are charged where they are made, as those of a plain agent with a meter are. They are not
    requests of the agent's own: they reject no answer of its, and a resumed run looks them up apart from its.
    """

    def __init__(self, wrapped: Model, meter: Metered) -> None:
        self._wrapped = wrapped
        super().__init__(wrapped, meter)

    @property
    def wrapped(self) -> Model:
        """The model inside, for the running loop: code of the user may use another loop in its thread."""
        return self.meter.models.here(self._wrapped)

    @wrapped.setter
    def wrapped(self, model: Model) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._wrapped = model

    def __repr__(self) -> str:
        return repr(self.wrapped)

    def _run(self, scope: Scope | None) -> None:
        """Return no run: the requests belong to code inside of it."""
        return None


class BatchedOnRecord(WrapperModel):
    """A model that sends its requests in batches, and none again that is on record as sent in one."""

    def __init__(self, batched: Model, metered: MeteredModel) -> None:
        """Wrap a model of `BatchModelRequests`, which sends its batches through a metered one."""
        super().__init__(batched)
        self._metered = metered

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request in a batch, or ask about the batch that it is in. One on record is asked about."""
        if continued_job(messages) is None:
            known = await self._metered._batched_before(messages, model_settings, model_request_parameters)
            if known is not None and id_in_batch(known) is None:
                return known
            if known is not None:
                messages = [*messages, known]
        response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        await self._metered._note_batch(response)
        asked_about = messages[-1] if messages else None
        batch, delay = id_in_batch(response), None
        if batch is not None:
            delay = self.wrapped.continuation_delay(response)
        elif isinstance(asked_about, ModelResponse):
            batch = id_in_batch(asked_about)
        if batch and (scope := current_scope()) is not None:
            from fastroai.agent.other_models.batched import (
                wait_for_batch,  # late: few requests are in batches
            )

            await wait_for_batch(scope, batch, delay)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Do `request`, and stream its answer, which comes as a whole."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )

    async def cancel_suspended_response(self, response: ModelResponse) -> None:
        """Cancel the batch of a request, unless the run can be continued and then collects the answer."""
        if not self._metered._leaves_batch_running(response):
            await self.wrapped.cancel_suspended_response(response)
