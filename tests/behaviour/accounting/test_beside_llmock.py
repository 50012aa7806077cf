"""The account of answers from llmock, which reads the protocols for itself.

It has no ledger. Its usage is read here off the wire, by a tap between it and its socket.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import pytest
from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer
from pydantic import BaseModel
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection
from support.accounting import PRICES

from fastroai import FastroAgent
from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import Scope

PROMPT = "What is the weather like in Paris today, and should I take an umbrella with me?"


class City(BaseModel):
    name: str
    people: int


class WireTap:
    """Keeps the bodies of all answers to model requests."""

    answers: list[bytearray] = []

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        answer = bytearray()

        async def note(message: Message) -> None:
            answer.extend(message.get("body", b""))
            await send(message)

        if connection["type"] == "http" and connection["method"] == "POST":
            self.answers.append(answer)
        await self._app(connection, receive, note)


def usage_on_the_wire(answer: bytearray) -> Tokens:
    """The usage that an answer tells, whole or as a stream of events, in any of the protocols."""
    text = answer.decode()
    if text.startswith("{"):
        events = [json.loads(text)]
    else:
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        events = [json.loads(line) for line in lines if line.startswith("{")]
    told: dict[str, int] = {}
    for event in events:
        for owner in (event, event.get("message") or {}, event.get("response") or {}):
            told |= owner.get("usage") or {}
    return Tokens(
        input_tokens=told.get("input_tokens", told.get("prompt_tokens", 0)),
        output_tokens=told.get("output_tokens", told.get("completion_tokens", 0)),
    )


@pytest.fixture(scope="module")
def running() -> Iterator[LLMockServer]:
    server = LLMockServer()
    server.app.add_middleware(WireTap)
    with server:
        yield server


@pytest.fixture
def mock(running: LLMockServer) -> LLMock:
    WireTap.answers.clear()
    mock = LLMock(running)
    mock.reset()
    return mock


@pytest.fixture(params=["responses", "chat", "messages"])
async def model(request: pytest.FixtureRequest, mock: LLMock) -> AsyncIterator[Model]:
    made: Model
    if request.param == "messages":
        anthropic = AnthropicProvider(base_url=mock.base_url("anthropic"), api_key="none")
        anthropic.client.max_retries = 0
        made = AnthropicModel("claude-haiku-4-5", provider=anthropic)
    else:
        openai = OpenAIProvider(base_url=mock.base_url("openai"), api_key="none")
        openai.client.max_retries = 0
        kind = OpenAIResponsesModel if request.param == "responses" else OpenAIChatModel
        made = kind("gpt-5-mini", provider=openai)
    async with made:  # llmock keeps connections open
        yield made


@pytest.fixture
async def scope() -> AsyncIterator[Scope]:
    async with Scope("pipeline", "test", parent=None) as scope:
        yield scope


def assert_settled(records: list[RequestRecord]) -> None:
    """Each record says what the wire said, in the same order."""
    assert [record.outcome for record in records] == ["settled"] * len(WireTap.answers)
    for record, answer in zip(records, WireTap.answers, strict=True):
        told = usage_on_the_wire(answer)
        assert record.tokens == told
        assert told.input_tokens > 5
        assert told.output_tokens > 0
        price = PRICES[record.model, "default"]
        cost = told.input_tokens * Decimal(price.input) + told.output_tokens * Decimal(price.output)
        assert record.cost_usd == cost / 1_000_000


async def ask(agent: FastroAgent[object, Any], streamed: bool) -> None:
    if streamed:
        async for _ in agent.run_stream(PROMPT):
            pass
    else:
        await agent.run(PROMPT)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("max_tokens", [None, 900])
async def test_an_answer_is_charged(
    model: Model, scope: Scope, streamed: bool, max_tokens: int | None
) -> None:
    await ask(FastroAgent(model, max_tokens=max_tokens), streamed)
    assert_settled(scope.spending.records)


@pytest.mark.parametrize("streamed", [False, True])
async def test_every_request_of_a_tool_loop_is_charged(model: Model, scope: Scope, streamed: bool) -> None:
    cities: list[str] = []

    def weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return "sunny"

    await ask(FastroAgent(model, tools=[weather]), streamed)
    assert_settled(scope.spending.records)
    assert len(scope.spending.records) == 2
    assert len(cities) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_structured_output_is_charged(model: Model, scope: Scope, streamed: bool) -> None:
    await ask(FastroAgent(model, output_type=City), streamed)
    assert_settled(scope.spending.records)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_silently_ends_early_is_not_taken_for_a_whole_one(
    model: Model, scope: Scope, mock: LLMock, streamed: bool
) -> None:
    """Anthropic's long answers are streamed behind `run` as well, and end early as silently."""
    mock.reply("Once upon a time. " * 20).truncate(after_chunks=4)
    await ask(FastroAgent(model), streamed)
    whole = usage_on_the_wire(WireTap.answers[0]).output_tokens > 60
    assert whole == (model.system == "openai" and not streamed)
    assert scope.spending.records[0].outcome == ("settled" if whole else "unmeasured")
