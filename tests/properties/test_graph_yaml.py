"""Graphs written as YAML and loaded again, and texts that are no graphs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastroai import Budget, StepContext, step
from fastroai.graphs.document import GraphArguments, dump_graph_yaml, load_graph_yaml
from fastroai.graphs.errors import GraphProblem, GraphValidationError
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import REDUCERS, GraphPlan
from fastroai.graphs.shape.validation import build_plan


@step
async def work(ctx: StepContext) -> str: ...


WORDS = st.sampled_from(
    ["on", "yes", "~", "null", "true", "1", "1e3", "1_0", "0x1", "<<", "- a", "a: b", "#", "x\ny"]
)
TEXTS = WORDS | st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=12)
CONDITIONS = st.sampled_from(["x > 1", "'a: b' in x", "x == '# no'", "{'a': x}", "not x", "true"])
COUNTS = st.none() | st.integers(1, 10**9)


@st.composite
def nodes(draw: st.DrawFn) -> Node[Any]:
    keys = st.lists(TEXTS, max_size=3, unique=True)
    focus = draw(st.none() | TEXTS)
    return Node(work, draw(keys), draw(keys), draw(COUNTS), focus, draw(st.sampled_from([bool])))


@st.composite
def graphs(draw: st.DrawFn) -> GraphArguments:
    """Graphs whose edges lead onward, so that they can be built."""
    names = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
    edges = [Edge(before, after, "on_success") for before, after in itertools.pairwise(names)]
    for _ in edges[:]:
        first = draw(st.integers(0, len(names) - 2))
        target = names[draw(st.integers(first + 1, len(names) - 1))]
        when = draw(st.sampled_from(["always", "on_failure", "conditional", "send"]))
        condition = draw(CONDITIONS) if when == "conditional" else None
        edges.append(Edge(names[first], target, when, condition))
    return {
        "name": draw(TEXTS),
        "goal": draw(st.none() | TEXTS),
        "nodes": {name: draw(nodes()) for name in names},
        "edges": list(dict.fromkeys(edges)),
        "entry": draw(st.sampled_from([None, names[0]])),
        "terminals": draw(st.sampled_from([None, [names[-1]]])),
        "pause_nodes": [name for name in names if all(e.when != "send" for e in edges if e.source == name)],
        "max_steps": draw(st.integers(1, 10**6)),
        "on_branch_failure": draw(st.sampled_from(["fail_all", "continue_others", "wait_all"])),
        "on_conflict": draw(st.sampled_from(["last_wins", "first_wins", "error"])),
        "reducers": draw(st.none() | st.dictionaries(TEXTS, st.sampled_from(REDUCERS), min_size=1)),
        "branch_timeout": draw(st.none() | st.floats(1e-6, 3600)),
        "max_concurrency": draw(COUNTS),
        "budget": draw(st.none() | st.builds(Budget, usd=st.decimals("0.01", 10, places=2), tokens=COUNTS)),
        "conversation": draw(st.sampled_from(["continuous", "isolated"])),
    }


def plan_of(arguments: GraphArguments) -> GraphPlan:
    given: dict[str, Any] = {**arguments}
    given.pop("goal", None)
    given.pop("budget", None)
    return build_plan(given.pop("name"), given.pop("nodes"), given.pop("edges"), **given)


@settings(deadline=None)
@given(graphs())
def test_a_graph_that_was_written_is_loaded_as_it_was(arguments: GraphArguments) -> None:
    text = dump_graph_yaml(arguments)
    document = load_graph_yaml(text, nodes=arguments["nodes"])
    said = {option: value for option, value in arguments.items() if value is not None}
    assert document.arguments == said
    assert list(document.arguments["nodes"]) == list(arguments["nodes"])
    with contextlib.suppress(GraphValidationError):  # a condition may name what is not there
        assert plan_of(document.arguments) == plan_of(arguments)
    assert dump_graph_yaml(document.arguments) == text


@settings(deadline=None)
@given(
    st.text(max_size=200) | st.lists(st.sampled_from([*"-?:[]{},&*!|>'\"% \n#ab1"]), max_size=60).map("".join)
)
@example("a: &b [*b]")
@example("? [a]: b")
@example("\ufeffname: x")
def test_any_text_is_a_graph_or_has_problems(text: str) -> None:
    with contextlib.suppress(GraphValidationError):
        load_graph_yaml(text, nodes={})


def problems_of(text: str, nodes: Mapping[str, Node[Any]]) -> tuple[GraphProblem, ...]:
    try:
        load_graph_yaml(text, nodes=nodes)
    except GraphValidationError as error:
        return error.problems
    return ()


@settings(deadline=None)
@given(graphs(), st.data())
def test_a_document_that_was_damaged_is_a_graph_or_has_problems_in_it(
    arguments: GraphArguments, data: st.DataObject
) -> None:
    text = dump_graph_yaml(arguments)
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", ":", "- ", "'", "\n", "  ", "{", "x"])) + text[at + 1 :]
    )
    lines = damaged.count("\n") + 1
    assert all(1 <= (problem.line or 1) <= lines + 1 for problem in problems_of(damaged, arguments["nodes"]))
