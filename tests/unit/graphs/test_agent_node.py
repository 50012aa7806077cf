"""An agent that works on its answer until a judge accepts it."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pydantic_ai import PromptedOutput
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.agents import paid_agent
from support.steps import failure_of, run_alone
from support.visiting import Branch

from fastroai.agent import FastroAgent
from fastroai.errors import BudgetExceeded, ConfigurationError, usage_of
from fastroai.graphs.agents.agent_node import AgentNode
from fastroai.graphs.agents.judging import Verdict
from fastroai.graphs.errors import JudgeEscalated, JudgeNotSatisfied
from fastroai.pipelines import Pipeline
from fastroai.runtime.retrying.failures import is_terminal
from fastroai.steps import StepConfig, StepContext
from fastroai.store import MemoryRunStore


class Writer:
    """Answers `draft 1`, `draft 2`, and so on, and keeps what it was asked."""

    def __init__(self, **options: Any) -> None:
        self.asked: list[list[ModelMessage]] = []
        self.agent: FastroAgent[Any, str] = FastroAgent(
            FunctionModel(self._respond), name="writer", system_prompt="You write.", **options
        )

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(list(messages))
        return ModelResponse(parts=[TextPart(f"draft {len(self.asked)}")])

    def prompts(self, request: int) -> list[str]:
        """All that the user said to it in one request, and in which order."""
        return [
            str(part.content)
            for message in self.asked[request]
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, UserPromptPart)
        ]

    def systems(self, request: int) -> list[str]:
        return [
            str(part.content)
            for message in self.asked[request]
            for part in message.parts
            if part.part_kind == "system-prompt"
        ]


def from_draft(number: int) -> Any:
    """A judge that accepts from this draft on."""
    return lambda context, output: (
        Verdict.accept() if output >= f"draft {number}" else Verdict.retry(f"not {output}")
    )


async def test_it_goes_on_in_the_same_conversation_until_the_judge_accepts() -> None:
    writer = Writer()
    result = await run_alone(AgentNode(writer.agent, "write", judge=from_draft(3)))
    assert result.output == "draft 3"
    assert writer.prompts(2) == ["write", "not draft 1", "not draft 2"]
    assert writer.systems(2) == ["You write."]
    assert [message.kind for message in writer.asked[2]] == ["request", "response"] * 2 + ["request"]


@pytest.mark.parametrize("mode", ["continuous", "isolated"])
async def test_in_a_graph_its_iterations_are_one_conversation_with_all_layers(mode: Any) -> None:
    writer = Writer()
    branch = Branch.begin(mode, goal="fame")
    await branch.visit("first", AgentNode(writer.agent, "begin"))
    node = AgentNode(writer.agent, lambda ctx: f"write {ctx.visit}", judge=from_draft(3))
    assert await branch.visit("write", node, focus="be short") == "draft 3"
    own = ["write 1", "not draft 2"]
    before = ["begin", "Done: node 'first' wrote first = \"draft 1\".\nNext: node 'write'. Focus: be short"]
    assert writer.prompts(2) == (own if mode == "isolated" else [*before, *own])
    assert writer.systems(2) == ["You write."]
    last = writer.asked[2][-1]
    assert isinstance(last, ModelRequest)
    assert last.instructions is not None
    assert "fame" in last.instructions
    assert last.instructions.endswith("Your focus now: be short")


async def test_without_a_judge_the_first_output_is_good() -> None:
    writer = Writer()
    node = AgentNode(writer.agent, "write", config=StepConfig(timeout=5))
    assert (await run_alone(node)).output == "draft 1"
    assert not node.judges_itself
    assert node.config.timeout == 5
    assert AgentNode(writer.agent, "write", judge="len(output) > 0").judges_itself


async def test_where_the_judge_is_never_satisfied_the_step_fails_and_says_so() -> None:
    writer = Writer()
    failure = await failure_of(AgentNode(writer.agent, "write", judge="output == 'poem'", max_iterations=2))
    assert isinstance(failure, JudgeNotSatisfied)
    assert (failure.step_id, failure.iterations, failure.output) == ("alone", 2, "draft 2")
    assert failure.reason == "This has to hold: output == 'poem'\nBut output ('draft 2') == 'poem' is false."
    assert is_terminal(failure)
    assert failure.usage.request_count == 2
    assert "did not accept any of 2 outputs" in str(failure)


async def test_an_escalation_is_the_failure_of_the_step() -> None:
    writer = Writer()

    async def judge(context: StepContext[Any], output: str) -> Verdict:
        return Verdict.escalate("no sources") if output == "draft 2" else Verdict.retry("more")

    failure = await failure_of(AgentNode(writer.agent, "write", judge=judge, config=StepConfig(retries=3)))
    assert isinstance(failure, JudgeEscalated)
    assert (failure.reason, failure.iterations, failure.output) == ("no sources", 2, "draft 2")
    assert str(failure) == "the judge of step 'alone' escalated at iteration 2: no sources"
    assert len(writer.asked) == 2
    spent = usage_of(failure)
    assert spent is not None
    assert spent.request_count == 2


@pytest.mark.parametrize(
    "error", [JudgeEscalated("n", "why", 1, {"a": 1}), JudgeNotSatisfied("n", "why", 1, None)]
)
def test_its_errors_survive_a_process_boundary(error: Exception) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


async def test_an_agent_judges_what_was_asked_against_what_came() -> None:
    writer, seen = Writer(), []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        ruling = "ACCEPT" if len(seen) == 2 else "RETRY"
        return ModelResponse(parts=[TextPart(f'{{"ruling": "{ruling}", "reason": "shorter"}}')])

    judge = FastroAgent(FunctionModel(respond), name="judge", output_type=PromptedOutput(Verdict))
    branch = Branch.begin(goal="fame")
    await branch.visit("write", AgentNode(writer.agent, ["write", "it"], judge=judge))
    (request,) = (message for message in seen[1] if isinstance(message, ModelRequest))
    prompt = str(request.parts[-1])
    assert r"<asked>\nwrite\nit\n</asked>" in prompt
    assert r"<output>\ndraft 2\n</output>" in prompt
    assert "fame" in prompt
    assert writer.prompts(1) == ["['write', 'it']", "shorter"]
    told = [str(part) for phase in branch.phases for message in phase.messages for part in message.parts]
    assert not any("<asked>" in text for text in told)


async def test_a_node_without_a_prompt_can_be_judged() -> None:
    agent: FastroAgent[Any, str] = FastroAgent(
        FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("yes")])), instructions="Say yes."
    )
    node = AgentNode(agent, None, judge=lambda context, output: Verdict.accept())
    assert (await run_alone(node)).output == "yes"


async def test_iterations_that_are_on_record_are_not_paid_again() -> None:
    store = MemoryRunStore()
    writer = Writer()
    fails = [True]

    def judge(context: StepContext[Any], output: str) -> Verdict:
        if output == "draft 2" and fails.pop():
            raise KeyboardInterrupt
        return from_draft(2)(context, output)  # type: ignore[no-any-return]

    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", {"write": AgentNode(writer.agent, "write", judge=judge)}
    )
    with pytest.raises(BaseException):  # noqa: B017, PT011  # the process is interrupted
        await pipeline.execute(run_id="r", store=store)
    assert len(writer.asked) == 2
    fails.append(False)
    result = await pipeline.resume("r", store=store)
    assert result.output == "draft 2"
    assert len(writer.asked) == 2


async def test_the_log_tells_each_verdict(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fastroai"):
        await run_alone(AgentNode(Writer().agent, "write", judge=from_draft(2)))
    said = [record.getMessage() for record in caplog.records if "iteration" in record.getMessage()]
    assert said == ["iteration 1 of 3: RETRY: not draft 1", "iteration 2 of 3: ACCEPT"]


async def test_a_budget_stops_it_in_the_middle() -> None:
    agent = paid_agent(100)
    node = AgentNode(agent, "write", judge="output == 'poem'", config=StepConfig(cost_budget=250))
    failure = await failure_of(node)
    assert isinstance(failure, BudgetExceeded)
    assert failure.usage.request_count == 2


async def test_it_knows_what_it_costs_where_no_judge_decides_it() -> None:
    def pipeline(**options: Any) -> Pipeline[Any, Any, str]:
        return Pipeline("p", {"write": AgentNode(paid_agent(100), "write", **options)})

    assert (await pipeline().estimate()).upper_usd is not None
    judged = await pipeline(judge="output == 'poem'").estimate()
    assert judged.upper_usd is None
    assert "a judge decides how often" in str(judged)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_iterations": 0}, "max_iterations=0"),
        ({"judge": 5}, "judge=5"),
        ({"agent": "x"}, "a FastroAgent"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str) -> None:
    agent = options.pop("agent", paid_agent())
    with pytest.raises(ConfigurationError, match=told):
        AgentNode(agent, "write", **options)
