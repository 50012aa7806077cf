"""Steps that need more from the user stop the run early, and lose nothing."""

import asyncio
from typing import Any

import pytest
from support.agents import paid_agent
from support.virtual_time import in_virtual_time, now

from fastroai.errors import StepExecutionError
from fastroai.pipelines import (
    BaseStep,
    ConversationState,
    ConversationStatus,
    Pipeline,
    PipelineConfig,
    StepContext,
    step,
)

INCOMPLETE, COMPLETE = ConversationStatus.INCOMPLETE, ConversationStatus.COMPLETE
State = ConversationState[dict[str, str]]


def asks_for(what: str, *, after: float = 0) -> BaseStep[Any, State]:
    @step
    async def asks(ctx: StepContext) -> State:
        await asyncio.sleep(after)
        return ConversationState(INCOMPLETE, data={"known": "a little"}, context={"ask for": what})

    return asks


@step
async def follows(ctx: StepContext) -> str:
    return f"{ctx.step_id} has run"


async def test_an_incomplete_state_stops_the_run_and_is_in_the_result() -> None:
    pipeline = Pipeline[Any, Any]("p", {"ask": asks_for("a name"), "next": follows}, {"next": ["ask"]})
    result = await pipeline.execute()
    assert result.stopped_early
    assert result.output is None
    assert result.conversation_state is not None
    assert result.conversation_state.context == {"ask for": "a name"}
    assert result.skipped == {"next": "'ask' needs more from the user"}
    assert list(result.step_outputs) == ["ask"]
    assert result.ok


@in_virtual_time
async def test_what_runs_may_finish_and_is_in_the_result_and_nothing_new_starts() -> None:
    @step
    async def slow(ctx: StepContext) -> str:
        await asyncio.sleep(10)
        await ctx.run(paid_agent(100), "hello")
        return "paid for"

    pipeline = Pipeline[Any, Any](
        "p",
        {"slow": slow, "ask": asks_for("a name"), "after_slow": follows, "after_ask": follows},
        {"after_slow": ["slow"], "after_ask": ["ask"]},
        output_step="after_slow",
    )
    result = await pipeline.execute()
    assert now() == 10
    assert list(result.step_outputs) == ["ask", "slow"]
    assert set(result.skipped) == {"after_slow", "after_ask"}
    assert result.usage.cost_microcents == 100


@in_virtual_time
async def test_of_two_incomplete_states_the_first_in_declaration_order_counts() -> None:
    pipeline = Pipeline[Any, Any](
        "p", {"late": asks_for("this", after=5), "early": asks_for("that")}, output_step="early"
    )
    result = await pipeline.execute()
    assert result.conversation_state is not None
    assert result.conversation_state.context == {"ask for": "this"}


async def test_dependents_of_a_complete_state_receive_the_state() -> None:
    @step
    async def knows(ctx: StepContext) -> State:
        return ConversationState(COMPLETE, data={"name": "Ada"})

    @step
    async def greets(ctx: StepContext) -> str:
        state = ctx.get_dependency("knows", ConversationState)
        assert state.data is not None
        return f"Hello, {state.data['name']}"

    pipeline = Pipeline[Any, Any]("p", {"knows": knows, "greets": greets}, {"greets": ["knows"]})
    result = await pipeline.execute()
    assert result.output == "Hello, Ada"
    assert (result.stopped_early, result.conversation_state) == (False, None)
    state = (await Pipeline[Any, Any]("p", {"knows": knows}).execute()).conversation_state
    assert state is not None
    assert state.data == {"name": "Ada"}, "as the output, it is the state of the conversation"


@in_virtual_time
async def test_a_failure_while_running_steps_finish_is_raised_and_cancels_the_rest() -> None:
    cancelled = False

    @step
    async def fails(ctx: StepContext) -> None:
        await asyncio.sleep(1)
        raise ValueError("x")

    @step
    async def slow(ctx: StepContext) -> None:
        nonlocal cancelled
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cancelled = True
            raise

    steps: dict[str, BaseStep[Any, Any]] = {"ask": asks_for("a name"), "fails": fails, "slow": slow}
    with pytest.raises(StepExecutionError) as caught:
        await Pipeline[Any, Any]("p", steps, output_step="ask").execute()
    assert list(caught.value.step_outputs) == ["ask"]
    assert cancelled
    assert now() == 1


async def test_a_failure_that_the_run_may_have_does_not_hide_the_state() -> None:
    @step
    async def fails(ctx: StepContext) -> None:
        raise ValueError("x")

    pipeline = Pipeline[Any, Any](
        "p",
        {"fails": fails, "ask": asks_for("a name")},
        output_step="ask",
        config=PipelineConfig(on_error="continue"),
    )
    result = await pipeline.execute()
    assert result.stopped_early
    assert list(result.errors) == ["fails"]


async def test_a_nested_pipeline_that_stops_early_stops_the_outer_one() -> None:
    inner = Pipeline[Any, Any]("inner", {"ask": asks_for("a name"), "next": follows}, {"next": ["ask"]})
    outer = Pipeline[Any, Any]("outer", {"inner": inner.as_step(), "end": follows}, {"end": ["inner"]})
    result = await outer.execute()
    assert result.stopped_early
    assert result.conversation_state is not None
    assert result.conversation_state.context == {"ask for": "a name"}
    assert result.skipped == {"end": "'inner' needs more from the user"}


async def test_the_next_turn_is_a_run_with_more_inputs() -> None:
    @step
    async def gather(ctx: StepContext) -> State:
        name = ctx.get_input("name", None)
        if name is None:
            return ConversationState(INCOMPLETE, context={"ask for": "a name"})
        return ConversationState(COMPLETE, data={"name": name})

    @step
    async def greets(ctx: StepContext) -> str:
        state = ctx.get_dependency("gather", ConversationState)
        assert state.data is not None
        return f"Hello, {state.data['name']}"

    pipeline = Pipeline[Any, Any, str]("p", {"gather": gather, "greets": greets}, {"greets": ["gather"]})
    assert (await pipeline.execute()).stopped_early
    assert (await pipeline.execute({"name": "Ada"})).output == "Hello, Ada"
