"""What providers answered, served to their own models: the account is what the oracle worked out."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.openai import OpenAICompaction
from support.recorded_account import ANSWERS, EXPECTED, account_in, account_of, billed, cases, frozen_at
from support.recorded_models import assert_asked, build_model, settings_of, tools_of, whole
from support.recorded_oracle import AT, Json, expectation

from fastroai import CostCalculator, FastroAgent
from fastroai.errors import records_of
from fastroai.records import RequestRecord, Tokens

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning"),
    pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning"),
]

REQUESTS = cases(lambda answer, expected: expected["kind"] in ("request", "background", "compaction"))
EMBEDDINGS = cases(lambda answer, expected: expected["kind"] == "embedding")
AT_NIGHT = AT + timedelta(hours=14)
BY_THE_HOUR = cases(lambda answer, expected: expectation(answer, AT_NIGHT) != expected)


def test_the_expectations_follow_from_the_bodies_and_the_installed_prices() -> None:
    assert [expectation(answer) for answer in ANSWERS] == EXPECTED, (
        "genai-prices has other prices now: run `python -m tests.support.recorded_oracle` and review them"
    )


@pytest.mark.parametrize(("answer", "expected"), REQUESTS)
async def test_an_answer_is_accounted_to_the_last_digit(
    answer: Json, expected: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen_at(monkeypatch, AT)

    assert account_of(await the_record_of(answer, expected, monkeypatch)) == account_in(expected)


@pytest.mark.parametrize(("answer", "expected"), BY_THE_HOUR)
async def test_prices_that_depend_on_the_hour_are_those_of_the_hour_of_the_answer(
    answer: Json, expected: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen_at(monkeypatch, AT_NIGHT)

    record = await the_record_of(answer, expected, monkeypatch)

    assert account_of(record) == account_in(expectation(answer, AT_NIGHT))


@pytest.mark.parametrize(("answer", "expected"), EMBEDDINGS)
def test_an_embedding_costs_what_its_tokens_cost(answer: Json, expected: Json) -> None:
    provider, _, model = expected["prices"].partition("/")
    tokens = Tokens(input_tokens=expected["tokens"].get("input_tokens", 0))

    assert CostCalculator().price(tokens, model=model, provider=provider) == Decimal(expected["cost_usd"])


def test_each_answer_is_served_or_is_no_request_of_an_agent() -> None:
    left = cases(lambda answer, expected: expected["kind"] == "cache")

    assert len(REQUESTS) + len(EMBEDDINGS) + len(left) == len(ANSWERS) == 364
    assert len(left) == 1


async def the_record_of(answer: Json, expected: Json, monkeypatch: pytest.MonkeyPatch) -> RequestRecord:
    """The one request that an answer is accounted as, in a run as a user would make it."""
    wire = whole(answer)
    agent = FastroAgent(build_model(answer, wire, monkeypatch), request_retries=0)
    options: dict[str, Any] = {"model_settings": settings_of(answer), "capabilities": tools_of(answer)}
    if expected["kind"] == "compaction":
        options["capabilities"] = [OpenAICompaction(trigger=lambda messages: True)]
        options["message_history"] = [ModelRequest.user_text_prompt("x"), ModelResponse([TextPart("x")])]

    with Agent.using_sleep(no_sleep):
        try:
            records = (await agent.run("x", **options)).records
        except Exception as error:  # texts are masked, so that many runs fail after the answer
            records = records_of(error)

    assert_asked(wire, answer)
    assert len(billed(records)) == expected["requests"], records
    return billed(records)[0]


async def no_sleep(seconds: float) -> None:
    """Background requests are asked for again at once."""
