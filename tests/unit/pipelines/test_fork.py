"""New runs that have what another did before a point."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from support.durable import DIAMOND, Counted
from support.faulty_store import everything_in

from fastroai.errors import ConfigurationError, RunExists, RunNotFound, StepExecutionError
from fastroai.pipelines import (
    ConversationState,
    ConversationStatus,
    Pipeline,
    PipelineConfig,
    StepContext,
    step,
)
from fastroai.store import MemoryRunStore, RunHistory


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def store() -> MemoryRunStore:
    return MemoryRunStore()


async def finished(counted: Counted, store: MemoryRunStore, **options: Any) -> Pipeline[Any, Any]:
    pipeline = counted.pipeline("p", DIAMOND, **options)
    await pipeline.execute({"tone": "plain"}, run_id="r", store=store)
    counted.take()
    return pipeline


@pytest.mark.parametrize(
    ("at", "again"), [("a", {"a", "b", "c", "d"}), ("b", {"b", "d"}), ("c", {"c", "d"}), ("d", {"d"})]
)
async def test_a_step_and_all_that_need_it_run_again_and_the_other_run_stays_as_it_is(
    at: str, again: set[str], counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = await finished(counted, store)
    before = await everything_in(store)
    result = await pipeline.fork("r", at=at, store=store, inputs={"tone": "formal"}, new_run_id="f")
    assert counted.take() == dict.fromkeys(again, 1)
    assert result.output == ["d", ["b", ["a"]], ["c", ["a"]]]
    assert result.trace.inputs == {"tone": "formal"}
    after = await everything_in(store)
    assert {key: after[key] for key in before} == before
    assert (await RunHistory(store).summary("f")).forked_from == "r"
    assert result.trace.replay(pipeline) is None


async def test_outputs_can_be_others(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await finished(counted, store)
    result = await pipeline.fork("r", outputs={"b": "B"}, store=store)
    assert counted.take() == {"d": 1}
    assert result.output == ["d", "B", ["c", ["a"]]]
    assert result.run_id.startswith("r-fork-")
    result = await pipeline.fork("r", at="c", outputs={"a": "A", "b": "B"}, store=store)
    assert counted.take() == {"c": 1, "d": 1}
    assert result.output == ["d", "B", ["c", "A"]]
    result = await pipeline.fork("r", at="d", outputs={"d": "D"}, store=store)
    assert (counted.take(), result.output) == ({}, "D")


async def test_what_is_reused_costs_nothing_and_can_be_resumed(
    counted: Counted, store: MemoryRunStore
) -> None:
    def pay(ctx: StepContext[Any]) -> int:
        ctx.record_usage(model="search", cost_usd="0.5")
        return 1

    steps = {"a": counted.step("a", pay), "b": counted.step("b", pay)}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"b": ["a"]})
    await pipeline.execute(run_id="r", store=store)
    counted.failing = {"b"}
    with pytest.raises(StepExecutionError):
        await pipeline.fork("r", at="b", new_run_id="f", store=store)
    counted.failing.clear()
    counted.take()
    result = await pipeline.resume("f", store=store)
    assert counted.take() == {"b": 1}
    assert result.usage.cost_usd == Decimal("0.5")
    assert result.usage.steps["a"].cost_usd == 0


async def test_a_fork_of_a_fork(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await finished(counted, store)
    await pipeline.fork("r", outputs={"a": "A"}, new_run_id="f", store=store)
    counted.take()
    result = await pipeline.fork("f", at="d", new_run_id="g", store=store)
    assert counted.take() == {"d": 1}
    assert result.output == ["d", ["b", "A"], ["c", "A"]]


async def test_of_a_run_that_failed_what_has_finished_is_reused(
    counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    counted.failing = {"c"}
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    counted.failing.clear()
    counted.take()
    assert (await pipeline.fork("r", outputs={"c": "C"}, store=store)).output == ["d", ["b", ["a"]], "C"]
    assert "a" not in counted.take()


async def test_of_a_run_that_goes_on(counted: Counted, store: MemoryRunStore) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    @step
    async def wait(ctx: StepContext[Any]) -> str:
        if not reached.is_set():
            reached.set()
            await go.wait()
        return "done"

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"a": counted.step("a"), "wait": wait}, {"wait": ["a"]})
    running = asyncio.create_task(pipeline.execute(run_id="r", store=store))
    await reached.wait()
    assert (await pipeline.fork("r", at="wait", store=store)).output == "done"
    go.set()
    assert (await running).output == "done"
    assert counted.take() == {"a": 1}


async def test_of_a_run_that_waits_a_conversation_goes_on_unless_it_is_what_runs_again(
    counted: Counted, store: MemoryRunStore
) -> None:
    seen: list[Any] = []

    @step
    async def ask(ctx: StepContext[Any]) -> ConversationState[str]:
        seen.append(None if ctx.conversation_state is None else ctx.conversation_state.data)
        status = ConversationStatus.INCOMPLETE if len(seen) == 1 else ConversationStatus.COMPLETE
        return ConversationState(status, "said")

    steps = {"side": counted.step("side"), "ask": ask}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, output_step="ask")
    await pipeline.execute(run_id="r", store=store)
    await pipeline.fork("r", at="side", store=store)
    await pipeline.fork("r", at="ask", store=store)
    assert seen == [None, "said", None]


# --- typed outputs ---


class Order(BaseModel):
    id: int


def typed(counted: Counted) -> Pipeline[Any, Any]:
    @step
    async def read(ctx: StepContext[Any]) -> Order:
        return Order(id=1)

    @step
    async def use(ctx: StepContext[Any]) -> int:
        return ctx.get_dependency("read", Order).id

    return Pipeline("p", {"read": read, "use": use}, {"use": ["read"]})


@pytest.mark.parametrize("output", [Order(id=7), {"id": "7"}])
async def test_an_output_is_checked_and_coerced_as_that_of_the_step(
    output: Any, counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = typed(counted)
    await pipeline.execute(run_id="r", store=store)
    assert (await pipeline.fork("r", outputs={"read": output}, store=store)).output == 7


async def test_a_conversation_can_be_an_output(counted: Counted, store: MemoryRunStore) -> None:
    use = counted.step("use", lambda ctx: ctx.get_dependency("ask").data)
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"ask": counted.step("ask"), "use": use}, {"use": ["ask"]})
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    state = ConversationState(ConversationStatus.COMPLETE, "said")
    assert (await pipeline.fork("r", outputs={"ask": state}, store=store)).output == "said"


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"at": "dd"}, "at=.*Did you mean 'd'"),
        ({"outputs": {"x": 1}}, "outputs=.*the id of a step"),
        ({}, "the step from which the new run differs"),
        ({"inputs": {"tone": "x"}}, "the step from which"),
        ({"at": "d", "new_run_id": ""}, "run_id"),
        ({"at": "d", "inputs": [1]}, "inputs"),
    ],
)
async def test_a_point_that_is_none(
    options: Any, match: str, counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = await finished(counted, store)
    before = await everything_in(store)
    with pytest.raises(ConfigurationError, match=match):
        await pipeline.fork("r", store=store, **options)
    assert (counted.take(), await everything_in(store)) == ({}, before)


async def test_an_output_that_the_step_cannot_have(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = typed(counted)
    await pipeline.execute(run_id="r", store=store)
    with pytest.raises(ConfigurationError, match="what step 'read' gives"):
        await pipeline.fork("r", outputs={"read": {"id": "x"}}, store=store)


async def test_ids_of_forks(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await finished(counted, store, config=PipelineConfig(store=store))
    with pytest.raises(RunExists):
        await pipeline.fork("r", at="d", new_run_id="r")
    with pytest.raises(RunNotFound):
        await pipeline.fork("other", at="d")
    await pipeline.execute(run_id="x" * 200)
    assert len((await pipeline.fork("x" * 200, at="d")).run_id) <= 200
