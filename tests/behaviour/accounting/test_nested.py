"""Agents inside agents, and models inside models: each leaf request is charged once, to whom it belongs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Hooks
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.concurrency import ConcurrencyLimitedModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel
from support.accounting import Account, open_account

from fastroai import Budget, FastroAgent, Metered, Pipeline, StepContext, budget_scope, step
from fastroai.errors import ScopeClosedError, usage_of
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage
from fastroai.usage import CostCalculator

FIRST, SECOND = "openai:gpt-5-mini", "anthropic:claude-haiku-4-5"


def asks_for_help(server: ModelServer) -> None:
    """The outer agent calls its tool `ask` once; the inner one answers."""
    server.rule(
        lambda request: any(tool.name == "ask" for tool in request.tools) and not request.tool_results,
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})], usage=Usage(300, 30)),
    )
    server.rule(lambda request: request.prompt == "Who?", Reply("Nobody", usage=Usage(40, 4)))
    server.rule(None, Reply("It was nobody", usage=Usage(350, 8, cache_read_tokens=256)))


# --- agents in tools ---


async def test_an_agent_called_by_a_tool_is_charged_to_the_run_that_called_it(
    server: ModelServer, model: Model, account: Account
) -> None:
    asks_for_help(server)
    inner = FastroAgent(server.model(SECOND), name="inner")

    async def ask(question: str) -> str:
        """Ask."""
        answer = await inner.run(question)
        assert answer.request_count == 1
        return answer.output

    response = await FastroAgent(model, name="outer", tools=[ask]).run("Who did it?")
    account.assert_matches(response.usage)
    assert [record.agent for record in response.records] == ["outer", "inner", "outer"]
    assert response.usage.agent_call_count == 2
    assert [(call.agent, call.total_tokens, call.request_count) for call in response.agent_calls] == [
        ("outer", 688, 2),
        ("inner", 44, 1),
    ]
    assert sum(call.cost_usd for call in response.agent_calls) == response.cost_usd
    assert (response.tool_call_count, response.total_tool_call_count) == (1, 1)


async def test_a_stream_that_a_tool_leaves_early_is_charged_to_the_run_that_called_it(
    server: ModelServer, model: Model, account: Account
) -> None:
    story = Reply("There was nobody. " * 20, usage=Usage(20, 90), fault=Fault.hang(after=2))
    server.rule(lambda request: request.prompt == "Tell me a story", story)
    asks_for_help(server)
    inner = FastroAgent(server.model(SECOND), name="inner", max_tokens=100)

    forgotten = []

    async def ask(question: str) -> str:
        """Ask."""
        chunks = aiter(inner.run_stream("Tell me a story"))
        forgotten.append(chunks)
        return (await anext(chunks)).content

    response = await FastroAgent(model, name="outer", tools=[ask]).run("Who did it?")
    account.assert_matches(response.usage)
    assert sorted(account.outcomes) == ["settled", "settled", "unmeasured"]


async def test_agents_called_side_by_side_are_all_charged(
    server: ModelServer, model: Model, account: Account
) -> None:
    asks_for_help(server)
    inner = FastroAgent(server.model(SECOND), name="inner")

    async def ask(question: str) -> str:
        """Ask."""
        answers = await asyncio.gather(*(inner.run(question) for _ in range(5)))
        return answers[0].output

    response = await FastroAgent(model, tools=[ask]).run("Who did it?")
    account.assert_matches(response.usage)
    assert response.request_count == 7


@pytest.mark.parametrize("model_of_inner", [FIRST, SECOND])
async def test_a_plain_agent_with_a_meter_is_charged_to_the_run_that_called_it(
    server: ModelServer, model: Model, account: Account, model_of_inner: str
) -> None:
    asks_for_help(server)
    inner = Agent(server.model(model_of_inner), name="plain", capabilities=[Metered()])

    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).output

    response = await FastroAgent(model, name="outer", tools=[ask]).run("Who did it?")
    account.assert_matches(response.usage)
    assert response.request_count == 3
    assert response.usage.agent_call_count == 1, "PydanticAI's own agents are not counted, their requests are"


async def test_a_plain_agent_without_a_meter_is_not_seen(
    server: ModelServer, model: Model, account: Account
) -> None:
    asks_for_help(server)
    inner = Agent(server.model(SECOND))

    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).output

    response = await FastroAgent(model, tools=[ask]).run("Who did it?")
    account.assert_matches(response.usage, unseen=1)
    assert response.request_count == 2
    assert len(server.ledger.billed) == 3


async def test_a_meter_outside_of_any_run_does_nothing(server: ModelServer, model: Model) -> None:
    agent = Agent(model, capabilities=[Metered()])
    assert (await agent.run("?")).output == "echo: ?"
    async with agent.run_stream("?") as stream:
        assert await stream.get_output() == "echo: ?"
    assert len(server.ledger.billed) == 2


@pytest.mark.parametrize("retries", [None, 0, 1])
async def test_outside_of_any_run_the_sdk_of_a_model_that_was_built_by_name_retries(
    server: ModelServer, reference: str, monkeypatch: pytest.MonkeyPatch, retries: int | None
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    prompt: list[ModelMessage] = [ModelRequest.user_text_prompt("?")]
    metered = Metered(request_retries=retries).model(reference)

    async def stream() -> None:
        async with model_request_stream(metered, prompt) as stream:
            async for _ in stream:
                pass

    for ask in (
        lambda: model_request(metered, prompt),
        stream,
        lambda: FastroAgent(reference, request_retries=retries).agent.run("?"),
    ):
        server.reset()
        server.fail_next(3, Fault.status(503, retry_after=0.001))
        with pytest.raises(ModelHTTPError):
            await ask()
        assert len(server.ledger.entries) == (3 if retries is None else 1 + retries)


async def test_a_plain_run_of_the_agent_inside_has_its_retries(server: ModelServer, model: Model) -> None:
    server.fail_next(2, Fault.status(503))
    async with budget_scope(Budget(requests=5)):
        with pytest.raises(ModelHTTPError):
            await FastroAgent(model, request_retries=1).agent.run("?")
    assert len(server.ledger.entries) == 2


async def test_a_meter_of_a_plain_agent_can_retry_requests_too(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.fail_next(1, Fault.status(503))
    agent = Agent(model, capabilities=[Metered(request_retries=1)])
    await agent.run("?")
    account.assert_matches()
    assert account.outcomes == ["released", "settled"]


async def test_a_plain_agent_in_a_tool_does_not_take_over_the_retries_of_the_run(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(lambda request: request.prompt == "Who?", Reply(fault=Fault.status(503)))
    asks_for_help(server)
    inner = Agent(server.model(SECOND), capabilities=[Metered()])

    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).output

    with pytest.raises(ModelHTTPError):
        await FastroAgent(model, tools=[ask], request_retries=5).run("Who did it?")
    account.assert_matches()
    assert account.outcomes == ["settled", "released", "released", "released"]


async def test_an_agent_that_fails_in_a_tool_leaves_all_of_it_on_the_error(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(
        lambda request: any(tool.name == "ask" for tool in request.tools),
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})], usage=Usage(300, 30)),
    )
    server.rule(None, Reply(fault=Fault.status(400)))
    inner = FastroAgent(server.model(SECOND))

    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).output

    with pytest.raises(ModelHTTPError) as caught:
        await FastroAgent(model, tools=[ask]).run("Who did it?")
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["settled", "released"]


async def test_a_plain_agent_that_a_sync_step_runs_on_a_loop_of_its_own_is_charged_to_the_step(
    server: ModelServer, model: Model, account: Account
) -> None:
    plain = Agent(model, capabilities=[Metered()])

    @step
    def ask(context: StepContext[object]) -> str:
        return asyncio.run(plain.run("?")).output

    result = await Pipeline("p", {"ask": ask}).execute({})
    account.assert_matches()
    assert result.usage.steps["ask"].cost_usd == account.usage.cost_usd > 0


async def test_a_request_that_outlives_its_run_is_charged_to_what_is_still_open(
    server: ModelServer, model: Model, account: Account
) -> None:
    asks_for_help(server)
    inner = FastroAgent(server.model(SECOND), name="inner")
    ended = asyncio.Event()
    left_behind = []

    async def ask_later() -> None:
        await ended.wait()
        await inner.run("Who?")

    async def ask(question: str) -> str:
        """Ask."""
        left_behind.append(asyncio.create_task(ask_later()))
        return "later"

    response = await FastroAgent(model, name="outer", tools=[ask]).run("Who did it?")
    ended.set()
    await left_behind[0]
    account.assert_matches()
    assert len(response.records) == 2
    assert [record.agent for record in account.records] == ["outer", "outer", "inner"]


async def test_a_request_after_the_end_of_all_is_refused(server: ModelServer, model: Model) -> None:
    ended = asyncio.Event()

    async def ask_later() -> None:
        await ended.wait()
        await FastroAgent(model).run("?")

    async with open_account(server) as account:
        left_behind = asyncio.create_task(ask_later())
        await asyncio.sleep(0)
    ended.set()
    with pytest.raises(ScopeClosedError, match="after that run had ended"):
        await left_behind
    account.assert_matches()
    assert server.ledger.entries == ()


# --- PydanticAI agents inside a FastroAgent ---


async def test_a_plain_agent_inside_is_charged_as_it_is(
    server: ModelServer, model: Model, account: Account
) -> None:
    asks_for_help(server)
    plain = Agent(model, name="mine")

    @plain.tool_plain
    def ask(question: str) -> str:
        """Ask."""
        return "nobody"

    response = await FastroAgent(agent=plain).run("Who did it?")
    account.assert_matches(response.usage)
    assert response.request_count == 2
    assert {record.agent for record in response.records} == {"mine"}
    assert [call.tool_name for call in response.tool_calls] == ["ask"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_plain_agent_inside_that_has_a_meter_is_charged_once(
    server: ModelServer, model: Model, account: Account, streamed: bool
) -> None:
    plain = Agent(model, capabilities=[Metered()])
    if streamed:
        async for _ in FastroAgent(agent=plain).run_stream("?"):
            pass
    else:
        await FastroAgent(agent=plain).run("?")
    account.assert_matches()
    assert account.outcomes == ["settled"]


async def test_a_meter_that_a_call_brings_along_does_not_count_twice(
    server: ModelServer, model: Model, account: Account
) -> None:
    await FastroAgent(model).run("?", capabilities=[Metered()])
    await FastroAgent(agent=Agent(model)).run("?", capabilities=[Metered()])
    account.assert_matches()
    assert account.outcomes == ["settled", "settled"]


async def test_what_the_agent_around_a_metered_one_was_told_counts(
    server: ModelServer, account: Account
) -> None:
    free = CostCalculator(pricing_overrides={"gpt-5-mini": {"input_per_mtok": 0, "output_per_mtok": 0}})
    server.fail_next(1, Fault.status(503))
    plain = Agent(server.model(FIRST), output_type=[bool], capabilities=[Metered()])
    response = await FastroAgent(agent=plain, cost_calculator=free, request_retries=1).run("?")
    assert response.cost_usd == 0
    assert account.outcomes == ["released", "settled"]
    assert response.tool_calls == ()


async def test_an_agent_is_metered_when_it_iterates_by_hand(
    server: ModelServer, model: Model, account: Account
) -> None:
    agent = FastroAgent(model)
    async with agent.agent.iter("?") as run:
        async for _ in run:
            pass
    account.assert_matches()
    assert account.outcomes == ["settled"]


# --- models inside models ---


def wrapped(model: Model) -> Model:
    return WrapperModel(model)


def limited(model: Model) -> Model:
    return ConcurrencyLimitedModel(model, limiter=1)


def instrumented(model: Model) -> Model:
    return InstrumentedModel(model)


def twice(model: Model) -> Model:
    return ConcurrencyLimitedModel(InstrumentedModel(model), limiter=1)


WRAPPERS = [wrapped, limited, instrumented, twice]


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_in_wrappers_is_charged_once(
    server: ModelServer, model: Model, account: Account, wrap: Callable[[Model], Model], streamed: bool
) -> None:
    agent = FastroAgent(wrap(model))
    if streamed:
        async for _ in agent.run_stream("?"):
            pass
    else:
        await agent.run("?")
    account.assert_matches()
    assert account.outcomes == ["settled"]


async def run(agent: FastroAgent[object, str]) -> None:
    assert (await agent.run("?")).output == "from the second"


async def stream(agent: FastroAgent[object, str]) -> None:
    chunks = [chunk async for chunk in agent.run_stream("?")]
    assert chunks[-1].output == "from the second"


@pytest.mark.parametrize("call", [run, stream])
@pytest.mark.parametrize(("status", "refusals"), [(400, 1), (500, 2)])
@pytest.mark.parametrize("wrap", [None, *WRAPPERS])
async def test_each_candidate_of_a_fallback_is_charged_at_its_own_price(
    server: ModelServer,
    account: Account,
    call: Callable[[FastroAgent[object, str]], Awaitable[None]],
    status: int,
    refusals: int,
    wrap: Callable[[Model], Model] | None,
) -> None:
    server.rule(lambda request: request.model == "gpt-5-mini", Reply(fault=Fault.status(status)))
    server.rule(None, Reply("from the second", usage=Usage(50, 5)))
    fallback: Model = FallbackModel(server.model(FIRST), server.model(SECOND))
    await call(FastroAgent(wrap(fallback) if wrap else fallback, request_retries=1))
    account.assert_matches()
    assert account.outcomes == ["released"] * refusals + ["settled"]
    assert [record.model for record in account.records][-1] == "claude-haiku-4-5"


@pytest.mark.parametrize("wrap", [None, *WRAPPERS])
async def test_an_answer_that_a_fallback_rejects_is_charged_all_the_same(
    server: ModelServer, account: Account, wrap: Callable[[Model], Model] | None
) -> None:
    def is_empty_talk(response: ModelResponse) -> bool:
        return "first" in (response.text or "")

    server.script(Reply("from the first", usage=Usage(500, 50)), model="gpt-5-mini")
    server.script(Reply("from the second", usage=Usage(50, 5)), model="claude-haiku-4-5")
    fallback: Model = FallbackModel(
        server.model(FIRST), server.model(SECOND), fallback_on=[ModelAPIError, is_empty_talk]
    )
    response = await FastroAgent(wrap(fallback) if wrap else fallback).run("?")
    assert response.output == "from the second"
    account.assert_matches(response.usage)
    assert account.outcomes == ["settled", "settled"]


async def test_a_streamed_answer_that_a_fallback_would_reject_is_charged_once(
    server: ModelServer, account: Account
) -> None:
    def is_empty_talk(response: ModelResponse) -> bool:
        return True

    server.script(Reply("from the first", usage=Usage(500, 50)))
    fallback = FallbackModel(
        server.model(FIRST), server.model(SECOND), fallback_on=[ModelAPIError, is_empty_talk]
    )
    # It has been read before it could be judged, says PydanticAI.
    with pytest.warns(UserWarning, match="[Rr]esponse handler"):
        chunks = [chunk async for chunk in FastroAgent(fallback).run_stream("?")]
    assert chunks[-1].output == "from the first"
    account.assert_matches()
    assert account.outcomes == ["settled"]


async def test_a_fallback_whose_candidates_all_fail_leaves_it_on_the_error(
    server: ModelServer, account: Account
) -> None:
    server.rule(lambda request: request.model == "gpt-5-mini", Reply(fault=Fault.status(400)))
    server.rule(None, Reply("lost", usage=Usage(50, 5), fault=Fault.disconnect()))
    fallback = FallbackModel(server.model(FIRST), server.model(SECOND))
    with pytest.raises(FallbackExceptionGroup) as caught:
        await FastroAgent(fallback, request_retries=0, max_tokens=100).run("?")
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["released", "unmeasured"]


async def test_a_fallback_can_be_the_candidate_of_another(server: ModelServer, account: Account) -> None:
    server.rule(lambda request: request.model == "gpt-5-mini", Reply(fault=Fault.status(400)))
    server.rule(None, Reply("from the second", usage=Usage(50, 5)))
    inside = FallbackModel(server.model(FIRST), server.model("openai-chat:gpt-5-mini"))
    outside = FallbackModel(
        limited(inside), server.model(SECOND), fallback_on=(ModelAPIError, FallbackExceptionGroup)
    )
    await run(FastroAgent(outside))
    account.assert_matches()
    assert account.outcomes == ["released", "released", "settled"]


async def test_a_stream_of_a_fallback_left_early_is_charged_at_its_bound(
    server: ModelServer, account: Account
) -> None:
    server.rule(lambda request: request.model == "gpt-5-mini", Reply(fault=Fault.status(400)))
    server.rule(None, Reply("from the second " * 20, usage=Usage(50, 60), fault=Fault.hang(after=2)))
    agent = FastroAgent(FallbackModel(server.model(FIRST), server.model(SECOND)), max_tokens=100)
    async with agent.run_stream("?") as chunks:
        async for _ in chunks:
            break
    account.assert_matches()
    assert account.outcomes == ["released", "unmeasured"]


async def test_a_stream_that_breaks_before_its_first_chunk_falls_back_and_is_charged_at_its_bound(
    server: ModelServer, account: Account
) -> None:
    server.script(Reply("lost", usage=Usage(50, 1), fault=Fault.disconnect()), model="gpt-5-mini")
    server.script(Reply("from the second", usage=Usage(50, 5)), model="claude-haiku-4-5")
    fallback = FallbackModel(server.model(FIRST), server.model(SECOND))
    await stream(FastroAgent(fallback, max_tokens=100, request_retries=0))
    account.assert_matches()
    assert account.outcomes == ["unmeasured", "settled"]


# --- models that change ---


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_that_a_hook_swaps_in_is_the_one_that_is_charged(
    server: ModelServer, model: Model, account: Account, streamed: bool
) -> None:
    other = server.model(SECOND)

    async def swap(context: RunContext[object], request: ModelRequestContext) -> ModelRequestContext:
        request.model = other
        return request

    agent = FastroAgent(model, capabilities=[Hooks(before_model_request=swap)])
    if streamed:
        async for _ in agent.run_stream("?"):
            pass
    else:
        await agent.run("?")
    account.assert_matches()
    assert [record.model for record in account.records] == ["claude-haiku-4-5"]


async def test_a_model_for_one_call_is_the_one_that_is_charged(server: ModelServer, account: Account) -> None:
    agent = FastroAgent(server.model(FIRST))
    first = await agent.run("?")
    second = await agent.run("?", model=server.model(SECOND))
    async for chunk in agent.run_stream("?", model=server.model("openai-chat:gpt-5-mini")):
        third = chunk.usage_data
    account.assert_matches()
    assert third is not None
    assert [first.model, second.model, third.model] == ["gpt-5-mini", "claude-haiku-4-5", "gpt-5-mini"]
    assert [entry.protocol for entry in server.ledger.entries] == [
        "openai-responses",
        "anthropic",
        "openai-chat",
    ]


async def test_an_overridden_model_is_metered_too(
    server: ModelServer, model: Model, account: Account
) -> None:
    agent = FastroAgent(server.model(FIRST))
    with agent.agent.override(model=model):
        await agent.run("?")
    account.assert_matches()
    assert account.outcomes == ["settled"]
