"""A step is tested by itself, with what it would find in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from support.agents import paid_agent

from fastroai import BaseStep, CostBudgetExceeded, Pipeline, StepConfig, StepContext, step
from fastroai.errors import ConfigurationError, MissingDependencyError, MissingInputError, ScopeClosedError
from fastroai.functions import HumanReviewContext, await_human
from fastroai.runtime import current_scope
from fastroai.testing import step_context


@dataclass
class Desk:
    clerk: str


@step
async def reply(ctx: StepContext[Desk]) -> str:
    category = ctx.get_dependency("classify", str)
    response = await ctx.run(paid_agent(120), f"{category}: {ctx.get_input('text')}")
    return f"{response.output}, {ctx.deps.clerk}, {ctx.shared['greeting']}"


async def test_a_step_finds_what_it_is_given() -> None:
    async with step_context(
        {"text": "Where is it?"}, Desk("Mia"), outputs={"classify": "delivery"}, context={"greeting": "Bye"}
    ) as ctx:
        assert await reply(ctx) == "answer to delivery: Where is it?, Mia, Bye"
        assert (ctx.usage.cost_microcents, ctx.usage.agent_call_count) == (120, 1)
    assert current_scope() is None


async def test_what_it_is_not_given_is_missing_as_in_a_run() -> None:
    async with step_context(step_id="reply", outputs={"read": 1}) as ctx:
        assert ctx.dependencies == ("read",)
        with pytest.raises(MissingInputError, match="step 'reply' asked for input 'text'"):
            ctx.get_input("text")
        with pytest.raises(MissingDependencyError):
            ctx.get_dependency("classify")


async def test_its_budget_holds() -> None:
    async with step_context(config=StepConfig(cost_budget=200)) as ctx:
        await ctx.run(paid_agent(120), "one")
        with pytest.raises(CostBudgetExceeded, match="step 'step'"):
            await ctx.run(paid_agent(120), "two")


async def test_side_effects_and_maps_work_in_it() -> None:
    @step
    async def double(ctx: StepContext) -> int:
        return int(ctx.get_input("item")) * 2

    class Both(BaseStep[None, list[int]]):
        async def execute(self, context: StepContext[None]) -> list[int]:
            first = await context.once("first", lambda: 1)
            return [first, *await context.map(double, [2, 3])]

    async with step_context() as ctx:
        assert await Both().execute(ctx) == [1, 4, 6]


async def test_it_is_over_when_the_block_is_left() -> None:
    async with step_context() as ctx:
        pass
    with pytest.raises(ScopeClosedError):
        await ctx.run(paid_agent(), "late")


@step
async def refund(ctx: StepContext) -> str:
    amount = await ctx.ask("How much?", int, name="amount")
    if not await ctx.ask("Are you sure?", bool):
        return "nothing"
    decision = await await_human(HumanReviewContext("Who pays?", trigger="a refund"), Literal["us", "them"])
    return f"{decision.value} pay {amount}"


async def test_answers_of_people_are_given_by_question_or_by_name() -> None:
    async with step_context(answers={"amount": 80, "Are you sure?": True, "Who pays?": "us"}) as ctx:
        assert await refund(ctx) == "us pay 80"
    async with step_context(answers={"How much?": 80, "Are you sure?": False}) as ctx:
        assert await refund(ctx) == "nothing"


async def test_a_function_answers_questions_and_its_answers_are_checked_too() -> None:
    asked: list[object] = []

    def answer(question: object) -> object:
        asked.append(question)
        return {"How much?": 80, "Are you sure?": True}.get(str(question), "them")

    async with step_context(answers=answer) as ctx:
        assert await refund(ctx) == "them pay 80"
    assert asked[:2] == ["How much?", "Are you sure?"]
    assert len(asked) == 3
    async with step_context(answers=lambda question: "many") as ctx:
        with pytest.raises(ConfigurationError, match="expected an answer of the declared type"):
            await refund(ctx)


async def test_runs_inside_of_the_context_have_its_answers() -> None:
    @step
    async def sure(ctx: StepContext[None]) -> bool:
        return await ctx.ask("Are you sure?", bool)

    async with step_context(answers={"Are you sure?": True}):
        result = await Pipeline("p", {"sure": sure}).run()
    assert (result.status, result.output) == ("finished", True)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "expected an answer to the question 'How much\\?'"),
        ({"amount": "many"}, "expected an answer of the declared type"),
        (
            {"amount": 1, "Are you sure?": True, "Who pays?": "nobody"},
            "expected an answer of the declared type",
        ),
    ],
)
async def test_answers_that_are_missing_or_do_not_fit_are_refused(
    answers: dict[str, object], said: str
) -> None:
    async with step_context(answers=answers) as ctx:
        with pytest.raises(ConfigurationError, match=said):
            await refund(ctx)
