"""Scheduling, as users run it: each step is a function of its own, which reads what it depends on.

Chains, wide joins, uneven graphs, 1 to 10,000 runs at once, large pipelines and how long they take to build;
beside the same by hand with asyncio.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count, pairwise
from pathlib import Path

from pydantic_graph import GraphBuilder

from benchmarks.measure import Row, Timing, seconds, timings
from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, StepContext, step
from fastroai.store import MemoryRunStore, RunStore, SQLiteRunStore

_ids = count()


def adding(befores: Sequence[str]) -> BaseStep[object, int]:
    """A step of its own, which reads its dependencies and adds one."""

    @step
    async def add(ctx: StepContext) -> int:
        total = 1
        for before in befores:
            total += ctx.get_dependency(before, int)
        return total

    return add


def pipeline_of(
    name: str, needs: Mapping[str, Sequence[str]], config: PipelineConfig | None = None
) -> Pipeline:
    """A pipeline in which each step reads what it needs. The last step has the output."""
    steps = {step_id: adding(befores) for step_id, befores in needs.items()}
    return Pipeline(name, steps, needs, output_step=list(needs)[-1], config=config)


async def bare_add(befores: Sequence[int]) -> int:
    """What the step does, by hand."""
    total = 1
    for before in befores:
        total += before
    return total


def chain_needs(length: int) -> dict[str, list[str]]:
    ids = [f"s{i}" for i in range(length)]
    return {"s0": []} | {after: [before] for before, after in pairwise(ids)}


def chain(length: int, config: PipelineConfig | None = None) -> Pipeline:
    return pipeline_of("chain", chain_needs(length), config)


def fan(width: int) -> Pipeline:
    ids = [f"s{i}" for i in range(width)]
    return pipeline_of("fan", {"source": [], **{i: ["source"] for i in ids}, "sink": ids})


def layered(levels: int, width: int) -> dict[str, list[str]]:
    """Each step needs two of the level before; the last step needs the last level."""
    needs: dict[str, list[str]] = {f"0-{i}": [] for i in range(width)}
    for level in range(1, levels):
        for i in range(width):
            needs[f"{level}-{i}"] = [f"{level - 1}-{i}", f"{level - 1}-{(i + 1) % width}"]
    return needs | {"end": [f"{levels - 1}-{i}" for i in range(width)]}


SHORT = {"s0": [], "s1": [], "s2": ["s0", "s1"], "s3": ["s2"], "s4": ["s2", "s3"]}
"""A short pipeline: most of those that a service runs."""


async def short_by_hand(wait: float = 0.0) -> int:
    """The short pipeline with a task for each step, which waits before it adds."""

    async def add(befores: Sequence[int]) -> int:
        await asyncio.sleep(wait)
        return await bare_add(befores)

    first, second = await asyncio.gather(add([]), add([]))
    third = await asyncio.create_task(add([first, second]))
    fourth = await asyncio.create_task(add([third]))
    return await asyncio.create_task(add([third, fourth]))


async def chain_of_100() -> AsyncIterator[Row]:
    pipeline = chain(100)

    async def awaits() -> None:
        total = 0
        for _ in range(100):
            total = await bare_add([total])

    async def tasks() -> None:
        total = 0
        for _ in range(100):
            total = await asyncio.create_task(bare_add([total]))

    took = await timings(
        {"ours": lambda: pipeline.execute({}), "awaits": awaits, "tasks": tasks, "peer": graph_chain(100)},
        rounds=60,
    )
    ours = took["ours"].each(100)
    yield beside("chain of 100 steps, per step, beside a task each", took["ours"], took["tasks"], 100, 1.3)
    yield Row("  … beside bare awaits", ours, took["awaits"].each(100))
    yield beside("  … beside pydantic-graph", took["ours"], took["peer"], 100, 1)


def beside(what: str, ours: Timing, other: Timing, units: int, most: float) -> Row:
    """Ours beside another, by the CPU, which other work on the machine disturbs least."""
    ratio = ours.cpu / other.cpu
    return Row(what, ours.each(units), other.each(units), ratio, f"≤ {most:g} x", ratio <= most)


def graph_chain(length: int):  # type: ignore[no-untyped-def]  # the peer's own types, kept out of ours
    from pydantic_graph import StepContext as GraphContext

    builder = GraphBuilder(name="chain", state_type=type(None), input_type=int, output_type=int)

    def adding_one() -> Callable[[GraphContext[None, None, int]], object]:
        async def add(ctx: GraphContext[None, None, int]) -> int:
            return 1 + ctx.inputs

        return add

    nodes = [builder.step(node_id=f"s{i}")(adding_one()) for i in range(length)]
    builder.add(builder.edge_from(builder.start_node).to(nodes[0]))
    for before, after in pairwise(nodes):
        builder.add(builder.edge_from(before).to(after))
    builder.add(builder.edge_from(nodes[-1]).to(builder.end_node))
    graph = builder.build()
    return lambda: graph.run(inputs=1, state=None)


async def fan_of_1000() -> AsyncIterator[Row]:
    pipeline = fan(1000)

    async def gather() -> None:
        source = await bare_add([])
        await bare_add(await asyncio.gather(*(asyncio.create_task(bare_add([source])) for _ in range(1000))))

    took = await timings({"ours": lambda: pipeline.execute({}), "bare": gather}, rounds=25)
    yield beside("1,000 steps side by side, joined and read, per step", took["ours"], took["bare"], 1000, 2)


async def uneven_graph() -> AsyncIterator[Row]:
    chosen = random.Random(7)
    durations = {f"s{i}": chosen.uniform(0.01, 0.12) for i in range(60)}
    ids = list(durations)
    needs = {ids[i]: chosen.sample(ids[:i], k=min(i, chosen.randint(1, 3))) for i in range(1, 60)}
    needs["end"] = ids
    steps = {i: sleeping(taken) for i, taken in durations.items()} | {"end": adding([])}
    pipeline = Pipeline("uneven", steps, needs)
    finish: dict[str, float] = {}
    for i in ids:
        finish[i] = durations[i] + max((finish[before] for before in needs.get(i, [])), default=0.0)
    critical = max(finish.values())
    took = (await timings({"ours": lambda: pipeline.execute({})}, rounds=5, warm_up=1))["ours"].wall
    yield Row(
        "uneven graph of 60 sleeping steps, beside its critical path",
        f"{took * 1e3:.0f} ms",
        f"{critical * 1e3:.0f} ms",
        took / critical,
        "≤ 1.03 x",
        took / critical <= 1.03,
    )


def sleeping(duration: float) -> BaseStep[object, float]:
    @step
    async def sleep(ctx: StepContext[object]) -> float:
        await asyncio.sleep(duration)
        return duration

    return sleep


async def many_pipelines() -> AsyncIterator[Row]:
    """Short pipelines that wait for nothing: what all of the machine is spent on is the scheduling."""
    pipeline = pipeline_of("short", SHORT)

    async def ours() -> None:
        await asyncio.gather(*(pipeline.execute({}) for _ in range(500)))

    async def bare() -> None:
        await asyncio.gather(*(asyncio.create_task(short_by_hand()) for _ in range(500)))

    took = await timings({"ours": ours, "bare": bare}, rounds=8)
    share = took["bare"].cpu / took["ours"].cpu
    yield Row(
        "500 short pipelines at once, a second of the CPU",
        f"{500 / took['ours'].cpu:,.0f}",
        f"{500 / took['bare'].cpu:,.0f}",
        share,
        "≥ 0.7 x",
        share >= 0.7,
    )


@contextmanager
def no_store() -> Iterator[None]:
    yield None


@contextmanager
def memory_store() -> Iterator[RunStore]:
    yield MemoryRunStore()


@contextmanager
def sqlite_store() -> Iterator[RunStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield SQLiteRunStore(Path(folder, "runs.db"))


async def runs_at_once() -> AsyncIterator[Row]:
    """Runs that no store keeps."""
    async for row in at_once("no", no_store, 10_000):
        yield row


async def runs_at_once_in_memory() -> AsyncIterator[Row]:
    """Runs in a store in memory."""
    async for row in at_once("memory", memory_store, 10_000):
        yield row


async def runs_at_once_in_sqlite() -> AsyncIterator[Row]:
    """Runs in one SQLite file."""
    async for row in at_once("SQLite", sqlite_store, 1_000):
        yield row


async def at_once(
    name: str, opened: Callable[[], AbstractContextManager[RunStore | None]], most: int
) -> AsyncIterator[Row]:
    """Whether a run among thousands costs what a lone one does. Steps wait, so that all runs are alive."""
    each: dict[int, float] = {}
    for number in (1, 100, 1_000, 10_000):
        if number > most:
            break
        with opened() as store:
            took = await timings(
                {"ours": many_runs(store, number), "bare": many_by_hand(number)},
                rounds={1: 30, 100: 10, 1_000: 3, 10_000: 1}[number],
                warm_up=1 if number <= 1_000 else 0,
            )
        each[number] = took["ours"].cpu / number
        yield Row(
            f"{number:,} runs at once, {name} store, per run",
            took["ours"].each(number),
            took["bare"].each(number),
            took["ours"].cpu / took["bare"].cpu,
        )
    growth = each[max(each)] / each[100]
    yield Row(
        f"  … a run among {max(each):,} beside one among 100, CPU",
        f"{each[max(each)] * 1e6:,.0f} µs",
        f"{each[100] * 1e6:,.0f} µs",
        growth,
        "flat: ≤ 1.3 x",
        growth <= 1.3,
    )


WAIT = 0.02
"""Seconds that each step of many runs at once waits."""


def waiting(befores: Sequence[str]) -> BaseStep[object, int]:
    @step
    async def wait(ctx: StepContext) -> int:
        await asyncio.sleep(WAIT)
        return 1 + sum(ctx.get_dependency(before, int) for before in befores)

    return wait


def many_runs(store: RunStore | None, number: int) -> Callable[[], object]:
    steps = {step_id: waiting(befores) for step_id, befores in SHORT.items()}
    pipeline = Pipeline("waits", steps, SHORT, config=PipelineConfig(store=store))

    async def run() -> None:
        if store is None:
            await asyncio.gather(*(pipeline.execute({}) for _ in range(number)))
        else:
            await asyncio.gather(*(pipeline.execute({}, run_id=f"run-{next(_ids)}") for _ in range(number)))

    return run


def many_by_hand(number: int) -> Callable[[], object]:
    async def run() -> None:
        await asyncio.gather(*(asyncio.create_task(short_by_hand(WAIT)) for _ in range(number)))

    return run


async def large_pipelines() -> AsyncIterator[Row]:
    for what, small, large, aim in (
        ("10,000 steps in 10 levels", layered(10, 250), layered(10, 1000), (0.2, 0.1)),
        ("chain of 2,000 steps", chain_needs(500), chain_needs(2000), (None, 0.025)),
        ("chain of 5,000 steps", chain_needs(1250), chain_needs(5000), None),
    ):
        built, ran = {}, {}
        for size, needs in (("small", small), ("large", large)):
            took = await timings({"build": building(needs)}, rounds=5, warm_up=1)
            built[size] = took["build"]
            pipeline = pipeline_of("large", needs)
            ran[size] = (await timings({"run": lambda p=pipeline: p.execute({})}, rounds=5, warm_up=1))["run"]
        pipeline = pipeline_of("large", large)
        tracemalloc.start()
        await seconds(lambda p=pipeline: p.execute({}))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for part, timing, most in (("build", built, aim and aim[0]), ("run", ran, aim and aim[1])):
            growth = timing["large"].cpu / timing["small"].cpu
            yield Row(
                f"{what}, {part}, beside a quarter of it",
                f"{timing['large'].wall * 1e3:.0f} ms, CPU {timing['large'].cpu * 1e3:.0f}"
                + (f", {peak / 2**20:.0f} MiB" if part == "run" else ""),
                f"{timing['small'].wall * 1e3:.0f} ms",
                growth,
                f"linear: ~4 x{'' if most is None else f', ≤ {most} s'}",
                growth <= 4 * 1.35 and (most is None or timing["large"].wall <= most),
            )


def building(needs: Mapping[str, Sequence[str]]) -> Callable[[], object]:
    async def build() -> None:
        pipeline_of("built", needs)

    return build


BENCHMARKS = (
    chain_of_100,
    fan_of_1000,
    uneven_graph,
    many_pipelines,
    runs_at_once,
    runs_at_once_in_memory,
    runs_at_once_in_sqlite,
    large_pipelines,
)
