"""What users of fastroai 0.6 type."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Final, TypedDict

import pytest
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent
from support.migrating import Tried

from fastroai import (
    BasePipeline,
    CostBudgetExceeded,
    CostBudgetExceededError,
    CostCalculator,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    SafeToolset,
    StepContext,
    StepExecutionError,
    StepUsage,
    safe_tool,
    step,
)

TRIED: Final = Tried()


class Ticket(TypedDict):
    text: str


@step
async def reply(ctx: StepContext[None]) -> str:
    response = await ctx.run(paid_agent(120), message=ctx.get_input("text", str))
    return str(response)


TICKET: Final[Ticket] = {"text": "one"}


def pipeline() -> Pipeline[None, Ticket, str]:
    return Pipeline[None, Ticket, str]("support", {"reply": reply})


class Router(BasePipeline[None, Ticket, str]):
    async def route(self, inputs: Ticket, deps: None) -> str:
        return "reply"


@TRIED("types")
async def types() -> None:
    router = Router("router")
    router.register_pipeline("reply", pipeline())
    assert (await router.execute(TICKET, None)).output == "answer to one"


@TRIED("calls")
async def calls() -> None:
    agent = paid_agent()
    assert (await agent.run(message="one")).output == (await agent.run("one", None)).output == "answer to one"
    assert (await pipeline().execute(TICKET, None)).output == "answer to one"


@TRIED("streams")
async def streams() -> None:
    async with FastroAgent(TestModel(custom_output_text="Hello.")).run_stream("one") as stream:
        assert [text async for text in stream.stream_text()][-1] == "Hello."


@TRIED("responses")
async def responses() -> None:
    async def search(query: str) -> str:
        return query

    response = await FastroAgent(TestModel(custom_output_text="Hello."), tools=[search]).run("one")
    assert str(response) == response.model_dump()["output"] == "Hello."
    assert response.tool_calls[0]["tool_name"] == "search"


@TRIED("results")
async def results() -> None:
    result = await pipeline().execute(TICKET)
    assert (result.status, result.was_resumed) == ("finished", False)
    assert result.model_dump()["output"] == "answer to one"
    router = Router("router")
    router.register_pipeline("reply", pipeline())
    assert router.replay((await router.execute(TICKET)).trace) is None


@TRIED("inputs")
async def inputs() -> None:
    assert (await pipeline().execute({"text": "two"})).output == "answer to two"


@TRIED("usage")
async def usage() -> None:
    one, two = [StepUsage.from_chat_response(await paid_agent(60).run(text)) for text in ("one", "two")]
    assert (one + two).cost_microcents == sum([one, two]).cost_microcents == 120  # type: ignore[union-attr]


@TRIED("costs")
async def costs() -> None:
    usage = (await pipeline().execute(TICKET)).usage
    assert usage.total_cost_usd == usage.cost_usd == Decimal("0.00012")
    assert usage.total_cost_microcents == usage.cost_microcents == 120
    assert usage.total_cost_dollars == usage.cost_dollars == pytest.approx(0.00012)


@TRIED("prices")
def prices() -> None:
    calculator = CostCalculator()
    calculator.add_pricing_override("our-model", 2.0, 8.0)
    assert calculator.calculate_cost("our-model", 1_000_000, 1_000_000) == 10_000_000


@TRIED("budgets")
async def budgets() -> None:
    with pytest.raises(CostBudgetExceededError) as stopped:
        await paid_agent(120, cost_budget=100).run("one")
    assert isinstance(stopped.value, CostBudgetExceeded)
    assert CostBudgetExceeded(budget=1_000, actual=900).budget_microcents == 1_000


@TRIED("spans")
async def spans() -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("fastroai.tracing"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        traced = Pipeline("support", {"reply": reply}, config=PipelineConfig(trace=True))
        await traced.execute(TICKET)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert any("step reply: ok" in line for line in lines)


@TRIED("hooks")
async def hooks() -> None:
    told: list[object] = []

    @step
    async def fails(ctx: StepContext[None]) -> None:
        raise ValueError("no")

    def of_error(error: Exception) -> None:
        told.append(str(error))

    def of_nothing() -> None:
        told.append(None)

    for hook in (of_error, of_nothing):
        with pytest.raises(StepExecutionError):
            await Pipeline("p", {"fails": fails}, config=PipelineConfig(on_step_failure=hook)).execute()
    assert told == ["no", None]


@TRIED("tools")
async def tools() -> None:
    @safe_tool(max_retries=1, on_error="no luck: {error}")
    async def search(query: str) -> str:
        raise OSError("offline")

    assert await search("x") == "no luck: OSError: offline"
    assert SafeToolset[object](tools=[search], name="web").wrapped.id == "web"
