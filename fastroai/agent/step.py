"""An agent as a step."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

from fastroai.calls.call import AgentCall, AgentLike, Prompt
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ScopeClosedError
from fastroai.steps import BaseStep, StepConfig, StepContext
from fastroai.steps.estimating import CallEstimator, OutputNotKnown
from fastroai.usage import Quote

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")

PromptSource: TypeAlias = "Prompt | Callable[[StepContext[DepsT]], Prompt | Awaitable[Prompt]]"


class AgentStep(BaseStep[DepsT, OutputT]):
    """A step that calls an agent with a prompt, and gives its output; made by `FastroAgent.as_step`.

    `prompt` is the prompt, or a function of the `StepContext` that returns it, sync or async. `config` has
    the settings of the step; by default those of the pipeline. `output_type` is the type of the output.
    """

    checks_output_itself = True

    def __init__(
        self,
        agent: AgentLike[OutputT],
        prompt: PromptSource[DepsT],
        config: StepConfig | None = None,
        output_type: Annotation | None = None,
    ) -> None:
        self.agent, self.prompt, self.config = agent, prompt, config or StepConfig()
        self.output_type = output_type

    def __repr__(self) -> str:
        return f"<step of {self.agent!r}>"

    def inferred_output(self) -> Annotation | None:
        """Return the type of the agent's outputs; a union if there are several. PydanticAI checks them.

        `None` if one of them is `Any`, or is made by a function that does not declare what it returns.
        """
        return self.output_type

    def declares(self) -> Mapping[str, str]:
        """Return hashes of what the agent declares, by name; empty if it is not a `FastroAgent`.

        The names are `instructions`, `model`, `output` and `settings`.
        """
        declared_for = getattr(self.agent, "declared_for", None)
        return {} if declared_for is None else declared_for(AgentCall(prompt=None))

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Build the prompt, call the agent with `context.run`, and return its output.

        So the agent has the `deps` and the settings of the step, and errors are those of `context.run`.
        """
        return (await context.run(self.agent, await self._make_prompt(context))).output

    async def estimate(self, context: StepContext[DepsT]) -> Quote:
        """Return the agent's quote, in US dollars, whose upper amount is for all attempts at the step.

        The prompt function is called. If it reads outputs of other steps, the quote is for a prompt of any
        length. If it calls a model, that is refused, and the cost is unknown. Nothing is sent.
        """
        if not isinstance(self.agent, CallEstimator):
            return await super().estimate(context)
        prompt: Prompt = None
        unknown: str | None = None
        try:
            prompt = await self._make_prompt(context)
        except OutputNotKnown as missing:
            unknown = f"its prompt needs the output of step {missing.step_id!r}"
        except ScopeClosedError:
            return Quote.unknown("its prompt function calls a model")
        call = AgentCall(prompt=prompt, deps=context.deps, request_retries=context.config.request_retries)
        quote = await self.agent.estimate_call(call, unknown_prompt=unknown)
        return quote.retried(context.config.retries)

    async def _make_prompt(self, context: StepContext[DepsT]) -> Prompt:
        prompt = self.prompt
        if callable(prompt):
            made = prompt(context)
            return await made if inspect.isawaitable(made) else made
        return prompt


AgentStepWrapper = AgentStep
"""The name of `AgentStep` in fastroai 0.6."""
