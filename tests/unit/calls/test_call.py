from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent
from support.steps import failure_of

from fastroai.calls.call import AgentCall, AgentLike, check_agent
from fastroai.errors import ConfigurationError
from fastroai.pipelines import StepContext


def test_a_fastro_agent_can_be_asked() -> None:
    agent = paid_agent()
    check_agent(agent)
    assert isinstance(agent, AgentLike)


def test_for_a_plain_agent_the_error_says_how_to_wrap_it() -> None:
    with pytest.raises(ConfigurationError, match=r"wrap the PydanticAI agent: FastroAgent\(agent=agent\)"):
        check_agent(Agent(TestModel()))


@pytest.mark.parametrize("wrong", ["openai:gpt-5-mini", None, object()])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^agent=.*: expected a FastroAgent$"):
        check_agent(wrong)


@pytest.mark.parametrize("method", ["run", "run_stream"])
async def test_a_step_refuses_before_anything_is_sent(method: str) -> None:
    async def ask(ctx: StepContext) -> Any:
        called = getattr(ctx, method)(Agent(TestModel()), "hello")
        return await called

    assert isinstance(await failure_of(ask), ConfigurationError)


def test_another_attempt_is_the_same_call() -> None:
    call = AgentCall(prompt="hello", timeout=3)
    again = call.for_attempt(2)
    assert (again.attempt, again.prompt, again.timeout, call.attempt) == (2, "hello", 3, 1)
