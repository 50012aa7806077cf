"""The agents and functions that carry out steps when FastroAI runs a workflow itself."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pydantic import JsonValue
from pydantic_ai import StructuredDict, capture_run_messages
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models import Model
from pydantic_core import from_json

from fastroai.agent import FastroAgent
from fastroai.calls.call import AgentCall, AgentLike
from fastroai.calls.response import ChatResponse
from fastroai.calls.stream import ChatStream
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.functions.attempts import NO_OUTPUT
from fastroai.functions.declaring.opacity import one_line_json
from fastroai.functions.prompt import DATA_HEADING, retry_prompt
from fastroai.functions.typed_answers import said_in
from fastroai.steps import StepContext
from fastroai.steps.context import in_thread
from fastroai.steps.copies import own_copy
from fastroai.store.record.values import value_to_json
from fastroai.workflows.plan import FlowPlan, WorkflowPlan
from fastroai.workflows.spec.document import FlowSpec, Reference, StepSpec
from fastroai.workflows.spec.schemas import contract_schema

Callables = Mapping[str, Callable[..., object]]
Agents = Mapping[str, FastroAgent[Any, Any]]

_ANY_OBJECT: Final[Mapping[str, JsonValue]] = {"type": "object", "additionalProperties": True}
_PREVIOUS: Final = "previous_result"
"""The name of the failed result, among the data of the next attempt."""


@dataclass(frozen=True, slots=True)
class Task:
    """The data of one attempt at a step."""

    inputs: Mapping[str, JsonValue]
    previous: JsonValue = None
    """The result of the attempt, or of the iteration, before this one."""
    violations: Sequence[str] = ()
    """Violations of `previous`."""
    name: str | None = None
    """Name of the agent call, which tells it from other calls of the step when the run is resumed."""


Performer: TypeAlias = Callable[[StepContext[Any], Task], Awaitable[JsonValue]]
"""Makes one attempt at a step, and returns its result, which is not yet checked."""


class Performers:
    """The performers of the steps of a workflow, by step id. Gates and sub-flows have none."""

    def __init__(
        self, plan: WorkflowPlan, functions: Callables, agents: Agents, model: Model | str | None
    ) -> None:
        """Find an agent, a model or a function for each step.

        Raises:
            ConfigurationError: something is missing or of no use; the message lists all problems at once.
        """
        self._plan, self._functions, self._agents, self._model = plan, functions, agents, model
        self._fields_read = {name: _fields_read(flow) for name, flow in plan.spec.flows.items()}
        problems = dict.fromkeys((*self._unknown(), *self._missing()))
        if problems:
            expected = "what the steps need: " + "; ".join(problems)
            raise ConfigurationError("workflow", plan.entry.flow.name, expected)
        self.by_step: Mapping[str, Performer] = MappingProxyType(
            {
                step_id: self._performer(flow, step)
                for step_id, (flow, step) in plan.steps.items()
                if step.kind in ("function", "inline")
            }
        )

    def _performer(self, flow: FlowPlan, step: StepSpec) -> Performer:
        if step.mode == "compute" and step.function is not None:
            return _computing(step.function, self._functions[step.function])
        brought = self._agent_for(step)
        schema = self._schema(flow, step)
        agent = brought or FastroAgent(self._model_of(step), name=step.function or step.id)
        return _asking(step, agent, schema, None if brought is None else step.model)

    def _schema(self, flow: FlowPlan, step: StepSpec) -> Mapping[str, JsonValue] | None:
        """Return the schema of the result of an agent; `None` if the result is text."""
        if step.output_schema is not None:
            return step.output_schema
        if step.output_contract is not None:
            return contract_schema(self._plan.spec.contracts[step.output_contract])
        return _ANY_OBJECT if step.iteration is not None or self._has_fields(flow, step) else None

    def _has_fields(self, flow: FlowPlan, step: StepSpec) -> bool:
        """Return whether a check, or another step, looks up a field of the result."""
        if any(path[0] == "result" and len(path) > 1 for check in step.ensure for path in check.paths):
            return True
        if step.id in self._fields_read[flow.flow.name]:
            return True
        last = next((one for one in reversed(flow.flow.steps) if one.gate is None), None)
        return bool(flow.path) and step is last and self._has_fields(*self._plan.steps[flow.path])

    def _agent_for(self, step: StepSpec) -> FastroAgent[Any, Any] | None:
        return self._agents.get(step.agent or step.function or "")

    def _model_of(self, step: StepSpec) -> Model | str | None:
        return step.model or self._model

    def _missing(self) -> Iterator[str]:
        for step_id, (_, step) in self._plan.steps.items():
            if step.mode == "compute":
                if step.function not in self._functions:
                    yield f"functions={{{step.function!r}: ...}}, a callable, as {step_id!r} computes"
            elif step.kind in ("function", "inline") and self._agent_for(step) is None:
                if self._model_of(step) is not None:
                    continue
                if step.agent is not None:
                    yield f"agents={{{step.agent!r}: ...}} or a model=, as {step_id!r} asks an agent"
                else:
                    yield f"a model= for {step_id!r}, whose spec names none"

    def _unknown(self) -> Iterator[str]:
        spec = self._plan.spec
        computed = [name for name, one in spec.functions.items() if one.mode == "compute"]
        asked = {
            step.agent or step.function or "": None
            for _, step in self._plan.steps.values()
            if step.function not in computed
        }
        asked |= dict.fromkeys(name for name, one in spec.functions.items() if one.mode == "infer")
        for name, call in self._functions.items():
            if name not in computed:
                hint = nearest_hint(name, computed)
                yield f"functions= without {name!r}, which is not a compute function of the spec.{hint}"
            if not _has_parameters(call):
                what = f"functions[{name!r}], with parameters that can be read, instead of {call!r}"
                yield f"a function as {what}"
        for name, agent in self._agents.items():
            if name not in asked:
                hint = nearest_hint(name, asked)
                yield (
                    f"agents= without {name!r}, which is neither an agent nor an infer function of the "
                    f"spec.{hint}"
                )
            if not isinstance(agent, FastroAgent):
                yield f"a FastroAgent as agents[{name!r}]"


def _fields_read(flow: FlowSpec) -> set[str]:
    """Return the steps of a flow whose results have fields that other steps look up."""
    found: set[str] = set()
    for step in flow.steps:
        given = [*step.inputs.values(), None if step.gate is None else step.gate.policy]
        found |= {one.step_id for one in given if isinstance(one, Reference) and one.step_id and one.path}
        looked_up = () if step.skip_if is None else step.skip_if.paths
        found |= {str(path[1]) for path in looked_up if path[0] == "steps" and len(path) > 3}
    return found


def _computing(name: str, function: Callable[..., object]) -> Performer:
    """Return a performer that calls a function, in a thread if it is not async.

    The function gets copies of its inputs, and its result is copied: it may change both in place.
    """
    takes_context = _takes_context(function)

    async def perform(context: StepContext[Any], task: Task) -> JsonValue:
        call = partial(function, context) if takes_context else function
        inputs: dict[str, Any] = {name: own_copy(value) for name, value in task.inputs.items()}
        if inspect.iscoroutinefunction(function):
            result: object = await call(**inputs)  # type: ignore[misc]  # it is a coroutine function
        else:
            result = await in_thread(context, lambda: call(**inputs))
            if inspect.isawaitable(result):
                result = await result
        copied: JsonValue = own_copy(value_to_json(result, None, f"the result of function {name!r}"))
        return copied

    return perform


def _has_parameters(call: object) -> bool:
    """Return whether an object can be called, and says with what. Some builtin types, as `str`, do not."""
    try:
        return callable(call) and inspect.signature(call) is not None
    except ValueError:
        return False


def _takes_context(call: Callable[..., object]) -> bool:
    """Return whether the first parameter is a `StepContext`, by its annotation or its name."""
    first = next(iter(inspect.signature(call).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    return first.name in ("ctx", "context") or "StepContext" in str(first.annotation)


def _asking(
    step: StepSpec,
    agent: FastroAgent[Any, Any],
    schema: Mapping[str, JsonValue] | None,
    model: str | None,
) -> Performer:
    """Return a performer that asks an agent for a result that fits a schema; for text without one."""
    asked = _AnyAnswer(agent, str if schema is None else StructuredDict(dict(schema)))
    checks = "\n".join(["The result must meet:", *(f"- {check.text}" for check in step.ensure)])
    instructions = "\n\n".join(filter(None, (step.intent, step.context, checks if step.ensure else "")))

    async def perform(context: StepContext[Any], task: Task) -> JsonValue:
        data = dict(task.inputs)
        parts = [instructions]
        if task.violations:
            data[_PREVIOUS] = task.previous
            parts[0] += "\n\n" + retry_prompt(task.violations)
        if data:
            parts.append(f"{DATA_HEADING}\n{one_line_json(data)}")
        response = await context.run(asked, parts, model=model, name=task.name)
        return value_to_json(response.output, None, "the answer")

    return perform


class _AnyAnswer:
    """An agent that gets no second try at its output. Output that PydanticAI rejects raises `NotAnOutput`."""

    def __init__(self, agent: AgentLike[Any], output_type: Any) -> None:
        self._agent, self._output_type = agent, output_type

    async def dispatch(self, call: AgentCall) -> ChatResponse[Any]:
        """Make one attempt at the call."""
        call = replace(call.with_options(retries={"output": 0}), output_type=self._output_type)
        with capture_run_messages() as messages:
            try:
                return await self._agent.dispatch(call)
            except UnexpectedModelBehavior as error:
                if not error.message.startswith(NO_OUTPUT):
                    raise
                raise NotAnOutput(_read(said_in(messages))) from error

    def dispatch_stream(self, call: AgentCall) -> ChatStream[Any]:
        """Stream the answer. Workflows do not use this method; the protocol of agents has it."""
        return self._agent.dispatch_stream(call)


class NotAnOutput(Exception):
    """PydanticAI has rejected the answer of a model as output; `said` is that answer."""

    def __init__(self, said: JsonValue) -> None:
        self.said = said


def _read(text: str) -> JsonValue:
    try:
        said: JsonValue = from_json(text)
    except ValueError:
        return text
    return said
