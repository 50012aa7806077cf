from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai.models.test import TestModel
from typing_extensions import TypedDict, Unpack

from fastroai import FastroAgent, Pipeline, StepContext, StepExecutionError, step
from fastroai.keyword_options import takes_options
from fastroai.records import NOT_GIVEN

OWN = {"tracer", "message", "cost_budget", "budget", "tags", "tenant", "request_retries"}
METHODS = ("run", "run_sync", "run_stream", "run_stream_events", "estimate", "estimate_sync")
NOT_OPTIONS = {"infer_name"}
"""Parameters of `pydantic_ai.Agent.run` that are not for users of a `FastroAgent`, which has a name."""


class Paint(TypedDict, total=False):
    colour: str
    coats: int


@takes_options(Paint, instead={"layers": "coats="})
def paint(wall: str, *, twice: bool = False, **options: Unpack[Paint]) -> None:
    """Paint a wall."""


def names(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


def test_options_that_travel_as_one_value_are_shown_each() -> None:
    shown = "(wall: 'str', *, twice: 'bool' = False, colour: 'str' = None, coats: 'int' = None) -> 'None'"
    assert str(inspect.signature(paint)) == shown


def test_an_unknown_option_is_refused_with_the_option_that_may_be_meant() -> None:
    paint("hall", twice=True, colour="red")
    with pytest.raises(TypeError, match=r"argument 'color'\. Did you mean 'colour'\?$"):
        paint("hall", colour="red", color="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"keyword argument 'layers'; here, it is coats=$"):
        paint("hall", layers=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'wall'"):
        paint(colour="red")  # type: ignore[call-arg]


def test_an_agent_runs_with_every_option_of_pydantic_ai_and_its_own() -> None:
    theirs = names(pydantic_ai.Agent.run) - NOT_OPTIONS
    assert names(FastroAgent.run) == names(FastroAgent.run_sync) == theirs | OWN
    streamed = (theirs | OWN) - {"event_stream_handler"}
    assert names(FastroAgent.run_stream) == names(FastroAgent.run_stream_events) == streamed
    assert names(FastroAgent.estimate) == names(FastroAgent.estimate_sync)
    assert names(FastroAgent.estimate) < streamed


def test_help_shows_each_option_of_a_run_and_describes_it() -> None:
    text = pydoc.plain(pydoc.render_doc(FastroAgent.run))
    for name in names(FastroAgent.run):
        assert f"{name}: " in text.partition("Args:")[0]
        assert f"\n        {name}: " in text.partition("Args:")[2]
    assert "**options" not in text


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_option_of_an_agent_is_refused_before_anything_is_sent(method: str) -> None:
    agent = FastroAgent(TestModel())
    message = (
        rf"FastroAgent\.{method}\(\) got an unexpected keyword argument 'modle'.* Did you mean 'model'\?$"
    )
    with pytest.raises(TypeError, match=message):
        getattr(agent, method)("hi", modle="openai:gpt-5-mini")


def test_an_input_that_is_given_as_an_option_is_told_where_inputs_go() -> None:
    @step
    async def read(ctx: StepContext[Any]) -> str:
        return ctx.get_input("text", str)

    door: Any = Pipeline("p", {"read": read})
    for method in (door.execute_sync, door.execute, door.run_sync, door.stream):
        name = method.__name__
        message = rf"^Pipeline\.{name}\(\) .*'text'\. Inputs are one mapping: {name}\(\{{'text': …\}}\)$"
        with pytest.raises(TypeError, match=message):
            method(text="hi")
    with pytest.raises(TypeError, match=r"Did you mean 'deps'\?$"):
        door.execute(dep=3)
    with pytest.raises(TypeError, match=r"^Pipeline\.map_sync\(\) .* Did you mean 'key'\?$"):
        door.map_sync([], kee="id")  # it takes rows, and `inputs` by name alone


def test_an_option_of_another_version_is_named_here() -> None:
    with pytest.raises(TypeError, match="'result_type'; here, it is output_type=$"):
        FastroAgent(TestModel()).run("hi", result_type=int)  # type: ignore[call-overload]


def test_a_call_of_a_step_shows_each_option() -> None:
    shown = inspect.signature(StepContext.run).parameters
    assert {"deps", "model", "usage_limits", "timeout", "retry", "budget", "name"} < shown.keys()
    assert shown["timeout"].default is shown["retries"].default is NOT_GIVEN  # `None` is no limit
    assert names(StepContext.run) - names(StepContext.run_stream) == {"name"}
    assert names(StepContext.run) == names(StepContext.run_sync)


@pytest.mark.parametrize("method", ["run", "run_sync", "run_stream"])
async def test_an_unknown_option_of_a_call_of_a_step_is_refused(method: str) -> None:
    agent = FastroAgent(TestModel())

    @step
    async def asks(ctx: StepContext[Any]) -> None:
        getattr(ctx, method)(agent, "hi", retires=2)

    with pytest.raises(StepExecutionError) as failed:
        await Pipeline("p", {"asks": asks}).execute()
    error = failed.value.original_error
    assert isinstance(error, TypeError)
    assert str(error).startswith(f"StepContext.{method}() got an unexpected keyword argument 'retires'")
    assert str(error).endswith("Did you mean 'retries'?")
