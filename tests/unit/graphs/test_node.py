from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from fastroai import BasePipeline, FastroAgent, Pipeline, StepContext, step
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node, nodes_of
from fastroai.records import NOT_GIVEN


@step
async def work(ctx: StepContext) -> str:
    return "done"


class Router(BasePipeline):
    async def route(self, inputs: Any, deps: Any) -> str:
        return "p"


def test_a_bare_step_means_a_node_of_it() -> None:
    nodes = nodes_of({"a": work, "b": Node(work, reads=["x"])})
    assert nodes == {"a": Node(work), "b": Node(work, ("x",))}
    assert (nodes["a"].reads, nodes["a"].writes, nodes["a"].max_visits, nodes["a"].focus) == (
        (),
        (),
        None,
        None,
    )
    assert nodes["a"].answer_type is NOT_GIVEN


def test_pipelines_and_routers_become_steps() -> None:
    nodes = nodes_of(
        {"p": Pipeline("p", {"a": work}), "r": Router("r"), "n": Node(Pipeline("q", {"a": work}))}
    )
    assert [repr(node.step) for node in nodes.values()] == [
        "<step of Pipeline('p', 1 steps)>",
        "<step of Router('r', pipelines=[])>",
        "<step of Pipeline('q', 1 steps)>",
    ]


def test_what_needs_more_to_become_a_step_stays_as_it_is() -> None:
    agent: Any = FastroAgent("test")
    plain: Any = str.upper
    assert Node(agent).step is agent
    assert Node(plain).step is plain
    assert Node(Pipeline).step is Pipeline  # type: ignore[arg-type]


def test_an_as_step_that_nothing_can_be_known_of_is_not_called() -> None:
    class Odd:
        as_step = type  # which has no signature

    odd: Any = Odd()
    assert Node(odd).step is odd


def test_nodes_and_edges_are_values() -> None:
    node = Node(work, ["a"], ["b"], max_visits=2, focus="f", answer_type=bool)
    assert hash(node) == hash(Node(work, ("a",), ("b",), 2, "f", bool))
    with pytest.raises(FrozenInstanceError):
        node.focus = "g"  # type: ignore[misc]
    assert {Edge("a", "b"), Edge("a", "b")} == {Edge("a", "b", "on_success", None, False)}
    assert str(Edge("a", "b", "on_failure")) == "'a' -> 'b'"
