"""What a process loads once does not count in time budgets and timeouts."""

from __future__ import annotations

import asyncio
from typing import Annotated, ClassVar, Literal, TypeAlias

import pydantic
import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.agent import models, one_time
from fastroai.agent.one_time import load_response_types, outside_of_time_limits
from fastroai.runtime import current_scope


def left() -> float | None:
    scope = current_scope()
    assert scope is not None
    deadline = scope.time.deadline
    return None if deadline is None else deadline[0]


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


class BaseModel(pydantic.BaseModel):
    """The base of models of an SDK."""

    read: ClassVar[list[tuple[str, float | None]]] = []

    @classmethod
    def construct(cls, **parts: object) -> BaseModel:  # type: ignore[override]
        """Note the parts, and the time that was left when they were read."""
        BaseModel.read.extend((name, left()) for name in parts)
        return cls.model_construct()


class Response(BaseModel):
    """A response of an SDK."""


class Started(BaseModel):
    type: Literal["started"]


Event: TypeAlias = Annotated[Started, "an event of a stream"]

TYPES = one_time._Responses(
    sdk=__name__,
    module=__name__,
    response="Response",
    one={"output": []},
    event="Event",
    first={"type": "started"},
)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float | None]]:
    """What is read in the SDK of `TestModel`, in a process that has read nothing yet."""
    found: list[tuple[str, float | None]] = []
    monkeypatch.setattr(BaseModel, "read", found)
    monkeypatch.setattr(one_time, "_RESPONSES", {"TestModel": TYPES})
    monkeypatch.setattr(one_time, "_read", set())
    return found


async def test_a_call_does_not_pay_time_for_the_types_of_the_first_response(
    read: list[tuple[str, float | None]],
) -> None:
    agent = FastroAgent(TestModel(), timeout=60)
    async with budget_scope(Budget(ms=60_000)):
        await asyncio.gather(agent.run("hi", budget=Budget(ms=30_000)), agent.run("hi"))
        await agent.run("hi")
    assert read == [("output", None)], "once, while every clock stands still"


async def test_before_a_stream_the_types_of_its_events_are_loaded_too(
    read: list[tuple[str, float | None]],
) -> None:
    async with FastroAgent(TestModel(), timeout=60).run_stream("hi") as stream:
        async for _ in stream:
            pass
    assert read == [("output", None), ("event", None)]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "reference", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"]
)
async def test_the_sdks_have_the_types_of_their_responses(
    reference: str, streamed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setattr(one_time, "_read", set())
    model = models.build_model(reference)
    await load_response_types(model, streamed=streamed)
    assert one_time._read == {(type(model), streamed)}
    assert not caplog.records


async def test_a_request_is_sent_even_if_its_sdk_has_other_types(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(one_time, "_RESPONSES", {"TestModel": TYPES._replace(response="Renamed")})
    monkeypatch.setattr(one_time, "_read", set())
    agent = FastroAgent(TestModel())
    assert [str(await agent.run("hi")) for _ in range(2)] == ["success (no tool calls)"] * 2
    assert [record.getMessage().partition(" could")[0] for record in caplog.records] == [
        f"the types of responses in {__name__}"
    ]
