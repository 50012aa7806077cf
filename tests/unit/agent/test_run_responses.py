"""The responses of a run that no meter has seen, told from those that cost nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from fastroai.agent.requests.run_responses import RunResponses


def response(**changed: Any) -> ModelResponse:
    known: dict[str, Any] = {
        "usage": RequestUsage(input_tokens=9, output_tokens=3),
        "model_name": "gpt-5-mini",
        "provider_name": "openai",
        "run_id": "run",
        "timestamp": datetime.now(UTC),
    }
    return ModelResponse(parts=[TextPart("Hi")], **{**known, **changed})


def unmetered(run: RunResponses, *messages: ModelResponse) -> list[ModelResponse]:
    run.messages = [*messages]
    return list(run.unmetered("run"))


def test_a_new_response_of_a_provider_that_was_not_noted_is_unmetered() -> None:
    run = RunResponses(None)
    found = response(provider_response_id="resp_1")
    assert unmetered(run, found) == [found]


@pytest.mark.parametrize("provider_response_id", ["resp_1", None])
def test_a_copy_of_a_noted_response_is_known_by_its_id_or_time(provider_response_id: str | None) -> None:
    run = RunResponses(None)
    noted = response(provider_response_id=provider_response_id)
    run.note(noted)
    assert not unmetered(run, replace(noted, parts=[TextPart("changed")]))
    assert unmetered(run, response(provider_response_id="resp_2"))


def test_what_is_noted_in_a_run_is_known_to_the_runs_around_it_and_to_no_other() -> None:
    outer, other = RunResponses(None), RunResponses(None)
    noted = response()
    RunResponses(outer).note(noted)
    assert not unmetered(outer, noted)
    assert unmetered(other, noted)


@pytest.mark.parametrize(
    "changed",
    [
        {"usage": RequestUsage()},
        {"provider_name": None},
        {"provider_name": "test"},
        {"timestamp": datetime.now(UTC) - timedelta(hours=1)},
        {"timestamp": datetime(2020, 1, 1)},  # users may make a time without a zone
    ],
    ids=["without usage", "of no provider", "of a model for tests", "from a cache", "without a time zone"],
)
def test_what_no_provider_has_just_sent_costs_nothing(changed: dict[str, Any]) -> None:
    assert not unmetered(RunResponses(None), response(**changed))


def test_messages_of_earlier_runs_are_not_looked_at() -> None:
    assert not unmetered(RunResponses(None), response(), response(run_id="earlier"))
