"""What providers answered, served to their own models: the account is what was worked out without FastroAI."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.openai import OpenAICompaction
from support.recorded_models import assert_asked, build_model, require_sdk, settings_of, whole
from support.recorded_oracle import AT, Json, answers, expectation, expectations

from fastroai import CostCalculator, FastroAgent
from fastroai.errors import records_of
from fastroai.records import RequestRecord, Tokens

pytestmark = pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning")

ANSWERS = answers()
EXPECTED = expectations()
CASES = [
    pytest.param(answer, expected, id=f"{number}-{answer['host']}")
    for number, (answer, expected) in enumerate(zip(ANSWERS, EXPECTED, strict=True))
]


def of_kind(*kinds: str) -> list[Any]:
    return [case for case in CASES if case.values[1]["kind"] in kinds]


@pytest.fixture(autouse=True)
def moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers arrive at the moment for which they were priced: some prices depend on date and hour."""

    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return AT

    monkeypatch.setattr("pydantic_ai._utils.datetime", Frozen)


def test_the_expectations_follow_from_the_bodies_and_the_installed_prices() -> None:
    assert [expectation(answer) for answer in ANSWERS] == EXPECTED, (
        "genai-prices has other prices now: run `python -m tests.support.recorded_oracle` and review the difference"
    )


@pytest.mark.parametrize(("answer", "expected"), of_kind("request", "background", "compaction"))
async def test_an_answer_is_accounted_to_the_last_digit(
    answer: Json, expected: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_sdk(answer["host"], answer["path"])
    wire = whole(answer)
    model = build_model(answer, wire, monkeypatch)

    record = await the_record_of(FastroAgent(model, request_retries=0), answer, expected)

    assert_asked(wire, answer)
    assert account_of(record) == account_in(expected)


async def the_record_of(agent: FastroAgent[None, str], answer: Json, expected: Json) -> RequestRecord:
    """The one request that was billed; a run that goes on, for the tool that was called, is refused."""
    options: dict[str, Any] = {"model_settings": settings_of(answer)}
    if expected["kind"] == "compaction":
        options["capabilities"] = [OpenAICompaction(trigger=lambda messages: True)]
        options["message_history"] = [ModelRequest.user_text_prompt("x"), ModelResponse([TextPart("x")])]
    with Agent.using_sleep(no_sleep):
        try:
            records = (await agent.run("x", **options)).records
        except Exception as error:
            records = records_of(error)
    billed = [record for record in records if record.outcome != "released"]
    assert len(billed) == expected["requests"], records
    return billed[0]


async def no_sleep(seconds: float) -> None:
    """Background requests are asked for at once."""


def account_of(record: RequestRecord) -> dict[str, Any]:
    tokens = {each.name: getattr(record.tokens, each.name) for each in fields(Tokens)}
    return {
        "outcome": record.outcome,
        "cost_usd": record.cost_usd,
        "cost_source": record.cost_source,
        "complete": record.cost_complete,
        "unpriced_units": set(record.unpriced_units),
        "tokens": {name: count for name, count in tokens.items() if count},
    }


def account_in(expected: Json) -> dict[str, Any]:
    cost = expected["cost_usd"]
    return {
        "outcome": expected["outcome"],
        "cost_usd": None if cost is None else Decimal(cost),
        "cost_source": expected["cost_source"],
        "complete": expected["complete"],
        "unpriced_units": set(expected["unpriced_units"]),
        "tokens": expected["tokens"],
    }


@pytest.mark.parametrize(("answer", "expected"), of_kind("embedding"))
def test_an_embedding_costs_what_its_tokens_cost(answer: Json, expected: Json) -> None:
    provider, _, model = expected["prices"].partition("/")
    tokens = Tokens(input_tokens=expected["tokens"].get("input_tokens", 0))

    assert CostCalculator().price(tokens, model=model, provider=provider) == Decimal(expected["cost_usd"])


def test_nothing_else_is_among_the_answers() -> None:
    left = [expected for expected in EXPECTED if expected["kind"] == "cache"]

    assert [entry["requests"] for entry in left] == [0]
    assert len(CASES) == len(of_kind("request", "background", "compaction", "embedding")) + len(left) == 364
