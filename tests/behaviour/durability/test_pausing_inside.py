"""A pause reaches the pipelines, graphs and routers that are steps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fastroai.graphs import Edge, Graph
from fastroai.pipelines import BasePipeline, Pipeline, StepContext, StepStarted, step
from fastroai.store import RunHistory, SQLiteRunStore

ran: list[str] = []


def noted(name: str) -> Any:
    @step
    async def one(ctx: StepContext) -> str:
        ran.append(name)
        return name

    return one


def inner_pipeline() -> Pipeline[Any, Any]:
    return Pipeline("inner", {"read": noted("read"), "check": noted("check")}, {"check": ["read"]})


def inner_graph() -> Graph[Any, Any]:
    return Graph(
        "inner", nodes={"read": noted("read"), "check": noted("check")}, edges=[Edge("read", "check")]
    )


class Desk(BasePipeline[None, str]):
    def __init__(self, during_route: Any = None) -> None:
        super().__init__("desk")
        self.during_route = during_route
        self.register_pipeline("one", inner_pipeline())

    async def route(self, inputs: Mapping[str, Any], deps: None) -> str:
        ran.append("route")
        if self.during_route is not None:
            await self.during_route()
        return "one"


def in_a_pipeline(inner: Any) -> Pipeline[Any, Any]:
    steps = {"write": inner.as_step(), "send": noted("send")}
    return Pipeline("outer", steps, {"send": ["write"]})


def in_a_graph(inner: Any) -> Graph[Any, Any]:
    return Graph(
        "outer", nodes={"write": inner.as_step(), "send": noted("send")}, edges=[Edge("write", "send")]
    )


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    ran.clear()
    store = SQLiteRunStore(tmp_path / "runs.db")
    yield store
    await store.aclose()


async def paused_when(door: Any, step_id: str, store: SQLiteRunStore) -> Any:
    """A run `r` that is asked to pause when a step starts."""
    async with door.stream({}, run_id="r", store=store) as events:
        async for event in events:
            if isinstance(event, StepStarted) and event.step_id == step_id:
                await door.pause("r")
    assert events.result.status == "paused"
    assert (events.result.reason, events.result.questions) == ("a pause was requested", ())
    return events.result


@pytest.mark.parametrize("around", [in_a_pipeline, in_a_graph])
@pytest.mark.parametrize("inside", [inner_pipeline, inner_graph, lambda: in_a_pipeline(inner_graph()), Desk])
async def test_a_run_halts_before_the_next_step_of_what_is_a_step_of_it(
    around: Any, inside: Any, store: SQLiteRunStore
) -> None:
    door = around(inside())
    paused = await paused_when(door, "read", store)
    assert paused.resume_at == ("write",)
    before = ran.copy()
    assert before[-1] == "read"
    ran.clear()

    result = await around(inside()).resume("r", store=store)
    assert result.status == "finished"
    assert ran[0] == "check"
    assert ran[-1] == "send"
    assert not {"read", "route"} & {*ran}
    trace = await RunHistory(store).trace("r")
    assert trace.replay(door) is None
    assert "halted, because a pause was requested" in trace.explain()


async def test_a_router_that_is_paused_while_it_routes_does_not_begin_its_variant(
    store: SQLiteRunStore,
) -> None:
    async def pause() -> None:
        await desk.pause("r")

    desk = Desk(pause)
    paused = await desk.run({}, run_id="r", store=store)
    assert (paused.status, paused.resume_at, ran) == ("paused", ("route",), ["route"])
    result = await Desk().resume("r", store=store)
    assert (result.output, ran) == ("check", ["route", "read", "check"])


async def test_what_the_code_of_a_step_runs_goes_on_to_its_end(store: SQLiteRunStore) -> None:
    @step
    async def own(ctx: StepContext) -> str:
        return str((await in_a_pipeline(inner_pipeline()).run({})).output)

    door = Pipeline("outer", {"own": own, "last": noted("last")}, {"last": ["own"]})
    paused = await paused_when(door, "read", store)
    assert (paused.resume_at, ran) == (("last",), ["read", "check", "send"])


async def test_a_run_without_a_store_halts_inside_too() -> None:
    ran.clear()
    door = in_a_pipeline(inner_graph())
    async with door.stream({}, run_id="r") as events:
        async for event in events:
            if isinstance(event, StepStarted) and event.step_id == "read":
                await door.pause("r")
    assert (events.result.status, ran) == ("paused", ["read"])
