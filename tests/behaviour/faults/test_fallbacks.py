"""Faults of the first model of a `FallbackModel`, and of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelRateLimitError
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from support.accounting import assert_account_matches
from support.asking import Way, ask, is_in_step
from support.leftovers import assert_no_task_is_left

from fastroai import FastroAgent
from fastroai.runtime import CircuitBreaker, FailureClass, ProviderLimit, classify
from fastroai.runtime.budgets.ledger import Account as BudgetAccount
from fastroai.runtime.retrying.failures import is_exhausted
from fastroai.testing import Fault, ModelServer, Reply, Usage

ANSWER = Reply("Paris", usage=Usage(20, 5))

WAYS = pytest.mark.parametrize("way", ["agent.run", "ctx.run_stream"])

pytestmark = pytest.mark.parametrize("reference", ["openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"])

FAULTS = pytest.mark.parametrize(
    ("fault", "extra"),
    [
        (Fault.status(429, retry_after=0), {"step": 3, "agent": 2}),
        (Fault.status(400), {"step": 0, "agent": 0}),
        (Fault.disconnect(), {"step": 1, "agent": 2}),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)
"""With the extra attempts that each model has, in a step under the ready-made policies and without one."""

ModelOf = Callable[[str], Model]


@pytest.fixture
def pair(reference: str, model_of: ModelOf) -> tuple[Model, Model]:
    """The model of `reference`, and one of the other provider."""
    openai, anthropic = "openai:gpt-5-mini", "anthropic:claude-haiku-4-5"
    return model_of(reference), model_of(openai if reference == anthropic else anthropic)


def with_fallback(pair: tuple[Model, Model], **options: Any) -> FastroAgent[Any, str]:
    return FastroAgent(FallbackModel(*pair), max_tokens=100, cost_budget=5_000_000, **options)


@pytest.fixture(autouse=True)
def nothing_is_left(accounts: list[BudgetAccount]) -> Iterator[None]:
    yield
    assert accounts, "there was a budget, which is looked at when the test is over"


@WAYS
@FAULTS
async def test_the_next_model_answers_when_the_first_has_used_up_its_attempts(
    server: ModelServer, pair: tuple[Model, Model], way: Way, fault: Fault, extra: dict[str, int]
) -> None:
    ill = pair[0].model_name
    server.rule(lambda request: request.model == ill, Reply("lost", usage=Usage(20, 5), fault=fault))
    server.rule(None, ANSWER)
    asked = await ask(way, with_fallback(pair))
    assert asked.output == "Paris"
    assert asked.retries == [], "neither the call nor the step was tried again"
    attempts = 1 + extra["step" if is_in_step(way) else "agent"]
    assert [(record.model, record.attempt) for record in asked.records] == [
        *((ill, number) for number in range(1, attempts + 1)),
        (pair[1].model_name, 1),
    ]
    assert asked.records[-1].outcome == "settled"
    assert_account_matches(server.ledger, asked.records, asked.usage)
    assert_no_task_is_left()


@WAYS
@FAULTS
async def test_models_that_all_fail_are_not_asked_again_by_whoever_is_around_them(
    server: ModelServer, pair: tuple[Model, Model], way: Way, fault: Fault, extra: dict[str, int]
) -> None:
    server.rule(None, Reply("lost", usage=Usage(20, 5), fault=fault))
    asked = await ask(way, with_fallback(pair))
    assert isinstance(asked.error, FallbackExceptionGroup)
    failures = {classify(error) for error in asked.error.exceptions}
    assert failures == {classify(asked.error)}
    assert is_exhausted(asked.error) == (failures != {FailureClass.TERMINAL})
    attempts = 1 + extra["step" if is_in_step(way) else "agent"]
    assert [record.model for record in asked.records] == [
        model.model_name for model in pair for _ in range(attempts)
    ]
    assert asked.retries == []
    assert_account_matches(server.ledger, asked.records, asked.usage)
    assert_no_task_is_left()


async def test_an_answer_that_is_no_json_goes_to_the_next_model_at_once_and_all_are_asked_once_more(
    server: ModelServer, pair: tuple[Model, Model]
) -> None:
    """It arrived, so it is the call that is tried again, with all its models, and not a request."""
    server.rule(None, Reply("lost", usage=Usage(20, 5), fault=Fault.malformed()))
    asked = await ask("ctx.run", with_fallback(pair))
    assert classify(asked.error or AssertionError()) is FailureClass.AMBIGUOUS
    assert [record.model for record in asked.records] == [model.model_name for model in pair] * 2
    assert [record.use for record in asked.records] == ["retried", "retried", "failed", "failed"]
    assert [(retry.unit, retry.failure_class) for retry in asked.retries] == [
        ("call", FailureClass.AMBIGUOUS)
    ]
    assert_account_matches(server.ledger, asked.records, asked.usage)


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
async def test_the_next_model_is_asked_at_once_where_the_first_wants_more_time_than_there_is(
    server: ModelServer, pair: tuple[Model, Model], as_date: bool
) -> None:
    wish = datetime.now(UTC) + timedelta(minutes=10) if as_date else 600
    server.fail_next(1, Fault.status(429, retry_after=wish))
    server.rule(None, ANSWER)
    asked = await ask("ctx.run", with_fallback(pair, timeout=60))
    assert asked.output == "Paris"
    assert [(record.model, record.attempt, record.outcome) for record in asked.records] == [
        (pair[0].model_name, 1, "released"),
        (pair[1].model_name, 1, "settled"),
    ]


async def test_the_failure_of_all_says_of_each_why_it_was_not_asked_again(
    server: ModelServer, pair: tuple[Model, Model]
) -> None:
    server.rule(None, Reply(fault=Fault.status(429, retry_after=600)))
    asked = await ask("ctx.run", with_fallback(pair, name="asker", timeout=60))
    assert isinstance(asked.error, FallbackExceptionGroup)
    for error in asked.error.exceptions:
        assert isinstance(error, ModelRateLimitError)
        [note] = error.__notes__
        assert note.startswith("not retried: the provider asked to wait 600 s, and agent 'asker' has ")


async def test_an_open_circuit_costs_the_first_model_no_request(
    server: ModelServer, pair: tuple[Model, Model]
) -> None:
    limit = ProviderLimit(max_concurrency=4, circuit_breaker=CircuitBreaker(failures=1))
    agent = with_fallback(pair, provider_limits={pair[0].system: limit})
    ill = pair[0].model_name
    server.rule(lambda request: request.model == ill, Reply(fault=Fault.status(503)))
    server.rule(None, ANSWER)
    for requests in ([ill, pair[1].model_name], [pair[1].model_name]):
        asked = await ask("ctx.run", agent)
        assert asked.output == "Paris"
        assert [record.model for record in asked.records] == requests
    status = limit.status(pair[0].system)
    assert (status.in_flight, status.waiting) == (0, 0)
    assert_no_task_is_left()
