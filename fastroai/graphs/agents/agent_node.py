"""An agent that works on its answer until a judge accepts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from fastroai.agent import ChatResponse, FastroAgent
from fastroai.agent.output_types import type_of_outputs
from fastroai.agent.step import AgentStep, PromptSource
from fastroai.calls.call import AgentCall, AgentLike, Prompt, check_agent
from fastroai.calls.stream import ChatStream
from fastroai.errors import ConfigurationError
from fastroai.graphs.agents.judging import JudgeLike, Ruling, Verdict, as_judge
from fastroai.graphs.conversation.markers import cut, told_in_full
from fastroai.graphs.errors import JudgeEscalated, JudgeNotSatisfied
from fastroai.other_names import other_names
from fastroai.runtime.options import check_count
from fastroai.steps import StepConfig, StepContext
from fastroai.usage import Quote

DepsT = TypeVar("DepsT", default=Any)
OutputT = TypeVar("OutputT", default=Any)

MAX_ITERATIONS: Final = 3
PROMPT_LENGTH: Final = 100_000
"""Maximum number of characters of each value, in a prompt that is made of the values that a node reads."""


@other_names(
    arguments={
        "system_prompt": "instructions= of the agent",
        "model": "the model of the agent",
        "tools": "tools= of the agent",
    }
)
class AgentNode(AgentStep[DepsT, OutputT]):
    """A step that calls an agent until a judge accepts its output, at most `max_iterations` times.

    The output that the judge accepts is the output of the step. After the last call, the step fails with
    `JudgeNotSatisfied`; if the judge escalates, it fails at once, with `JudgeEscalated`. Without a judge, it
    calls the agent once.

        AgentNode(writer, "Write a summary.", judge="len(output) <= 280")
        AgentNode(writer, lambda ctx: ctx.get_input("task"), judge=FastroAgent(model, output_type=Verdict))

    The judge is an expression, an agent, or a function `(context, output) -> Verdict`. Without a prompt, the
    agent gets the values that the node reads. Each further call has the judge's feedback as its prompt. All
    iterations are one conversation; calls of the judge are not in it. The step is for graphs and pipelines. A
    step with a judge does not have the default retries of a graph: a graph retries it only if `config` of the
    step or the graph sets retries.

    Raises:
        ConfigurationError: an invalid option.
        ExpressionError: the judge is a text, and not a valid expression.
    """

    def __init__(
        self,
        agent: FastroAgent[Any, OutputT],
        prompt: PromptSource[DepsT] | None = None,
        *,
        judge: JudgeLike[DepsT, OutputT] | None = None,
        max_iterations: int = MAX_ITERATIONS,
        config: StepConfig | None = None,
    ) -> None:
        """Set up a node.

        Args:
            agent: Does the work.
            prompt: The prompt, or a function of the `StepContext` that gives it. Without one, the prompt
                has the values that the node reads: a single text as it is, otherwise a line for each key.
            judge: A function `(context, output) -> Verdict`, sync or async; an agent whose output type is
                `Verdict`; or an expression that has to hold, over the output's fields, the output itself as
                `output`, and the inputs.
            max_iterations: Maximum number of calls of the agent, by default 3. It needs a judge.
            config: Settings of the step.
        """
        check_agent(agent)
        check_count("max_iterations", max_iterations, least=1, required=True)
        if judge is None and max_iterations != MAX_ITERATIONS:
            expected = "no value without judge=, because only a judge asks for another iteration"
            raise ConfigurationError("max_iterations", max_iterations, expected)
        output_type = type_of_outputs(agent.agent.output_type)
        super().__init__(agent, what_it_reads if prompt is None else prompt, config, output_type)
        self.max_iterations = max_iterations
        self._judge = None if judge is None else as_judge(judge)

    @property
    def judges_itself(self) -> bool:
        """True if the step has a judge.

        By default, a graph retries a node twice after a failure; it does not retry a node whose step has a
        judge.
        """
        return self._judge is not None

    async def execute(self, context: StepContext[DepsT]) -> OutputT:
        """Call the agent until the judge accepts its output, and return that output.

        The prompt of each further call is the reason that the judge gave. Without a judge, the agent is
        called once.

        Raises:
            JudgeEscalated: the judge says that trying again cannot help.
            JudgeNotSatisfied: the last output was not good enough either.
        """
        asked = prompt = await self._make_prompt(context)
        going_on = _GoingOn(self.agent)
        verdict, output = Verdict.accept(), None
        for iteration in range(1, self.max_iterations + 1):
            output = (await context.run(going_on, prompt, name=f"iteration{iteration}")).output
            verdict = await self._verdict(context, output, asked, iteration)
            if verdict.ruling is Ruling.ACCEPT:
                return output
            if verdict.ruling is Ruling.ESCALATE:
                raise JudgeEscalated(context.step_id, verdict.reason, iteration, output)
            prompt = verdict.reason
        raise JudgeNotSatisfied(context.step_id, verdict.reason, self.max_iterations, output)

    async def estimate(self, context: StepContext[DepsT]) -> Quote:
        """Estimate the cost of the step, without a request: the quote of one call of the agent.

        With a judge, the quote is $0 to no known limit, because the judge decides how often the agent is
        called. A budget of the step limits it.
        """
        if self._judge is None:
            return await super().estimate(context)
        return Quote.unknown("a judge decides how often the agent is called; give it a budget")

    async def _verdict(
        self, context: StepContext[DepsT], output: OutputT, asked: Prompt, iteration: int
    ) -> Verdict:
        if self._judge is None:
            return Verdict.accept()
        verdict = await self._judge(context, output, _as_text(asked), iteration)
        said = f": {cut(verdict.reason)}" if verdict.reason else ""
        context.logger.info(
            "iteration %d of %d: %s%s",
            iteration,
            self.max_iterations,
            verdict.ruling,
            said,
            extra={"iteration": iteration, "ruling": str(verdict.ruling)},
        )
        return verdict


class _GoingOn(Generic[OutputT]):
    """An agent that continues from its last answer, unless a call already has a message history."""

    def __init__(self, agent: AgentLike[OutputT]) -> None:
        self._agent = agent
        self._last: ChatResponse[OutputT] | None = None

    async def dispatch(self, call: AgentCall) -> ChatResponse[OutputT]:
        if self._last is not None and not call.message_history:
            call = replace(call, message_history=self._last.result.all_messages())
        response = await self._agent.dispatch(call)
        self._last = response
        return response

    def dispatch_stream(self, call: AgentCall) -> ChatStream[OutputT]:
        return self._agent.dispatch_stream(call)


def _as_text(prompt: Prompt) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    return "\n".join(item for item in prompt if isinstance(item, str))


def what_it_reads(context: StepContext[Any]) -> str:
    """Return the values that a node reads, as a prompt."""
    values = dict(context.inputs)
    if len(values) == 1 and isinstance(text := next(iter(values.values())), str):
        return text
    return "\n".join(f"{key}: {told_in_full(value, PROMPT_LENGTH)}" for key, value in values.items())
