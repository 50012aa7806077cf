"""LangGraph: steps as nodes of its graphs, and its graphs as steps. Needs the extra `langgraph`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, cast, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from fastroai.contracts.annotations import Annotation, outer_class
from fastroai.contracts.declared import returned_type
from fastroai.errors import (
    ConfigurationError,
    LangGraphStopped,
    MissingExtraError,
    RunExists,
    StepExecutionError,
)
from fastroai.pipelines import Pipeline, PipelineResult
from fastroai.records import NOT_GIVEN, NotGiven
from fastroai.runtime import FailureClass, FailureContext, current_scope, run_blocking
from fastroai.runtime.retrying.failures import may_retry
from fastroai.runtime.scope import RUNS, current_tool_calls
from fastroai.steps import BaseStep, ConversationState, PipelineConfig, StepConfig, StepContext

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.runtime import ExecutionInfo, Runtime
    from langgraph.types import Command, Interrupt, StateSnapshot
    from langgraph.typing import NodeInputT as InputT
    from langgraph.typing import StateT as FinalT
else:
    InputT, FinalT = TypeVar("InputT"), TypeVar("FinalT")  # those of LangGraph have private bounds

__all__ = ["as_node", "graph_step", "worth_retrying"]

DepsT = TypeVar("DepsT", default=Any)
OutputT = TypeVar("OutputT", default=Any)

NodeUpdate: TypeAlias = "Mapping[str, object] | BaseModel | Command[Any] | None"
"""A value that LangGraph accepts from a node: new values of keys of the state, or a command. LangGraph
accepts dataclasses, too.
"""

Answer: TypeAlias = "Callable[[StepContext[DepsT], tuple[Interrupt, ...]], object]"

_STEP_KEY: Final = "fastroai_step"
"""Key in the metadata of checkpoints: its value is the idempotency key of the step that ran the graph."""

_UPDATE: Final = (
    "the key of the state for the output of step {!r}: it gives {!r}, not a dict, model or dataclass"
)


def worth_retrying(error: Exception) -> bool:
    """Return whether LangGraph may run a node again: `RetryPolicy(retry_on=worth_retrying)`.

    A node is not run again after a failure on which FastroAI has used up its retries, or after one that
    another try cannot help, such as a budget stop or a violated contract.
    """
    return may_retry(error)


def _check_installed(feature: str) -> None:
    if importlib.util.find_spec("langgraph") is None:
        raise MissingExtraError(feature, "langgraph", "langgraph")


# --- a step as a node ---


def as_node(
    step: BaseStep[DepsT, Any],
    *,
    step_id: str | None = None,
    reads: Sequence[str] | None = None,
    writes: str | None = None,
    deps: DepsT | NotGiven = NOT_GIVEN,
    config: StepConfig | None = None,
    pipeline_config: PipelineConfig | None = None,
) -> Runnable[Any, NodeUpdate]:
    """Return a node of a LangGraph graph that runs a step, with its contract, retries, limits and budget.

    The node is a pipeline of one step: the state is its inputs. It works in `invoke` and in `ainvoke`.

        builder.add_node("classify", as_node(classify, reads=["ticket"], writes="category"))

    Around a call of the graph, `budget_scope` bounds and accounts for all of its nodes.

    Args:
        step: The step. Its code sees the state with `ctx.get_input`.
        step_id: The id of the step in errors, traces and accounts; the name of its function unless given.
        reads: The keys of the state that the step sees; all of them unless given.
        writes: The key of the state for the output; unless given, the output is a dict, model or dataclass
            with values for the keys of the same names, or a LangGraph `Command`.
        deps: The `ctx.deps` of the step; the context that the graph is called with unless given.
        config: Settings of the step.
        pipeline_config: Settings of the pipeline around the step. With a `store`, a node that was cut off
            and that LangGraph runs again from its checkpoint repeats no request that was answered.

    Raises:
        MissingExtraError: langgraph is not installed (the extra `langgraph`).
        ConfigurationError: an invalid option.
    """
    _check_installed("as_node")
    from langchain_core.runnables import RunnableLambda

    name = step_id or getattr(step, "__name__", None)
    if not isinstance(name, str):
        raise ConfigurationError("step_id", step_id, f"a name, as {step!r} has none")
    if isinstance(reads, str):
        raise ConfigurationError("reads", reads, f"a list of keys: [{reads!r}]")
    defaults = pipeline_config or PipelineConfig()
    pipeline: Pipeline[DepsT] = Pipeline(
        name,
        {name: step},
        config=replace(defaults, classifiers=(_signals_are_final, *defaults.classifiers)),
        step_configs={} if config is None else {name: config},
    )
    declared = outer_class(pipeline.declared_output())
    if writes is None and isinstance(declared, type) and not _is_update(declared):
        raise ConfigurationError("writes", writes, _UPDATE.format(name, declared.__name__))
    node = _Node(pipeline, reads, writes, deps)
    return RunnableLambda(node.run_sync, node.run, name=name)


@dataclass(frozen=True, slots=True)
class _Node(Generic[DepsT]):
    """A pipeline of one step, from the state of a graph to an update of it."""

    pipeline: Pipeline[DepsT]
    reads: Sequence[str] | None
    writes: str | None
    deps: DepsT | NotGiven

    async def run(self, state: object) -> NodeUpdate:
        """Run the step in `ainvoke`."""
        inputs, deps, run_id = self._inputs(state), self._deps(), _run_id()
        with _unwrapped_signals(), _visit():
            try:
                result = await self.pipeline.execute(inputs, deps, run_id=run_id)
            except RunExists:
                result = await self.pipeline.resume(str(run_id), deps=deps)
            return self._update(result)

    def run_sync(self, state: object) -> NodeUpdate:
        """Run the step in `invoke`, which has a thread for each node where several run at once."""
        return run_blocking(lambda: self.run(state), called="graph.invoke", instead="graph.ainvoke")

    def _inputs(self, state: object) -> dict[str, object]:
        values = _fields_of(state)
        return {key: values[key] for key in (values if self.reads is None else self.reads) if key in values}

    def _deps(self) -> DepsT:
        if not isinstance(self.deps, NotGiven):
            return self.deps
        runtime = _runtime()
        return cast("DepsT", None if runtime is None else runtime.context)

    def _update(self, result: PipelineResult[Any]) -> NodeUpdate:
        from langgraph.types import Command

        for error in result.errors.values():  # with on_error="continue", which is for other steps
            raise StepExecutionError(self.pipeline.name, error) from error
        output: object = result.conversation_state if result.stopped_early else result.output
        if isinstance(output, Command):
            return output
        if self.writes is not None:
            return {self.writes: output}
        if isinstance(output, Mapping):
            return dict(output)  # LangGraph accepts only this mapping
        if not _is_update(type(output)):
            raise ConfigurationError(
                "writes", None, _UPDATE.format(self.pipeline.name, type(output).__name__)
            )
        return cast("NodeUpdate", output)


def _is_update(kind: type) -> bool:
    """Return whether LangGraph accepts an instance as new values for keys of the state."""
    from langgraph.types import Command

    if issubclass(kind, ConversationState):
        return False
    return issubclass(kind, Mapping | BaseModel | Command | type(None)) or is_dataclass(kind)


def _fields_of(state: object) -> Mapping[str, object]:
    if isinstance(state, Mapping):
        return state
    if isinstance(state, BaseModel):
        return {name: getattr(state, name) for name in type(state).model_fields}
    if is_dataclass(state) and not isinstance(state, type):
        return {field.name: getattr(state, field.name) for field in fields(state)}
    raise ConfigurationError("state", state, "a dict, a pydantic model or a dataclass; send one to the node")


# --- the place of a node in a run of LangGraph ---


def _runtime() -> Runtime[Any] | None:
    """Return the runtime of LangGraph; `None` where a node is called by itself, as in a test."""
    from langgraph.runtime import get_runtime

    return cast("Runtime[Any] | None", get_runtime())


def _execution() -> ExecutionInfo | None:
    runtime = _runtime()
    return None if runtime is None else runtime.execution_info


def _run_id() -> str | None:
    """Return the id that each run of this visit has in LangGraph; `None` inside of a run of FastroAI."""
    around = current_scope()
    inside = around is not None and any(scope.kind in RUNS for scope in around.lineage())
    execution = _execution()
    return None if inside or execution is None else execution.task_id


@contextmanager
def _visit() -> Iterator[None]:
    """Give this visit of the node a key of its own, in a run of FastroAI that is on record.

    LangGraph's task id is stable if the graph has a checkpointer, which needs a thread. Without one, the
    graph starts over in a new process, and comes to the same steps in the same order. In graphs inside of it,
    steps may overtake each other, and are run again.
    """
    execution = _execution()
    if execution is None:
        yield
        return
    visit = execution.task_id
    if execution.thread_id is None and "|" not in execution.checkpoint_ns:
        visit = _step_of_graph()
    calls = current_tool_calls.get()
    token = current_tool_calls.set(calls._replace(key=".".join(filter(None, (calls.key, visit)))))
    try:
        yield
    finally:
        current_tool_calls.reset(token)


def _step_of_graph() -> str:
    from langgraph.config import get_config

    metadata = get_config().get("metadata", {})
    # The second part of the path is the node's name, or the number of the `Send` to it.
    return f"{metadata['langgraph_step']}-{metadata['langgraph_path'][1]}"


# --- LangGraph's control flow by exceptions ---


def _signals_are_final(error: BaseException, context: FailureContext) -> FailureClass | None:
    """Classify an interrupt, or a command to a parent graph, as a signal that no step may retry."""
    from langgraph.errors import GraphBubbleUp

    return FailureClass.TERMINAL if isinstance(error, GraphBubbleUp) else None


@contextmanager
def _unwrapped_signals() -> Iterator[None]:
    from langgraph.errors import GraphBubbleUp

    try:
        yield
    except StepExecutionError as error:
        if isinstance(error.original_error, GraphBubbleUp):
            raise error.original_error from None
        raise


# --- a graph as a step ---


class GraphStep(BaseStep[DepsT, OutputT], Generic[InputT, FinalT, DepsT, OutputT]):
    """Runs a compiled LangGraph graph inside a step; made by `graph_step`."""

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, InputT, FinalT],
        inputs: Callable[[StepContext[DepsT]], InputT | Command[Any]] | None,
        output: Callable[[FinalT], OutputT] | str | None,
        answer: Answer[DepsT] | None,
        config: StepConfig,
        graph_config: RunnableConfig | None,
    ) -> None:
        self.graph, self.inputs, self.output, self.answer = graph, inputs, output, answer
        self.config, self.graph_config = config, graph_config
        # `True` and `False` are for graphs inside of other graphs.
        self._has_checkpoints = not isinstance(graph.checkpointer, bool | None)

    def __repr__(self) -> str:
        return f"<step of LangGraph's {self.graph.get_name()!r}>"

    def inferred_output(self) -> Annotation | None:
        """Return the type that `output` declares to return."""
        return returned_type(self.output) if callable(self.output) else None

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Run the graph to its end, from its last checkpoint if it has one.

        Raises:
            LangGraphStopped: the graph waits for an answer, or has used up its recursion limit.
        """
        from langgraph.errors import GraphRecursionError

        config = self._config(context)
        try:
            final = await self.graph.ainvoke(
                await self._entry(context, config), config, context=context.deps, version="v2"
            )
        except GraphRecursionError as error:
            limit = str(config.get("recursion_limit", "LangGraph's default"))
            raise LangGraphStopped(context.step_id, "recursion limit", limit) from error
        if final.interrupts:
            self._refuse_to_wait(context, final.interrupts)
        return self._output(final.value)

    def _config(self, context: StepContext[DepsT]) -> RunnableConfig:
        """Return the configuration of LangGraph. With checkpoints, attempts at this step share a thread."""
        config = cast("RunnableConfig", dict(self.graph_config or {}))
        if self._has_checkpoints:
            key = context.idempotency_key
            config["configurable"] = {"thread_id": key, **config.get("configurable", {})}
            config["metadata"] = {**config.get("metadata", {}), _STEP_KEY: key}
        return config

    async def _entry(
        self, context: StepContext[DepsT], config: RunnableConfig
    ) -> InputT | Command[Any] | None:
        """Return the input of the graph; `None` lets the graph go on from its last checkpoint."""
        from langgraph.types import Command

        if self._has_checkpoints:
            before: StateSnapshot = await self.graph.aget_state(config)
            # If the user names the thread, its checkpoint may come from an earlier run.
            is_ours = dict(before.metadata or {}).get(_STEP_KEY) == context.idempotency_key
            if before.interrupts:
                answer = None if self.answer is None else self.answer(context, before.interrupts)
                if answer is not None:
                    return Command(resume=answer)
                if is_ours:
                    self._refuse_to_wait(context, before.interrupts)
            elif is_ours:
                return None
        if self.inputs is not None:
            return self.inputs(context)
        return cast("InputT", {**context.inputs, **context.direct_outputs})

    def _refuse_to_wait(self, context: StepContext[DepsT], interrupts: tuple[Interrupt, ...]) -> NoReturn:
        questions = ", ".join(repr(interrupt.value) for interrupt in interrupts)
        raise LangGraphStopped(context.step_id, "interrupt", questions)

    def _output(self, final: FinalT) -> OutputT:
        if self.output is None:
            return cast("OutputT", final)
        if not isinstance(self.output, str):
            return self.output(final)
        values = _fields_of(final)
        if self.output not in values:
            raise ConfigurationError("output", self.output, f"a key of the final state: {', '.join(values)}")
        return cast("OutputT", values[self.output])


@overload
def graph_step(
    graph: CompiledStateGraph[Any, Any, InputT, FinalT],
    *,
    inputs: Callable[[StepContext[DepsT]], InputT | Command[Any]] | None = ...,
    output: None = ...,
    answer: Answer[DepsT] | None = ...,
    config: StepConfig | None = ...,
    graph_config: RunnableConfig | None = ...,
) -> BaseStep[DepsT, FinalT]: ...
@overload
def graph_step(
    graph: CompiledStateGraph[Any, Any, InputT, FinalT],
    *,
    inputs: Callable[[StepContext[DepsT]], InputT | Command[Any]] | None = ...,
    output: str,
    answer: Answer[DepsT] | None = ...,
    config: StepConfig | None = ...,
    graph_config: RunnableConfig | None = ...,
) -> BaseStep[DepsT, Any]: ...
@overload
def graph_step(
    graph: CompiledStateGraph[Any, Any, InputT, FinalT],
    *,
    inputs: Callable[[StepContext[DepsT]], InputT | Command[Any]] | None = ...,
    output: Callable[[FinalT], OutputT],
    answer: Answer[DepsT] | None = ...,
    config: StepConfig | None = ...,
    graph_config: RunnableConfig | None = ...,
) -> BaseStep[DepsT, OutputT]: ...


def graph_step(
    graph: CompiledStateGraph[Any, Any, InputT, FinalT],
    *,
    inputs: Callable[[StepContext[DepsT]], InputT | Command[Any]] | None = None,
    output: Callable[[FinalT], Any] | str | None = None,
    answer: Answer[DepsT] | None = None,
    config: StepConfig | None = None,
    graph_config: RunnableConfig | None = None,
) -> BaseStep[DepsT, Any]:
    """Return a step that runs a compiled LangGraph graph. What nodes spend through FastroAI is charged to it.

        Pipeline("desk", {"triage": graph_step(graph, output="reply"), "send": send}, {"send": ["triage"]})

    `ctx.deps` are the context of the graph, which `as_node` gives to its steps. A graph with a checkpointer
    goes on from its last checkpoint when the step is tried again or the run resumed: its thread is
    `ctx.idempotency_key`.

    Args:
        graph: The graph.
        inputs: Makes the input of the graph; by default the inputs of the run, and the outputs of the step's
            direct dependencies under their ids.
        output: Makes the output of the step from the final state, or names a key of that state; the whole
            state unless given.
        answer: Called with the context and the interrupts, if the graph was interrupted. Returns the answer,
            or `None` if there is none yet.
        config: Settings of the step.
        graph_config: The configuration of LangGraph, such as `{"recursion_limit": 50}`.

    Raises:
        MissingExtraError: langgraph is not installed (the extra `langgraph`).
        ConfigurationError: `graph` is not a compiled graph.
    """
    _check_installed("graph_step")
    if not hasattr(graph, "ainvoke") or not hasattr(graph, "checkpointer"):
        raise ConfigurationError("graph", graph, "a compiled graph: builder.compile()")
    return GraphStep(graph, inputs, output, answer, config or StepConfig(), graph_config)
