"""Rows whose requests are sent in batches: at their price, and collected by whoever continues the run."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from durability.row_worker import rows_for, target
from httpx import AsyncClient
from pydantic_ai import RunContext
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.models.fallback import FallbackModel
from support.fork_server import Program
from support.patience import PATIENCE
from support.stored_runs import entries_of
from support.typed_functions import Sentiment, listed_costs, sentiment

from fastroai import Budget, Graph, Pipeline, SpendLimit, StepContext, flow, step
from fastroai.agent import FastroAgent
from fastroai.errors import ConfigurationError, RunNotFound
from fastroai.functions import compute, infer
from fastroai.rows import RowTable
from fastroai.runtime.facts import RequestInBatch
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage

WORKER = Path(__file__).parents[2] / "durability" / "row_worker.py"


def batches(max_requests: int = 3, **options: Any) -> BatchModelRequests:
    """Batches that are sent and asked about at once."""
    soon = timedelta(milliseconds=10)
    options = {"max_wait": timedelta(milliseconds=50), "max_resubmissions": 0, **options}
    return BatchModelRequests(
        max_requests=max_requests, poll_interval=soon, max_poll_interval=soon, **options
    )


def classifier(server: ModelServer, model: str = "openai:gpt-5-mini", **options: Any) -> Any:
    @infer(intent="Classify the text", model=server.model(model), **options)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    return classify


def sizes(server: ModelServer) -> list[int]:
    """How many requests each batch had."""
    names = [entry.batch for entry in server.ledger.entries]
    return [names.count(name) for name in dict.fromkeys(names)]


async def in_batches(store: Any, count: int, run_id: str = "r") -> None:
    """Wait until it is on record of so many requests in which batch they are."""
    for _ in range(int(PATIENCE * 100)):
        try:
            entries = await entries_of(store, run_id)
        except RunNotFound:
            entries = []
        if sum(isinstance(entry, RequestInBatch) for entry in entries) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the requests are not on record")


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"])
async def test_rows_go_out_in_batches_at_half_the_price(model_server: ModelServer, model: str) -> None:
    model_server.rule(None, sentiment())
    table = await classifier(model_server, model).map([f"text {n}" for n in range(7)], batch=batches())
    assert table.ok
    assert [row.inputs["text"] for row in table] == [f"text {n}" for n in range(7)]
    assert sizes(model_server) == [3, 3, 1]
    assert table.cost_usd == listed_costs(model_server) / 2 > 0
    assert table.usage.cost_complete
    assert {row.cost_usd for row in table} == {table.cost_usd / 7}


async def test_an_agent_with_tools_sends_a_batch_for_each_of_its_turns(model_server: ModelServer) -> None:
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"), name="agent", max_tokens=100)

    @agent.agent.tool
    async def look_up(ctx: RunContext[object], name: str) -> str:
        return f"{name} is here"

    model_server.rule(lambda request: bool(request.tool_results), Reply(text="found"))
    model_server.rule(None, Reply(tool_calls=[ToolCall("look_up", {"name": "it"})]))
    table = await agent.map(["one", "two"], batch=batches(2))
    assert table.outputs == ["found", "found"]
    assert sizes(model_server) == [2, 2]
    assert table.cost_usd == listed_costs(model_server) / 2


@pytest.mark.slow
async def test_batches_are_collected_after_the_process_that_sent_them_was_killed(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.rule(None, Reply(text="fine", usage=Usage(100, 20)))
    model_server.holds_batches = True
    store = SQLiteRunStore(tmp_path / "rows.db")
    path, url = tmp_path / "rows.db", model_server.openai_url
    worker = Program(WORKER, "function", path, url, 12, 5, -1, "batch")
    await in_batches(store, 5, "rows")
    worker.send_signal(signal.SIGKILL)
    assert (await asyncio.to_thread(worker.end))[0] == -9
    model_server.holds_batches = False
    rows: RowTable[str] = await target("function", model_server.openai_url).map(
        rows_for("function", 12), store=store, run_id="rows", concurrency=5, batch=batches(5)
    )
    assert rows.outputs == ["fine"] * 12
    assert rows.resumed is not None
    assert (len(rows.resumed.collected), rows.resumed.new, rows.resumed.interrupted) == (5, 7, ())
    assert len(model_server.ledger.entries) == rows.usage.request_count == 12
    assert rows.cost_usd == listed_costs(model_server) / 2
    assert rows.usage.cost_complete
    assert sum((row.cost_usd for row in rows), Decimal(0)) == rows.cost_usd


@pytest.mark.parametrize("how", ["pause", "interrupt"])
async def test_a_run_that_is_let_go_while_it_waits_collects_its_batches_later(
    model_server: ModelServer, how: str
) -> None:
    model_server.rule(None, sentiment())
    model_server.holds_batches = True
    classify, store = classifier(model_server), MemoryRunStore()
    rows = [f"text {number}" for number in range(6)]
    limit = SpendLimit(usd=100, window="total", key=f"rows {how}")
    budget = [Budget(requests=6), limit]
    going = asyncio.create_task(
        classify.map(rows, batch=batches(), store=store, run_id="r", budget=budget, concurrency=6)
    )
    await in_batches(store, 6)
    if how == "pause":
        await RunHistory(store).pause("r")
        assert ((await going).status, len(await going)) == ("paused", 0)
    else:
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
    model_server.holds_batches = False
    table = await classify.map(rows, batch=batches(), store=store, run_id="r", budget=budget, concurrency=6)
    assert table.ok
    assert table.resumed is not None
    assert len(table.resumed.collected) == 6
    assert table.usage.request_count == len(model_server.ledger.entries) == 6
    assert table.cost_usd == listed_costs(model_server) / 2
    assert (await RunHistory(store).list())[0].cost_usd == table.cost_usd
    status = await limit.status()
    assert (status.spent_usd, status.reserved_usd) == (table.cost_usd, 0)


async def test_a_batch_is_cancelled_with_the_last_run_that_waits_for_it(model_server: ModelServer) -> None:
    model_server.rule(None, sentiment())
    model_server.holds_batches = True
    classify, store, shared = classifier(model_server), MemoryRunStore(), batches(2)
    going = {
        run: asyncio.create_task(classify.map([run], batch=shared, store=store, run_id=run))
        for run in ("one", "two")
    }
    for run in going:
        await in_batches(store, 1, run)
    [batch] = {entry.batch for entry in model_server.ledger.entries}
    states: list[str] = []
    for run, task in going.items():
        await RunHistory(store).cancel(run)
        table = await task
        assert (table.status, len(table)) == ("cancelled", 0)
        assert table.usage.uncertain_usd > 0  # the provider may have answered before
        async with AsyncClient() as client:
            states.append((await client.get(f"{model_server.openai_url}/batches/{batch}")).json()["status"])
    assert states == ["in_progress", "cancelled"]
    assert {run.cost_complete for run in await RunHistory(store).list()} == {False}


async def test_rows_that_fail_in_a_batch_or_never_run_are_lines_of_the_table(
    model_server: ModelServer,
) -> None:
    model_server.rule(lambda request: "bad" in request.prompt, Reply(fault=Fault.status(400)))
    model_server.rule(lambda request: "late" in request.prompt, Reply(fault=Fault.disconnect()))
    model_server.rule(None, sentiment())
    table = await classifier(model_server).map(["good", "bad", "late"], batch=batches())
    assert [row.ok for row in table] == [True, False, False]
    assert "status_code: 400" in table[1].error
    assert "was expired before the model ran it" in table[2].error
    assert (table[1].cost_usd, table[2].cost_usd) == (0, 0)
    assert (table.usage.failed_requests, table.usage.cost_complete) == (2, True)


async def test_budgets_hold_before_a_batch_is_sent(model_server: ModelServer) -> None:
    model_server.rule(None, sentiment())
    table = await classifier(model_server).map(
        [f"text {n}" for n in range(9)], batch=batches(9), budget=Budget(requests=4)
    )
    assert (table.reason_code, len(table)) == ("budget_exceeded", 4)
    assert len(model_server.ledger.entries) == 4
    table = await classifier(model_server).map(["text"], batch=batches(), budget=Budget(usd="0.000001"))
    assert (table.reason_code, len(table)) == ("budget_exceeded", 0)
    assert len(model_server.ledger.entries) == 4


async def test_what_has_no_batches_is_refused_before_anything_is_sent(model_server: ModelServer) -> None:
    @compute
    async def upper(text: str) -> str:
        return text.upper()

    @step
    async def first(ctx: StepContext[Any]) -> str:
        return "x"

    chat, answers = model_server.model("openai-chat:gpt-5-mini"), model_server.model("openai:gpt-5-mini")
    for one in (chat, FallbackModel(answers, chat)):
        with pytest.raises(ConfigurationError, match="'agent' to have a model with a batch API"):
            await FastroAgent(one, name="agent").map(["one"], batch=True)
    with pytest.raises(ConfigurationError, match="'upper' has a body"):
        await upper.map(["one"], batch=True)
    with pytest.raises(ConfigurationError, match=r"'p' is a pipeline.*capabilities=\[BatchModelRequests"):
        await Pipeline("p", {"first": first}).map([{}], batch=True)
    with pytest.raises(ConfigurationError, match="True, False or a BatchModelRequests"):
        await classifier(model_server).map(["one"], batch=5)
    assert not model_server.ledger.entries


async def test_inside_of_a_flow_that_is_resumed_batches_are_collected(model_server: ModelServer) -> None:
    model_server.rule(None, sentiment())
    model_server.holds_batches = True
    classify, store = classifier(model_server), MemoryRunStore()

    @flow
    async def labels(texts: list[str]) -> list[str]:
        table: RowTable[Sentiment] = await classify.map(texts, batch=batches())
        return [row.output.label for row in table if row.output is not None]

    going = asyncio.create_task(labels.run(["one", "two", "three"], run_id="r", store=store))
    await in_batches(store, 3)
    going.cancel()
    await asyncio.wait([going])
    model_server.holds_batches = False
    assert await labels.resume("r", store=store) == ["positive"] * 3
    assert len(model_server.ledger.entries) == 3
    assert (await RunHistory(store).list())[0].cost_usd == listed_costs(model_server) / 2


async def test_a_run_with_its_rows_on_record_holds_no_process_while_batches_run(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.rule(None, sentiment())
    model_server.holds_batches = True
    classify, store = classifier(model_server), SQLiteRunStore(tmp_path / "rows.db")
    table = await classify.map(
        (f"text {number}" for number in range(7)),
        batch=batches(2),
        concurrency=4,
        store=store,
        run_id="r",
        record_rows=True,
    )
    assert (table.status, table.reason_code, len(table)) == ("paused", "rows_waiting", 0)
    assert (len(table.waiting), len(model_server.ledger.entries)) == (4, 4)
    [run] = await RunHistory(store).list()
    assert run.due_at is not None
    outcome = (await woken(classify, store))["r"]
    assert (outcome.status, len(outcome.waiting)) == ("paused", 4)
    model_server.holds_batches = False
    while outcome.status == "paused":
        outcome = (await woken(classify, store))["r"]
    assert outcome.ok
    assert [row.inputs["text"] for row in outcome] == [f"text {number}" for number in range(7)]
    assert len(model_server.ledger.entries) == outcome.usage.request_count == 7
    assert outcome.cost_usd == listed_costs(model_server) / 2
    again = await classify.row_runs.table("r", store=store)
    assert (again.records, again.usage) == (outcome.records, outcome.usage)


@pytest.mark.parametrize("kind", ["pipeline", "graph", "flow"])
async def test_rows_that_are_runs_hold_no_process_either_while_their_agents_wait_for_batches(
    model_server: ModelServer, kind: str
) -> None:
    model_server.rule(None, Reply(text="fine"))
    model_server.holds_batches = True
    agent = FastroAgent(
        model_server.model("openai:gpt-5-mini"), name="agent", capabilities=[batches(2)], max_tokens=100
    )

    @step
    async def asks(ctx: StepContext[Any]) -> str:
        return (await ctx.run(agent, ctx.get_input("text"))).output

    @flow
    async def asked(text: str) -> str:
        return (await agent.run(text)).output

    doors: dict[str, Any] = {
        "pipeline": Pipeline("p", {"asks": asks}),
        "graph": Graph("g", nodes={"asks": asks}, terminals=["asks"]),
        "flow": asked,
    }
    door, store = doors[kind], MemoryRunStore()
    rows = [{"text": f"text {number}"} for number in range(3)]
    table = await door.map(rows, store=store, run_id="r", record_rows=True, concurrency=3)
    assert (table.status, table.reason_code, len(table.waiting)) == ("paused", "rows_waiting", 3)
    assert (await woken(door, store))["r"].status == "paused"
    model_server.holds_batches = False
    outcome = table
    while outcome.status == "paused":
        outcome = (await woken(door, store))["r"]
    assert outcome.outputs == ["fine"] * 3
    assert len(model_server.ledger.entries) == outcome.usage.request_count == 3
    assert outcome.cost_usd == listed_costs(model_server) / 2


async def woken(door: Any, store: Any) -> Any:
    """Wake the runs of rows that are due, as soon as there are some."""
    while not (found := await door.row_runs.wake(store=store)):
        await asyncio.sleep(0.01)
    return found


async def test_a_run_that_another_process_goes_on_with_waits_for_its_batch_on_record(
    model_server: ModelServer,
) -> None:
    model_server.rule(None, Reply(text="fine"))
    model_server.holds_batches = True
    agent = FastroAgent(
        model_server.model("openai:gpt-5-mini"), name="agent", capabilities=[batches(1)], max_tokens=100
    )

    @step
    async def asks(ctx: StepContext[Any]) -> str:
        return (await ctx.run(agent, "hello")).output

    pipeline: Any = Pipeline("p", {"asks": asks})
    store = MemoryRunStore()
    going = asyncio.create_task(pipeline.execute(run_id="r", store=store))
    await in_batches(store, 1)
    await pipeline.interrupt("r", store=store)
    going.cancel()
    await asyncio.wait([going])
    [outcome] = (await pipeline.recover(store=store)).values()
    assert (outcome.status, outcome.reason_code) == ("paused", "batch")
    model_server.holds_batches = False
    while not (found := await pipeline.wake(store=store)):
        await asyncio.sleep(0.01)
    assert found["r"].output == "fine"
    assert len(model_server.ledger.entries) == 1
    assert found["r"].usage.cost_usd == listed_costs(model_server) / 2
