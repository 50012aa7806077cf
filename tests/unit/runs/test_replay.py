"""Who may replay a trace."""

from __future__ import annotations

from typing import Any

import pytest

from fastroai import Pipeline, StepContext, step
from fastroai.errors import ConfigurationError
from fastroai.graphs import Graph
from fastroai.store import Divergence


@step
async def one(ctx: StepContext) -> int:
    return 1


def graph(name: str) -> Graph[None, Any, int]:
    return Graph(name, nodes={"one": one}, edges=[])


async def test_a_pipeline_or_graph_of_another_name_is_the_first_difference() -> None:
    trace = (await Pipeline("desk", {"one": one}).execute()).trace
    assert trace.replay(Pipeline("desk", {"one": one})) is None
    found = trace.replay(Pipeline("other", {"one": one}))
    assert found == Divergence(1, "a run of pipeline 'other'", "a run of pipeline 'desk'")
    trace = (await graph("desk").run()).trace
    assert trace.replay(graph("desk")) is None
    assert trace.replay(graph("other")) == Divergence(1, "a run of graph 'other'", "a run of graph 'desk'")


async def test_a_pipeline_does_not_replay_a_run_of_a_graph_nor_the_other_way_round() -> None:
    trace = (await Pipeline("desk", {"one": one}).execute()).trace
    with pytest.raises(ConfigurationError, match="a run of a graph; a pipeline replays this one: 'desk'"):
        trace.replay(graph("desk"))
    trace = (await graph("desk").run()).trace
    with pytest.raises(ConfigurationError, match="a run of a pipeline; a graph replays this one: 'desk'"):
        trace.replay(Pipeline("desk", {"one": one}))
