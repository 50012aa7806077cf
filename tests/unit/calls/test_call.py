from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from support.steps import failure_of

from fastroai.calls.call import check_agent
from fastroai.errors import ConfigurationError
from fastroai.pipelines import StepContext


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
