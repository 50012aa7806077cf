"""What a process loads once does not count in time budgets and timeouts."""

from __future__ import annotations

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.agent import models
from fastroai.agent.one_time import outside_of_time_limits
from fastroai.runtime import current_scope


def left() -> float | None:
    scope = current_scope()
    assert scope is not None
    return scope.time_left()


async def test_all_clocks_around_stop_while_something_is_loaded() -> None:
    async with budget_scope(Budget(ms=60_000)), budget_scope(Budget(ms=30_000)):
        before = left()
        with outside_of_time_limits():
            assert left() is None
        after = left()
        assert before is not None
        assert after is not None
        assert before >= after > 0


async def test_nothing_stops_where_there_is_no_limit() -> None:
    with outside_of_time_limits():
        assert current_scope() is None


async def test_a_call_does_not_pay_time_for_building_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float | None] = []

    def build(reference: str) -> Model:
        seen.append(left())
        return TestModel()

    agent = FastroAgent("test", timeout=60)
    monkeypatch.setattr(models, "build_model", build)
    async with budget_scope(Budget(ms=60_000)):
        await agent.run("hi", model="openai:gpt-one-time", budget=Budget(ms=30_000))
    assert seen == [None], "the SDK is imported while every clock stands still"
