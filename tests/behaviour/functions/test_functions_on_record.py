"""Attempts, members and iterations of a call that is on record are paid for once, whatever happens."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.models import Model
from support.accounting import listed_cost
from support.stored_runs import entries_of
from support.typed_functions import Sentiment, sentiment

from fastroai import Pipeline, compute, flow, infer, refine
from fastroai.errors import StepExecutionError, records_of
from fastroai.functions.kept_calls import kept_records
from fastroai.runtime.facts import StepRetried
from fastroai.store import MemoryRunStore
from fastroai.testing import ModelServer, Reply, ServedRequest
from fastroai.usage import UsageReport

MODEL = "openai:gpt-5-mini"


async def test_attempts_on_record_are_not_made_again(server: ModelServer, model: Model) -> None:
    store = MemoryRunStore()

    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @flow
    async def triage(text: str) -> Sentiment:
        return await classify(text)

    server.script(sentiment("happy"), Reply(data={}, latency=60))
    task = asyncio.create_task(triage.run("fine", run_id="r", store=store))
    await server.ledger.wait_for(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    server.script(sentiment("neutral"))
    resumed = await triage.resume("r", store=store)

    assert resumed == Sentiment(label="neutral", confidence=0.9)
    first, cancelled, last = server.ledger.entries
    assert b"Previous attempt failed" not in first.raw_body
    assert last.body == cancelled.body, "the conversation goes on where it was"
    before, record = kept_records()[-2:]
    assert (before.outcome, record.outcome, record.attempts) == ("cancelled", "success", 2)
    assert (before.cost_usd, record.cost_usd) == (listed_cost(first), listed_cost(last))
    assert not before.cost_complete, "the request that was cancelled counts at its bound"
    assert record.cost_complete


async def test_members_on_record_are_not_asked_again(server: ModelServer) -> None:
    store, model = MemoryRunStore(), server.model("openai:gpt-5-mini")
    is_stuck = True
    served = 0

    @infer(intent="Classify", model=model, quorum=3, threshold=2, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @flow
    async def triage(text: str) -> Sentiment:
        return await classify(text)

    @server.rule()
    def answer(request: ServedRequest) -> Reply:
        nonlocal served
        served += 1
        label = "positive" if served != 2 else "negative"
        return Reply(data={"label": label, "confidence": 1}, latency=60 if served == 3 and is_stuck else 0)

    task = asyncio.create_task(triage.run("fine", run_id="r", store=store))
    await server.ledger.wait_for(3)
    while [fact.kind for fact in await entries_of(store, "r")].count("request_ended") < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    is_stuck = False
    resumed = await triage.resume("r", store=store)

    assert resumed == Sentiment(label="positive", confidence=1)
    assert len(server.ledger.entries) == 4, "two members are on record, and one is asked again"


async def test_iterations_on_record_are_not_asked_again(server: ModelServer, model: Model) -> None:
    store = MemoryRunStore()

    @refine(until=lambda r: r.confidence > 0.8)
    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @flow
    async def triage(text: str) -> list[Sentiment]:
        return [await classify(text), await classify(text)]

    server.script(
        sentiment(confidence=0.1), sentiment(confidence=0.9), sentiment(confidence=0.2), Reply(latency=60)
    )
    task = asyncio.create_task(triage.run("fine", run_id="r", store=store))
    await server.ledger.wait_for(4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    server.script(sentiment(confidence=1))
    resumed = await triage.resume("r", store=store)

    assert [one.confidence for one in resumed] == [0.9, 1]
    assert len(server.ledger.entries) == 5
    assert [one["output"]["confidence"] for one in kept_records()[-1].iterations] == [0.2, 1]


async def test_reports_show_answers_that_were_not_accepted_as_retried_before_and_after_a_resumption(
    server: ModelServer,
) -> None:
    is_down = True

    @infer(intent="Classify", model=server.model(MODEL), ensure=lambda r: r.confidence > 0.5)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @compute
    async def send(classify: Sentiment) -> str:
        if is_down:
            raise ConnectionError("the mail server is down")
        return classify.label

    support = Pipeline("support", {"classify": classify, "send": send}, {"send": ["classify"]})
    server.script(sentiment(confidence=0.1), Reply("nonsense"), sentiment())
    store = MemoryRunStore()
    with pytest.raises(StepExecutionError) as failed:
        await support.execute({"text": "fine"}, run_id="r", store=store)
    is_down = False
    result = await support.resume("r", store=store)

    before, after = UsageReport.of(records_of(failed.value)), result.usage.report()
    for report in (before, after):
        rows = {name: (row.request_count, row.cost_usd) for name, row in report.by_outcome.items()}
        assert rows["retried"] == (2, sum(map(listed_cost, server.ledger.entries[:2])))
        assert rows["kept"][0] + rows["failed"][0] == 1
    told = [one for one in await entries_of(store, "r") if isinstance(one, StepRetried)]
    assert [(one.call, one.failure.error_type.rpartition(".")[2]) for one in told] == [
        ("attempt 1", "PostconditionFailed"),
        ("attempt 2", "ParseFailure"),
    ]


async def test_the_last_answer_of_a_member_that_failed_is_reported_as_failed(server: ModelServer) -> None:
    @infer(
        intent="Classify",
        model=server.model(MODEL),
        quorum=3,
        agree_on="label",
        ensure=lambda r: r.confidence > 0.5,
        retries=1,
    )
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    # The member whose answer is not accepted is told why, in whatever order the requests arrive.
    server.script(sentiment(confidence=0.1))
    server.rule(lambda request: b"Previous attempt failed" in request.raw_body, sentiment(confidence=0.2))
    server.rule(None, sentiment())
    result = await Pipeline("p", {"classify": classify}).execute({"text": "fine"})
    rows = {name: row.request_count for name, row in result.usage.report().by_outcome.items()}
    assert rows == {"kept": 2, "retried": 1, "failed": 1, "released": 0}
