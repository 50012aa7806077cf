"""`FastroAgent`: a PydanticAI agent with exact cost, usage, tracing and request retries."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, cast, overload

from pydantic_ai import (
    Agent,
    AgentCapability,
    AgentModelSettings,
    AgentRetries,
    AgentToolset,
    AnyConcurrencyLimit,
    EndStrategy,
    RunContext,
)
from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.agent.abstract import AgentMetadata
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.output import OutputDataT, OutputSpec
from pydantic_ai.tools import (
    AgentDepsT,
    Tool,
    ToolFuncEither,
)
from typing_extensions import TypeVar, Unpack

from fastroai.agent.config import AgentConfig
from fastroai.agent.dispatch import Attempt, Dispatcher
from fastroai.agent.hooks import AfterDispatch, BeforeDispatch
from fastroai.agent.other_models.batching import check_batches
from fastroai.agent.output_types import type_of_outputs
from fastroai.agent.own_agent import OwnAgent, merge_settings
from fastroai.agent.requests.metering import Metered
from fastroai.calls.call import AgentCall, Prompt
from fastroai.calls.options import (
    CallOptions,
    EstimateOptions,
    Instructions,
    PassedOptions,
    RunOptions,
    ToolOptions,
)
from fastroai.calls.response import ChatResponse
from fastroai.calls.stream import ChatStream, EventStream
from fastroai.errors import ConfigurationError
from fastroai.keyword_options import takes_options
from fastroai.other_names import other_names
from fastroai.records import NOT_GIVEN, Duration, NotGiven, first_given, in_seconds
from fastroai.rows.door import MapsRows
from fastroai.runtime import CircuitBreaker, ProviderLimits, blocking, blocking_overloaded
from fastroai.runtime.labels import NO_LABELS, labels_of
from fastroai.tracing import Tracer
from fastroai.usage import BudgetLike, CostCalculator
from fastroai.usage.limits import limits_of, together

if TYPE_CHECKING:
    from fastroai.agent.step import AgentStep, PromptSource
    from fastroai.rows.target import RowTarget
    from fastroai.steps import StepConfig, StepContext
    from fastroai.usage import Quote

RunOutputT = TypeVar("RunOutputT")
ToolReturnT = TypeVar("ToolReturnT")
ToolArgs = ParamSpec("ToolArgs")
StepDepsT = TypeVar("StepDepsT", default=Any)

logger = logging.getLogger("fastroai.agent")


_OTHER_OPTIONS: Final[Mapping[str, str]] = {
    "result_type": "output_type=",
    "result_retries": 'retries={"output": …}',
    "output_retries": 'retries={"output": …}',
    "timeout_seconds": "timeout=",
    "max_retries": "retries=",
}
"""Options that PydanticAI had before, or other libraries have, and what to write here."""


@other_names(arguments=_OTHER_OPTIONS)
class FastroAgent(MapsRows[OutputDataT], Generic[AgentDepsT, OutputDataT]):
    """A PydanticAI agent that knows what every call cost, exactly.

    It takes the arguments of `pydantic_ai.Agent` and its `run`, plus FastroAI's own. `run` returns a
    `ChatResponse`, which has the output, the usage and the cost in US dollars. A request that fails in
    transport (429, 5xx, connection) is sent again, by default up to 2 times. A request for which a budget has
    too little left is not sent, and raises `BudgetExceeded`. The agent keeps no conversation between calls.
    `agent.agent` is the PydanticAI agent inside.

        agent = FastroAgent("openai:gpt-5-mini", instructions="Be brief.")
        response = await agent.run("What is the capital of France?")
        print(response.output, response.cost_usd)
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        config: AgentConfig | None = None,
        agent: AbstractAgent[AgentDepsT, OutputDataT] | None = None,
        output_type: OutputSpec[OutputDataT] | NotGiven = NOT_GIVEN,
        instructions: Instructions[AgentDepsT] = None,
        system_prompt: str | Sequence[str] | None = None,
        deps_type: type[AgentDepsT] = object,  # type: ignore[assignment]  # as in PydanticAI
        name: str | None = None,
        description: str | None = None,
        model_settings: AgentModelSettings[AgentDepsT] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        retries: int | AgentRetries | None = None,
        validation_context: object | Callable[[RunContext[AgentDepsT]], object] = None,
        tools: Sequence[Tool[AgentDepsT] | ToolFuncEither[AgentDepsT, ...]] = (),
        toolsets: Sequence[AgentToolset[AgentDepsT]] | None = None,
        defer_model_check: bool = False,
        end_strategy: EndStrategy = "graceful",
        metadata: AgentMetadata[AgentDepsT] | None = None,
        tool_timeout: Duration | None = None,
        max_concurrency: AnyConcurrencyLimit = None,
        capabilities: Sequence[AgentCapability[AgentDepsT]] | None = None,
        timeout: Duration | None = None,
        request_retries: int | None = None,
        cost_budget: int | None = None,
        budget: BudgetLike | None = None,
        cost_calculator: CostCalculator | None = None,
        provider_limits: ProviderLimits | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        on_before_dispatch: BeforeDispatch | None = None,
        on_after_dispatch: AfterDispatch | None = None,
    ) -> None:
        """Build an agent, or take one that exists as `agent=`.

        Args:
            model: `provider:model`, the bare name of a first-party model (`gpt-…`, `claude-…`, `gemini-…`),
                or a PydanticAI `Model`.
            config: Settings. An option given beside it replaces the same setting. But budgets of both places
                apply, and `model_settings` of both are merged.
            agent: A PydanticAI agent to use as it is; then no option that builds one may be given.
            output_type: As in PydanticAI; by default `str`.
            instructions: As in PydanticAI: sent with every run.
            system_prompt: As in PydanticAI: sent at the start of a conversation.
            deps_type: As in PydanticAI.
            name: Name in traces and records; by default `"agent"`, or the name of the agent in `agent=`.
            description: As in PydanticAI.
            model_settings: As in PydanticAI.
            temperature: Short form of the model setting. By default, none is sent.
            max_tokens: Short form of the model setting: most tokens of one answer. By default, none is sent.
            retries: As in PydanticAI: how often the model may try again, for tools and output.
            validation_context: As in PydanticAI.
            tools: As in PydanticAI.
            toolsets: As in PydanticAI.
            defer_model_check: As in PydanticAI: look the model up on the first run.
            end_strategy: As in PydanticAI.
            metadata: As in PydanticAI.
            tool_timeout: As in PydanticAI: seconds for one tool call.
            max_concurrency: As in PydanticAI: runs of this agent at once.
            capabilities: As in PydanticAI.
            timeout: Seconds for one attempt at a call; for streams, time spent waiting for the provider.
            request_retries: Extra attempts at a request after a transport failure (429, 5xx, connection). By
                default the `max_retries` of the model settings or of the client of the model; otherwise 2.
            cost_budget: Microcents ($1 = 1,000,000) for each call.
            budget: The same limit as a `Budget`, which has more options. Give one of the two.
            cost_calculator: Prices; by default those of genai-prices.
            provider_limits: Limits on requests to a provider at once and in a minute, by this agent and the
                agents that its tools call: `{"openai": ProviderLimit(...)}`, `"*"` for all others.
            circuit_breaker: Stops requests of this agent to a provider that keeps failing.
            on_before_dispatch: Called with a `Dispatch` before each attempt; may raise
                `DispatchSkippedError` to fail at once.
            on_after_dispatch: Called with the `Dispatch` after each attempt; an error that it raises
                is logged and changes nothing.

        Raises:
            UnknownModelError: the provider of the model cannot be told.
            ConfigurationError: an invalid option.
        """
        config = _with_given(
            config or AgentConfig(),
            model=model,
            name=name or None,
            instructions=instructions,
            system_prompt=system_prompt,
            temperature=temperature,
            max_tokens=max_tokens,
            timeout=timeout,
            request_retries=request_retries,
            cost_calculator=cost_calculator,
            provider_limits=provider_limits,
            circuit_breaker=circuit_breaker,
            on_before_dispatch=on_before_dispatch,
            on_after_dispatch=on_after_dispatch,
        )
        settings = merge_settings(
            config.model_settings,
            model_settings,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
        )
        meter = Metered(config.cost_calculator, request_retries=config.request_retries)
        deferred_model: str | None = None
        # The default is not None: pyright takes None for an output type, that of agents without output.
        output = first_given(output_type, default=None)
        self.agent: Agent[AgentDepsT, OutputDataT]
        if agent is not None:
            _refuse_beside_agent(
                model=config.model,
                output_type=output,
                instructions=config.instructions,
                system_prompt=config.system_prompt,
                deps_type=None if deps_type is object else deps_type,
                description=description,
                model_settings=settings,
                retries=retries,
                validation_context=validation_context,
                tools=tools,
                toolsets=toolsets,
                defer_model_check=defer_model_check or None,
                end_strategy=None if end_strategy == "graceful" else end_strategy,
                metadata=metadata,
                tool_timeout=in_seconds(tool_timeout),
                max_concurrency=max_concurrency,
                capabilities=capabilities,
            )
            # A wrapper of an agent has no decorators; nearly all agents have them, and editors show them.
            self.agent = cast("Agent[AgentDepsT, OutputDataT]", agent)
        else:
            model = config.model
            if isinstance(model, str):
                if defer_model_check:
                    deferred_model, model = model, None
                else:
                    model = meter.models.get(model)
            self.agent = OwnAgent(
                model,
                output_type=cast("OutputSpec[OutputDataT]", str if output is None else output),
                instructions=config.instructions,
                system_prompt=() if config.system_prompt is None else config.system_prompt,
                deps_type=deps_type,
                name=config.name or "agent",
                description=description,
                model_settings=settings,
                retries=retries,
                validation_context=validation_context,
                tools=tools,
                toolsets=toolsets,
                defer_model_check=defer_model_check,
                end_strategy=end_strategy,
                metadata=metadata,
                tool_timeout=in_seconds(tool_timeout),
                max_concurrency=max_concurrency,
                # Given here, because PydanticAI sets up anew for capabilities that come with each run.
                capabilities=[meter, *(capabilities or ())],
            )
        self.name: str = config.name or self.agent.name or "agent"
        self._dispatcher = Dispatcher(
            name=self.name,
            agent=self.agent,
            meter=meter,
            meter_each_run=agent is not None,
            deferred_model=deferred_model,
            config=config,
            limits=together(limits_of(budget, cost_budget), limits_of(config.budget, config.cost_budget)),
        )

    def __repr__(self) -> str:
        return f"FastroAgent(name={self.name!r})"

    if not TYPE_CHECKING:  # else type checkers would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`, which says where to find an attribute of the PydanticAI agent."""
            inner = self.__dict__.get("agent")
            where = ""
            if inner is not None and not name.startswith("_") and hasattr(inner, name):
                where = f"; the PydanticAI agent inside has it: agent.agent.{name}"
                if name == "iter" and not isinstance(inner, OwnAgent):
                    where += ". Give it capabilities=[Metered()], so that its requests are counted"
            raise AttributeError(f"FastroAgent has no {name!r}{where}", name=name, obj=self)

    # --- tools ---

    @overload
    def tool(
        self, function: Callable[Concatenate[RunContext[AgentDepsT], ToolArgs], ToolReturnT], /
    ) -> Callable[Concatenate[RunContext[AgentDepsT], ToolArgs], ToolReturnT]: ...
    @overload
    def tool(
        self, /, **options: Unpack[ToolOptions[AgentDepsT]]
    ) -> Callable[
        [Callable[Concatenate[RunContext[AgentDepsT], ToolArgs], ToolReturnT]],
        Callable[Concatenate[RunContext[AgentDepsT], ToolArgs], ToolReturnT],
    ]: ...
    def tool(self, function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions[Any]]) -> Any:
        """Add a function as a tool of this agent: `@agent.tool`, as in PydanticAI. Return the function.

        The first parameter of the function is the `RunContext`. With options, as in `@agent.tool(retries=2)`,
        this returns a decorator that adds the function. An agent in `agent=` gets the tool itself.
        """
        decorate: Callable[..., Any] = self.agent.tool(**options)
        return decorate if function is None else decorate(function)

    @overload
    def tool_plain(self, function: Callable[ToolArgs, ToolReturnT], /) -> Callable[ToolArgs, ToolReturnT]: ...
    @overload
    def tool_plain(
        self, /, **options: Unpack[ToolOptions[AgentDepsT]]
    ) -> Callable[[Callable[ToolArgs, ToolReturnT]], Callable[ToolArgs, ToolReturnT]]: ...
    def tool_plain(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions[Any]]
    ) -> Any:
        """Add a function without `RunContext` as a tool: `@agent.tool_plain`, as in PydanticAI. Return it.

        With options, as in `@agent.tool_plain(retries=2)`, this returns a decorator that adds the function.
        An agent in `agent=` gets the tool itself.
        """
        decorate: Callable[..., Any] = self.agent.tool_plain(**options)
        return decorate if function is None else decorate(function)

    # --- running ---

    @overload
    async def run(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: None = None,
        **options: Unpack[RunOptions[AgentDepsT]],
    ) -> ChatResponse[OutputDataT]: ...
    @overload
    async def run(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[RunOutputT],
        **options: Unpack[RunOptions[AgentDepsT]],
    ) -> ChatResponse[RunOutputT]: ...
    @takes_options(RunOptions, instead=_OTHER_OPTIONS)
    async def run(
        self,
        user_prompt: Prompt = None,
        deps: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[Any] | None = None,
        **options: Unpack[RunOptions[Any]],
    ) -> ChatResponse[Any]:
        """Run the agent to its output, and return a `ChatResponse` with output, usage, cost and messages.

        In a run that a store keeps, answers and tool results on record are given back, and are not paid for
        again. The arguments are those of `pydantic_ai.Agent.run`, and:

        Args:
            user_prompt: Text, or text and images, audio, documents.
            deps: Dependencies of tools and instructions.
            message_history: Messages so far, from `new_messages()`/`all_messages()` of earlier responses.
            tracer: The tracer of spans; by default that of the run in which this call is made.
            message: The same as `user_prompt`, as it is called in `StepContext.run`.
            output_type: An output type for this call.
            conversation: As in PydanticAI.
            deferred_tool_results: As in PydanticAI.
            conversation_id: As in PydanticAI.
            run_id: As in PydanticAI.
            model: A model for this call.
            instructions: Further instructions for this call.
            model_settings: Settings for this call.
            usage_limits: As in PydanticAI.
            cancellation_token: As in PydanticAI.
            timeout: Seconds for this call, instead of the agent's.
            usage: As in PydanticAI: usage to start with. `usage` and `cost_usd` of the response leave it out.
            metadata: As in PydanticAI.
            retries: As in PydanticAI: how often the model may try again.
            toolsets: Further toolsets for this call.
            event_stream_handler: As in PydanticAI.
            capabilities: Further capabilities for this call.
            workspace: As in PydanticAI.
            spec: As in PydanticAI.
            cost_budget: Microcents ($1 = 1,000,000) for this call. The agent's own limit applies too.
            budget: The same limit as a `Budget`, which has more options. Give one of the two.
            tags: Names to sum the spending of this call by; the tags of the run around it are added.
            tenant: The tenant to charge; by default the tenant of the run around this call.
            request_retries: Extra attempts at each request, instead of the agent's.

        Raises:
            ConfigurationError: an option is invalid, or two are given that mean the same: `user_prompt` and
                `message`, or `budget` and `cost_budget`.
            UnknownModelError: `model` does not say which provider has the model.
            TimeLimitExceeded: the timeout ran out.
            BudgetExceeded: a budget of this call, of the agent, or of the run around it has too little left;
                `CostBudgetExceeded` if it is a budget of money.
            AnswerCutError: there is an event handler, so answers are streamed, and one of them broke off.
            pydantic_ai.exceptions.AgentRunError: as in PydanticAI; `usage_of(error)` returns the usage.
        """
        call = _call(user_prompt, deps, message_history, tracer, output_type, **options)
        async with Attempt(self._dispatcher, call) as attempt:  # as `dispatch`, with one coroutine less
            if attempt.run.on_record is not None:
                attempt.raise_known_failure(attempt.run.on_record)
            if options.get("model") is not None or self._dispatcher.deferred_model is not None:
                await self._dispatcher.load_model(call)
            return await attempt.respond(await attempt.ask())

    def _home(self, *_: object, model: Model | str | None = None, **__: object) -> AbstractEventLoop | None:
        return self._dispatcher.home(model)

    @overload
    def run_sync(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: None = None,
        **options: Unpack[RunOptions[AgentDepsT]],
    ) -> ChatResponse[OutputDataT]: ...
    @overload
    def run_sync(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[RunOutputT],
        **options: Unpack[RunOptions[AgentDepsT]],
    ) -> ChatResponse[RunOutputT]: ...
    @blocking_overloaded(run, of="agent", home=_home)
    def run_sync(self, *args: Any, **kwargs: Any) -> Any:
        """`run` for scripts and worker threads. On a running event loop it raises `RunningLoopError`."""

    @overload
    def run_stream(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: None = None,
        **options: Unpack[CallOptions[AgentDepsT]],
    ) -> ChatStream[OutputDataT]: ...
    @overload
    def run_stream(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[RunOutputT],
        **options: Unpack[CallOptions[AgentDepsT]],
    ) -> ChatStream[RunOutputT]: ...
    @takes_options(CallOptions, instead=_OTHER_OPTIONS)
    def run_stream(
        self,
        user_prompt: Prompt = None,
        deps: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[Any] | None = None,
        **options: Unpack[CallOptions[Any]],
    ) -> ChatStream[Any]:
        """Run the agent and stream its answer, with `async for` or `async with`.

        Takes the arguments of `run`, without the event handler. The call begins when you first read the
        stream, which also raises the errors of `run`. `StreamChunk`s come as the model writes; the last one
        `is_final` and has the response, with its cost, as `usage_data`. If you leave the stream early, the
        call ends. Unless the provider has reported the usage by then, budgets count the most that the request
        can have cost.
        """
        return self.dispatch_stream(_call(user_prompt, deps, message_history, tracer, output_type, **options))

    @overload
    def run_stream_events(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: None = None,
        **options: Unpack[CallOptions[AgentDepsT]],
    ) -> EventStream[OutputDataT]: ...
    @overload
    def run_stream_events(
        self,
        user_prompt: Prompt = None,
        deps: AgentDepsT = ...,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[RunOutputT],
        **options: Unpack[CallOptions[AgentDepsT]],
    ) -> EventStream[RunOutputT]: ...
    @takes_options(CallOptions, instead=_OTHER_OPTIONS)
    def run_stream_events(
        self,
        user_prompt: Prompt = None,
        deps: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        tracer: Tracer | None = None,
        *,
        output_type: OutputSpec[Any] | None = None,
        **options: Unpack[CallOptions[Any]],
    ) -> EventStream[Any]:
        """Run the agent and stream PydanticAI's own events, then a `ResponseEvent` with the response.

        Takes the arguments of `run`, without the event handler. Use it with `async for` or `async with`. The
        call begins when you first read the stream, which also raises the errors of `run`. If you leave the
        stream early, the call ends. If the provider ends an answer without a finish reason, nothing is raised
        here, and `response.is_cut` is true. A lost connection raises, as in `run`.
        """
        call = _call(user_prompt, deps, message_history, tracer, output_type, **options)
        return EventStream(lambda send, on_scope: self._dispatcher.stream_events(call, send, on_scope))

    # --- estimates ---

    @takes_options(EstimateOptions, instead=_OTHER_OPTIONS)
    async def estimate(
        self,
        user_prompt: Prompt = None,
        *,
        output_type: OutputSpec[Any] | None = None,
        message_history: Sequence[ModelMessage] | None = None,
        deps: AgentDepsT = None,  # type: ignore[assignment]  # as in PydanticAI
        **options: Unpack[EstimateOptions[AgentDepsT]],
    ) -> Quote:
        """Return a `Quote`: what `run` costs at least, as expected and at most, and why. Sends no request.

        Amounts are US dollars. PydanticAI prepares the first request, so it calls instructions that are
        functions, and toolsets. Requests of agents that these call are refused, and make the cost unknown.
        `on_before_dispatch` and `on_after_dispatch` do not run.

        At least: one request, its input from the provider's cache, and the shortest answer. Expected: a call
        like this agent's last ones in this process; before there are any, an answer of 500 tokens. Both are 0
        if the price of the model is unknown. At most: every attempt at every request that there can be, each
        at the most that it can cost; `None` if no budget stops the call, and either the price is unknown or
        your tools or other code may call models. A budget in dollars lowers the amounts to its limit.

        Raises:
            UnknownModelError: the provider of the model cannot be told.
            ConfigurationError: a budget is invalid, or both `budget` and `cost_budget` are given.
            pydantic_ai.exceptions.AgentRunError: as in PydanticAI, where the request cannot be prepared.
        """
        return await self.estimate_call(
            _call(user_prompt, deps, message_history, None, output_type, **options)
        )

    estimate_sync = blocking(estimate, of="agent")

    async def estimate_call(self, call: AgentCall, *, unknown_prompt: str | None = None) -> Quote:
        """Return the `Quote` for one attempt at a call, as `estimate` does. Sends no request.

        `call` has the arguments of `run` as one value; steps use this method. `unknown_prompt` says why the
        prompt is not known yet. Then the quote is for a prompt of any length: at most, it fills the context
        window of the model.
        """
        from fastroai.agent.quotes.estimate import estimate_call

        return await estimate_call(self._dispatcher, call, unknown_prompt)

    async def fingerprint_call(self, call: AgentCall) -> str | None:
        """Hash everything that shapes the answer to the first request of a call, without sending it.

        That is: its messages, settings, tools and output type, and the model. The SHA-256 hash has 64 hex
        digits. PydanticAI prepares the request, so it calls instructions that are functions. Returns `None`
        if code of the agent answers the call without a model, or if code that prepares the request calls a
        model.
        """
        from fastroai.agent.quotes.probe import fingerprint_call

        return await fingerprint_call(self._dispatcher, call)

    def declared_for(self, call: AgentCall) -> Mapping[str, str]:
        """Return hashes of what is declared for a call: `instructions`, `model`, `output` and `settings`.

        If one differs from the hash on record, a resumed run by default asks again. An instruction that
        is a function counts by its name, because nothing is called or sent. Internal to the library.
        """
        return self._dispatcher.declaration.of(call)

    @overload
    def as_step(
        self: FastroAgent[object, OutputDataT],
        prompt: Callable[[StepContext[StepDepsT]], Prompt | Awaitable[Prompt]],
        *,
        config: StepConfig | None = None,
    ) -> AgentStep[StepDepsT, OutputDataT]: ...
    @overload
    def as_step(
        self,
        prompt: Prompt | Callable[[StepContext[AgentDepsT]], Prompt | Awaitable[Prompt]],
        *,
        config: StepConfig | None = None,
    ) -> AgentStep[AgentDepsT, OutputDataT]: ...
    @overload
    def as_step(
        self,
        prompt: Callable[[StepContext[StepDepsT]], Prompt | Awaitable[Prompt]],
        *,
        config: StepConfig | None = None,
    ) -> AgentStep[StepDepsT, OutputDataT]: ...
    @other_names(arguments={"input_transformer": "prompt=, or the first argument"})
    def as_step(
        self, prompt: PromptSource[Any], *, config: StepConfig | None = None
    ) -> AgentStep[Any, OutputDataT]:
        """Return this agent as a step of a pipeline or graph; its output is the agent's output.

        The step calls the agent with the `deps` of the run, and its spending is part of the run.

        Args:
            prompt: The prompt, or a function of the `StepContext` that returns it (sync or async; it runs on
                the loop).
            config: Settings of the step, such as retries and timeout; by default those of the pipeline.
        """
        from fastroai.agent.step import AgentStep

        return AgentStep(self, prompt, config, type_of_outputs(self.agent.output_type))

    def rows_target(self) -> RowTarget[OutputDataT]:
        """Return the object through which `map` calls this agent: one call for each row. For the library.

        A row is a prompt: a text, a list of texts and files, or a mapping with the column `user_prompt`.
        """
        from fastroai.agent.row_target import AgentRows

        return AgentRows(self._dispatcher, type_of_outputs(self.agent.output_type))

    def check_batches(self, model: Model | str | None = None) -> None:
        """Check that the model of this agent, or the one that is given, has a batch API. Returns nothing.

        Raises:
            ConfigurationError: it has none, or a model of a `FallbackModel` has none, or there is no model.
        """
        check_batches(self._dispatcher.asked_model(model), self.name)

    def dispatch(self, call: AgentCall) -> Coroutine[Any, Any, ChatResponse[OutputDataT]]:
        """Make one attempt at a call, as `run` does, and return its response. `StepContext.run` uses it.

        `call` has the arguments of `run` as one value. The errors are those of `run`.
        """
        return self._dispatcher.run(call)

    def dispatch_stream(self, call: AgentCall) -> ChatStream[OutputDataT]:
        """Return the stream of a call. `run_stream` and `StepContext.run_stream` use it.

        `call` has the arguments of `run` as one value. It is made when the stream is first read.
        """
        output_type = self.agent.output_type if call.output_type is None else call.output_type
        return ChatStream(partial(self._dispatcher.stream_chunks, call), is_text=output_type is str)


def _call(
    user_prompt: Prompt,
    deps: object,
    message_history: Sequence[ModelMessage] | None,
    tracer: Tracer | None,
    output_type: OutputSpec[Any] | None,
    *,
    message: Prompt = None,
    timeout: Duration | None = None,
    cost_budget: int | None = None,
    budget: BudgetLike | None = None,
    tags: Collection[str] | None = None,
    tenant: str | None = None,
    request_retries: int | None = None,
    event_stream_handler: EventStreamHandler[Any] | None = None,
    **options: Unpack[PassedOptions[Any]],
) -> AgentCall:
    """Return a call from the arguments of `run`."""
    return AgentCall(
        prompt=user_prompt if message is None else _message(user_prompt, message),
        deps=deps,
        message_history=message_history,
        output_type=output_type,
        options=options,
        event_stream_handler=event_stream_handler,
        tracer=tracer,
        timeout=timeout,
        request_retries=request_retries,
        limits=limits_of(budget, cost_budget),
        labels=labels_of(tags or (), tenant) if tags or tenant is not None else NO_LABELS,
    )


def _message(user_prompt: Prompt, message: Prompt) -> Prompt:
    if user_prompt is not None:
        expected = "no value, because user_prompt= is the same and is given too"
        raise ConfigurationError("message", message, expected)
    return message


def _with_given(config: AgentConfig, **options: Any) -> AgentConfig:
    """Return the settings with the given options, which win. Raises `ConfigurationError`."""
    return replace(config, **{option: value for option, value in options.items() if value is not None})


def _refuse_beside_agent(**options: object) -> None:
    given = [option for option, value in options.items() if value not in (None, ())]
    if given:
        raise ConfigurationError(
            given[0], options[given[0]], "no value, because agent= has its own; set it on that agent"
        )
