"""Graphs: chains, loops and fan-outs of nodes that do nothing, beside bare asyncio and other libraries."""

from __future__ import annotations

import asyncio
import functools
import operator
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send as PeerSend
from pydantic_graph import GraphBuilder, reduce_list_append
from pydantic_graph import StepContext as PeerContext

from benchmarks import pipelines
from benchmarks.durable_runs import bare_sqlite
from benchmarks.measure import Row, Run, medians, seconds
from benchmarks.pipelines import adding, bare_add
from fastroai.graphs import Edge, Graph, GraphResult, Node, Send
from fastroai.steps import PipelineConfig, StepContext, step
from fastroai.store import MemoryRunStore, SQLiteRunStore
from fastroai.store.record.journal import Durability

PEERS = ("LangGraph", "LangGraph with InMemorySaver", "pydantic-graph")
HALF = 0.5
"""Of what the other libraries take, at most."""
OF_PIPELINES = 2
"""How much more a node may cost than a step of a pipeline."""
FLAT = 1.3
"""How much more a visit, or a branch, of ten times as many may cost: caches are of a size."""

_ids = count()


@step
async def counted(ctx: StepContext) -> int:
    return int(ctx.get_input("n")) + 1


@step
async def told(ctx: StepContext) -> object:
    return ctx.get_input("n")


# --- the same graph, four times ---


def chain(length: int) -> Graph:
    ids = [f"s{i}" for i in range(length)]
    nodes = {"s0": adding([])} | {after: adding([before]) for before, after in pairwise(ids)}
    return Graph("chain", nodes=nodes, edges=[Edge(a, b) for a, b in pairwise(ids)])


def loop(visits: int, config: PipelineConfig | None = None) -> Graph:
    """One node that comes back to itself as long as a condition holds."""
    return Graph(
        "loop",
        nodes={"count": Node(counted, reads=["n"], writes=["n"]), "tell": told},
        edges=[
            Edge("count", "count", when="conditional", condition=f"n < {visits}"),
            Edge("count", "tell", "always"),
        ],
        entry="count",
        max_steps=visits + 1,
        config=config,
    )


def fan(width: int) -> Graph:
    ids = [f"s{i}" for i in range(width)]
    return Graph(
        "fan",
        nodes={"source": adding([]), **{i: adding(["source"]) for i in ids}, "sink": adding(ids)},
        edges=[*(Edge("source", i) for i in ids), *(Edge(i, "sink") for i in ids)],
        max_steps=width + 2,
    )


def sends(width: int) -> Graph:
    @step
    async def split(ctx: StepContext) -> list[Send]:
        return [Send("work", {"n": n}) for n in range(width)]

    return Graph(
        "sends",
        nodes={"split": split, "work": Node(adding([]), writes=["done"]), "sink": adding([])},
        edges=[Edge("split", "work", "send"), Edge("work", "sink")],
        reducers={"done": "add"},
        max_steps=width + 2,
    )


async def completed(run: Awaitable[GraphResult]) -> None:
    """A run that fails is quick, and a result all the same."""
    result = await run
    if not result.ok:
        raise RuntimeError(result.reason)


class State(TypedDict):
    """What LangGraph's nodes share."""

    n: int
    done: Annotated[int, operator.add]


def langgraph_chain(length: int) -> Run:
    graph = StateGraph(State)
    ids = [f"s{i}" for i in range(length)]
    for node_id in ids:
        graph.add_node(node_id, _does_nothing)
    for before, after in pairwise([START, *ids, END]):
        graph.add_edge(before, after)
    ready = graph.compile()
    return lambda: ready.ainvoke(State(n=0, done=0), {"recursion_limit": length + 1})


def langgraph_loop(visits: int, saver: InMemorySaver | None = None) -> Run:
    async def count_on(state: State) -> dict[str, int]:
        return {"n": state["n"] + 1}

    graph = StateGraph(State)
    graph.add_node("count", count_on)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: "count" if state["n"] < visits else END)
    ready = graph.compile(checkpointer=saver)
    return lambda: ready.ainvoke(
        State(n=0, done=0),
        {"recursion_limit": visits + 1, "configurable": {"thread_id": str(next(_ids))}},
    )


def langgraph_fan(width: int) -> Run:
    graph = StateGraph(State)
    ids = [f"s{i}" for i in range(width)]
    for node_id in ["source", *ids, "sink"]:
        graph.add_node(node_id, _does_nothing)
    graph.add_edge(START, "source")
    for node_id in ids:
        graph.add_edge("source", node_id)
    graph.add_edge(ids, "sink")
    graph.add_edge("sink", END)
    ready = graph.compile()
    return lambda: ready.ainvoke(State(n=0, done=0))


def langgraph_sends(width: int) -> Run:
    graph = StateGraph(State)
    graph.add_node("split", _does_nothing)
    graph.add_node("work", _does_nothing)
    graph.add_node("sink", _does_nothing)
    graph.add_edge(START, "split")
    graph.add_conditional_edges("split", lambda state: [PeerSend("work", {"n": n}) for n in range(width)])
    graph.add_edge("work", "sink")
    graph.add_edge("sink", END)
    ready = graph.compile()
    return lambda: ready.ainvoke(State(n=0, done=0))


async def _does_nothing(state: State) -> dict[str, int]:
    return {"done": 1}


async def _gives_one(ctx: PeerContext[None, None, int]) -> int:
    return 1


def pydantic_graph_chain(length: int) -> Run:
    builder = GraphBuilder(name="chain", state_type=type(None), input_type=int, output_type=int)
    steps = [builder.step(node_id=f"s{i}")(_gives_one) for i in range(length)]
    for before, after in pairwise([builder.start_node, *steps, builder.end_node]):
        builder.add(builder.edge_from(before).to(after))  # type: ignore[arg-type]  # an overload for each kind
    graph = builder.build()
    return lambda: graph.run(inputs=1, state=None)


def pydantic_graph_loop(visits: int) -> Run:
    builder = GraphBuilder(name="loop", state_type=type(None), input_type=int, output_type=int)

    async def count_on(ctx: PeerContext[None, None, int]) -> int:
        return ctx.inputs + 1

    counting = builder.step(node_id="count")(count_on)
    again = builder.match(int, matches=lambda n: n < visits).to(counting)
    builder.add(
        builder.edge_from(builder.start_node).to(counting),
        builder.edge_from(counting).to(
            builder.decision().branch(again).branch(builder.match(int).to(builder.end_node))
        ),
    )
    graph = builder.build()
    return lambda: graph.run(inputs=0, state=None)


def pydantic_graph_fan(width: int) -> Run:
    builder = GraphBuilder(name="fan", state_type=type(None), input_type=int, output_type=int)
    source = builder.step(node_id="source")(_gives_one)
    steps = [builder.step(node_id=f"s{i}")(_gives_one) for i in range(width)]
    join = builder.join(reduce_list_append, initial_factory=list[int], node_id="join")

    async def end(ctx: PeerContext[None, None, list[int]]) -> int:
        return len(ctx.inputs)

    sink = builder.step(node_id="sink")(end)
    builder.add(builder.edge_from(builder.start_node).to(source), builder.edge_from(source).to(*steps))
    builder.add(*(builder.edge_from(one).to(join) for one in steps))
    builder.add(builder.edge_from(join).to(sink), builder.edge_from(sink).to(builder.end_node))
    graph = builder.build()
    return lambda: graph.run(inputs=1, state=None)


async def awaits(times: int) -> None:
    total = 0
    for _ in range(times):
        total = await bare_add([total])


async def gather(width: int) -> None:
    source = await bare_add([])
    await bare_add(await asyncio.gather(*(asyncio.create_task(bare_add([source])) for _ in range(width))))


# --- what it costs ---


def beside(what: str, took: dict[str, float], units: int) -> list[Row]:
    """Ours beside each of the others, in µs for one of so many units."""
    each = {name: taken / units * 1e6 for name, taken in took.items()}
    ours = each.pop("ours")
    rows: list[Row] = []
    for name, other in each.items():
        told = f"  … beside {name}" if rows else what
        ratio, is_peer = ours / other, name in PEERS
        aim, met = (f"≤ {HALF} x", ratio <= HALF) if is_peer else ("", None)
        rows.append(Row(told, f"{ours:.1f} µs", f"{other:.1f} µs {name}", ratio, aim, met))
    return rows


async def graphs_in_a_chain() -> AsyncIterator[Row]:
    graph, steps = chain(100), pipelines.chain(100)
    took = await medians(
        {
            "ours": lambda: completed(graph.run()),
            "pipeline": lambda: steps.execute({}),
            "bare awaits": lambda: awaits(100),
            "LangGraph": langgraph_chain(100),
            "pydantic-graph": pydantic_graph_chain(100),
        },
        rounds=20,
    )
    pipeline = took.pop("pipeline")
    for row in beside("graph, chain of 100 no-op nodes, per node", took, 100):
        yield row
    ratio = took["ours"] / pipeline
    yield Row(
        "  … beside a pipeline of as many steps",
        f"{took['ours'] / 100 * 1e6:.1f} µs",
        f"{pipeline / 100 * 1e6:.1f} µs",
        ratio,
        f"≤ {OF_PIPELINES} x",
        ratio <= OF_PIPELINES,
    )


async def graphs_in_a_loop() -> AsyncIterator[Row]:
    """Whether the ten-thousandth visit costs what the first does."""
    ours: dict[int, float] = {}
    for visits, rounds in ((1_000, 7), (10_000, 3)):
        graph = loop(visits)
        took = await medians(
            {
                "ours": lambda graph=graph: completed(graph.run({"n": 0})),  # type: ignore[misc]
                "bare awaits": functools.partial(awaits, visits),
                "LangGraph": langgraph_loop(visits),
                "pydantic-graph": pydantic_graph_loop(visits),
            },
            rounds=rounds,
            warm_up=1,
        )
        ours[visits] = took["ours"]
        for row in beside(f"graph, loop of {visits:,} visits with a condition, per visit", took, visits):
            yield row
    yield _flat("graph, loop: a visit of 10,000 beside one of 1,000", ours, "visit")


async def graphs_in_memory() -> AsyncIterator[Row]:
    """What a visit leaves behind while its run goes on: for the usage by visit, and the trace."""
    peaks: dict[int, int] = {}
    for visits in (1_000, 10_000):
        graph = loop(visits)
        await seconds(functools.partial(graph.run, {"n": 0}))
        tracemalloc.start()
        await seconds(functools.partial(graph.run, {"n": 0}))
        _, peaks[visits] = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    each = {visits: peak / visits for visits, peak in peaks.items()}
    growth = each[10_000] / each[1_000]
    yield Row(
        "graph, memory for each visit of 10,000, beside 1,000",
        f"{each[10_000] / 1024:.1f} KiB",
        f"{each[1_000] / 1024:.1f} KiB",
        growth,
        f"linear: ≤ {FLAT} x",
        growth <= FLAT,
    )


async def graphs_on_record_in_memory() -> AsyncIterator[Row]:
    graph = loop(1_000)
    took = await medians(
        {
            "ours": lambda: completed(graph.run({"n": 0}, store=MemoryRunStore())),
            "LangGraph with InMemorySaver": langgraph_loop(1_000, InMemorySaver()),
        },
        rounds=5,
        warm_up=1,
    )
    for row in beside("graph on record in memory, loop of 1,000, per visit", took, 1_000):
        yield row


async def graphs_on_record_in_sqlite() -> AsyncIterator[Row]:
    """A visit in both modes, beside one bare write; and the resume of so long a run."""
    ours: dict[str, dict[int, float]] = {"sync": {}, "async": {}, "resume": {}}
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteRunStore(Path(folder, "runs.db"))
        connection, write = bare_sqlite(Path(folder, "bare.db"))
        with closing(connection):
            for visits, rounds in ((1_000, 5), (10_000, 3)):
                graph = loop(visits, PipelineConfig(store=store, durability="async"))
                await completed(graph.run({"n": 0}, run_id=f"resume-{visits}"))
                took = await medians(
                    {
                        "sync": _kept(store, visits, "sync"),
                        "async": _kept(store, visits, "async"),
                        "resume": lambda graph=graph, visits=visits: completed(  # type: ignore[misc]
                            graph.resume(f"resume-{visits}")
                        ),
                        "bare": functools.partial(asyncio.to_thread, _write, write, visits),
                    },
                    rounds=rounds,
                    warm_up=1,
                )
                bare = took.pop("bare") / visits * 1e6
                for mode, taken in took.items():
                    ours[mode][visits] = taken
                    what = f"graph on record in SQLite, {mode}, {visits:,} visits, per visit"
                    each = taken / visits * 1e6
                    yield Row(what, f"{each:.0f} µs", f"{bare:.0f} µs one bare write", each / bare)
    for mode, taken_by_visits in ours.items():
        yield _flat(f"graph on record in SQLite, {mode}: 10,000 beside 1,000", taken_by_visits, "visit")


def _kept(store: SQLiteRunStore, visits: int, durability: Durability) -> Run:
    graph = loop(visits, PipelineConfig(store=store, durability=durability))
    return lambda: completed(graph.run({"n": 0}, run_id=f"loop-{next(_ids)}"))


def _write(write: Callable[[int], None], times: int) -> None:
    for number in range(times):
        write(number)


async def graphs_fanned_out() -> AsyncIterator[Row]:
    ours: dict[int, float] = {}
    for width, rounds in ((100, 15), (1_000, 7), (10_000, 3)):
        graph = fan(width)
        runs: dict[str, Run] = {
            "ours": lambda graph=graph: completed(graph.run()),  # type: ignore[misc]
            "gather of tasks": functools.partial(gather, width),
        }
        if width == 1_000:
            runs |= {"LangGraph": langgraph_fan(width), "pydantic-graph": pydantic_graph_fan(width)}
        took = await medians(runs, rounds=rounds, warm_up=1)
        ours[width] = took["ours"]
        for row in beside(f"graph, fan-out to {width:,} nodes and a join, per branch", took, width):
            yield row
    yield _flat(
        "graph, fan-out: a branch of 10,000 beside one of 1,000",
        {width: ours[width] for width in (1_000, 10_000)},
        "branch",
    )


async def graphs_that_send() -> AsyncIterator[Row]:
    """One node that is visited as often as another asks for, with inputs for each visit."""
    ours: dict[int, float] = {}
    for width, rounds in ((1_000, 7), (10_000, 3)):
        graph = sends(width)
        runs: dict[str, Run] = {
            "ours": lambda graph=graph: completed(graph.run()),  # type: ignore[misc]
            "gather of tasks": functools.partial(gather, width),
        }
        if width == 1_000:
            runs["LangGraph"] = langgraph_sends(width)
        took = await medians(runs, rounds=rounds, warm_up=1)
        ours[width] = took["ours"]
        for row in beside(f"graph, {width:,} Sends to one node and a join, per branch", took, width):
            yield row
    yield _flat("graph, Sends: a branch of 10,000 beside one of 1,000", ours, "branch")


def _flat(what: str, taken: dict[int, float], unit: str) -> Row:
    """Seconds by how many; whether one of them costs the same."""
    (few, short), (many, long) = taken.items()
    growth = (long / many) / (short / few)
    return Row(
        what,
        f"{long / many * 1e6:.1f} µs a {unit}",
        f"{short / few * 1e6:.1f} µs",
        growth,
        f"flat: ≤ {FLAT} x",
        growth <= FLAT,
    )


BENCHMARKS = (
    graphs_in_a_chain,
    graphs_in_a_loop,
    graphs_in_memory,
    graphs_on_record_in_memory,
    graphs_on_record_in_sqlite,
    graphs_fanned_out,
    graphs_that_send,
)
