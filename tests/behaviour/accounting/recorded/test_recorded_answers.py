"""What providers answered, served to their own models: the account is what the oracle worked out."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.openai import OpenAICompaction
from support.recorded_account import ANSWERS, EXPECTED, account_in, account_of, billed, cases, frozen_at
from support.recorded_models import Wire, assert_asked, build_model, settings_of, tools_of, whole
from support.recorded_oracle import AT, Json, expectation
from support.recorded_spending import embed, make_cache

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.records import RequestRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning"),
    pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:MODEL_ARMOR is not a valid FinishReason"),  # in older SDKs of Google
]

EVERY = cases(lambda answer, expected: True)
AT_NIGHT = AT + timedelta(hours=14)
BY_THE_HOUR = cases(lambda answer, expected: expectation(answer, AT_NIGHT) != expected)


def test_the_expectations_follow_from_the_bodies_and_the_installed_prices() -> None:
    assert [expectation(answer) for answer in ANSWERS] == EXPECTED, (
        "genai-prices has other prices now: run `python -m tests.support.recorded_oracle` and review them"
    )


@pytest.mark.parametrize(("answer", "expected"), EVERY)
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


def test_each_answer_is_served_and_none_is_left_out() -> None:
    assert len(EVERY) == len(ANSWERS) == len(EXPECTED) == 364


async def the_record_of(answer: Json, expected: Json, monkeypatch: pytest.MonkeyPatch) -> RequestRecord:
    """The one record that an answer is accounted as, once it is served as a user would have asked for it."""
    wire = whole(answer)
    spending = {"embedding": embed, "cache": make_cache}.get(expected["kind"])
    # Some agents ask models without a price, which a budget of money refuses.
    async with budget_scope(Budget(requests=10) if spending is None else Budget(usd=1)) as scope:
        if spending is None:
            await run_agent(answer, expected, wire, monkeypatch)
        else:
            await spending(answer, wire)

    assert_asked(wire, answer)
    (record,) = billed(scope.records)
    usage = scope.usage
    assert (usage.cost_usd, usage.cost_complete) == (record.cost_usd or 0, record.cost_complete)
    assert usage.request_count == expected["requests"]
    return record


async def run_agent(answer: Json, expected: Json, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of an agent that is given the answer."""
    agent = FastroAgent(build_model(answer, wire, monkeypatch), request_retries=0)
    options: dict[str, Any] = {"model_settings": settings_of(answer), "capabilities": tools_of(answer)}
    if expected["kind"] == "compaction":
        options["capabilities"] = [OpenAICompaction(trigger=lambda messages: True)]
        options["message_history"] = [ModelRequest.user_text_prompt("x"), ModelResponse([TextPart("x")])]

    # Texts are masked, so that many runs fail after the answer.
    with Agent.using_sleep(no_sleep), suppress(Exception):
        await agent.run("x", **options)


async def no_sleep(seconds: float) -> None:
    """Background requests are asked for again at once."""
