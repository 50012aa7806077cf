"""Every setting of every kind of run makes a difference, or is refused with an error that names its place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from support.agents import paid_agent
from support.doors import Body, door
from support.interruptions import DyingStore, nth
from support.tracing import RecordingTracer
from support.virtual_time import in_virtual_time, now

from fastroai import (
    Edge,
    Graph,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    compute,
    flow,
    step,
)
from fastroai.errors import ConfigurationError, RunStoreUnavailable, StepExecutionError
from fastroai.functions import HumanReviewContext, await_human, parallel
from fastroai.runtime import FailureClass, ProviderLimit, RetryPolicy, current_scope
from fastroai.runtime.facts import RequestEnded
from fastroai.steps import BaseStep, ExecutionConfig
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.usage import Budget
from fastroai.workflows import Workflow

RUNS = ("pipeline", "graph", "router", "flow", "workflow")
AS_STEPS = ("pipeline as step", "graph as step", "router as step", "flow as step")
KINDS = (*RUNS, *AS_STEPS)
STEPS = ("step", *(f"step of {kind}" for kind in ("pipeline", "graph", "router", "flow", "function")))


async def ending(
    kind: str, body: Body, *, tracer: Any = None, kept_in: MemoryRunStore | None = None, **settings: Any
) -> str:
    """How a run ends: "returned", or the name of the exception that its body raised."""
    made = door(kind, body, settings)
    run = made.run if kind == "flow" else made.execute
    try:
        result = await run(tracer=tracer, store=kept_in)
    except Exception as error:
        failure: BaseException = error
    else:
        found = getattr(result, "error", None) or next(iter(getattr(result, "errors", {}).values()), None)
        if found is None or kind not in ("graph", "workflow"):
            return "returned"
        failure = found
    while isinstance(failure, StepExecutionError):
        failure = failure.original_error
    return type(failure).__name__


# --- one function for each setting: what is observed with either of two values ---


async def sleeps(ctx: StepContext[Any] | None, text: str) -> str:
    await asyncio.sleep(100)
    return "awake"


async def pays(ctx: StepContext[Any] | None, text: str) -> str:
    return str((await paid_agent(100).run("hello")).output)


async def breaks(ctx: StepContext[Any] | None, text: str) -> str:
    raise ValueError("broken")


def breaking_once() -> Body:
    attempts: list[int] = []

    async def body(ctx: StepContext[Any] | None, text: str) -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionRefusedError("not yet")
        return "there"

    return body


@dataclass
class Observed:
    """What hooks and sinks were told."""

    told: list[str] = field(default_factory=list)

    async def tell(self, *facts: Any) -> None:
        self.told.append("told")


async def of_values(kind: str, body: Callable[[], Body], *values: dict[str, Any]) -> list[object]:
    return [await ending(kind, body(), **one) for one in values]


async def with_hook(kind: str, name: str, body: Callable[[], Body], **more: Any) -> list[object]:
    observed = Observed()
    await ending(kind, body(), **more)
    before = len(observed.told)
    await ending(kind, body(), **more, **{name: observed.tell})
    return [before, len(observed.told)]


async def tolerated(kind: str) -> list[object]:
    if kind != "pipeline as step":
        return await of_values(kind, lambda: breaks, {}, {"on_error": "continue"})
    found: list[object] = []
    for config in (PipelineConfig(), PipelineConfig(on_error="continue")):

        @step
        async def broken(ctx: StepContext[Any]) -> str:
            raise ValueError("a step without which there is an output")

        @step
        async def works(ctx: StepContext[Any]) -> str:
            return "done"

        steps = {"broken": broken, "works": works}
        inner = Pipeline[Any, Any, Any]("inner", steps, output_step="works", config=config)
        try:
            found.append((await Pipeline[Any, Any, Any]("p", {"inner": inner.as_step()}).execute()).output)
        except StepExecutionError as error:
            found.append(type(error))
    return found


async def traced(kind: str) -> list[object]:
    spans: list[object] = []
    for trace in (True, False):
        tracer = RecordingTracer()
        await ending(kind, pays, tracer=tracer, trace=trace)
        spans.append(len(tracer.spans))
    return spans


async def delays(kind: str) -> list[object]:
    seconds: list[object] = []
    for delay in (0.0, 1_000.0):
        began = now()
        await ending(kind, breaking_once(), retries=1, retry_delay=delay)
        seconds.append(now() - began > 0)
    return seconds


async def limited(kind: str) -> list[object]:
    found: list[object] = []

    async def body(ctx: StepContext[Any] | None, text: str) -> str:
        scope = current_scope()
        assert scope is not None
        found.append(len(scope.bounds.provider_limits))
        return "seen"

    await ending(kind, body)
    await ending(kind, body, provider_limits={"openai": ProviderLimit(max_concurrency=1)})
    return found


async def stored(kind: str) -> list[object]:
    store = MemoryRunStore()
    before = len(await listed(store))
    await ending(kind, pays, store=store)
    return [before, len(await listed(store))]


async def said(kind: str) -> list[object]:
    found: list[object] = []
    for is_recorded in (True, False):
        store = MemoryRunStore()
        await ending(kind, pays, store=store, record_messages=is_recorded)
        (run,) = await listed(store)
        found.append("user: hello" in (await RunHistory(store).trace(run.run_id)).transcript())
    return found


async def listed(store: MemoryRunStore) -> list[Any]:
    return [*(await RunHistory(store).list())]


async def asked(kind: str) -> list[object]:
    async def asks(ctx: StepContext[Any] | None, text: str) -> object:
        if ctx is None:
            return (await await_human(HumanReviewContext("Go on?"), bool)).value
        return await ctx.ask("Go on?", bool)

    observed = Observed()
    await ending(kind, asks, kept_in=MemoryRunStore())
    before = len(observed.told)
    await ending(kind, asks, kept_in=MemoryRunStore(), sinks=[observed.tell])
    return [before, len(observed.told)]


async def kept(kind: str, *values: dict[str, Any]) -> list[object]:
    """What the keeper of records is told; what it makes of that has tests of its own."""
    keepers = [door(kind, pays, one)._keeper(MemoryRunStore()) for one in values]
    return [(keeper.durability, keeper.terms, keeper.codec) for keeper in keepers]


async def at_once(kind: str) -> list[object]:
    return [await most_at_once(kind, limit) for limit in (None, 1)]


async def most_at_once(kind: str, limit: int | None) -> int:
    """How many of two steps or calls side by side ran at once."""
    running: list[int] = []
    most: list[int] = []

    async def counts() -> str:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(1)
        running.pop()
        return "done"

    async def counts_said() -> dict[str, str]:
        return {"said": await counts()}

    @step
    async def one(ctx: StepContext[Any]) -> str:
        return await counts()

    @step
    async def nothing(ctx: StepContext[Any]) -> str:
        return ""

    @compute
    async def call(number: int) -> str:
        return await counts()

    config = PipelineConfig(max_concurrency=limit)

    @flow(config=config)
    async def both() -> list[str]:
        return [*await parallel(call(1), call(2))]

    if kind == "pipeline":
        steps = {"a": one, "b": one, "end": nothing}
        await Pipeline[Any, Any]("p", steps, {"end": ["a", "b"]}, config=config).execute()
    elif kind == "graph":
        nodes = {"begin": nothing, "a": one, "b": one, "end": nothing}
        edges = [Edge("begin", "a"), Edge("begin", "b"), Edge("a", "end"), Edge("b", "end")]
        await Graph[Any, Any]("g", nodes=nodes, edges=edges, config=config).execute()
    elif kind == "workflow":
        await Workflow.load(SIDE_BY_SIDE).run(functions={"call": counts_said}, config=config)
    else:
        await both()
    assert len(most) == 2
    return max(most)


SIDE_BY_SIDE = """\
version: "0.3"
contracts: {Done: {said: {type: string}}}
functions: {call: {mode: compute, intent: Count, output: Done}}
flows:
  w:
    steps: [{id: a, function: call}, {id: b, function: call}]
"""


async def changed(kind: str) -> list[object]:
    """How often an agent is asked whose instructions have changed since its answer was put on record."""
    seen: list[object] = []
    for settings in ({}, {"on_changed": "keep"}):
        asked, store = list[str](), MemoryRunStore()

        def body(instructions: str, asked: list[str] = asked) -> Body:
            async def note(prompt: str) -> None:
                asked.append(instructions)

            async def asks(ctx: StepContext[Any] | None, text: str) -> object:
                return (await paid_agent(100, before=note, instructions=instructions).run("hello")).output

            return asks

        dying = DyingStore(store, nth(RequestEnded), written=True)
        first = door(kind, body("Be brief."), settings)
        with pytest.raises(RunStoreUnavailable):
            await first.execute({}, run_id="r", store=dying)
        await door(kind, body("Be exact."), settings).resume("r", store=store)
        seen.append(asked)
    assert seen[1] == ["Be brief."]
    return seen


class Reversing:
    """A codec."""

    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    decode = encode


OBSERVED: dict[str, Callable[[str], Awaitable[list[object]]]] = {
    "timeout": lambda kind: of_values(kind, lambda: sleeps, {"retries": 0}, {"retries": 0, "timeout": 1}),
    "total_timeout": lambda kind: of_values(kind, lambda: sleeps, {}, {"total_timeout": 1}),
    "retries": lambda kind: of_values(kind, breaking_once, {"retries": 0}, {"retries": 1, "retry_delay": 0}),
    "retry_delay": delays,
    "retry": lambda kind: of_values(
        kind, breaking_once, {"retries": 0}, {"retry": RetryPolicy(max_retries=1, backoff=0)}
    ),
    "classifiers": lambda kind: of_values(
        kind,
        breaking_once,
        {"retries": 1, "retry_delay": 0},
        {"retries": 1, "retry_delay": 0, "classifiers": [lambda error, context: FailureClass.TERMINAL]},
    ),
    "cost_budget": lambda kind: of_values(kind, lambda: pays, {}, {"cost_budget": 1}),
    "budget": lambda kind: of_values(kind, lambda: pays, {}, {"budget": Budget(microcents=1)}),
    "trace": traced,
    "on_error": tolerated,
    "on_step_start": lambda kind: with_hook(kind, "on_step_start", lambda: pays),
    "on_step_success": lambda kind: with_hook(kind, "on_step_success", lambda: pays),
    "on_step_failure": lambda kind: with_hook(kind, "on_step_failure", lambda: breaks, retries=0),
    "on_retry": lambda kind: with_hook(kind, "on_retry", breaking_once, retries=1, retry_delay=0),
    "max_concurrency": at_once,
    "store": stored,
    "durability": lambda kind: kept(kind, {}, {"durability": "async"}),
    "on_changed": changed,
    "lease": lambda kind: kept(kind, {}, {"lease": 7}),
    "max_stall": lambda kind: kept(kind, {}, {"max_stall": 7}),
    "codec": lambda kind: kept(kind, {}, {"codec": Reversing()}),
    "record_messages": said,
    "sinks": asked,
    "provider_limits": limited,
}

REFUSED = {
    ("graph", "on_error"): "edges",
    ("flow", "on_error"): "Catch the exception in its body",
    ("workflow", "on_error"): "the spec says what follows",
    ("router", "max_concurrency"): "set it on its pipelines",
    ("router as step", "max_concurrency"): "set it on its pipelines",
    ("graph as step", "on_error"): "edges",
    ("flow as step", "on_error"): "Catch the exception in its body",
    ("step of pipeline", "timeout"): "total_timeout",
    ("step of graph", "timeout"): "total_timeout",
    ("step of router", "timeout"): "total_timeout",
    ("step of flow", "timeout"): "total_timeout",
}
"""Settings that a kind of run has no use for, with a part of the error."""

OF_THE_RUN_AROUND = {"store", "durability", "on_changed", "lease", "max_stall", "codec", "record_messages"}
"""Settings of the record, which nested runs share with the run around them. Below is what becomes of a store.
`test_options_of_declarations.py` shows that a codec is refused if the run around has none, and
`durability/test_conversations.py` that a run cannot leave out messages which the run around records."""

OF_ITS_NODES = {"retries", "retry_delay", "retry", "classifiers", "on_retry"}
"""Settings of the step of a graph, whose nodes make two extra attempts by default: when a node has given up,
no place around it starts again. Below is a node that makes one attempt."""

EXAMPLES: dict[str, Any] = {"on_error": "continue", "max_concurrency": 4, "timeout": 1}


def cases() -> list[Any]:
    found = [
        (kind, one.name)
        for kind in STEPS
        for one in fields(StepConfig)
        if (kind, one.name) not in {("step of graph", name) for name in OF_ITS_NODES}
    ]
    for kind in KINDS:
        names = [one.name for one in fields(PipelineConfig)]
        left_out = OF_THE_RUN_AROUND if kind in AS_STEPS else set()
        found += [(kind, name) for name in names if name not in left_out]
    return [pytest.param(kind, name, id=f"{name} of {kind}") for kind, name in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), cases())
@in_virtual_time
async def test_every_setting_of_every_kind_of_run_makes_a_difference_or_is_refused(
    kind: str, name: str
) -> None:
    if (part := REFUSED.get((kind, name))) is not None:
        with pytest.raises((ConfigurationError, ValueError), match=part):
            door(kind, pays, {name: EXAMPLES[name]})
        return
    one, other = await OBSERVED[name](kind)
    assert one != other


class Judged(BaseStep[Any, str]):
    """A step as agent nodes with a judge are, which decide by themselves whether to try again."""

    judges_itself = True
    config = StepConfig()

    def __init__(self) -> None:
        self.body = breaking_once()

    async def execute(self, context: StepContext[Any]) -> str:
        return str(await self.body(context, ""))


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_graph_that_is_a_step_is_tried_again_if_its_node_was_tried_once(retries: int) -> None:
    again: list[Any] = []
    config = StepConfig(retries=retries, retry_delay=0, on_retry=again.append)
    inner = Graph[Any, Any, Any]("g", nodes={"judged": Judged()})
    outer = Pipeline[Any, Any, Any]("outer", {"inner": inner.as_step(config=config)})
    if retries:
        assert (await outer.execute()).output == "there"
    else:
        with pytest.raises(StepExecutionError):
            await outer.execute()
    assert len(again) == retries


@pytest.mark.parametrize("kind", ["pipeline", "graph", "flow"])
async def test_the_store_of_a_nested_run_keeps_it_if_nothing_keeps_the_run_around(kind: str) -> None:
    own, outer = MemoryRunStore(), MemoryRunStore()
    await ending(f"{kind} as step", pays, store=own)
    assert len(await listed(own)) == 1
    await ending(f"{kind} as step", pays, store=own, kept_in=outer)
    assert (len(await listed(own)), len(await listed(outer))) == (1, 1)


async def test_the_store_of_a_nested_router_is_refused_if_nothing_keeps_the_run_around() -> None:
    assert await ending("router as step", pays, store=MemoryRunStore()) == "ConfigurationError"
    assert (
        await ending("router as step", pays, store=MemoryRunStore(), kept_in=MemoryRunStore()) == "returned"
    )


async def test_a_nested_pipeline_that_waits_on_a_record_of_its_own_asks_for_a_store_around() -> None:
    async def asks(ctx: StepContext[Any] | None, text: str) -> object:
        assert ctx is not None
        return await ctx.ask("Go on?", bool)

    with pytest.raises(StepExecutionError, match="a store for the outermost run") as caught:
        await door("pipeline as step", asks, {"store": MemoryRunStore()}).execute()
    assert isinstance(caught.value.original_error, ConfigurationError)


def test_no_setting_is_forgotten() -> None:
    names = {one.name for one in fields(PipelineConfig)}
    assert names == OBSERVED.keys()
    assert {one.name for one in fields(StepConfig)} == {one.name for one in fields(ExecutionConfig)} <= names
    assert {name for _, name in REFUSED} <= names
    assert names >= OF_THE_RUN_AROUND
