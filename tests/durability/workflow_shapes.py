"""Workflows that are killed: attempts, loops, flows in each other, gates, steps side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durability.shapes import agent, ran

from fastroai import PipelineConfig, StepContext
from fastroai.steps.context import scope_of
from fastroai.workflows import BoundWorkflow, Workflow

SPEC: Final = """
version: "0.2"
contracts:
  Text: {text: {type: string}}
  Found: {items: {type: array}}
functions:
  shorten: {mode: compute, intent: Shorten it, input: {text: {type: string}}, output: Text, retries: 2,
            ensure: ["len(result.text) < 12"]}
  find: {mode: compute, intent: Find more, output: Found}
  agree: {mode: gate, intent: Send it?}
flows:
  main:
    input: {text: {type: string}}
    output: Text
    max_rounds: 3
    steps:
    - {id: write, agent: writer, intent: Write it, inputs: {text: $.input.text}}
    - {id: other, agent: writer, intent: Write another, inputs: {text: $.input.text}}
    - {id: find, function: find, max_iterations: 4, accumulate: items, exit_criterion: accumulated_count >= 2}
    - {id: inner, flow: polish, inputs: {text: $.input.text}, depends_on: [write, other]}
    - {id: agreed, function: agree, inputs: {text: $.steps.inner.output.text}, on_approve: last,
       on_revise: inner, on_kill: null}
    - {id: last, function: shorten, inputs: {text: $.input.text}}
  polish:
    input: {text: {type: string}}
    output: Text
    steps:
    - {id: ask, agent: writer, intent: Polish it, inputs: {text: $.input.text}}
    - {id: short, function: shorten, inputs: {text: $.input.text}, depends_on: [ask]}
"""


@dataclass(frozen=True)
class WorkflowShape:
    """A workflow, its inputs, and what people decide at its gate, first first."""

    workflow: BoundWorkflow
    inputs: Mapping[str, Any]
    decisions: tuple[str, ...]


def workflow_of_all(config: PipelineConfig) -> WorkflowShape:
    """Everything that a run of a workflow can do."""

    async def shorten(context: StepContext[Any], text: str) -> dict[str, str]:
        ran(context)
        again = scope_of(context).ordinal % 2 == 0
        return {"text": text[:10] if again else text * 10}

    async def find(context: StepContext[Any]) -> dict[str, list[str]]:
        count = context.shared.setdefault("found", 0)
        context.shared["found"] = count + 1
        if not count:  # an iteration is no run of its own
            ran(context)
        return {"items": ["one"] if count == 0 else ["one", "two"]}

    workflow = Workflow.load(SPEC).bind(
        functions={"shorten": shorten, "find": find}, agents={"writer": agent("writer")}, config=config
    )
    return WorkflowShape(workflow, {"text": "a text"}, ("revise", "approve"))


WORKFLOWS: Final[dict[str, Callable[[PipelineConfig], WorkflowShape]]] = {"workflow_of_all": workflow_of_all}
