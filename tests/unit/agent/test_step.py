from __future__ import annotations

import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.messages import UserContent
from support.agents import paid_agent

from fastroai import FastroAgent, Pipeline, StepConfig, StepContext


async def test_a_prompt_is_sent_as_it_is() -> None:
    pipeline = Pipeline("p", {"ask": paid_agent().as_step("hello")})
    assert (await pipeline.execute({})).output == "answer to hello"


async def test_a_prompt_can_be_made_from_the_context() -> None:
    def first(context: StepContext[str]) -> str:
        return f"{context.get_input('word')} for {context.deps}"

    async def then(context: StepContext[str]) -> str:
        return context.get_dependency("first", str).upper()

    agent: FastroAgent[str, str] = paid_agent()
    steps = {"first": agent.as_step(first), "then": agent.as_step(then)}
    result = await Pipeline("p", steps, {"then": ["first"]}).execute({"word": "tea"}, deps="Ada")
    assert result.step_outputs["first"] == "answer to tea for Ada"
    assert result.output == "answer to ANSWER TO TEA FOR ADA"
    assert result.usage.steps["then"].cost_microcents == 100


async def test_a_prompt_can_be_more_than_text() -> None:
    prompt: list[UserContent] = ["look", BinaryContent(data=b"x", media_type="image/png")]
    agent: FastroAgent[object, str] = paid_agent(answer=lambda prompt: prompt[:8])
    assert (await Pipeline("p", {"ask": agent.as_step(prompt)}).execute({})).output == "['look',"


def test_a_step_has_the_config_that_it_is_given() -> None:
    config = StepConfig(timeout=3)
    assert paid_agent().as_step("?", config=config).config is config
    assert paid_agent().as_step("?").config == StepConfig()


def test_a_step_says_whose_it_is() -> None:
    assert repr(paid_agent(name="poet").as_step("?")) == "<step of FastroAgent(name='poet')>"


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_prompt_function_runs_for_each_attempt(attempts: int) -> None:
    made = []

    def prompt(context: StepContext[object]) -> str:
        made.append(context.attempt)
        if len(made) < attempts:
            raise OSError("not yet")
        return "?"

    step = paid_agent().as_step(prompt, config=StepConfig(retries=1, retry_delay=0))
    await Pipeline("p", {"ask": step}).execute({})
    assert made == [1, 2][:attempts]
