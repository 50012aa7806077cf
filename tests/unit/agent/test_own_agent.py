from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic_ai import ModelSettings, RunContext

from fastroai.agent.own_agent import merge_settings


@pytest.mark.parametrize(
    ("configured", "given", "short", "merged"),
    [
        (None, None, {}, None),
        ({}, {}, {}, None),
        ({"top_p": 0.1}, None, {}, {"top_p": 0.1}),
        ({"top_p": 0.1, "seed": 1}, {"top_p": 0.2}, {}, {"top_p": 0.2, "seed": 1}),
        (None, {"max_tokens": 10}, {"max_tokens": 5}, {"max_tokens": 5}),
        (None, {"temperature": 1.0}, {"temperature": 0.0}, {"temperature": 0.0}),
        ({"temperature": 1.0}, None, {"max_tokens": 5}, {"temperature": 1.0, "max_tokens": 5}),
    ],
)
def test_the_short_forms_win_over_what_is_given_and_that_over_the_config(
    configured: ModelSettings | None,
    given: ModelSettings | None,
    short: dict[str, Any],
    merged: ModelSettings | None,
) -> None:
    options = {"temperature": None, "max_tokens": None, **short}
    assert merge_settings(configured, given, **options) == merged


def test_nothing_that_was_passed_in_is_changed() -> None:
    configured: ModelSettings = {"top_p": 0.1}
    given: ModelSettings = {"seed": 1}
    merge_settings(configured, given, temperature=0.5, max_tokens=None)
    assert (configured, given) == ({"top_p": 0.1}, {"seed": 1})


def test_settings_that_are_computed_stay_computed() -> None:
    def compute(context: RunContext[float]) -> ModelSettings:
        return {"top_p": context.deps, "temperature": 1.0}

    merged = merge_settings({"top_p": 0.9, "seed": 1}, compute, temperature=None, max_tokens=5)
    assert callable(merged)

    class Context:
        deps = 0.25

    assert merged(cast("RunContext[float]", Context())) == {
        "top_p": 0.25,
        "temperature": 1.0,
        "seed": 1,
        "max_tokens": 5,
    }
