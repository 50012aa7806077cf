"""A tool loop that is interrupted anywhere goes on as if it had not been, and pays for nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from support.interruptions import Desk, assert_same_account, nth

from fastroai import FastroAgent, Metered, StepContext
from fastroai.runtime.facts import AnyFact, RequestEnded, ToolEnded
from fastroai.testing import ModelServer, Reply, ToolCall, Usage
from fastroai.testing.requests import ServedRequest

MODEL, OTHER = "openai:gpt-5-mini", "anthropic:claude-haiku-4-5"


def loops(server: ModelServer, requests: int) -> None:
    """The agent whose prompt is "Go" calls its tool `look_up` until its last request."""

    def answer(request: ServedRequest) -> Reply:
        number = len(request.tool_results) + 1
        usage = Usage(100 * number, 10 + number)
        if number < requests:
            return Reply(tool_calls=[ToolCall("look_up", {"page": number})], usage=usage)
        return Reply(f"read {', '.join(result.text for result in request.tool_results)}", usage=usage)

    server.rule(lambda request: request.messages[0].text == "Go", answer)


def desk_of(server: ModelServer, *tools: Callable[[Desk], Any], model: str = MODEL, **options: Any) -> Desk:
    """A step that calls an agent with these tools once."""

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(model), name="outer", tools=[make(desk) for make in tools], **options)

        async def work(ctx: StepContext[None]) -> str:
            response = await ctx.run(agent, "Go")
            desk.responses.append(response)
            return response.content

        return work

    return Desk(server, work)


def look_up(desk: Desk) -> Any:
    async def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        return f"page {page}"

    return look_up


@pytest.mark.parametrize(("kind", "number"), [(RequestEnded, 5), (RequestEnded, 10), (ToolEnded, 9)])
async def test_a_loop_of_ten_requests_that_is_interrupted_after_any_of_them_asks_nothing_twice(
    server: ModelServer, kind: type[AnyFact], number: int
) -> None:
    loops(server, 10)
    desk = desk_of(server, look_up)
    result = await desk.undisturbed()
    (undisturbed,) = desk.forget()
    assert undisturbed.request_count == 10
    resumed = await desk.interrupted(nth(kind, number), written=True)
    assert len(server.ledger.entries) == 10
    assert set(desk.done.values()) == {1}
    (response,) = desk.forget()
    assert_same_account(response, undisturbed)
    assert resumed.output == result.output
    assert resumed.usage.total == result.usage.total


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("write", [3, 5, 7])
async def test_only_what_was_not_on_record_yet_is_repeated_wherever_a_loop_is_interrupted(
    server: ModelServer, write: int, written: bool
) -> None:
    loops(server, 3)
    desk = desk_of(server, look_up)
    lost = 0
    writes = count(1)

    def at(entries: Sequence[AnyFact]) -> bool:
        nonlocal lost
        lost = 0 if written else sum(isinstance(entry, RequestEnded) for entry in entries)
        return next(writes) == write

    resumed = await desk.interrupted(at, written=written)
    assert lost <= resumed.usage.unmeasured_requests <= 1, "sent, and nothing more was heard of it"
    assert len(server.ledger.entries) == 3 + lost
    assert resumed.output == "read page 1, page 2"
    settled = [one for one in resumed.usage.records if one.outcome == "settled"]
    assert len(settled) == 3
    assert resumed.usage.cost_usd == sum(one.cost_usd or 0 for one in settled)


class Page(BaseModel):
    number: int
    words: set[str]


def rebuilt(desk: Desk) -> Any:
    async def look_up(page: int) -> Page:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        return Page(number=page, words={"one"})

    return look_up


def with_an_image(desk: Desk) -> Any:
    async def look_up(page: int) -> list[str | BinaryContent]:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        return [f"page {page}", BinaryContent(data=b"\x89PNG" + bytes(range(40)), media_type="image/png")]

    return look_up


def with_more(desk: Desk) -> Any:
    async def look_up(page: int) -> ToolReturn:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        image = BinaryContent(data=b"\x89PNG" + bytes(range(40)), media_type="image/png")
        return ToolReturn(
            return_value={"page": page, "timestamp": "then", "metadata": [1.5]},
            content=["A picture of it:", image],
            metadata={"seen": page},
        )

    return look_up


def that_is_sync(desk: Desk) -> Any:
    def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        return f"page {page}"

    return look_up


def that_asks_again(desk: Desk) -> Any:
    async def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        if page == 2:
            raise ModelRetry("there is no page 2")
        if page == 1:
            raise ToolFailed("page 1 is torn")
        return f"page {page}"

    return look_up


def that_is_an_agent(desk: Desk) -> Any:
    inner = FastroAgent(desk.model(OTHER), name="inner")

    async def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        first = await inner.run(f"Find page {page}")
        return first.output + (await inner.run(f"Read {first.output}")).output

    return look_up


def that_is_a_plain_agent(desk: Desk) -> Any:
    inner = Agent(desk.model(OTHER), capabilities=[Metered()])

    async def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        first = await inner.run(f"Find page {page}")
        return first.output + (await inner.run(f"Read {first.output}")).output

    return look_up


def that_asks_the_model_of_its_context(desk: Desk) -> Any:
    async def look_up(ctx: RunContext[None], page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        first = await Agent(ctx.model).run(f"Find page {page}")
        return first.output + (await Agent(ctx.model).run(f"Read {first.output}")).output

    return look_up


def that_asks_from_its_own_thread(desk: Desk) -> Any:
    inner = FastroAgent(desk.model(OTHER), name="inner")

    def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        return inner.run_sync(f"Find page {page}").output

    return look_up


@pytest.mark.parametrize(
    "tool",
    [
        rebuilt,
        with_an_image,
        with_more,
        that_is_sync,
        that_asks_again,
        that_is_an_agent,
        that_is_a_plain_agent,
        that_asks_the_model_of_its_context,
        that_asks_from_its_own_thread,
    ],
)
async def test_whatever_a_tool_gives_it_is_told_to_the_model_as_it_was(
    server: ModelServer, tool: Callable[[Desk], Any]
) -> None:
    loops(server, 3)
    desk = desk_of(server, tool)
    result = await desk.undisturbed()
    done = dict(desk.done)
    (undisturbed,) = desk.forget()
    sent = result.usage.request_count
    for kind, number in [*((ToolEnded, n) for n in (1,)), *((RequestEnded, n) for n in (2, sent - 1))]:
        resumed = await desk.interrupted(nth(kind, number), written=True)
        assert len(server.ledger.entries) == sent, f"after {kind.__name__} {number}"
        again = {page for page, times in desk.done.items() if times > done[page]}
        assert len(again) <= (kind is RequestEnded), "only the one that was interrupted"
        (response,) = desk.forget()
        assert_same_account(response, undisturbed)
        assert resumed.usage.total == result.usage.total


async def test_a_repeatable_tool_is_called_each_time(server: ModelServer) -> None:
    loops(server, 4)

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(MODEL))

        @agent.agent.tool_plain(metadata={"repeatable": True})
        async def look_up(page: int) -> str:
            """Read a page."""
            desk.done[f"page {page}"] += 1
            return f"page {page}"

        async def work(ctx: StepContext[None]) -> str:
            return (await ctx.run(agent, "Go")).output

        return work

    desk = Desk(server, work)
    await desk.interrupted(nth(RequestEnded, 4), written=True)
    assert desk.done == {"page 1": 2, "page 2": 2, "page 3": 2}
    assert len(server.ledger.entries) == 4
