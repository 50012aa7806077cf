"""Every key of workflow specs and of graphs in YAML changes what is made of the document."""

from __future__ import annotations

import ast
import copy
import json
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import fastroai
from fastroai import StepContext, step
from fastroai.documents.parts import Part
from fastroai.graphs import document as graph_yaml
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.spec import document, parts
from fastroai.workflows.spec.reading import load_spec

WORKFLOWS: Final = Path(fastroai.__file__).parent / "workflows"

SPEC: Final[dict[str, Any]] = {
    "version": "0.3",
    "workflow": {"name": "inner"},
    "contracts": {
        "Out": {"x": {"type": "string"}, "items": {"type": "array"}},
        "Other": {"y": {"type": "string"}},
    },
    "functions": {
        "write": {"mode": "infer", "intent": "Write", "output": "Out"},
        "review": {"mode": "gate"},
    },
    "flows": {
        "main": {
            "input": {"topic": {"type": "string"}},
            "steps": [
                {"id": "first", "function": "write"},
                {"id": "step", "intent": "Work"},
                {"id": "last", "intent": "Work"},
                {"id": "fix", "intent": "Work"},
                {
                    "id": "ask",
                    "function": "review",
                    "depends_on": ["last"],
                    "on_approve": None,
                    "on_kill": None,
                },
            ],
        },
        "inner": {"steps": [{"id": "inside", "intent": "Work"}]},
        "second": {"steps": [{"id": "inside", "intent": "Work"}]},
    },
}
PLACES: Final[dict[type[Part], tuple[Any, ...]]] = {
    parts.SpecPart: (),
    parts.WorkflowPart: ("workflow",),
    parts.FieldPart: ("flows", "main", "input", "topic"),
    parts.FunctionPart: ("functions", "write"),
    parts.FlowPart: ("flows", "main"),
    parts.StepPart: ("flows", "main", "steps", 1),
    parts.BudgetPart: ("flows", "main", "budget"),
}
"""A part of each kind in the spec above."""
GATE: Final = ("flows", "main", "steps", 4)
LOOP: Final[dict[str, Any]] = {"max_iterations": 2, "output_contract": "Out"}
INPUT: Final[dict[str, Any]] = {"n": {"type": "integer"}}

ROWS: Final[dict[str, tuple[Any, ...]]] = {
    "SpecPart.version": ({}, {"version": "0.2"}),
    "SpecPart.workflow": ({}, {"workflow": {"name": "second"}}),
    "SpecPart.contracts": ({}, {"contracts": {**SPEC["contracts"], "More": {"z": {"type": "string"}}}}),
    "SpecPart.functions": ({}, {"functions": {**SPEC["functions"], "more": SPEC["functions"]["write"]}}),
    "SpecPart.flows": ({}, {"flows": {**SPEC["flows"], "more": SPEC["flows"]["inner"]}}),
    "WorkflowPart.name": ({}, {"name": "second"}),
    "WorkflowPart.description": ({}, {"description": "It works."}),
    "WorkflowPart.input": (
        {"name": "main", "input": {"topic": {"type": "string"}}},
        {"name": "main", "input": {"topic": {"type": "string", "description": "The topic"}}},
    ),
    "FieldPart.type": ({}, {"type": "integer"}),
    "FieldPart.values": ({}, {"values": ["a", "b"]}),
    "FieldPart.required": ({}, {"required": False}),
    "FieldPart.default": ({}, {"default": "a"}),
    "FieldPart.description": ({}, {"description": "The topic"}),
    "BudgetPart.ms": ({"usd": 1}, {"usd": 1, "ms": 5}),
    "BudgetPart.usd": ({"ms": 5}, {"ms": 5, "usd": 1}),
    "BudgetPart.tokens": ({"usd": 1}, {"usd": 1, "tokens": 5}),
    "FunctionPart.mode": ({}, {"mode": "compute"}),
    "FunctionPart.intent": ({}, {"intent": "Write more"}),
    "FunctionPart.context": ({}, {"context": "As a poet"}),
    "FunctionPart.input": ({}, {"input": {"n": {"type": "integer", "required": False}}}),
    "FunctionPart.output": ({}, {"output": "Other"}),
    "FunctionPart.ensure": ({}, {"ensure": ["result.x != ''"]}),
    "FunctionPart.retries": ({}, {"retries": 7}),
    "FunctionPart.budget": ({}, {"budget": {"usd": 1}}),
    "FunctionPart.model": ({}, {"model": "openai:gpt-5-mini"}),
    "FunctionPart.timeout": ({}, {"timeout": 5}, ("functions", "review")),
    "FlowPart.input": ({}, {"input": INPUT}),
    "FlowPart.output": ({}, {"output": "Out"}),
    "FlowPart.budget": ({}, {"budget": {"usd": 1}}),
    "FlowPart.max_rounds": ({}, {"max_rounds": 2}),
    "FlowPart.steps": ({}, {"steps": SPEC["flows"]["inner"]["steps"]}),
    "StepPart.id": ({}, {"id": "other"}),
    "StepPart.function": ({}, {"intent": None, "function": "write"}),
    "StepPart.intent": ({}, {"intent": "Work more"}),
    "StepPart.flow": ({}, {"intent": None, "flow": "inner"}),
    "StepPart.agent": ({}, {"agent": "claude"}),
    "StepPart.inputs": ({}, {"inputs": {"topic": "$.input.topic"}}),
    "StepPart.depends_on": ({}, {"depends_on": ["first"]}),
    "StepPart.output_schema": ({}, {"output_schema": {"type": "object"}}),
    "StepPart.output_contract": ({}, {"output_contract": "Out"}),
    "StepPart.ensure": ({}, {"ensure": ["input != null"]}),
    "StepPart.retries": ({}, {"retries": 7}),
    "StepPart.model": ({}, {"model": "openai:gpt-5-mini"}),
    "StepPart.budget": ({}, {"budget": {"usd": 1}}),
    "StepPart.skip_if": ({}, {"skip_if": "input.topic == 'a'"}),
    "StepPart.skip_reason": ({"skip_if": "true"}, {"skip_if": "true", "skip_reason": "it is known"}),
    "StepPart.on_fail": ({"budget": {"usd": 1}}, {"budget": {"usd": 1}, "on_fail": "fix"}),
    "StepPart.next": ({}, {"next": "last"}),
    "StepPart.max_iterations": ({}, {"max_iterations": 2}),
    "StepPart.exit_criterion": (LOOP, {**LOOP, "exit_criterion": "result.x == 'a'"}),
    "StepPart.accumulate": (LOOP, {**LOOP, "accumulate": "items"}),
    "StepPart.accumulate_key": (
        {**LOOP, "accumulate": "items"},
        {**LOOP, "accumulate": "items", "accumulate_key": "id"},
    ),
    "StepPart.on_approve": ({}, {"on_approve": "fix"}, GATE),
    "StepPart.on_revise": ({}, {"on_revise": "last"}, GATE),
    "StepPart.on_kill": ({}, {"on_kill": "fix"}, GATE),
    "StepPart.policy": ({}, {"policy": "flag"}, GATE),
    "StepPart.policy_fallback": (
        {"policy": "$.input.topic"},
        {"policy": "$.input.topic", "policy_fallback": "flag"},
        GATE,
    ),
}
"""For each key: what a part has without it and with it, and which part, if not the one in `PLACES`."""

GRAPH: Final[dict[str, Any]] = {
    "name": "g",
    "nodes": {"a": {}, "b": {}},
    "edges": [{"source": "a", "target": "b"}],
}
GRAPH_PLACES: Final[dict[type[Part], tuple[Any, ...]]] = {
    graph_yaml.GraphPart: (),
    graph_yaml.NodePart: ("nodes", "a"),
    graph_yaml.EdgePart: ("edges", 0),
    graph_yaml.BudgetPart: ("budget",),
    graph_yaml.PoliciesPart: ("policies",),
}
CONDITIONAL: Final[dict[str, Any]] = {"when": "conditional", "condition": "output == 1"}
GRAPH_ROWS: Final[dict[str, tuple[Any, ...]]] = {
    "GraphPart.name": ({}, {"name": "h"}),
    "GraphPart.goal": ({}, {"goal": "to win"}),
    "GraphPart.entry": ({}, {"entry": "a"}),
    "GraphPart.terminals": ({}, {"terminals": ["b"]}),
    "GraphPart.pause_nodes": ({}, {"pause_nodes": ["a"]}),
    "GraphPart.max_steps": ({}, {"max_steps": 5}),
    "GraphPart.policies": ({}, {"policies": {"on_conflict": "error"}}),
    "GraphPart.branch_timeout": ({}, {"branch_timeout": 5}),
    "GraphPart.max_concurrency": ({}, {"max_concurrency": 5}),
    "GraphPart.budget": ({}, {"budget": {"usd": 1}}),
    "GraphPart.conversation": ({}, {"conversation": "isolated"}),
    "GraphPart.nodes": ({}, {"nodes": {"a": {}, "b": {}, "c": {"step": "a"}}}),
    "GraphPart.edges": ({}, {"edges": []}),
    "NodePart.step": ({}, {"step": "b"}),
    "NodePart.reads": ({}, {"reads": ["x"]}),
    "NodePart.writes": ({}, {"writes": ["x"]}),
    "NodePart.max_visits": ({}, {"max_visits": 5}),
    "NodePart.focus": ({}, {"focus": "the end"}),
    "EdgePart.source": ({}, {"source": "b"}),
    "EdgePart.target": ({}, {"target": "a"}),
    "EdgePart.when": ({}, {"when": "on_failure"}),
    "EdgePart.condition": (CONDITIONAL, {**CONDITIONAL, "condition": "output == 2"}),
    "EdgePart.fallback": ({"when": "llm_decide"}, {"when": "llm_decide", "fallback": True}),
    "BudgetPart.usd": ({"ms": 5}, {"ms": 5, "usd": 1}),
    "BudgetPart.tokens": ({"usd": 1}, {"usd": 1, "tokens": 5}),
    "BudgetPart.requests": ({"usd": 1}, {"usd": 1, "requests": 5}),
    "BudgetPart.ms": ({"usd": 1}, {"usd": 1, "ms": 5}),
    "PoliciesPart.on_branch_failure": ({}, {"on_branch_failure": "continue"}),
    "PoliciesPart.on_conflict": ({}, {"on_conflict": "error"}),
    "PoliciesPart.reducers": ({}, {"reducers": {"x": "append"}}),
}


def written(base: dict[str, Any], place: tuple[Any, ...], settings: dict[str, Any]) -> str:
    """The text of a document, in which the part at a place has these settings. `None` removes a key."""
    made = copy.deepcopy(base)
    part: Any = made
    for key in place:
        part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
    part.update(settings)
    if (part.get("function"), part.get("flow")) != (None, None) and part.get("intent", 0) is None:
        del part["intent"]
    return json.dumps(made)


@pytest.mark.parametrize("key", ROWS)
def test_every_key_of_a_spec_changes_what_is_read(key: str) -> None:
    without, given, *elsewhere = ROWS[key]
    place = elsewhere[0] if elsewhere else PLACES[getattr(parts, key.partition(".")[0])]
    one, other = (
        replace(load_spec(written(SPEC, place, settings)), text="") for settings in (without, given)
    )
    assert one != other


@step
async def works(ctx: StepContext[Any]) -> str:
    return "done"


@pytest.mark.parametrize("key", GRAPH_ROWS)
def test_every_key_of_a_graph_becomes_an_argument_of_it(key: str) -> None:
    """What the arguments do is in the tables of `Graph`, `Node`, `Edge` and `Budget`."""
    without, given = GRAPH_ROWS[key]
    place = GRAPH_PLACES[getattr(graph_yaml, key.partition(".")[0])]
    nodes = {"a": works, "b": step(works.function)}
    one, other = (
        graph_yaml.load_graph_yaml(written(GRAPH, place, settings), nodes=nodes).arguments
        for settings in (without, given)
    )
    assert one != other


@pytest.mark.parametrize(
    "said",
    [{"values": ["a"]}, {"required": False}, {"default": "a"}, {"description": "The topic"}],
    ids=lambda said: next(iter(said)),
)
def test_what_a_workflow_says_of_an_input_holds_beside_what_its_flow_says(said: dict[str, Any]) -> None:
    of_flow: dict[str, Any] = {"type": "string", "values": ["a", "b"], "description": "In the flow"}
    made = copy.deepcopy(SPEC)
    made["workflow"] = {"name": "main", "input": {"topic": {"type": "string", **said}}}
    made["flows"]["main"]["input"]["topic"] = of_flow
    there, expected = load_spec(json.dumps(made)), copy.deepcopy(made)
    expected["workflow"]["input"]["topic"] = expected["flows"]["main"]["input"]["topic"] = {**of_flow, **said}
    assert replace(there, text="") == replace(load_spec(json.dumps(expected)), text="")


def test_a_default_of_a_workflow_that_its_flow_does_not_allow_is_a_problem() -> None:
    made = copy.deepcopy(SPEC)
    made["workflow"] = {"name": "main", "input": {"topic": {"type": "string", "default": "c"}}}
    made["flows"]["main"]["input"]["topic"] = {"type": "string", "values": ["a", "b"]}
    with pytest.raises(WorkflowValidationError, match="its default is a text, 'c'; expected one of 'a', 'b'"):
        load_spec(json.dumps(made))


def test_no_key_is_forgotten() -> None:
    for places, rows in ((PLACES, ROWS), (GRAPH_PLACES, GRAPH_ROWS)):
        assert {f"{part.__name__}.{key}" for part in places for key in part.model_fields} == rows.keys()
    assert {*parts.PARTS_AT.values()} == PLACES.keys()
    assert {*graph_yaml._PARTS_AT.values()} == GRAPH_PLACES.keys()


@cache
def read_names() -> frozenset[str]:
    """Names of attributes that code of workflows reads, besides the code that makes specs and its errors."""
    around = (WORKFLOWS / "spec", WORKFLOWS / "errors.py")
    files = [file for file in WORKFLOWS.rglob("*.py") if not {file, *file.parents} & {*around}]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return frozenset(one.attr for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Attribute))


def test_every_value_of_a_spec_is_read_by_something() -> None:
    classes = [one for one in vars(document).values() if is_dataclass(one) and isinstance(one, type)]
    own = [one for one in classes if one.__module__ == document.__name__]
    named = {f"{one.__name__}.{each.name}" for one in own for each in fields(one)}
    assert len(named) > 60
    in_others = {"StepSpec.depends_on", "WorkflowSpec.source"}  # `FlowSpec.needs`, and the errors of a spec
    assert {name for name in named if name.partition(".")[2] not in read_names()} == in_others
