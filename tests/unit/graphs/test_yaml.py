from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastroai import Budget, StepContext, step
from fastroai.errors import ConfigurationError
from fastroai.graphs.document import GraphDocument, load_graph_yaml
from fastroai.graphs.errors import GraphValidationError
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.validation import build_plan


@step
async def work(ctx: StepContext): ...  # type: ignore[no-untyped-def]


@step
async def other(ctx: StepContext): ...  # type: ignore[no-untyped-def]


SUPPORT = """\
name: support
goal: Answer the ticket.
entry: classify
terminals: [reply, hand_over]
pause_nodes: [hand_over]
max_steps: 50
policies:
  on_branch_failure: wait_all
  on_conflict: error
branch_timeout: 30
max_concurrency: 4
budget: {usd: 0.50, tokens: 10_000, requests: 20, ms: 60_000}
conversation: isolated
nodes:
  classify: {writes: [category, confidence], max_visits: 3}
  reply:
    step: write
    reads: [category]
    focus: Be brief.
  hand_over:
edges:
- {source: classify, target: reply, when: conditional, condition: confidence >= 0.8}
- source: classify
  target: hand_over
  when: always
- {source: classify, target: reply, when: llm_decide, fallback: true}
"""


def load(text: str, **nodes: Any) -> GraphDocument:
    return load_graph_yaml(text, nodes=nodes or {"a": work, "b": work})


def problems(text: str, **nodes: Any) -> list[str]:
    with pytest.raises(GraphValidationError) as caught:
        load(text, **nodes)
    return list(map(str, caught.value.problems))


def problem(text: str, **nodes: Any) -> str:
    (only,) = problems(text, **nodes)
    return only


def test_a_document_says_what_graph_takes() -> None:
    document = load(SUPPORT, classify=work, write=other, hand_over=work)
    assert document.arguments == {
        "name": "support",
        "goal": "Answer the ticket.",
        "entry": "classify",
        "terminals": ["reply", "hand_over"],
        "pause_nodes": ["hand_over"],
        "max_steps": 50,
        "on_branch_failure": "wait_all",
        "on_conflict": "error",
        "branch_timeout": 30,
        "max_concurrency": 4,
        "budget": Budget(usd="0.50", tokens=10_000, requests=20, ms=60_000),
        "conversation": "isolated",
        "nodes": {
            "classify": Node(work, writes=["category", "confidence"], max_visits=3),
            "reply": Node(other, reads=["category"], focus="Be brief."),
            "hand_over": Node(work),
        },
        "edges": [
            Edge("classify", "reply", "conditional", "confidence >= 0.8"),
            Edge("classify", "hand_over", "always"),
            Edge("classify", "reply", "llm_decide", fallback=True),
        ],
    }


def test_what_a_document_does_not_say_is_left_to_graph() -> None:
    document = load("name: g\nnodes: [a, b]\nedges: [{source: a, target: b}]\n")
    assert document.arguments == {
        "name": "g",
        "nodes": {"a": Node(work), "b": Node(work)},
        "edges": [Edge("a", "b")],
    }
    assert load("name: g\nnodes: [a]\ngoal:\n").arguments == {
        "name": "g",
        "nodes": {"a": Node(work)},
        "edges": [],
    }


def test_a_node_that_is_given_says_what_a_document_does_not() -> None:
    asking = Node(work, reads=["x"], writes=["y"], max_visits=2, focus="f", answer_type=bool)
    document = load("name: g\nnodes: {a: {reads: [z]}, b: {step: a, writes: []}}", a=asking)
    assert document.arguments["nodes"] == {
        "a": Node(work, ["z"], ["y"], 2, "f", bool),
        "b": Node(work, ["x"], [], 2, "f", bool),
    }


def test_words_that_yaml_once_took_for_truth_values_are_names() -> None:
    document = load("name: on\nnodes: [yes, no]\nedges: [{source: yes, target: no}]", yes=work, no=work)
    assert document.arguments["name"] == "on"
    assert document.arguments["edges"] == [Edge("yes", "no")]


def test_a_document_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "support.yaml"
    file.write_text("name: g\nnodes: [a]\nedegs: []\n", encoding="utf-8")
    with pytest.raises(GraphValidationError) as caught:
        load_graph_yaml(file, nodes={"a": work})
    assert str(caught.value).startswith(
        f"graph 'g' in {file}: line 3, column 1: unknown key edegs; expected name, "
    )
    assert str(caught.value).endswith(" Did you mean 'edges'?")
    file.write_bytes(b"name: \xff\n")
    with pytest.raises(GraphValidationError, match="it is not UTF-8: invalid start byte"):
        load_graph_yaml(file, nodes={})
    file.write_text("name: g\nnodes: [a]\n", encoding="utf-8")
    assert load_graph_yaml(file, nodes={"a": work}).source == str(file)
    with pytest.raises(FileNotFoundError):
        load_graph_yaml(tmp_path / "not.yaml", nodes={})


def test_a_source_is_a_text_or_a_path() -> None:
    assert problem("support.yaml") == (
        "line 1, column 1: the document is a text, 'support.yaml'; expected a mapping; "
        "for a file, give its pathlib.Path"
    )
    with pytest.raises(ConfigurationError, match="the text of a document, or the"):
        load_graph_yaml(5, nodes={})  # type: ignore[arg-type]


def test_all_problems_of_a_form_are_told_with_their_places() -> None:
    text = """\
goal: 5
max_steps: many
branch_timeout: soon
nodes:
  a: {reeds: [x], reads: x, max_visits: 1.5}
  b: text
edges:
- {source: a, target: true, fallback: yes, wehn: always}
- a -> b
policies: {on_conflicts: error}
budget: [1]
"""
    assert problems(text) == [
        "line 1, column 1: name is missing",
        "line 1, column 7: goal is a number, 5; expected a text; put it in quotes if it is meant as one",
        "line 2, column 12: max_steps is a text, 'many'; expected a whole number",
        "line 3, column 17: branch_timeout is a text, 'soon'; expected a number",
        "line 5, column 7: unknown key nodes.a.reeds; expected step, reads, writes, max_visits, focus. "
        "Did you mean 'reads'?",
        "line 5, column 26: nodes.a.reads is a text, 'x'; expected a list",
        "line 5, column 41: nodes.a.max_visits is a number, 1.5; expected a whole number",
        "line 6, column 6: nodes.b is a text, 'text'; expected a mapping",
        "line 8, column 23: edges[0].target is a truth value, True; expected a text; "
        "put it in quotes if it is meant as one",
        "line 8, column 39: edges[0].fallback is a text, 'yes'; expected true or false",
        "line 8, column 44: unknown key edges[0].wehn; expected source, target, when, condition, fallback. "
        "Did you mean 'when'?",
        "line 9, column 3: edges[1] is a text, 'a -> b'; expected a mapping",
        "line 10, column 12: unknown key policies.on_conflicts; expected on_branch_failure, on_conflict, "
        "reducers. Did you mean 'on_conflict'?",
        "line 11, column 1: budget is a list; expected a mapping",
    ]


def test_a_list_of_nodes_names_each_once() -> None:
    assert problems("name: g\nnodes: [a, 5, b, a]\n") == [
        "line 2, column 12: nodes[1] is a number; expected a node id, or a mapping of ids to nodes",
        "line 2, column 18: node 'a' is listed more than once; keep one of them",
    ]


def test_steps_are_among_those_that_were_given() -> None:
    text = "name: g\nnodes:\n  a:\n  b: {step: clasify}\n"
    assert problems(text, classify=work) == [
        "line 3, column 3: node 'a' has the step 'a', which was not given in nodes={...}.",
        "line 4, column 13: node 'b' has the step 'clasify', which was not given in nodes={...}. "
        "Did you mean 'classify'?",
    ]


def test_a_budget_is_checked_where_it_is() -> None:
    text = "name: g\nnodes: [a]\nbudget:\n  requests: 1\n  tokens: -5\n"
    assert problem(text).startswith("line 5, column 11: budget: tokens=-5: expected ")
    assert problem("name: g\nnodes: [a]\nbudget: {}\n").startswith(
        "line 3, column 1: budget: Budget needs a limit"
    )


def test_a_text_that_is_no_yaml_has_no_name() -> None:
    with pytest.raises(GraphValidationError, match=r"graph '\(no name\)': line 1, column 5: it is not YAML"):
        load("a: b: c")


def build(document: GraphDocument, **options: Any) -> None:
    given: dict[str, Any] = {**document.arguments, **options}
    name = given.pop("name")
    with document.located():
        build_plan(name, given.pop("nodes"), given.pop("edges"), **given)


def test_problems_of_the_graph_get_the_place_of_what_they_are_about() -> None:
    text = """\
name: g
nodes:
  a: {writes: [x, x]}
  b: {max_visits: 0}
  c:
edges:
- {source: a, target: b}
- {source: a, target: cc}
- source: b
  target: c
  when: conditional
  condition: x >
policies: {on_conflict: last, reducers: {x: append, y: appendd}}
max_steps: 0
"""
    document = load(text, a=work, b=work, c=work)
    with pytest.raises(GraphValidationError) as caught:
        build(document, branch_timeout=-1)
    places = [(problem.line, problem.column, problem.message[:30]) for problem in caught.value.problems]
    assert places == [
        (3, 7, "node 'a' has 'x' in writes mor"),
        (4, 19, "node 'b' has max_visits=0: exp"),
        (8, 23, "edge 'a' -> 'cc' has the targe"),
        (12, 14, "the condition of edge 'b' -> '"),
        (13, 25, "on_conflict='last': expected o"),
        (13, 56, "the reducer of 'y' is 'appendd"),
        (14, 12, "max_steps=0: expected a whole "),
        (None, None, "branch_timeout=-1: expected se"),
    ]


def test_a_graph_without_problems_is_built_where_it_is_located() -> None:
    build(load("name: g\nnodes: [a, b]\nedges: [{source: a, target: b}]\n"))
    with pytest.raises(GraphValidationError, match=r"line 2, column 12: 'b' cannot be reached") as caught:
        build(load("name: g\nnodes: [a, b]\nentry: a\n"))
    assert caught.value.source is None
