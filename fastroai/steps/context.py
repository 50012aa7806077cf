"""The context of a step: inputs, outputs of its ancestors, and ways to call agents and other steps."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, overload

from typing_extensions import TypedDict, TypeVar, Unpack

from fastroai.calls.call import AgentCall, AgentLike, Prompt, check_agent
from fastroai.contracts.annotations import Annotation
from fastroai.errors import (
    ConfigurationError,
    InputTypeError,
    MissingInputError,
    ScopeClosedError,
)
from fastroai.human.asking import Ask
from fastroai.human.waiting import Awaited, Receive, Sleep
from fastroai.keyword_options import takes_options
from fastroai.places import without_attempts
from fastroai.records import NOT_GIVEN, Duration, NotGiven, RequestRecord, Tokens
from fastroai.runtime import (
    BudgetView,
    Retry,
    Scope,
    blocking,
    blocking_overloaded,
    current_scope,
    run_blocking,
)
from fastroai.runtime.concurrency.sync import loop_of_run
from fastroai.runtime.concurrency.threads import run_in_thread
from fastroai.runtime.events import TextChunk
from fastroai.runtime.options import check_count
from fastroai.runtime.retrying.failures import stops
from fastroai.steps.attempt import AttemptState
from fastroai.steps.calling import CallOptions, agent_call
from fastroai.steps.config import OnError, ResolvedConfig, check_on_error, rules_for
from fastroai.steps.conversation import ConversationState
from fastroai.steps.durability import (
    calls_used,
    last_conversation,
    restore_call,
    step_place,
    step_retried,
)
from fastroai.steps.fanout import run_bounded
from fastroai.steps.once import IfInterrupted, OnceRegister, SideEffect, idempotency_key
from fastroai.steps.outputs import Outputs, check_type, is_instance, is_type, type_name
from fastroai.steps.retrying import retry_calls
from fastroai.steps.shared import Shared, StepLogger
from fastroai.steps.usage import StepUsage
from fastroai.steps.visits import NodeFailure, NodeVisit, Talk
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of, run_of
from fastroai.tracing import NoOpTracer, Tracer
from fastroai.usage.money import Amount

if TYPE_CHECKING:
    from fastroai.calls.response import ChatResponse
    from fastroai.calls.stream import ChatStream
    from fastroai.steps.reserving import Spend
    from fastroai.steps.spend_price import Units
    from fastroai.usage import CostCalculator

T = TypeVar("T")
OutputT = TypeVar("OutputT")
DepsT_co = TypeVar("DepsT_co", default=Any, covariant=True)
DepsT_contra = TypeVar("DepsT_contra", default=Any, contravariant=True)
OutputT_co = TypeVar("OutputT_co", default=Any, covariant=True)


DEFAULT_MAP_CONCURRENCY: Final = 10
_NO_TRACER: Final = NoOpTracer()


@dataclass(slots=True)
class RunData:
    """The data that all steps of one run share. Nobody changes it. Not frozen, as `StepData`."""

    pipeline: str
    path: tuple[str, ...]
    """Names of the scopes around the run, and of the run itself, outermost first."""
    shared: Shared = field(default_factory=Shared)
    declared: Mapping[str, Any] = field(default_factory=dict)
    """Declared types of outputs, by step id. Steps without a declared type are missing."""


@dataclass(slots=True)
class StepData:
    """The data that a step can read. Nobody changes it. Not frozen, because that takes longer to make."""

    run: RunData
    inputs: Mapping[str, object]
    outputs: Outputs
    visit: NodeVisit[StepContext[Any]] | None = None
    """The visit to the node of a graph, if the step is one."""
    reader: str | None = None
    """The step whose place a mapped step has. The mapped step may read the same outputs."""

    def showing(self, values: Mapping[str, object], *, to: str) -> StepData:
        """Return the data with these values in the place of the inputs and outputs that `to` reads."""
        reader = self.reader or to
        outputs = {name: value for name, value in values.items() if self.outputs.is_read_by(reader, name)}
        inputs = {name: value for name, value in values.items() if name not in outputs}
        return StepData(
            self.run,
            MappingProxyType({**self.inputs, **inputs}) if inputs else self.inputs,
            self.outputs.showing(outputs) if outputs else self.outputs,
            self.visit,
            self.reader,
        )


class WaitOptions(TypedDict, Generic[T], total=False):
    """The keyword arguments of `StepContext.receive`, which explains them."""

    timeout: Duration | None
    on_timeout: T | NotGiven


class AskOptions(WaitOptions[T], total=False):
    """The keyword arguments of `StepContext.ask`."""

    options: Sequence[T] | None
    to: str
    name: str | None


class OnceOptions(TypedDict, Generic[T], total=False):
    """The keyword arguments of `StepContext.once`, which explains them."""

    returns: type[T] | None
    if_interrupted: IfInterrupted


class StepLike(Protocol[DepsT_contra, OutputT_co]):
    """A step that `StepContext.map` can run. It can also run agents."""

    def execute(self, context: StepContext[DepsT_contra]) -> Awaitable[OutputT_co]:
        """Do the work."""
        ...


class StepMapper(Protocol):
    """Runs steps inside of a step. The code that runs steps gives it to the context."""

    def __call__(
        self, step: object, context: StepContext[Any], data: StepData, number: int
    ) -> Callable[[int, object], Coroutine[Any, Any, Any]]:
        """Return a function that runs a step once for an item, which comes with its index.

        `data` is the data that the context reads now, and `number` tells this `map` from others of the step.

        Raises:
            ConfigurationError: `step` is neither a step nor an agent.
        """
        ...


class StepContext(Generic[DepsT_co]):
    """The context of a step during one attempt: the argument that each step function gets.

    It has the inputs and outputs that the step can read, calls agents, asks people, and counts spending.
    `DepsT_co` is the type of `deps`, the dependencies that were given to the run. `config` has the settings
    that apply to the step. When the attempt is over, the methods that act, such as `run` and `ask`, raise
    `ScopeClosedError`.
    """

    __slots__ = (
        "_asks",
        "_attempt",
        "_calls",
        "_data",
        "_map_step",
        "_maps",
        "_reader",
        "_started",
        "_waits",
        "config",
        "deps",
    )

    def __init__(
        self,
        attempt: AttemptState,
        data: StepData,
        deps: DepsT_co,
        config: ResolvedConfig,
        started: float,
        map_step: StepMapper,
    ) -> None:
        """Made for each attempt by the code that runs steps."""
        self._map_step = map_step
        self._attempt, self._data, self._started = attempt, data, started
        self._reader: str = data.reader or attempt.step.name
        self.deps: DepsT_co = deps
        self.config: ResolvedConfig = config
        """The settings of this step after inheritance."""
        self._asks = self._calls = self._maps = 0
        self._waits: Counter[str] | None = None
        """How often the step has waited for each message, by name; sleeps count under the empty name."""
        if data.visit is not None and attempt.step.attempt > 1:
            data.visit.begin_attempt()

    def __repr__(self) -> str:
        return (
            f"<StepContext of step {self.step_id!r} in {self._data.run.pipeline!r}, attempt {self.attempt}>"
        )

    @property
    def _scope(self) -> Scope:
        return self._attempt.step.scope

    # --- the step and its run ---

    @property
    def step_id(self) -> str:
        """The id of this step in its pipeline; for an item of `ctx.map`, with its index: `score[0]`."""
        return self._attempt.step.name

    @property
    def run_id(self) -> str:
        """The id of the run; in a nested pipeline or graph, that of the outermost run."""
        return self._scope.run_id

    @property
    def attempt(self) -> int:
        """The number of this attempt at the step, from 1. A resumed run goes on counting.

        A step that runs again after a wait, such as `ask`, is still in the same attempt. Each visit to a node
        of a graph begins at 1.
        """
        return self._attempt.step.attempt

    @property
    def tracer(self) -> Tracer:
        """The tracer of the run. Without one, or with `trace=False`, it is a tracer that does nothing."""
        return self._scope.tracer or _NO_TRACER

    @property
    def usage(self) -> StepUsage:
        """The spending of this step so far, as a snapshot: cost, tokens, requests and records.

        All attempts count, also those of earlier processes. `processing_time_ms` is the time since the step
        started in this process.
        """
        return StepUsage.of_scope(self._scope, (perf_counter() - self._started) * 1000)

    @property
    def budget(self) -> BudgetView:
        """The budgets of this step and around it: `ctx.budget.remaining` is the least that one has left.

        Its amounts are `None` where no budget limits them. Spend limits are not included.
        """
        return BudgetView(self._scope)

    @property
    def shared(self) -> Shared:
        """The mapping given as `execute(context=...)`: clients and caches for all steps of the run.

        It is the caller's own mapping, not a copy: writes are seen by other steps, by nested pipelines and by
        the caller. It is not stored, and empty if none was given.
        """
        return self._data.run.shared

    @property
    def logger(self) -> StepLogger:
        """An adapter of the standard logger `fastroai.run`, for log messages of this step.

        Its records have the attributes `run_id`, `step_id`, `attempt`, `pipeline` and `visit`, and those that
        are given as `extra=`.
        """
        return StepLogger(
            {
                "run_id": self.run_id,
                "step_id": self.step_id,
                "attempt": self.attempt,
                "pipeline": self._data.run.pipeline,
                "visit": self.visit,
            }
        )

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for all attempts at this step of this run, also after a resume.

        It has 32 hexadecimal digits. In a graph, each visit to a node has another key. A step with several
        side effects has one key for all: add something to it for each.
        """
        return idempotency_key(self.run_id, without_attempts(step_place(self._scope)))

    @property
    def conversation_state(self) -> ConversationState[Any] | None:
        """The last `ConversationState` that this step returned before the run was resumed.

        That is the incomplete state with which the step stopped the run. It is `None` if the step has not
        returned one before, and in a run without a store.
        """
        durable = run_of(self._scope)
        return (
            None
            if durable is None
            else last_conversation(durable, self._scope, self._data.run.declared.get(self._reader))
        )

    # --- inputs and outputs ---

    @overload
    def get_input(self, key: str) -> Any: ...
    @overload
    def get_input(self, key: str, default: type[T]) -> T: ...
    @overload
    def get_input(self, key: str, default: UnionType) -> Any: ...
    @overload
    def get_input(self, key: str, default: T) -> Any | T: ...
    def get_input(self, key: str, default: Any = NOT_GIVEN) -> Any:
        """Return one of the run's inputs; in a graph, a value of its memory, as a copy for this attempt.

        The second argument is either a default or a type. A default, such as `0`, is returned if there is no
        such input. With a type, as in `ctx.get_input("order", Order)`, the input must exist and be of that
        type: it is checked, and not converted.

        Raises:
            MissingInputError: there is no such input, and no default was given.
            InputTypeError: the input is not of the given type.
        """
        is_typed = is_type(default)
        try:
            value = self._data.inputs[key]
        except KeyError:
            if default is NOT_GIVEN or is_typed:
                known, in_graph = tuple(self._data.inputs), self._data.visit is not None
                raise MissingInputError(self.step_id, key, known, in_graph) from None
            return default
        if is_typed and not is_instance(value, default):
            raise InputTypeError(self.step_id, key, type_name(default), type_name(type(value)))
        return value

    @property
    def inputs(self) -> Mapping[str, object]:
        """All inputs of the run by name, read-only; in a graph, its memory as this node sees it.

        In a step that `ctx.map` runs, they include the `item`.
        """
        return self._data.inputs

    @overload
    def get_dependency(self, step_id: str) -> Any: ...
    @overload
    def get_dependency(self, step_id: str, output_type: type[T]) -> T: ...
    @overload
    def get_dependency(self, step_id: str, output_type: object) -> Any: ...
    def get_dependency(self, step_id: str, output_type: Annotation = None) -> Any:
        """Return the output of a step that this one depends on, directly or through others.

        In a graph, return the latest output of a node that has run before this one, as a copy. With an
        `output_type`, the type of the output is checked; nothing is converted.

        Raises:
            MissingDependencyError: there is no such step, this step does not depend on it, or, in a graph, it
                has no output yet.
            DependencyTypeError: the output is not an `output_type`.
        """
        value = self._data.outputs.get(self._reader, step_id)
        if output_type is not None and type(value) is not output_type:
            check_type(self._reader, step_id, value, output_type)
        return value

    @overload
    def get_dependency_or_none(self, step_id: str) -> Any | None: ...
    @overload
    def get_dependency_or_none(self, step_id: str, output_type: type[T]) -> T | None: ...
    @overload
    def get_dependency_or_none(self, step_id: str, output_type: object) -> Any: ...
    def get_dependency_or_none(self, step_id: str, output_type: Annotation = None) -> Any:
        """Return the output of a step that this one depends on, as `get_dependency` does; `None` without one.

        That is so if there is no such step, or if it has no output, such as a node that has not run yet.

        Raises:
            MissingDependencyError: the step exists, but this step does not depend on it. In a graph,
                the result is `None` instead.
            DependencyTypeError: the output is not an `output_type`.
        """
        if not self._data.outputs.may_have(self._reader, step_id):
            return None
        return self.get_dependency(step_id, output_type)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Ids of the steps that this one depends on directly, in the order in which they are declared.

        In a graph, the nodes with an output from which this visit was reached.
        """
        return self._data.outputs.needs_of(self._reader)

    @property
    def direct_outputs(self) -> dict[str, object]:
        """Outputs of the steps that this one depends on directly, by step id: see `dependencies`."""
        outputs = self._data.outputs
        return {before: outputs.values[before] for before in outputs.needs_of(self._reader)}

    def read(self, names: Iterable[str]) -> dict[str, object]:
        """Return several values by name: outputs of steps that this one depends on, or inputs.

        A name of both a step and an input gives the output of the step. Names of neither are left out.
        """
        outputs, values = self._data.outputs, {}
        for name in names:
            if outputs.is_read_by(self._reader, name):
                values[name] = outputs.get(self._reader, name)
            elif name in self._data.inputs:
                values[name] = self._data.inputs[name]
        return values

    # --- in a graph ---

    @property
    def visit(self) -> int:
        """Number of this visit to the node in a graph, from 1; always 1 in a pipeline."""
        return 1 if self._data.visit is None else self._data.visit.number

    @property
    def goal(self) -> str | None:
        """The goal of the graph; `None` if it has none, and in a pipeline."""
        return None if self._data.visit is None else self._data.visit.goal

    @property
    def errors(self) -> Mapping[str, BaseException]:
        """The exception of the latest failure of each node on the path to this one, by node.

        Nodes that have succeeded since then are left out. A failure of an earlier process is a
        `RecordedError`. In a pipeline, the mapping is empty.
        """
        return {node: failure.error for node, failure in self.failures.items()}

    @property
    def failures(self) -> Mapping[str, NodeFailure]:
        """The latest failure of each node on the path to this one, by node, with its details.

        Each has the exception, its failure class, and the number of attempts. Nodes that have succeeded since
        then are left out. In a pipeline, the mapping is empty.
        """
        return {} if self._data.visit is None else self._data.visit.failures

    def write(self, key: str, value: object) -> None:
        """Write a value into the graph's memory. It stays there even if this node fails or is cancelled.

        A copy of the value is kept. The nodes after this one find it in the memory. Other branches find it
        once they are joined. This node does not find it itself, in this attempt or in a retry. If a resumed
        run starts this node again, the node finds it.

        If the node also writes an output to the same key, the output replaces the value. The values of a
        failed attempt are dropped as soon as a retry writes a value or succeeds.

        Raises:
            ConfigurationError: this step is not a node of a graph, or the node declares its `writes`, and
                that key is not one of them.
            ValueNotStorable: the run is on record, and the value is not plain JSON. Write a model as its
                `model_dump(mode="json")`.
        """
        self._check_open()
        if self._data.visit is None:
            raise ConfigurationError(
                "key", key, "a call in a node of a graph; elsewhere, return the value instead"
            )
        self._data.visit.write(key, value)

    # --- calling agents ---

    @takes_options(CallOptions, default=NOT_GIVEN)
    async def run(
        self,
        agent: AgentLike[OutputT],
        message: Prompt = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> ChatResponse[OutputT]:
        """Call an agent with this step's `deps` and settings, and return its response.

        `response.output` is the output. The cost counts in the step, and in all budgets around it. While the
        agent runs, the step's own clock is paused: `timeout` bounds each attempt of the call. If the process
        of a stored run has died, or the step has waited as with `ask`, the resumed step gets the answers that
        are on record, and sends no such request again. A new attempt at the step makes the call again.

        Args:
            agent: The `FastroAgent`.
            message: The prompt: text, or text and other content.
            name: Distinguishes this call from others of the step when a run is resumed. By default, calls are
                numbered, which is enough if they are made in the same order each time.
            deps: The dependencies of the agent; by default those of the step.
            message_history: Earlier messages; by default none; in a graph, the conversation of the node.
            model: As in `FastroAgent.run`.
            model_settings: As in `FastroAgent.run`.
            usage_limits: As in `FastroAgent.run`.
            timeout: Seconds for each attempt, `None` for no limit; by default that of the step or the agent.
            retries: Extra attempts after a failure; by default those of the step.
            retry_delay: Most seconds before the first retry; by default that of the step.
            retry: Instead of `retries`, a `RetryPolicy`, or one for each `FailureClass`.
            cost_budget: Microcents ($1 = 1,000,000) for all attempts together.
            budget: The same limit as a `Budget`, which has more options.

        Raises:
            TimeLimitExceeded: the last attempt took too long.
            BudgetExceeded: a budget of this call, or of something above it, is used up.
            ConfigurationError: `agent` is not a `FastroAgent`, or an option is invalid.
            pydantic_ai.exceptions.AgentRunError: as in PydanticAI, if the last attempt fails.
        """
        call = self._call(agent, message, options, name)
        talk = self._talk_of(call)
        with self._attempt.clock_paused():
            if talk is not None:
                call = await talk.prepare(call, self)
            response = await self._ask(agent, call)
        if talk is not None:
            talk.heard(response.new_messages())
        return response

    def _ask(self, agent: AgentLike[OutputT], call: AgentCall) -> Coroutine[Any, Any, ChatResponse[OutputT]]:
        attempts = functools.partial(
            retry_calls,
            lambda attempt: agent.dispatch(call.for_attempt(attempt)),
            rules=rules_for(call.retry, call.request_retries, call.request_retry_delay, call.classifiers),
            scoped=self._attempt.step,
            on_retry=functools.partial(self._report_call_retry, call),
            side_by_side=True,
            used=calls_used(self._scope, call),
        )
        return attempts() if call.limits is None else self._within_limits(call, attempts)

    async def _within_limits(
        self, call: AgentCall, attempts: Callable[[], Coroutine[Any, Any, ChatResponse[OutputT]]]
    ) -> ChatResponse[OutputT]:
        """Make all attempts at a call with limits in one scope, so that they share the budget."""
        parent = scope_here(self)
        async with Scope("call", "call", parent=parent, limits=call.limits, deps=call.deps) as scope:
            restore_call(scope, self._scope, call)
            return await attempts()

    @takes_options(CallOptions, default=NOT_GIVEN)
    def run_stream(
        self,
        agent: AgentLike[OutputT],
        message: Prompt = None,
        **options: Unpack[CallOptions],
    ) -> ChatStream[OutputT]:
        """Return a stream of an agent's answer, to read with `async for` or `async with`.

        The call begins when the stream is first read. `async for` gives chunks, and the last one has the
        response. Each piece of text is also an event (`TextChunk`) for the listeners of the run. The options
        are those of `run`, without `name`; `retries` and `retry_delay` apply to each request before its first
        chunk, and the call itself is not retried. The usage of the call is on the step when the stream ends
        or is left, at the latest when the step ends.

        Raises:
            ConfigurationError: `agent` is not a `FastroAgent`, or an option is invalid.
        """
        call = self._call(agent, message, options)
        talk = self._talk_of(call)
        if talk is not None:
            prepare = functools.partial(talk.prepare, context=self)
            call = replace(call, before=prepare, after=talk.heard)
        stream = agent.dispatch_stream(call)
        stream.observe(on_text=self._report_text, clock=self._attempt.clock)
        return stream

    run_sync = blocking(run, of="ctx", home=loop_of_run)

    def _call(
        self, agent: AgentLike[Any], message: Prompt, options: CallOptions, name: str | None = None
    ) -> AgentCall:
        """Return a call of an agent, which is named by its number by default."""
        number = str(self._calls + 1)
        call = agent_call(message, options, self.config, deps=self.deps, call=name or number)
        self._check_open()
        check_agent(agent)
        self._calls += 1
        return call

    def _talk_of(self, call: AgentCall) -> Talk[StepContext[Any]] | None:
        """Return the conversation that a call takes part in: that of the node, if it brings no history."""
        return None if self._data.visit is None or call.message_history is not None else self._data.visit.talk

    # --- fan-out ---

    @overload
    async def map(
        self,
        agent_or_step: StepLike[DepsT_co, OutputT],
        items: Iterable[object],
        *,
        concurrency: int = ...,
        on_error: Literal["fail"] = ...,
    ) -> list[OutputT]: ...
    @overload
    async def map(
        self,
        agent_or_step: StepLike[DepsT_co, OutputT],
        items: Iterable[object],
        *,
        concurrency: int = ...,
        on_error: Literal["continue"],
    ) -> list[OutputT | Exception]: ...
    @overload
    async def map(
        self,
        agent_or_step: AgentLike[OutputT],
        items: Iterable[Prompt],
        *,
        concurrency: int = ...,
        on_error: Literal["fail"] = ...,
    ) -> list[ChatResponse[OutputT]]: ...
    @overload
    async def map(
        self,
        agent_or_step: AgentLike[OutputT],
        items: Iterable[Prompt],
        *,
        concurrency: int = ...,
        on_error: Literal["continue"],
    ) -> list[ChatResponse[OutputT] | Exception]: ...
    async def map(
        self,
        agent_or_step: StepLike[DepsT_co, Any] | AgentLike[Any],
        items: Iterable[Any],
        *,
        concurrency: int = DEFAULT_MAP_CONCURRENCY,
        on_error: OnError = "fail",
    ) -> list[Any]:
        """Run an agent or a step once for each item, and return the results in the order of the items.

        At most `concurrency` items run at a time. All items are read first.

        An agent gets each item as its prompt, and its results are `ChatResponse`s. A step gets it as the
        input `item`, in addition to the run's inputs and the outputs that this step can read, and its results
        are its outputs. The clock of this step's `timeout` stands still meanwhile.

        The first failure cancels the rest and is raised. With `on_error="continue"`, every item is run, and
        the exception of an item that failed, after its retries, is in its place among the results. An
        exception that stops more than the item is still raised: a used-up budget of this step or around it,
        or the end of the run. If an item waits, as with `ask`, this step halts when all other items have
        ended or wait, too.

        Raises:
            ConfigurationError: an option is invalid, or `agent_or_step` is neither a step nor an agent.
        """
        self._check_open()
        check_count("concurrency", concurrency, least=1, required=True)
        check_on_error(on_error)
        self._maps += 1
        number = self._maps
        one: Callable[[int, Any], Coroutine[Any, Any, Any]]
        if isinstance(agent_or_step, AgentLike):
            agent: AgentLike[object] = agent_or_step

            async def ask(index: int, item: Any) -> object:
                return await self.run(agent, item, message_history=(), name=f"map{number}[{index}]")

            one = ask
        else:
            one = self._map_step(agent_or_step, self, self._data, number)
        with self._attempt.clock_paused():
            mapped = one if on_error == "fail" else functools.partial(self._result_or_failure, one)
            return await run_bounded(mapped, list(items), concurrency)

    async def _result_or_failure(
        self, one: Callable[[int, Any], Coroutine[Any, Any, Any]], index: int, item: Any
    ) -> object:
        try:
            return await one(index, item)
        except Exception as error:
            if stops(self._scope, error):
                raise
            return error

    # --- side effects ---

    @overload
    async def once(
        self, name: str, effect: Callable[[], Awaitable[T]], **options: Unpack[OnceOptions[T]]
    ) -> T: ...
    @overload
    async def once(self, name: str, effect: Callable[[], T], **options: Unpack[OnceOptions[T]]) -> T: ...
    async def once(
        self,
        name: str,
        effect: Callable[[], Awaitable[T] | T],
        *,
        returns: type[T] | None = None,
        if_interrupted: IfInterrupted = "repeat",
    ) -> T:
        """Do a side effect once in this run, such as an e-mail or a payment, and return its result.

        Later calls with this name in the step, as in its next attempt, do nothing and get the same result. In
        a run with a store, later processes get it, too: the result is stored before this returns. One gap
        remains: a process can die after the effect, before its result is stored. Then the effect is repeated.
        So pass `ctx.idempotency_key` to a service that recognises repeated keys, or set
        `if_interrupted="fail"`. All effects of a step have the same key: if several use one service, add
        their names to it. An effect that raises has no result: its exception is raised here, and the next
        attempt at the step does it again.

            receipt = await ctx.once("pay", lambda: bank.pay(order, key=ctx.idempotency_key))

        Args:
            name: Name of the effect, unique in this step.
            effect: Function that does it, sync (in a worker thread) or async.
            returns: Type of the result, if that is not plain JSON. A stored result is read as this type.
            if_interrupted: If it is unknown whether the effect has happened, `"repeat"` it, the default, or
                `"fail"` with `OnceInterrupted`.

        Raises:
            OnceInterrupted: with `"fail"`, if it is unknown whether the effect has happened.
            ValueNotStorable: a store keeps the run, and cannot keep the result.
        """
        self._check_open()
        wanted = SideEffect(
            effect=effect,
            scope=scope_here(self),
            log=log_of(self._scope) or Log(self._scope),  # outside of runs, there is no log
            run_id=self.run_id,
            place=without_attempts(step_place(self._scope)),
            name=name,
            step_id=self.step_id,
            returns=returns,
            if_interrupted=if_interrupted,
        )
        return await OnceRegister.of(self._scope).run(wanted)

    def once_sync(
        self,
        name: str,
        effect: Callable[[], T],
        *,
        returns: type[T] | None = None,
        if_interrupted: IfInterrupted = "repeat",
    ) -> T:
        """`once` for steps that are not `async`. Do a side effect once in this run, and return its result.

        It blocks the thread of the step until the effect is done. Arguments and errors are those of `once`.

        Raises:
            RunningLoopError: it is called on a running event loop; await `once` there.
        """
        return run_blocking(
            lambda: self.once(name, effect, returns=returns, if_interrupted=if_interrupted),
            called="ctx.once_sync",
            instead="ctx.once",
            home=loop_of_run(),
        )

    # --- people ---

    @overload
    async def ask(self, question: object, answer_type: type[T], **options: Unpack[AskOptions[T]]) -> T: ...
    @overload
    async def ask(self, question: object, **options: Unpack[AskOptions[str]]) -> str: ...
    async def ask(
        self,
        question: object,
        answer_type: Any = str,
        *,
        options: Sequence[Any] | None = None,
        timeout: Duration | None = None,
        on_timeout: object = NOT_GIVEN,
        to: str = "",
        name: str | None = None,
    ) -> Any:
        """Ask a person, and return the answer.

        If there is no answer yet, the step halts here. The other steps continue, and the run ends `paused`,
        so that no process waits. `Inbox.answer`, or `resume(answers=)`, puts an answer on record. The run
        continues when a process calls `wake` or `resume` of its pipeline, or has `serve` running. Then the
        step runs again from its beginning: agent calls and `ctx.once` return their recorded results, and this
        returns the answer.

            if await ctx.ask(f"Refund {amount} dollars?", bool, to="finance"):
                ...

        Args:
            question: The question: text, or any JSON.
            answer_type: The type of the answer.
            options: The only answers that can be given, at least one; by default, any answer of that type.
            timeout: Seconds, from when it is first asked, after which no answer is taken. Then `wake` resumes
                the run. That time is stored: another `timeout` in later code does not move it.
            on_timeout: The answer after that time; without it, `QuestionTimedOut` is raised.
            to: The people to ask: a label for inboxes.
            name: Distinguishes this question from others of the step. By default, questions are numbered,
                which is enough if the step asks them in the same order each time.

        Raises:
            QuestionTimedOut: nobody answered in time.
            ConfigurationError: no store keeps the run, or an option is invalid.
            ValueNotStorable: the question, or an option, cannot be stored.
        """
        self._check_open()
        self._asks += 1
        asked = Ask(
            question=question,
            answer_type=answer_type,
            options=options,
            timeout=timeout,
            on_timeout=on_timeout,
            to=to,
            name=str(self._asks) if name is None else name,
        )
        return asked.answered(self._scope, step_place(self._scope), self.visit)

    async def sleep(self, until: Duration | datetime, *, name: str | None = None) -> None:
        """Sleep for some time, given as a `timedelta` or in seconds, or until a time with a time zone.

        In a run that a store keeps, a sleep of more than 10 seconds halts the step. The other steps continue,
        and the run ends `paused`, so that no process waits. From the end of the sleep on, `wake` resumes the
        run: the step runs again from its beginning, agent calls and `ctx.once` return their recorded results,
        and this returns. Other sleeps wait in the process. Restarts do not move the end of a sleep, and an
        attempt that is repeated does not sleep again. The clock of the step's `timeout` stands still during
        the sleep.

        Args:
            until: The duration or the end. If that time is over, this returns at once.
            name: Distinguishes this sleep from others of the step. By default, sleeps are numbered, which is
                enough if they come in the same order each time.

        Raises:
            ConfigurationError: the time has no time zone, or the duration is negative or not finite.
        """
        await self._wait(Sleep(until), name)

    sleep_sync = blocking(sleep, of="ctx", home=loop_of_run)

    @overload
    async def receive(self, name: str, value_type: type[T], **options: Unpack[WaitOptions[T]]) -> T: ...
    @overload
    async def receive(self, name: str, value_type: Any = ..., **options: Unpack[WaitOptions[Any]]) -> Any: ...
    async def receive(
        self,
        name: str,
        value_type: Any = Any,
        *,
        timeout: Duration | None = None,
        on_timeout: object = NOT_GIVEN,
    ) -> Any:
        """Return the value of the next message with this name. Other code sends it to the run with `send`.

        If there is none, the step halts here, as with `ask`; `wake` resumes the run when the message has
        come. Messages with one name are received in the order in which they were sent, each once. A message
        that is not of the type is skipped, with a warning; a `receive` with another type can still get it, if
        no later message with that name has been received before.

            paid = await ctx.receive("paid", Payment, timeout=timedelta(days=7))

        Args:
            name: The name of the message.
            value_type: The type of the message.
            timeout: Seconds, from the first wait for the message. What is sent later is not received here.
                That time is stored: another `timeout` in later code does not move it.
            on_timeout: The value to return after that time; without it, `MessageTimedOut` is raised.

        Raises:
            MessageTimedOut: nobody sent a message in time.
            ConfigurationError: no store keeps the run, or an option is invalid.
        """
        return await self.wait_for(
            Receive(name=name, value_type=value_type, timeout=timeout, on_timeout=on_timeout)
        )

    @overload
    def receive_sync(self, name: str, value_type: type[T], **options: Unpack[WaitOptions[T]]) -> T: ...
    @overload
    def receive_sync(self, name: str, value_type: Any = ..., **options: Unpack[WaitOptions[Any]]) -> Any: ...
    @blocking_overloaded(receive, of="ctx", home=loop_of_run)
    def receive_sync(self, *args: Any, **options: Any) -> Any:
        """`receive` for steps that are not `async`."""

    async def wait_for(self, awaited: Awaited[T], *, name: str | None = None) -> T:
        """Wait for something that a subclass of `Awaited` describes, and return its value.

        `awaited.look` is called to see whether it has come. If it has not, the step halts here, as with
        `ask`, and the run ends `paused`; `wake` resumes the run when it is time to look again. The value of a
        wait that is over is on record: later attempts and processes get the same value.

        Args:
            awaited: The thing to wait for.
            name: Distinguishes this wait from others of the step for the same. By default, they are
                numbered, which is enough if they come in the same order each time.

        Raises:
            ConfigurationError: it has not come, and no store keeps the run.
            ValueNotStorable: the value of the wait cannot be stored.
        """
        return await self._wait(awaited, name)

    wait_for_sync = blocking(wait_for, of="ctx", home=loop_of_run)

    async def _wait(self, awaited: Awaited[T], name: str | None) -> T:
        self._check_open()
        if self._waits is None:
            self._waits = Counter()
        kind = f"{awaited.what} {awaited.name}"
        self._waits[kind] += name is None
        ordinal = str(self._waits[kind]) if name is None else name
        return await awaited.waited(self._scope, step_place(self._scope), self.visit, ordinal)

    @overload
    def ask_sync(self, question: object, answer_type: type[T], **options: Unpack[AskOptions[T]]) -> T: ...
    @overload
    def ask_sync(self, question: object, **options: Unpack[AskOptions[str]]) -> str: ...
    @blocking_overloaded(ask, of="ctx", home=loop_of_run)
    def ask_sync(self, *args: Any, **options: Any) -> Any:
        """`ask` for steps that are not `async`."""

    # --- spending that does not go through an agent ---

    def record_usage(
        self,
        *,
        model: str,
        provider: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_usd: Amount | None = None,
        cost_calculator: CostCalculator | None = None,
    ) -> RequestRecord:
        """Charge past spending on another SDK or a paid API, and return its record.

        It is priced like a model request, by its tokens, or costs the `cost_usd` that you give. It counts in
        the usage of the step, and in all budgets and spend limits around it; as with `spend`, also in those
        inside of the step.

        The spending is charged even if it crosses a budget or a spend limit: it has happened, so the step
        continues and keeps its output. The next request, purchase, step or node is refused, and so is the
        next call of this method, although its spending is charged. Spend limits are charged in the
        background, so they may refuse a call later. `spend` reserves money first, so that no limit is
        crossed.

        Args:
            model: The model or service that was used, with or without its provider (`openai:gpt-5-mini`).
            provider: Its provider, if `model` does not name it.
            input_tokens: Tokens sent.
            output_tokens: Tokens received.
            cache_read_tokens: Those of `input_tokens` that were read from a cache.
            cache_write_tokens: Those of `input_tokens` that were written to a cache.
            cost_usd: The exact cost in US dollars, if it is known; then no price is looked up.
            cost_calculator: Source of prices; by default genai-prices.

        Raises:
            BudgetExceeded: a budget was crossed before this spending, which is charged.
            UnpricedModelError: there is a budget of money or a spend limit, and the cost is not fully known,
                so it is unknown what is left. The spending is charged.
            ConfigurationError: a negative amount, a cost that is a rounding error of floats, or neither a
                cost nor tokens.
        """
        counts = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cache_read_tokens": cache_read_tokens,
            "cache_write_tokens": cache_write_tokens,
        }
        for option, count in counts.items():
            check_count(option, count, required=True)
        from fastroai.steps.spend_price import price_record  # loads PydanticAI
        from fastroai.usage.prices.pricing import calculator_of

        record = price_record(calculator_of(cost_calculator), model, provider, Tokens(**counts), cost_usd)
        scope = scope_here(self)
        scope.check_process()
        record = scope.labelled(record)
        self._attempt.charge(scope, record)
        return record

    def spend(
        self,
        usd: Amount | None = None,
        *,
        model: str = "",
        provider: str = "",
        units: Units | None = None,
        price_usd: Amount | None = None,
        cost_calculator: CostCalculator | None = None,
    ) -> Spend:
        """Set money aside in every budget and spend limit around this step, before you spend it.

        A `budget_scope` inside of the step counts, too, and so does the call of an agent whose tool spends.

        Enter the `Spend` that this returns with `async with`, or with `with` in sync steps: that sets the
        money aside, and waits while other requests have reserved it. In the block, buy something, and call
        `settle` with the cost, or `release` if you have bought nothing. If you call neither, the purchase
        counts at the most that it can have cost. State that amount as `usd` in US dollars, or as `units` with
        a price. `fastroai.spend` explains the arguments, and also works in tools and in any other code.

            async with ctx.spend("0.02", model="acme:search") as purchase:
                found = await search(question)
                purchase.settle(found.price)

        Raises:
            ConfigurationError: an invalid amount or unit, or nothing says what it can cost.
            BudgetExceeded: on entering, a budget or a spend limit cannot pay for it.
            UnpricedModelError: on entering, there is a budget of money, and no price is known.
        """
        from fastroai.steps.reserving import spend_in  # loads PydanticAI

        self._check_open()
        return spend_in(scope_here(self), usd, model, provider, units, price_usd, cost_calculator)

    async def _report_text(self, text: str) -> None:
        await self._scope.emit(TextChunk(part=self._scope.part, step_id=self._scope.name, text=text))

    def _check_open(self) -> None:
        if self._attempt.is_over:
            raise ScopeClosedError(self._scope.path)

    async def _report_call_retry(self, call: AgentCall, retry: Retry) -> None:
        await self._scope.emit(step_retried(self._scope, retry, call.call or ""))


def scope_of(context: StepContext[Any]) -> Scope:
    """Return the scope of a step."""
    return context._scope


def scope_here(context: StepContext[Any]) -> Scope:
    """Return the scope of the running code, if it is one inside of a step, like a `budget_scope`; or the
    step's.
    """
    own, here = context._scope.in_this_process(), current_scope()
    return here if here is not None and here.place_scope is own else own


def show(context: StepContext[Any], values: Mapping[str, object]) -> None:
    """Make these values readable under their names, as inputs and outputs, in this attempt of a step."""
    context._data = context._data.showing(values, to=context.step_id)


async def in_thread(context: StepContext[Any], function: Callable[[], T]) -> T:
    """Call a blocking function of a step in a worker thread, with the step's context variables.

    When the attempt is cancelled or times out, the thread cannot be stopped: it is left running, a warning is
    logged, and its later calls on the context raise.
    """
    return await run_in_thread(function, what=f"step {context.step_id!r}")
