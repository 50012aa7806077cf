"""What people meet around graphs: halted runs, the last event, questions, warnings."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from support.virtual_time import in_virtual_time

from fastroai import MemoryRunStore, Pipeline, PipelineConfig, RunHistory, StepContext, step
from fastroai.errors import RunNotFound, RunStatusConflict, StepExecutionError
from fastroai.graphs import Edge, Graph, Node
from fastroai.pipelines import RunFinished


@step
async def ask(ctx: StepContext[Any]) -> str:
    ctx.record_usage(model="paid", cost_usd="0.25")
    return "Really?"


@step
async def act(ctx: StepContext[Any]) -> str:
    return "done"


def asking() -> Graph[Any, Any]:
    nodes = {"ask": Node(ask, writes=["sure"], answer_type=bool), "act": act}
    return Graph("asking", nodes=nodes, edges=[Edge("ask", "act")], pause_nodes=["ask"])


async def test_a_paused_run_is_cancelled_and_keeps_what_it_cost_and_can_be_taken_up_again() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)
    await asking().cancel("r", store=store)

    (run,) = await RunHistory(store).list()
    assert (run.status, run.requests, str(run.cost_usd)) == ("cancelled", 1, "0.25")
    with pytest.raises(RunStatusConflict, match="is cancelled"):
        await asking().cancel("r", store=store)
    result = await asking().resume("r", store=store, input=True)
    assert (result.status, result.output, result.memory["sure"]) == ("finished", "done", True)
    assert str(result.cost_usd) == str(result.usage.cost_usd) == "0.25"


async def test_what_has_finished_or_is_unknown_cannot_be_cancelled_or_paused() -> None:
    store = MemoryRunStore()
    graph = Graph("short", nodes={"act": act})
    await graph.run(run_id="r", store=store)
    for ask_for in (graph.cancel, graph.pause):
        with pytest.raises(RunStatusConflict, match="is finished"):
            await ask_for("r", store=store)
        with pytest.raises(RunNotFound, match="unknown"):
            await ask_for("unknown", store=store)
        with pytest.raises(RunNotFound, match="this process does not run"):
            await ask_for("r")


async def test_the_last_event_says_how_a_run_ended() -> None:
    async with asking().stream(run_id="r", store=MemoryRunStore()) as stream:
        paused = [event async for event in stream][-1]
    assert isinstance(paused, RunFinished)
    assert (paused.status, paused.reason, paused.error) == ("paused", "'ask' waits for an answer", None)

    @step(retries=0)
    async def fails(ctx: StepContext[Any]) -> None:
        raise ValueError("no")

    failed = [event async for event in Graph("failing", nodes={"fails": fails}).stream()][-1]
    assert isinstance(failed, RunFinished)
    assert (failed.status, failed.reason) == ("failed", "'fails' failed: ValueError: no")
    assert isinstance(failed.error, StepExecutionError)


@in_virtual_time
async def test_a_time_limit_of_the_run_is_told_as_its_end() -> None:
    @step
    async def waits(ctx: StepContext[Any]) -> None:
        await asyncio.sleep(60)

    graph = Graph("slow", nodes={"waits": waits}, config=PipelineConfig(total_timeout=0.05))
    async with graph.stream() as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.reason) == ("failed", "graph 'slow' took longer than 0.05 s")
    assert stream.result is not None
    assert stream.result.error is last.error


async def test_whoever_answers_can_ask_for_the_questions() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)
    (question,) = await asking().questions("r", store=store)
    assert (question.node, question.visit, question.question) == ("ask", 1, "Really?")
    assert question.answer_schema == {"type": "boolean"}
    await asking().resume("r", store=store, input=True)
    assert await asking().questions("r", store=store) == ()
    with pytest.raises(RunNotFound):
        await asking().questions("unknown", store=store)


async def test_a_plain_edge_is_taken_after_success_alone() -> None:
    @step(retries=0)
    async def charge(ctx: StepContext[Any]) -> str:
        raise ValueError("declined")

    shop = {"charge": charge, "ship": act}
    result = await Graph("shop", nodes=shop, edges=[Edge("charge", "ship")]).run()
    assert (result.status, result.path) == ("failed", ["charge"])
    result = await Graph("shop", nodes=shop, edges=[Edge("charge", "ship", "always")]).run()
    assert (result.status, result.quality, result.path) == ("finished", "degraded", ["charge", "ship"])


async def test_what_hardly_is_as_it_is_meant_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    @step
    async def scored(ctx: StepContext[Any]) -> dict[str, str]:
        return {"score": "high"}

    edges = [
        Edge("scored", "act", when="conditional", condition="score > 3"),
        Edge("scored", "end", "always"),
    ]
    await Graph("scores", nodes={"scored": scored, "act": act, "end": act}, edges=edges).run()
    assert "the condition of the edge from 'scored' to 'act' cannot be evaluated" in caplog.text
    assert "score ('high') > 3 is false" in caplog.text or 'score ("high") > 3 is false' in caplog.text


async def test_a_graph_that_asks_people_says_that_it_needs_a_store_before_it_pays_for_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told_first: list[bool] = []

    @step
    async def pay(ctx: StepContext[Any]) -> str:
        told_first.append("cannot be resumed" in caplog.text)
        return "Really?"

    def graph(*asking: str) -> Graph[Any, Any]:
        nodes = {"pay": pay, "ask": ask}
        return Graph("paying", nodes=nodes, edges=[Edge("pay", "ask")], pause_nodes=asking)

    result = await graph("ask").run(run_id="r")
    assert (result.status, result.resume_at) == ("paused", ("ask",))
    assert (
        "run 'r' pauses at 'ask' and cannot be resumed from there, because no store keeps it" in caplog.text
    )
    with pytest.raises(StepExecutionError, match="expected a store that keeps the run"):
        await Pipeline("outer", {"graph": graph("ask").as_step()}).execute()
    caplog.clear()
    await graph().run()
    assert (await graph("ask").run(store=MemoryRunStore())).status == "paused"
    assert told_first == [True, True, False, False]


async def test_conditions_read_true_false_and_null_as_json_writes_them() -> None:
    @step
    async def read(ctx: StepContext[Any]) -> dict[str, bool | None]:
        return {"approved": True, "reason": None}

    holds = Edge("read", "act", when="conditional", condition="approved == true and reason is null")
    fails = Edge("read", "end", when="conditional", condition="approved == false")
    result = await Graph("json", nodes={"read": read, "act": act, "end": act}, edges=[holds, fails]).run()
    assert (result.status, result.path) == ("finished", ["read", "act"])


async def test_exact_numbers_are_numbers_in_conditions() -> None:
    class Item(BaseModel):
        price: Decimal

    class Refund(BaseModel):
        amount: Decimal
        items: list[Item]

    @step
    async def read(ctx: StepContext[Any]) -> Refund:
        return Refund(amount=Decimal("5000"), items=[Item(price=Decimal("0.5")), Item(price=Decimal("9"))])

    condition = "amount > 100 and sum([item.price for item in items]) == 9.5"
    edges = [Edge("read", "boss", when="conditional", condition=condition), Edge("read", "pay", "always")]
    result = await Graph("refunds", nodes={"read": read, "boss": act, "pay": act}, edges=edges).run()
    assert result.path == ["read", "boss"]


@in_virtual_time
async def test_the_join_finds_what_took_too_long() -> None:
    @step
    async def slow(ctx: StepContext[Any]) -> None:
        await asyncio.sleep(60)

    @step
    async def join(ctx: StepContext[Any]) -> str:
        return repr(ctx.errors)

    graph = Graph(
        "fork",
        nodes={"top": act, "quick": act, "slow": slow, "join": join},
        edges=[Edge("top", "quick"), Edge("top", "slow"), Edge("quick", "join"), Edge("slow", "join")],
        branch_timeout=0.05,
        on_branch_failure="continue_others",
    )
    result = await graph.run()
    assert (result.status, result.quality, list(result.errors)) == ("finished", "degraded", ["slow"])
    assert "TimeLimitExceeded" in str(result.output)
