"""Tables have the type of the outputs, whatever rows are given to."""

from typing import Any, assert_type

from pydantic import BaseModel

from fastroai import FastroAgent, Pipeline, flow, infer, step
from fastroai.graphs import Graph
from fastroai.rows import Row, RowTable
from fastroai.steps import StepContext
from fastroai.usage import Quote


class Ticket(BaseModel):
    category: str


@infer(intent="Classify", model="openai:gpt-5-mini")
async def classify(text: str) -> Ticket:
    raise NotImplementedError


@flow
async def triage(text: str) -> Ticket:
    return await classify(text)


@step
async def answer(ctx: StepContext[Any]) -> str:
    return "fine"


agent = FastroAgent("openai:gpt-5-mini", output_type=Ticket)
pipeline = Pipeline[Any, dict[str, str], str]("pipeline", {"answer": answer})
graph = Graph[Any, dict[str, str], str]("graph", nodes={"answer": answer}, entry="answer", edges=[])


async def tables() -> None:
    table = await classify.map([{"text": "a"}], concurrency=4, on_error="stop")
    assert_type(table, RowTable[Ticket])
    assert_type(table[0], Row[Ticket])
    assert_type(table[0].output, Ticket | None)
    assert_type(await triage.map(["a"]), RowTable[Ticket])
    assert_type(await agent.map(["a"]), RowTable[Ticket])
    assert_type(await pipeline.map([{"text": "a"}]), RowTable[str])
    assert_type(await graph.map([{"text": "a"}]), RowTable[str])
    assert_type(classify.map_sync(["a"]), RowTable[Ticket])
    assert_type(await classify.estimate(rows=["a"], sample=5), Quote)
    assert_type(await classify.estimate("a"), Quote)
    async for row in table:
        assert_type(row, Row[Ticket])


async def mistakes() -> None:
    await classify.map(["a"], on_error="continue")  # type: ignore[arg-type]
    await classify.map(3)  # type: ignore[arg-type]
    await classify.map(["a"], retry=3)  # type: ignore[call-arg]
