"""Verdicts, and what can be a judge."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.test import TestModel
from support.steps import run_alone

from fastroai.agent import FastroAgent
from fastroai.errors import ConfigurationError, ExpressionError
from fastroai.graphs.agents.judging import JudgeLike, Ruling, Verdict, as_judge
from fastroai.steps import StepContext


class Draft(BaseModel):
    text: str
    score: float


async def verdict_on(judge: JudgeLike[Any, Any], output: object, **inputs: Any) -> Verdict:
    async def ask(ctx: StepContext[Any]) -> Verdict:
        return await as_judge(judge)(ctx, output, "write", 1)

    verdict = (await run_alone(ask, inputs=inputs)).output
    assert isinstance(verdict, Verdict)
    return verdict


def test_a_verdict_is_one_of_three() -> None:
    assert Verdict.accept().ruling is Ruling.ACCEPT
    assert (Verdict.retry("longer").ruling, Verdict.retry("longer").reason) == (Ruling.RETRY, "longer")
    assert Verdict.escalate("no data") == Verdict(ruling=Ruling.ESCALATE, reason="no data")


@pytest.mark.parametrize("ruling", [Ruling.RETRY, Ruling.ESCALATE])
def test_a_verdict_that_is_no_acceptance_needs_a_reason(ruling: Ruling) -> None:
    with pytest.raises(ValidationError, match="needs a reason"):
        Verdict(ruling=ruling, reason=" ")


async def test_a_function_judges_sync_or_async() -> None:
    async def later(context: StepContext[Any], output: object) -> Verdict:
        return Verdict.retry(f"{output} in {context.step_id}")

    class Callable:
        async def __call__(self, context: StepContext[Any], output: object) -> Verdict:
            return Verdict.retry("an object")

    assert (await verdict_on(lambda context, output: Verdict.retry(f"{output}!"), "x")).reason == "x!"
    assert (await verdict_on(lambda context, output: later(context, output), "x")).reason == "x in alone"
    assert (await verdict_on(later, "x")).reason == "x in alone"
    assert (await verdict_on(Callable(), "x")).reason == "an object"


@pytest.mark.parametrize(
    ("expression", "output", "reason"),
    [
        ("score >= 0.8", Draft(text="a", score=0.9), ""),
        ("output.score >= 0.8 and least <= score", {"score": 0.9}, ""),
        ("len(output) <= 3", "abc", ""),
        ("score >= 0.8", Draft(text="a", score=0.5), "But score (0.5) >= 0.8 is false."),
        ("scor >= 0.8", Draft(text="a", score=0.5), "scor is missing."),
    ],
)
async def test_an_expression_judges_fields_the_output_and_inputs(
    expression: str, output: object, reason: str
) -> None:
    verdict = await verdict_on(expression, output, least=0.1)
    assert verdict.ruling is (Ruling.RETRY if reason else Ruling.ACCEPT)
    assert verdict.reason.endswith(reason)
    assert not reason or verdict.reason.startswith(f"This has to hold: {expression}\n")


async def test_what_gives_no_verdict_is_no_judge() -> None:
    yes: Any = lambda context, output: True  # noqa: E731
    with pytest.raises(Exception, match="Verdict.accept"):
        await verdict_on(yes, "x")


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        (5, "a function"),
        (Agent(TestModel()), "FastroAgent"),
        (FastroAgent(TestModel()), "output_type=Verdict"),
        (FastroAgent(TestModel(), output_type=[Verdict, str]), "output_type=Verdict"),
    ],
)
def test_what_cannot_judge_is_refused(judge: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        as_judge(judge)


def test_a_text_that_is_no_expression_is_refused() -> None:
    with pytest.raises(ExpressionError):
        as_judge("score >=")


def test_agents_that_give_verdicts_are_judges_however_they_are_asked() -> None:
    as_judge(FastroAgent(TestModel(), output_type=Verdict))
    as_judge(FastroAgent(TestModel(), output_type=NativeOutput(Verdict)))
