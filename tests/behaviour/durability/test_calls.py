"""Agent calls of every kind, interrupted and taken up again: what is on record is given again, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.messages import AgentStreamEvent, ModelMessage
from pydantic_ai.models.fallback import FallbackModel
from support.interruptions import (
    Desk,
    assert_same_account,
    assert_the_sum_of_the_log,
    entries_of,
    go_on,
    interrupt,
    logged,
    nth,
    spent,
)

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.errors import StepExecutionError
from fastroai.records import AgentCallUsage
from fastroai.runtime import RetryPolicy
from fastroai.runtime.facts import CallChanged, ReplayDiverged, RequestEnded, StepRetried, ToolEnded
from fastroai.store import MemoryRunStore
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage
from fastroai.usage import Budget

MODEL, OTHER = "openai:gpt-5-mini", "anthropic:claude-haiku-4-5"
Make = Callable[[Desk], Callable[[StepContext[Any]], Any]]


def by_prompt(server: ModelServer) -> None:
    """Each prompt has its own price."""
    server.rule(None, lambda request: Reply(f"re: {request.prompt}", usage=Usage(len(request.prompt), 10)))


# --- output that is asked for again ---


class Answer(BaseModel):
    """What is asked for."""

    number: int


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_answers_that_were_rejected_are_rejected_again_at_no_cost(
    server: ModelServer, number: int
) -> None:
    replies = [
        Reply(data={"number": "many"}, usage=Usage(10, 1)),
        Reply(data={"number": 1}, usage=Usage(20, 2)),
        Reply(data={"number": 2}, usage=Usage(30, 3)),
    ]

    def work(desk: Desk) -> Any:
        agent: FastroAgent[None, Answer] = FastroAgent(desk.model(MODEL), output_type=Answer, retries=3)

        @agent.agent.output_validator
        def is_two(answer: Answer) -> Answer:
            if answer.number != 2:
                raise ModelRetry("another one")
            return answer

        async def work(ctx: StepContext[None]) -> int:
            desk.responses.append(await ctx.run(agent, "Go"))
            return desk.responses[-1].output.number

        return work

    desk = Desk(server, work)
    server.script(*replies)
    result = await desk.undisturbed()
    (undisturbed,) = desk.forget()
    assert [record.use for record in undisturbed.records] == ["retried", "retried", "kept"]
    server.script(*replies)
    resumed = await desk.interrupted(nth(RequestEnded, number), written=True)
    assert len(server.ledger.entries) == 3
    assert_same_account(desk.responses[0], undisturbed)
    assert resumed.usage.total == result.usage.total


# --- streams ---


@pytest.mark.parametrize("number", [1, 2])
async def test_streams_are_streamed_again_from_the_record(server: ModelServer, number: int) -> None:
    server.script(Reply("one two three four five six", usage=Usage(5, 9)), Reply("seven", usage=Usage(6, 2)))
    texts: list[list[str]] = []

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(MODEL))

        async def work(ctx: StepContext[None]) -> str:
            texts.append([])
            for prompt in ("first", "second"):
                async with ctx.run_stream(agent, prompt) as stream:
                    texts[-1] += [chunk.content async for chunk in stream]
                assert stream.response is not None
                desk.responses.append(stream.response)
            return "".join(texts[-1])

        return work

    desk = Desk(server, work)
    resumed = await desk.interrupted(nth(RequestEnded, number), written=True)
    assert resumed.output == "one two three four five sixseven"
    assert len(server.ledger.entries) == 2
    first, second = desk.responses
    assert (first.input_tokens, first.output_tokens) == (5, 9)
    assert (second.input_tokens, second.output_tokens) == (6, 2)
    assert all(record.streamed for record in resumed.usage.records)


@pytest.mark.parametrize("how", ["handler", "events"])
async def test_events_are_told_again_from_the_record(server: ModelServer, how: str) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("look", {})], usage=Usage(5, 1)),
        Reply("done", usage=Usage(6, 2)),
        model=MODEL[7:],
    )
    told: list[list[str]] = []

    async def handler(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        told[-1] += [event.event_kind async for event in events]

    def work(desk: Desk) -> Any:
        def look() -> str:
            """Look."""
            desk.done["look"] += 1
            return "seen"

        agent = FastroAgent(desk.model(MODEL), tools=[look])

        async def work(ctx: StepContext[None]) -> str:
            told.append([])
            if how == "handler":
                return (await agent.run("Go", event_stream_handler=handler)).output
            async with agent.run_stream_events("Go") as events:
                told[-1] += [event.event_kind async for event in events]
            return "done"

        return work

    desk = Desk(server, work)
    await desk.interrupted(nth(RequestEnded, 2), written=True)
    assert desk.done["look"] == 1
    assert len(server.ledger.entries) == 2
    events = told[-1]
    assert events.count("function_tool_call") == events.count("function_tool_result") == 1
    assert events.count("part_start") == events.count("part_end") == 2


# --- failures on the way to a response ---


async def test_a_fallback_that_answered_answers_again_and_the_first_model_is_not_asked(
    server: ModelServer,
) -> None:
    server.fail_next(1, Fault.status(500))
    by_prompt(server)

    def work(desk: Desk) -> Any:
        agent = FastroAgent(FallbackModel(desk.model(MODEL), desk.model(OTHER)), request_retries=0)

        async def work(ctx: StepContext[None]) -> str:
            desk.responses.append(await ctx.run(agent, "Go", retries=0))
            return desk.responses[-1].output

        return work

    desk = Desk(server, work)
    undisturbed = await desk.undisturbed()
    (before,) = desk.forget()
    server.fail_next(1, Fault.status(500))
    resumed = await desk.interrupted(nth(RequestEnded, 2), written=True)
    assert [entry.status for entry in server.ledger.entries] == [500, 200]
    assert_same_account(desk.responses[0], before)
    assert resumed.usage.total == undisturbed.usage.total


@pytest.mark.parametrize(
    ("fault", "number"), [(Fault.status(429), 1), (Fault.status(500), 2), (Fault.disconnect(), 3)]
)
async def test_attempts_at_a_request_go_on_where_they_were(
    server: ModelServer, fault: Fault, number: int
) -> None:
    by_prompt(server)

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(MODEL), request_retries=2)

        async def work(ctx: StepContext[None]) -> str:
            desk.responses.append(await agent.run("Go"))
            return desk.responses[-1].output

        return work

    desk = Desk(server, work)
    server.fail_next(2, fault)
    undisturbed = await desk.undisturbed()
    (before,) = desk.forget()
    server.fail_next(2, fault)
    resumed = await desk.interrupted(nth(RequestEnded, number), written=True)
    assert len(server.ledger.entries) == 3
    assert [record.attempt for record in resumed.usage.records] == [1, 2, 3]
    assert [record.use for record in resumed.usage.records] == ["retried", "retried", "kept"]
    assert_same_account(desk.responses[0], before)
    assert resumed.usage.total == undisturbed.usage.total


async def test_an_interruption_gives_no_more_attempts_at_a_request(server: ModelServer) -> None:
    async def work(ctx: StepContext[None]) -> str:
        return (await FastroAgent(server.model(MODEL), request_retries=2).run("Go")).output

    store = MemoryRunStore()
    server.fail_next(9, Fault.status(500))
    await interrupt(Pipeline("p", {"work": step(work)}), store, nth(RequestEnded, 2), written=True)
    with pytest.raises(StepExecutionError):
        await go_on(Pipeline("p", {"work": step(work)}), store)
    assert len(server.ledger.entries) == 3


@pytest.mark.parametrize("number", [1, 2])
async def test_retries_of_a_call_go_on_where_they_were(server: ModelServer, number: int) -> None:
    def work(desk: Desk) -> Any:
        agent: FastroAgent[None, Answer] = FastroAgent(desk.model(MODEL), output_type=Answer, retries=0)

        async def work(ctx: StepContext[None]) -> int:
            policy = RetryPolicy(
                2, 0.08, jitter="none", max_backoff=0.08
            )  # so that it is on record meanwhile
            desk.responses.append(await ctx.run(agent, "Go", retry=policy, budget=Budget(requests=3)))
            return desk.responses[-1].output.number

        return work

    desk = Desk(server, work)
    replies = [Reply(data={"number": "many"}, usage=Usage(10, 1))] * 2 + [Reply(data={"number": 1})]
    server.script(*replies)
    undisturbed = await desk.undisturbed()
    (before,) = desk.forget()
    assert undisturbed.usage.total.agent_call_count == 3
    server.script(*replies)
    resumed = await desk.interrupted(nth(StepRetried, number), written=True)
    assert len(server.ledger.entries) == 3
    assert_same_account(desk.responses[0], before)
    assert resumed.usage.total == undisturbed.usage.total
    assert calls_in(resumed.usage.agent_calls) == calls_in(undisturbed.usage.agent_calls)
    assert len(resumed.usage.agent_calls) == resumed.usage.agent_call_count == 3
    assert [record.use for record in resumed.usage.records] == ["retried", "retried", "kept"]


@pytest.mark.parametrize("number", [1, 2])
async def test_an_interruption_gives_no_more_retries_of_a_call(server: ModelServer, number: int) -> None:
    server.rule(None, Reply(data={"number": "many"}))

    async def work(ctx: StepContext[None]) -> None:
        agent: FastroAgent[None, Answer] = FastroAgent(server.model(MODEL), output_type=Answer, retries=0)
        await ctx.run(agent, "Go", retries=2, retry_delay=0.0)

    store = MemoryRunStore()
    await interrupt(Pipeline("p", {"work": step(work)}), store, nth(StepRetried, number), written=True)
    with pytest.raises(StepExecutionError) as caught:
        await go_on(Pipeline("p", {"work": step(work)}), store)
    assert len(server.ledger.entries) == 3
    assert caught.value.usage is not None
    assert caught.value.usage.request_count - caught.value.usage.unmeasured_requests == 3


async def test_the_budget_of_a_call_counts_attempts_that_an_earlier_process_made(server: ModelServer) -> None:
    server.rule(None, Reply(data={"number": "many"}))

    async def work(ctx: StepContext[None]) -> None:
        agent: FastroAgent[None, Answer] = FastroAgent(server.model(MODEL), output_type=Answer, retries=0)
        policy = RetryPolicy(5, 0.08, jitter="none", max_backoff=0.08)
        await ctx.run(agent, "Go", retry=policy, budget=Budget(requests=2))

    store = MemoryRunStore()
    await interrupt(Pipeline("p", {"work": step(work)}), store, nth(StepRetried, 1), written=True)
    with pytest.raises(StepExecutionError):
        await go_on(Pipeline("p", {"work": step(work)}), store)
    assert len(server.ledger.entries) == 2


# --- calls side by side ---


def reversed_in(
    desk: Desk, ctx: StepContext[Any], make: Callable[[str], Any], prompts: list[str]
) -> list[Any]:
    """Calls in the order of the prompts in the first process, and the other way round in the next."""
    desk.done["processes"] += 1
    order = prompts if desk.done["processes"] % 2 else prompts[::-1]
    return [make(prompt) for prompt in order]


def gathered(desk: Desk) -> Any:
    agent = FastroAgent(desk.model(MODEL))

    async def work(ctx: StepContext[None]) -> list[str]:
        calls = reversed_in(desk, ctx, lambda prompt: ctx.run(agent, prompt), ["a", "bb", "ccc"])
        desk.responses += await asyncio.gather(*calls)
        return sorted(response.output for response in desk.responses[-3:])

    return work


def gathered_directly(desk: Desk) -> Any:
    agent = FastroAgent(desk.model(MODEL))

    async def work(ctx: StepContext[None]) -> list[str]:
        desk.responses += await asyncio.gather(*reversed_in(desk, ctx, agent.run, ["a", "bb", "ccc"]))
        return sorted(response.output for response in desk.responses[-3:])

    return work


def mapped(desk: Desk) -> Any:
    agent = FastroAgent(desk.model(MODEL))

    async def work(ctx: StepContext[None]) -> list[str]:
        desk.responses += await ctx.map(agent, ["a", "bb", "ccc"], concurrency=2)
        return [response.output for response in desk.responses[-3:]]

    return work


def mapped_steps(desk: Desk) -> Any:
    agent = FastroAgent(desk.model(MODEL))

    @step
    async def one(ctx: StepContext[None]) -> str:
        desk.responses.append(await ctx.run(agent, ctx.get_input("item")))
        return desk.responses[-1].output

    async def work(ctx: StepContext[None]) -> list[str]:
        return sorted(await ctx.map(one, ["a", "bb", "ccc"]))

    return work


def in_threads(desk: Desk) -> Any:
    agent = FastroAgent(desk.model(MODEL))

    def work(ctx: StepContext[None]) -> list[str]:
        desk.responses += [ctx.run_sync(agent, prompt) for prompt in ("a", "bb", "ccc")]
        return [response.output for response in desk.responses[-3:]]

    return work


@pytest.mark.parametrize("work", [gathered, gathered_directly, mapped, mapped_steps, in_threads])
@pytest.mark.parametrize("number", [1, 2])
async def test_calls_have_their_own_responses_whatever_the_order(
    server: ModelServer, work: Make, number: int
) -> None:
    by_prompt(server)
    desk = Desk(server, work)
    store = MemoryRunStore()
    await interrupt(desk.pipeline, store, nth(RequestEnded, number), written=True)
    desk.responses.clear()
    result = await go_on(desk.pipeline, store)
    assert result.output == ["re: a", "re: bb", "re: ccc"]
    await assert_the_sum_of_the_log(result, store)
    ended = [entry for entry in await entries_of(store) if isinstance(entry, RequestEnded)]
    assert len({entry.record.response_id for entry in ended}) == len(ended)
    lost = result.usage.unmeasured_requests
    assert len(ended) == 3
    assert len(server.ledger.entries) <= 3 + lost
    for response in desk.responses:
        settled = [record for record in response.records if record.outcome == "settled"]
        assert [record.tokens.input_tokens for record in settled] == [len(response.output) - 4]


@pytest.mark.parametrize("number", [2])
async def test_the_same_prompt_asked_three_times_has_its_three_answers(
    server: ModelServer, number: int
) -> None:
    server.script(*(Reply(str(n), usage=Usage(n, n)) for n in (1, 2, 3)))

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(MODEL))

        async def work(ctx: StepContext[None]) -> str:
            return "".join([(await ctx.run(agent, "Go")).output for _ in range(3)])

        return work

    resumed = await Desk(server, work).interrupted(nth(RequestEnded, number), written=True)
    assert resumed.output == "123"
    assert len(server.ledger.entries) == 3


# --- what is not the same any more ---


@pytest.mark.parametrize("changed", ["prompt", "instructions", "settings", "history"])
async def test_what_is_not_asked_as_it_was_is_asked_and_paid_for_and_that_is_on_record(
    server: ModelServer, changed: str
) -> None:
    by_prompt(server)
    history: list[ModelMessage] = []

    def work(desk: Desk) -> Any:
        desk.done["processes"] += 1
        now = {changed: desk.done["processes"]}
        agent = FastroAgent(
            desk.model(MODEL),
            system_prompt=f"It is {now.get('instructions', 0)}.",
            max_tokens=100 + now.get("settings", 0),
        )

        async def work(ctx: StepContext[None]) -> str:
            before = await agent.run("Before", message_history=history)
            messages = before.all_messages() if now.get("history", 1) == 1 else []
            response = await ctx.run(agent, f"Go {now.get('prompt', 0)}", message_history=messages)
            desk.responses.append(response)
            return response.output

        return work

    desk = Desk(server, work)
    store = MemoryRunStore()
    await interrupt(desk.pipeline, store, nth(RequestEnded, 2), written=True)
    result = await go_on(desk.pipeline, store)
    again = {"prompt": 1, "instructions": 2, "settings": 2, "history": 0}[changed]
    assert len(server.ledger.entries) == result.usage.request_count == 2 + again
    assert result.output == f"re: Go {2 if changed == 'prompt' else 0}"
    told = CallChanged if changed in ("instructions", "settings") else ReplayDiverged
    assert sum(isinstance(entry, told) for entry in await entries_of(store)) == again
    await assert_the_sum_of_the_log(result, store)


async def test_history_that_is_handed_on_is_recognized(server: ModelServer) -> None:
    by_prompt(server)

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(MODEL), system_prompt="Be brief.")

        async def work(ctx: StepContext[None]) -> str:
            history: list[ModelMessage] = []
            for prompt in ("one", "two", "three"):
                response = await ctx.run(agent, prompt, message_history=history)
                history = response.all_messages()
            return response.output

        return work

    resumed = await Desk(server, work).interrupted(nth(RequestEnded, 3), written=True)
    assert resumed.output == "re: three"
    assert len(server.ledger.entries) == 3


# --- responses that are not whole ---


@pytest.mark.parametrize("cut_by", ["provider", "reader"])
async def test_a_stream_that_was_cut_is_asked_for_again(server: ModelServer, cut_by: str) -> None:
    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(OTHER), request_retries=0)

        async def work(ctx: StepContext[None]) -> str:
            first = (await ctx.run(agent, "first")).output
            text = ""
            async with agent.run_stream("Go") as stream:
                async for chunk in stream:
                    text += chunk.content
                    if cut_by == "reader" and text.startswith("a long"):
                        await stream.cancel()
            await ctx.run(agent, "last")
            return first + text

        return work

    server.script(
        Reply("a"),
        Reply("a long answer " * 20, fault=Fault.missing_finish_reason() if cut_by == "provider" else None),
        Reply("c"),
        Reply("whole", usage=Usage(4, 2)),
    )
    desk = Desk(server, work)
    store = MemoryRunStore()
    await interrupt(desk.pipeline, store, nth(RequestEnded, 3), written=True)
    result = await go_on(desk.pipeline, store)
    assert result.output == "awhole"
    assert result.usage.unmeasured_requests == 1


async def test_an_answer_without_its_usage_stays_unmeasured(server: ModelServer) -> None:
    server.script(Reply("an answer", fault=Fault.missing_usage()), Reply("b"))

    def work(desk: Desk) -> Any:
        agent = FastroAgent(desk.model(MODEL))

        async def work(ctx: StepContext[None]) -> str:
            desk.responses.append(await ctx.run(agent, "Go"))
            return desk.responses[-1].output + (await ctx.run(agent, "on")).output

        return work

    desk = Desk(server, work)
    resumed = await desk.interrupted(nth(RequestEnded, 1), written=True)
    assert resumed.output == "an answerb"
    assert len(server.ledger.entries) == 2
    assert not desk.responses[0].is_measured
    assert resumed.usage.unmeasured_requests == 1


# --- several tools at once ---


def calls_in(calls: Sequence[AgentCallUsage]) -> list[tuple[str, int, Decimal, int]]:
    """The agent calls, without requests that were sent and not answered; those side by side may have begun
    in another order."""
    return sorted(
        (
            call.agent,
            call.request_count - call.usage.unmeasured_requests,
            call.cost_usd,
            call.tool_call_count,
        )
        for call in calls
    )


async def test_of_tools_side_by_side_those_that_had_finished_are_not_called_again(
    server: ModelServer,
) -> None:
    calls = [ToolCall("ask", {"question": question}) for question in ("a", "bb", "ccc")]
    server.rule(
        lambda request: request.prompt == "Go",
        lambda request: Reply(
            "done" if request.tool_results else "", tool_calls=[] if request.tool_results else calls
        ),
    )
    by_prompt(server)

    def work(desk: Desk) -> Any:
        inner = FastroAgent(desk.model(OTHER), name="inner")

        async def ask(question: str) -> str:
            """Ask."""
            desk.done[question] += 1
            return (await inner.run(question)).output

        agent = FastroAgent(desk.model(MODEL), name="outer", tools=[ask])

        async def work(ctx: StepContext[None]) -> str:
            desk.responses.append(await ctx.run(agent, "Go"))
            return desk.responses[-1].output

        return work

    desk = Desk(server, work)
    undisturbed = await desk.undisturbed()
    (before,) = desk.forget()
    for number in (1, 2, 3):
        store = MemoryRunStore()
        await interrupt(desk.pipeline, store, nth(ToolEnded, number), written=True)
        entries = await entries_of(store)
        ended = sum(isinstance(entry, ToolEnded) for entry in entries)
        desk.responses.clear()
        resumed = await go_on(desk.pipeline, store)
        assert sum(desk.done.values()) == 6 - ended
        (response,) = desk.forget()
        assert response.output == "done"
        assert response.cost_usd == before.cost_usd
        assert response.usage.agent_call_count == before.usage.agent_call_count == 4
        assert resumed.usage.total.agent_call_count == undisturbed.usage.total.agent_call_count
        for usage in (resumed.usage, resumed.usage.steps["work"], response):
            assert calls_in(usage.agent_calls) == calls_in(undisturbed.usage.agent_calls)
            assert usage.total_tool_call_count == 3
        assert resumed.usage.unmeasured_requests == spent(logged(entries)).unmeasured_requests
        await assert_the_sum_of_the_log(resumed, store)
