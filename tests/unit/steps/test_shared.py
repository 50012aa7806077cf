"""What the steps of a run share, and the logger of a step."""

import logging
from typing import Any

import pytest
from support.steps import run_alone

from fastroai.errors import ConfigurationError
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.steps.shared import Shared, StepLogger


def test_it_is_around_the_mapping_that_was_given() -> None:
    given: dict[str, Any] = {"a": 1}
    shared = Shared.of(given)
    shared["b"] = 2
    del shared["a"]
    assert given == {"b": 2} == dict(shared)
    assert (len(shared), repr(shared)) == (1, "Shared({'b': 2})")
    assert Shared.of(shared) is shared
    assert dict(Shared.of(None)) == {}


def test_a_value_can_be_asked_for_by_its_type() -> None:
    shared = Shared({"client": "x"})
    assert shared.typed("client", str) == "x"
    with pytest.raises(TypeError, match="'client' in the context is a str, not a int"):
        shared.typed("client", int)
    with pytest.raises(TypeError, match=r"'client' in the context is a str, not a list\[str\]"):
        shared.typed("client", list[str])
    with pytest.raises(KeyError, match="the context has no 'other'; it has 'client'"):
        shared.typed("other", str)
    with pytest.raises(KeyError, match="it has nothing"):
        Shared().typed("other", str)


@pytest.mark.parametrize("context", [1, [("a", 1)], "text"])
async def test_what_is_no_mapping_is_refused(context: Any) -> None:
    async def look(ctx: StepContext[Any]) -> None: ...

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"look": step(look)})
    with pytest.raises(ConfigurationError, match="context"):
        await pipeline.execute(context=context)


async def test_a_logger_says_where_it_logs_and_takes_more(caplog: pytest.LogCaptureFixture) -> None:
    async def say(ctx: StepContext[Any]) -> None:
        ctx.logger.info("hello %s", "you", extra={"customer": "ada"})

    with caplog.at_level(logging.INFO, "fastroai.run"):
        result = await run_alone(say)
    record = caplog.records[0]
    facts = {name: getattr(record, name) for name in ("run_id", "step_id", "attempt", "pipeline", "customer")}
    assert facts == {
        "run_id": result.run_id,
        "step_id": "alone",
        "attempt": 1,
        "pipeline": "p",
        "customer": "ada",
    }
    assert record.getMessage() == "hello you"


def test_what_a_call_says_wins() -> None:
    _, options = StepLogger({"run_id": "r", "step_id": "s"}).process("", {"extra": {"step_id": "mine"}})
    assert options["extra"]["step_id"] == "mine"
