"""A budget cut an answer, and the run is resumed before the second answer came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastroai import Budget, FastroAgent, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.store import SQLiteRunStore
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest

MODEL = "openai-chat:gpt-5-mini"


def asking(server: ModelServer, name: str) -> Any:
    """A step whose agent sets no `max_tokens`."""
    agent: FastroAgent[Any, str] = FastroAgent(server.model(MODEL), name=name, request_retries=0)

    @step
    async def ask(ctx: StepContext) -> str:
        return (await ctx.run(agent, name)).output

    return ask


def asked_at_length(server: ModelServer) -> list[Any]:
    """The `max_tokens` of the requests for the long answer, and whether they were billed."""
    entries = [entry for entry in server.ledger.entries if "at length" in str(entry.body["messages"])]
    return [(entry.body.get("max_completion_tokens"), entry.billed) for entry in entries]


async def test_the_request_for_a_longer_answer_is_made_again_and_not_the_one_that_was_cut(
    server: ModelServer, tmp_path: Path
) -> None:
    failing = [True]

    def reply(request: ServedRequest) -> Reply:
        if "at length" not in request.prompt:
            return Reply("ok")
        if (request.max_tokens or 0) > 500 and failing:
            return Reply(fault=Fault.status(400))
        return Reply("word " * 500)

    server.rule(None, reply)
    store = SQLiteRunStore(tmp_path / "runs.db")
    steps = {name: asking(server, name) for name in ("at length", "b", "c", "d")}
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {**steps, "end": asking(server, "end")},
        {"end": list(steps)},
        config=PipelineConfig(budget=Budget(usd="0.0045")),
    )
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    (cut, was_billed), (longer, was_refused) = asked_at_length(server)
    assert longer >= 4 * cut >= 800
    assert (was_billed, was_refused) == (True, False)
    failing.clear()
    result = await pipeline.resume("r", store=store)
    assert asked_at_length(server)[2:] == [(longer, True)], "the answer that was cut is on record"
    records = [record for record in result.trace.records if record.tokens.output_tokens >= cut]
    assert records[0].lowered_to == cut
    assert [record.use for record in records] == ["retried", "kept"]
    await store.aclose()
