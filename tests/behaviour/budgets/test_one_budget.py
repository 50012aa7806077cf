"""One budget and many requests at once, by the books of the server that answered them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from decimal import Decimal

import pytest
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.accounting import assert_account_matches, listed_cost
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE

from fastroai import Budget, BudgetExceeded, CostBudgetExceeded, FastroAgent, budget_scope
from fastroai.agent import ChatStream, Metered
from fastroai.errors import RequestBudgetExceeded, TokenBudgetExceeded
from fastroai.runtime import BudgetScope
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest

REFERENCES = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")
FLOORS = {"openai": 16, "openai-chat": 1, "anthropic": 1}
"""The smallest `max_tokens` that each protocol accepts."""
AT_ONCE = 300
MOST = 120
"""Tokens of each answer; some would be longer."""


def prompt_of(number: int) -> str:
    """All of the same length, so that all requests of a model have one bound."""
    return f"question {number:04}"


def number_of(request: ServedRequest) -> int:
    return int(request.prompt.partition(" ")[2])


def answer(request: ServedRequest) -> Reply:
    """Of any length up to what was asked for, or cut there."""
    return Reply("word " * (1 + 7 * number_of(request) % 110))


@pytest.fixture
def models(server: ModelServer) -> list[Model]:
    """One of each protocol, as agents have them."""
    meters = [Metered(request_retries=0) for _ in REFERENCES]
    wrapped = [
        meter.get_wrapper_model(server.model(of)) for meter, of in zip(meters, REFERENCES, strict=True)
    ]
    return [model for model in wrapped if model is not None]


async def ask(model: Model, number: int, max_tokens: int = MOST) -> ModelResponse:
    """Send one request, as every request of an agent goes out, without what an agent does around it."""
    prompt = ModelRequest.user_text_prompt(prompt_of(number))
    return await model_request(model, [prompt], model_settings={"max_tokens": max_tokens})


async def together(calls: Iterable[Awaitable[object]]) -> list[object]:
    """What each of the calls, all made at once, gives or raises."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def refusal_of(model: Model, budget: Budget, max_tokens: int) -> BudgetExceeded:
    """What a budget says that cannot pay for one request."""
    async with budget_scope(budget):
        with pytest.raises(BudgetExceeded) as caught:
            await ask(model, 0, max_tokens)
    return caught.value


async def requested(model: Model, budget: Budget, max_tokens: int) -> int:
    """The bound of a request, as a budget says it that cannot pay for any."""
    refusal = await refusal_of(model, budget, max_tokens)
    assert refusal.requested is not None
    return refusal.requested


async def least_requested(models: list[Model], budget: Budget) -> list[int]:
    """Of each model, the bound of its request with the shortest answer that it can be asked for."""
    floors = [FLOORS[reference.partition(":")[0]] for reference in REFERENCES]
    return [await requested(model, budget, floor) for model, floor in zip(models, floors, strict=True)]


def billed_usd(server: ModelServer) -> Decimal:
    """By the published prices."""
    return sum((listed_cost(entry) for entry in server.ledger.billed), Decimal(0))


def billed_tokens(server: ModelServer) -> int:
    return sum(entry.usage.input_tokens + entry.usage.output_tokens for entry in server.ledger.billed)


def assert_refused_rightly(outcomes: list[object], kind: type[BudgetExceeded], least: list[int]) -> int:
    """Nobody was refused whom the rest could have paid, lowered to its floor. Returns how many were."""
    refused = 0
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, ModelResponse):
            continue
        assert isinstance(outcome, kind), outcome
        if outcome.partial_response is None:
            refused += 1
            assert outcome.limit - outcome.committed <= least[number % len(least)], outcome
    return refused


def assert_books_match(server: ModelServer, scope: BudgetScope, *, never_connected: int = 0) -> None:
    assert_account_matches(server.ledger, scope.records, scope.usage, never_connected=never_connected)


# --- money, tokens, requests ---


async def test_hundreds_of_requests_at_once_use_all_of_their_budget_and_never_pass_it(
    server: ModelServer, models: list[Model]
) -> None:
    server.rule(None, answer)
    least = await least_requested(models, Budget(microcents=1))
    limit = Decimal("0.036")
    async with budget_scope(Budget(usd=limit)) as scope:
        outcomes = await together(ask(models[number % 3], number) for number in range(AT_ONCE))
        assert scope.remaining.usd == limit - billed_usd(server), "something is still reserved"
    assert 0 <= limit - billed_usd(server) <= Decimal(max(least)) / 1_000_000
    assert_books_match(server, scope)
    assert scope.usage.cost_complete
    refused = assert_refused_rightly(outcomes, CostBudgetExceeded, least)
    assert refused == AT_ONCE - len(server.ledger.entries) > 0
    assert_no_task_is_left()


async def test_hundreds_of_requests_at_once_never_pass_a_budget_of_tokens(
    server: ModelServer, models: list[Model]
) -> None:
    server.rule(None, answer)
    least = await least_requested(models, Budget(tokens=1))
    limit = 6_000
    async with budget_scope(Budget(tokens=limit)) as scope:
        outcomes = await together(ask(models[number % 3], number) for number in range(AT_ONCE))
        assert scope.remaining.tokens == limit - billed_tokens(server)
    assert 0 <= limit - billed_tokens(server) <= max(least)
    assert_books_match(server, scope)
    refused = assert_refused_rightly(outcomes, TokenBudgetExceeded, least)
    assert refused == AT_ONCE - len(server.ledger.entries) > 0


async def test_of_hundreds_of_requests_at_once_as_many_are_billed_as_their_budget_allows(
    server: ModelServer, models: list[Model]
) -> None:
    """Those that the server refuses unbilled leave their place to others."""
    server.rule(lambda request: number_of(request) % 5 == 0, Reply(fault=Fault.status(429)))
    limit = 75
    async with budget_scope(Budget(requests=limit)) as scope:
        outcomes = await together(ask(models[number % 3], number) for number in range(AT_ONCE))
        assert scope.remaining.requests == 0
    assert len(server.ledger.billed) == limit
    assert_books_match(server, scope)
    answered = [outcome for outcome in outcomes if isinstance(outcome, ModelResponse)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, ModelHTTPError)]
    stopped = [outcome for outcome in outcomes if isinstance(outcome, RequestBudgetExceeded)]
    assert (len(answered), len(failed)) == (limit, scope.usage.failed_requests)
    assert len(answered) + len(failed) + len(stopped) == AT_ONCE


# --- streams ---


async def read(stream: ChatStream[str], way: str) -> None:
    """Read a streamed answer in one of the ways there are."""
    async with stream:
        async for _ in stream:
            if way == "leaves":
                break
            if way == "is cancelled" and (task := asyncio.current_task()) is not None:
                task.cancel()  # while it waits for the next piece


WAYS = ("reads", "leaves", "reads", "is cancelled", "reads")
FAULTS = {7: Fault.status(429), 17: Fault.status(500), 27: Fault.disconnect(), 37: Fault.cut(after=1)}
"""By number, of each forty."""
NOWHERE = OpenAIProvider(base_url="http://127.0.0.1:1/v1", api_key="none")
"""An address at which nobody listens."""


async def test_a_hundred_streams_never_pass_their_budget_however_they_end(server: ModelServer) -> None:
    for number, fault in FAULTS.items():
        server.rule(
            lambda request, number=number: number_of(request) % 40 == number,  # type: ignore[misc]
            lambda request, fault=fault: replace(answer(request), fault=fault),  # type: ignore[misc]
        )
    server.rule(None, answer)
    agents = [
        FastroAgent(model, max_tokens=MOST, request_retries=0)
        for model in (*map(server.model, REFERENCES), OpenAIChatModel("gpt-5-mini", provider=NOWHERE))
    ]
    limit = Decimal("0.06")
    async with budget_scope(Budget(usd=limit)) as scope:
        streams = [
            agents[3 if number % 25 == 0 else number % 3].run_stream(prompt_of(number))
            for number in range(100)
        ]
        ways = (WAYS[number % len(WAYS)] for number in range(100))
        tasks = [asyncio.create_task(read(*each)) for each in zip(streams, ways, strict=True)]
        await server.ledger.wait_for(10, timeout=PATIENCE)
        for task in tasks[9::10]:  # some of them still in line
            task.cancel()
        outcomes = await together(tasks)
        assert scope.remaining.usd == limit - scope.usage.committed_usd, "something is still reserved"
    assert billed_usd(server) <= scope.usage.committed_usd <= limit
    # What the server began to answer has an id, and is found by that; what is left has to stand for the rest,
    # but for requests that were cancelled on their way to the server: they count at their bound all the same.
    by_id = sorted(
        scope.records,
        key=lambda record: (record.response_id is None, "CancelledError" in (record.error or "")),
    )
    nowhere = sum(
        isinstance(outcome, ModelConnectionError) and outcome.phase == "connect" for outcome in outcomes
    )
    assert_account_matches(server.ledger, by_id, scope.usage, never_connected=nowhere, some_cancelled=True)
    for outcome in outcomes:
        assert outcome is None or isinstance(outcome, EXPECTED), outcome
    assert {record.outcome for record in by_id} == {"settled", "unmeasured", "released"}
    assert len(server.ledger.entries) > 40
    assert_no_task_is_left()


EXPECTED = (asyncio.CancelledError, CostBudgetExceeded, ModelAPIError, UnexpectedModelBehavior)


# --- threads ---


def test_threads_share_the_budget_around_them(server: ModelServer) -> None:
    """Some run their agent on the loop of all sync calls, some on a loop of their own."""
    server.rule(None, answer)
    limit, threads = Decimal("0.015"), 4
    all_there = threading.Barrier(threads)

    def ask_in_sync(thread: int) -> None:
        agent = FastroAgent(server.model(REFERENCES[thread % 3]), max_tokens=MOST)
        all_there.wait(PATIENCE)
        for number in range(thread, 1_000, threads):
            with suppress_cuts():
                agent.run_sync(prompt_of(number))
        raise AssertionError("nothing has stopped it")

    async def ask_on_own_loop(thread: int) -> None:
        agent = FastroAgent(server.model(REFERENCES[thread % 3]), max_tokens=MOST)
        all_there.wait(PATIENCE)
        for number in range(thread, 1_000, threads):
            with suppress_cuts():
                await agent.run(prompt_of(number))
        raise AssertionError("nothing has stopped it")

    def ask_in_thread(thread: int) -> None:
        with pytest.raises(CostBudgetExceeded):
            if thread % 2:
                ask_in_sync(thread)
            else:
                asyncio.run(ask_on_own_loop(thread))

    with budget_scope(Budget(usd=limit)) as scope, ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(copy_context().run, ask_in_thread, thread) for thread in range(threads)]
        for call in calls:
            call.result()
        assert scope.remaining.usd == limit - billed_usd(server), "something is still reserved"
    assert billed_usd(server) <= limit
    assert_books_match(server, scope)
    assert len(server.ledger.entries) > threads


@contextmanager
def suppress_cuts() -> Iterator[None]:
    """Go on after an answer of which the budget paid for the beginning."""
    try:
        yield
    except CostBudgetExceeded as stop:
        if stop.partial_response is None:
            raise
