"""Scheduling: chains, fans, uneven graphs, many pipelines at once, large pipelines."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator
from itertools import pairwise
from time import perf_counter

from pydantic_graph import GraphBuilder

from benchmarks.measure import Row, medians, seconds
from fastroai.pipelines import BaseStep, Pipeline, StepContext, step


@step
async def nothing(ctx: StepContext) -> int:
    return 1


async def bare_nothing() -> int:
    return 1


def sleeping(duration: float) -> BaseStep[object, float]:
    @step
    async def sleep(ctx: StepContext[object]) -> float:
        await asyncio.sleep(duration)
        return duration

    return sleep


def chain(length: int) -> Pipeline:
    ids = [f"s{i}" for i in range(length)]
    return Pipeline("chain", dict.fromkeys(ids, nothing), {b: [a] for a, b in pairwise(ids)})


def fan(width: int) -> Pipeline:
    ids = [f"s{i}" for i in range(width)]
    needs = {**{i: ["source"] for i in ids}, "sink": ids}
    return Pipeline("fan", dict.fromkeys(["source", *ids, "sink"], nothing), needs)


def layered(levels: int, width: int) -> Pipeline:
    """Each step needs two of the level before; the last step needs the last level."""
    steps = {f"{level}-{i}": nothing for level in range(levels) for i in range(width)}
    needs = {
        f"{level}-{i}": [f"{level - 1}-{i}", f"{level - 1}-{(i + 1) % width}"]
        for level in range(1, levels)
        for i in range(width)
    }
    steps["end"] = nothing
    needs["end"] = [f"{levels - 1}-{i}" for i in range(width)]
    return Pipeline("layered", steps, needs)


async def chain_of_100() -> AsyncIterator[Row]:
    pipeline = chain(100)

    async def awaits() -> None:
        for _ in range(100):
            await bare_nothing()

    async def tasks() -> None:
        for _ in range(100):
            await asyncio.create_task(bare_nothing())

    took = await medians(
        {"ours": lambda: pipeline.execute({}), "awaits": awaits, "tasks": tasks, "peer": graph_chain(100)},
        rounds=60,
    )
    per_step = took["ours"] / 100 * 1e6
    yield Row(
        "chain of 100 no-op steps, per step, beside a task each",
        f"{per_step:.1f} µs",
        f"{took['tasks'] / 100 * 1e6:.1f} µs",
        took["ours"] / took["tasks"],
        "≤ 12 µs",
        per_step <= 12,
    )
    yield Row("  … beside bare awaits", f"{per_step:.1f} µs", f"{took['awaits'] / 100 * 1e6:.2f} µs")
    yield Row(
        "  … beside pydantic-graph",
        f"{per_step:.1f} µs",
        f"{took['peer'] / 100 * 1e6:.1f} µs",
        took["ours"] / took["peer"],
    )


def graph_chain(length: int):  # type: ignore[no-untyped-def]  # the peer's own types, kept out of ours
    from pydantic_graph import StepContext as GraphContext

    builder = GraphBuilder(name="chain", state_type=type(None), input_type=int, output_type=int)

    async def nothing_more(ctx: GraphContext[None, None, int]) -> int:
        return 1

    nodes = [builder.step(node_id=f"s{i}")(nothing_more) for i in range(length)]
    builder.add(builder.edge_from(builder.start_node).to(nodes[0]))
    for before, after in pairwise(nodes):
        builder.add(builder.edge_from(before).to(after))
    builder.add(builder.edge_from(nodes[-1]).to(builder.end_node))
    graph = builder.build()
    return lambda: graph.run(inputs=1, state=None)


async def fan_of_1000() -> AsyncIterator[Row]:
    pipeline = fan(1000)

    async def gather() -> None:
        await bare_nothing()
        await asyncio.gather(*(asyncio.create_task(bare_nothing()) for _ in range(1000)))
        await bare_nothing()

    took = await medians({"ours": lambda: pipeline.execute({}), "bare": gather}, rounds=25)
    ratio = took["ours"] / took["bare"]
    yield Row(
        "1,000 parallel no-op steps, beside gather of tasks",
        f"{took['ours'] * 1e3:.1f} ms",
        f"{took['bare'] * 1e3:.1f} ms",
        ratio,
        "≤ 2 x",
        ratio <= 2,
    )


async def uneven_graph() -> AsyncIterator[Row]:
    chosen = random.Random(7)
    durations = {f"s{i}": chosen.uniform(0.01, 0.12) for i in range(60)}
    ids = list(durations)
    needs = {ids[i]: chosen.sample(ids[:i], k=min(i, chosen.randint(1, 3))) for i in range(1, 60)}
    needs["end"] = ids
    pipeline = Pipeline(
        "uneven", {**{i: sleeping(taken) for i, taken in durations.items()}, "end": nothing}, needs
    )
    finish: dict[str, float] = {}
    for i in ids:
        finish[i] = durations[i] + max((finish[before] for before in needs.get(i, [])), default=0.0)
    critical = max(finish.values())
    took = (await medians({"ours": lambda: pipeline.execute({})}, rounds=5, warm_up=1))["ours"]
    yield Row(
        "uneven graph of 60 sleeping steps, beside its critical path",
        f"{took * 1e3:.0f} ms",
        f"{critical * 1e3:.0f} ms",
        took / critical,
        "≤ 1.03 x",
        took / critical <= 1.03,
    )


async def many_pipelines() -> AsyncIterator[Row]:
    ids = [f"s{i}" for i in range(5)]
    pipeline = Pipeline(
        "five",
        {i: sleeping(0.02) for i in ids},
        {"s2": ["s0", "s1"], "s3": ["s2"], "s4": ["s2", "s3"]},
    )

    async def bare_five() -> None:
        await asyncio.gather(asyncio.sleep(0.02), asyncio.sleep(0.02))
        for _ in range(3):
            await asyncio.sleep(0.02)

    async def ours() -> None:
        await asyncio.gather(*(pipeline.execute({}) for _ in range(500)))

    async def bare() -> None:
        await asyncio.gather(*(bare_five() for _ in range(500)))

    took = await medians({"ours": ours, "bare": bare}, rounds=8)
    share = took["bare"] / took["ours"]
    yield Row(
        "500 pipelines of 5 sleeping steps at once, throughput",
        f"{500 / took['ours']:.0f}/s",
        f"{500 / took['bare']:.0f}/s",
        share,
        "≥ 0.75 x",
        share >= 0.75,
    )


async def large_pipelines() -> AsyncIterator[Row]:
    for what, small, large, factor in (
        ("10,000 steps in 10 levels", lambda: layered(10, 250), lambda: layered(10, 1000), 4),
        ("chain of 5,000 steps", lambda: chain(1250), lambda: chain(5000), 4),
    ):
        timings = {}
        for size, build in (("small", small), ("large", large)):
            started = perf_counter()
            pipeline = build()
            built = perf_counter() - started
            ran = (await medians({"run": lambda p=pipeline: p.execute({})}, rounds=5, warm_up=1))["run"]
            timings[size] = built + ran
        pipeline = large()
        tracemalloc.start()
        await seconds(lambda p=pipeline: p.execute({}))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        growth = timings["large"] / timings["small"]
        yield Row(
            f"{what}, build and run, beside a quarter of it",
            f"{timings['large'] * 1e3:.0f} ms, {peak / 2**20:.0f} MiB",
            f"{timings['small'] * 1e3:.0f} ms",
            growth,
            f"linear: ~{factor} x",
            growth <= factor * 1.35,
        )


BENCHMARKS = (chain_of_100, fan_of_1000, uneven_graph, many_pipelines, large_pipelines)
