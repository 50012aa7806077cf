"""An agent as a step."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from fastroai.steps import BaseStep, StepConfig, StepContext
from fastroai.steps.call import AgentLike, Prompt

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")

PromptSource: TypeAlias = "Prompt | Callable[[StepContext[DepsT]], Prompt | Awaitable[Prompt]]"


class AgentStep(BaseStep[DepsT, OutputT]):
    """Calls an agent with a prompt; made by `FastroAgent.as_step`."""

    def __init__(self, agent: AgentLike[OutputT], prompt: PromptSource[DepsT], config: StepConfig) -> None:
        self.agent, self.prompt, self.config = agent, prompt, config

    def __repr__(self) -> str:
        return f"<step of {self.agent!r}>"

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Make the prompt, call the agent, and give its output."""
        prompt = self.prompt
        if callable(prompt):
            made = prompt(context)
            prompt = await made if inspect.isawaitable(made) else made
        return (await context.run(self.agent, prompt)).output
