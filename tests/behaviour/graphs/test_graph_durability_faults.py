"""Stores that fail in the middle of a fork, for a while or for good, and runs that are taken over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.counted_nodes import Counted
from support.faulty_store import FaultyStore, fails_at, gone
from support.leftovers import assert_no_task_is_left
from support.stored_runs import raw_log
from support.virtual_time import in_virtual_time

from fastroai import Pipeline, PipelineConfig, StepContext
from fastroai.errors import RunNotFound, RunStoreUnavailable, RunTakenOver
from fastroai.graphs import Edge, Graph
from fastroai.store import MemoryRunStore
from fastroai.store.record.headers import decode_header, encode_header, header_key

WHERE = [f"b{number}" for number in range(3)]


def forked(counted: Counted, store: Any, does: Any = None) -> Graph[Any, Any]:
    """`top` forks to three branches of two nodes each; every failure would be handled."""
    nodes = {**counted.nodes("top", "join", "mend"), **{name: counted.node(name, does) for name in WHERE}}
    nodes |= {f"{name}+": counted.node(f"{name}+") for name in WHERE}
    edges = [edge for name in WHERE for edge in (Edge("top", name), Edge(name, f"{name}+", "on_success"))]
    edges += [Edge(f"{name}+", "join") for name in WHERE] + [
        Edge(name, "mend", "on_failure") for name in WHERE
    ]
    return Graph(
        "forked", nodes=nodes, edges=[*edges, Edge("mend", "join")], config=PipelineConfig(store=store)
    )


BEGINNING = 5
"""Writes that begin a run: the first entry of its log, its index entries and its header."""
WRITES = range(1, BEGINNING + 6)
"""Those of a run, but for its last, which only tell in the header and the indexes how it ended."""


@pytest.mark.parametrize("number", WRITES[BEGINNING:])  # what begins a run is tried once
@in_virtual_time
async def test_a_store_that_fails_for_a_while_is_tried_again_and_no_node_runs_again(number: int) -> None:
    counted = Counted()
    store = FaultyStore(before=fails_at(number, number + 1))
    result = await forked(counted, store).run(run_id="r")
    assert (result.status, result.quality) == ("finished", "clean")
    assert set(counted.take().values()) == {1}
    assert len(store.writes) > number
    assert_no_task_is_left()


@pytest.mark.parametrize("number", WRITES)
@in_virtual_time
async def test_a_store_that_is_gone_stops_the_run_whatever_the_edges_say_and_it_goes_on_later(
    number: int,
) -> None:
    counted = Counted()
    store = FaultyStore(before=fails_at(*range(number, 1000)))
    graph = forked(counted, store)
    with pytest.raises(RunStoreUnavailable):
        await graph.run(run_id="r")
    assert_no_task_is_left()
    assert "mend" not in counted.take(), "it is no failure of a node"
    store.before = None
    if number > BEGINNING:
        again = await graph.resume("r")
    else:
        with pytest.raises(RunNotFound):
            await graph.resume("r")
        again = await graph.run(run_id="r")
    assert (again.status, again.quality) == ("finished", "clean")
    assert again.path == ["top", {name: [name, f"{name}+"] for name in WHERE}, "join"]
    assert_no_task_is_left()


async def test_a_run_that_is_taken_over_in_a_fork_stops_and_writes_nothing_more() -> None:
    counted, store = Counted(), MemoryRunStore()
    reached, released = asyncio.Event(), asyncio.Event()

    async def wait(ctx: StepContext[Any]) -> str:
        if len([name for name in WHERE if counted.ran[name]]) == len(WHERE):
            reached.set()
        await released.wait()
        return "waited"

    async def go_on(ctx: StepContext[Any]) -> str:
        return "went on"

    first = asyncio.create_task(forked(counted, store, wait).run(run_id="r"))
    await reached.wait()
    await expire_lease(store, "r")
    other = Counted()
    second = await forked(other, store, go_on).resume("r")
    assert second.status == "finished"
    assert "top" not in other.take()
    log = await raw_log(store, "r")
    released.set()
    with pytest.raises(RunTakenOver):
        await first
    assert await raw_log(store, "r") == log
    assert counted.take() == dict.fromkeys(["top", *WHERE], 1), (
        "nothing starts any more, and nothing is mended"
    )
    assert_no_task_is_left()
    assert (await forked(other, store).resume("r")).outputs == second.outputs


async def expire_lease(store: Any, run_id: str) -> None:
    found = await store.read(header_key(run_id))
    header = decode_header(run_id, found.values[-1])
    assert header.owner is not None
    lent = replace(
        header, owner=header.owner.replace("(", "(elsewhere-"), lease_until=found.now - timedelta(days=2)
    )
    await store.compare_and_set(header_key(run_id), encode_header(lent), revision=found.revision)


@pytest.mark.parametrize("number", range(BEGINNING + 1, BEGINNING + 5))
@in_virtual_time
async def test_a_store_that_is_gone_inside_of_a_nested_pipeline_is_no_failure_of_its_node(
    number: int,
) -> None:
    counted = Counted()
    inner = Pipeline("inner", counted.nodes("one", "two"), {"two": ["one"]})
    nodes = {"inner": inner, **counted.nodes("mend", "end")}
    edges = [Edge("inner", "mend", "on_failure"), Edge("inner", "end", "on_success"), Edge("mend", "end")]
    store = FaultyStore(before=fails_at(*range(number, 1000)))
    graph = Graph("outer", nodes=nodes, edges=edges, config=PipelineConfig(store=store))
    with pytest.raises(RunStoreUnavailable):
        await graph.run(run_id="r")
    assert "mend" not in counted.take()
    store.before = None
    assert (await graph.resume("r")).path == ["inner", "end"]


def receiving(store: Any, does: Any) -> Graph[Any, Any]:
    """One node, whose failures would be handled."""
    nodes = {"wait": Counted().node("wait", does), **Counted().nodes("mend", "end")}
    edges = [Edge("wait", "mend", "on_failure"), Edge("wait", "end", "on_success"), Edge("mend", "end")]
    return Graph("receiving", nodes=nodes, edges=edges, config=PipelineConfig(store=store))


@in_virtual_time
async def test_a_store_that_fails_while_a_node_looks_for_messages_is_tried_again() -> None:
    store, failures = FaultyStore(), [gone(), gone()]

    def away(key: str) -> None:
        if key.startswith("mail:") and failures:
            raise failures.pop()

    async def wait(ctx: StepContext[Any]) -> int:
        return await ctx.receive("paid", int)

    graph = receiving(store, wait)
    assert (await graph.run(run_id="r")).status == "paused"
    await graph.send("r", "paid", 120)
    store.reading, failures[:] = away, [gone(), gone()]
    result = await graph.resume("r")
    assert (result.status, result.path, failures) == ("finished", ["wait", "end"], [])


@in_virtual_time
async def test_a_run_that_was_paused_and_then_stopped_by_an_error_replays() -> None:
    store, failures = MemoryRunStore(), [gone()]

    async def wait(ctx: StepContext[Any]) -> int:
        if ctx.deps == "fail":
            raise failures.pop()
        return await ctx.receive("paid", int)

    graph = receiving(store, wait)
    assert (await graph.run(run_id="r")).status == "paused"
    with pytest.raises(RunStoreUnavailable):
        await graph.resume("r", deps="fail")
    assert (await store.trace("r")).replay(graph) is None
    await graph.send("r", "paid", 120)
    result = await graph.resume("r")
    assert (result.status, result.path) == ("finished", ["wait", "end"])
    assert result.trace.replay(graph) is None
