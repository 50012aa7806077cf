"""What a provider asks for in `Retry-After`, and circuits that open and close again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelRateLimitError
from pydantic_ai.models import Model
from support.accounting import assert_account_matches
from support.asking import Asked, Way, ask, ask_in, asking_pipeline
from support.leftovers import assert_no_task_is_left

from fastroai import FastroAgent, Pipeline, TimeLimitExceeded
from fastroai.errors import CircuitOpenError, records_of
from fastroai.pipelines import StepRetried
from fastroai.runtime import (
    CircuitBreaker,
    CircuitClosed,
    CircuitOpened,
    FailureClass,
    ProviderLimit,
    RetryPolicy,
    classify,
)
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.retrying.failures import is_exhausted
from fastroai.testing import Fault, ModelServer, Reply, Usage

ANSWER = Reply("Paris", usage=Usage(20, 5))
WAYS = pytest.mark.parametrize("way", ["agent.run", "agent.run_stream_events", "ctx.run", "ctx.run_stream"])
ModelOf = Callable[[str], Model]


@pytest.fixture
def model(model_of: ModelOf) -> Model:
    """One protocol: what is read here is a header, which is the same in all."""
    return model_of("openai:gpt-5-mini")


# --- wishes ---


async def test_a_date_is_waited_for(server: ModelServer, model: Model) -> None:
    server.script(ANSWER)
    server.fail_next(1, Fault.status(503, retry_after=datetime.now(UTC) + timedelta(seconds=1.2)))
    asked = await ask("ctx.run", FastroAgent(model))
    assert asked.output == "Paris"
    [refused, answered] = server.ledger.entries
    assert answered.started > refused.started
    assert asked.records[1].backoff_ms > 0
    waited = timedelta(milliseconds=asked.records[1].backoff_ms)
    assert answered.started - refused.started >= waited
    assert waited <= timedelta(seconds=1.2)


async def test_a_date_that_has_passed_leaves_the_backoff(server: ModelServer, model: Model) -> None:
    server.script(ANSWER)
    server.fail_next(1, Fault.status(429, retry_after=datetime.now(UTC) - timedelta(hours=1)))
    asked = await ask("ctx.run", FastroAgent(model))
    assert [record.backoff_ms for record in asked.records] == [0, 1]


@WAYS
@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
async def test_a_wish_past_the_deadline_is_final_at_once_however_the_agent_was_asked(
    server: ModelServer, model: Model, way: Way, as_date: bool
) -> None:
    wish = datetime.now(UTC) + timedelta(minutes=10) if as_date else 600
    server.fail_next(9, Fault.status(429, retry_after=wish))
    asked = await ask(way, FastroAgent(model, name="asker", timeout=60, cost_budget=5_000_000))
    assert isinstance(asked.error, ModelRateLimitError)
    assert classify(asked.error) is FailureClass.RECOVERABLE
    assert is_exhausted(asked.error)
    [note] = asked.error.__notes__
    assert note.startswith("not retried: the provider asked to wait ")
    assert ", and agent 'asker' has " in note
    assert asked.retries == []
    assert [(record.outcome, record.use) for record in asked.records] == [("released", "failed")]
    assert_account_matches(server.ledger, asked.records, asked.usage)
    assert_no_task_is_left()


async def test_the_note_names_the_deadline_that_is_in_the_way(server: ModelServer, model: Model) -> None:
    server.fail_next(9, Fault.status(429, retry_after=600))
    pipeline = asking_pipeline("ctx.run", FastroAgent(model, name="asker", timeout=900), total_timeout=60)
    asked = await ask_in(pipeline)
    assert asked.error is not None
    [note] = asked.error.__notes__
    assert note.startswith("not retried: the provider asked to wait 600 s, and pipeline 'asks' has ")


async def test_a_backoff_past_the_deadline_is_not_waited_for_either(
    server: ModelServer, model: Model
) -> None:
    server.fail_next(9, Fault.status(500))
    late = {FailureClass.RECOVERABLE: RetryPolicy(3, backoff=600, max_backoff=600, jitter="none")}
    asked = await ask("ctx.run", FastroAgent(model, name="asker", timeout=60), late)
    assert asked.error is not None
    [note] = asked.error.__notes__
    assert note.startswith("not retried: the next attempt would wait 600 s, and agent 'asker' has ")
    assert len(server.ledger.entries) == 1


async def test_others_are_held_back_by_a_429_until_their_whole_time_is_up(
    server: ModelServer, model: Model
) -> None:
    limit = ProviderLimit(requests_per_minute=50)
    server.fail_next(1, Fault.status(429, retry_after=600))
    first = await ask("ctx.run", FastroAgent(model, timeout=60, provider_limits={"openai": limit}))
    assert isinstance(first.error, ModelRateLimitError)
    assert limit.status("openai").held_back_for > 500

    other = FastroAgent(model, timeout=0.5, provider_limits={"*": limit}, cost_budget=5_000_000)
    with pytest.raises(TimeLimitExceeded, match="pipeline 'asks'") as stopped:
        await asking_pipeline("ctx.run", other, total_timeout=0.6).execute()
    assert records_of(stopped.value) == ()
    assert len(server.ledger.entries) == 1, "the other one was not sent"
    status = limit.status("openai")
    assert (status.in_flight, status.waiting) == (0, 0)
    assert_no_task_is_left()


# --- circuits ---


class Time:
    """A clock that the test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("fastroai.runtime.providers.circuit_breaker.monotonic", time)
    return time


async def events_of(pipeline: Pipeline[object, Any, str]) -> tuple[Asked, list[RunEvent]]:
    """What came of it, and what was told of circuits and retries."""
    told: list[RunEvent] = []
    asked = await ask_in(pipeline, told.append)
    return asked, [event for event in told if isinstance(event, CircuitOpened | CircuitClosed | StepRetried)]


@pytest.mark.parametrize("fault", [Fault.status(503), Fault.disconnect()], ids=lambda f: f.name)
@pytest.mark.parametrize("way", ["ctx.run", "ctx.run_stream"])
async def test_a_circuit_opens_lets_one_through_after_a_while_and_closes_again(
    server: ModelServer, model: Model, time: Time, way: Way, fault: Fault
) -> None:
    breaker = CircuitBreaker(failures=2, cooldown=30)
    agent = FastroAgent(model, name="asker", circuit_breaker=breaker, max_tokens=100, cost_budget=5_000_000)
    pipeline = asking_pipeline(way, agent, total_timeout=20)  # shorter than the cooldown

    server.fail_next(2, fault)
    asked, told = await events_of(pipeline)
    assert asked.error is not None
    assert len(server.ledger.entries) == 2, "no attempt goes out through an open circuit"
    [opened] = [event for event in told if isinstance(event, CircuitOpened)]
    assert (opened.provider, opened.agent, opened.cooldown) == ("openai", "asker", 30)
    assert breaker.state_of("openai") == "open"

    time.now += 5
    asked, _ = await events_of(pipeline)
    assert isinstance(asked.error, CircuitOpenError)
    [note] = asked.error.__notes__
    assert "pipeline 'asks' has " in note
    assert asked.records == ()
    assert len(server.ledger.entries) == 2

    time.now += 26
    assert breaker.state_of("openai") == "half-open"
    server.fail_next(1, fault)
    await events_of(pipeline)
    assert len(server.ledger.entries) == 3, "one may try, and opens it again"
    assert breaker.state_of("openai") == "open"

    time.now += 31
    server.script(ANSWER)
    asked, told = await events_of(pipeline)
    assert asked.output == "Paris"
    assert [(type(event), event.provider) for event in told if isinstance(event, CircuitClosed)] == [
        (CircuitClosed, "openai")
    ]
    assert breaker.state_of("openai") == "closed"
    assert_no_task_is_left()


async def test_a_step_waits_for_an_open_circuit_and_goes_on(server: ModelServer, model: Model) -> None:
    server.script(ANSWER)
    server.fail_next(3, Fault.status(500))
    agent = FastroAgent(model, circuit_breaker=CircuitBreaker(failures=3, cooldown=0.05))
    asked = await ask("ctx.run", agent)
    assert asked.output == "Paris"
    [retry] = asked.retries
    assert isinstance(retry.error, CircuitOpenError)
    assert (retry.unit, retry.failure_class) == ("call", FailureClass.RECOVERABLE)
    assert retry.error.retry_after is not None
    assert retry.delay == retry.error.retry_after
    assert [(record.attempt, record.use) for record in asked.records] == [
        (1, "retried"),
        (2, "retried"),
        (3, "retried"),
        (1, "kept"),
    ]
    assert_account_matches(server.ledger, asked.records, asked.usage)
