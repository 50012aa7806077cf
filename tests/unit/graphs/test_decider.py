"""A model decides where a graph goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from support.agents import request_costs
from support.patience import PATIENCE
from support.steps import run_alone

from fastroai.agent import FastroAgent
from fastroai.errors import BudgetExceeded
from fastroai.graphs import Edge, Graph, Node
from fastroai.graphs.agents.decider import DecideStep, NextNode, _choice_of
from fastroai.graphs.machine.routing import Choice
from fastroai.pipelines import Pipeline, PipelineConfig
from fastroai.steps import StepConfig, StepContext, step


def choosing(answer: dict[str, object] | Exception, **options: Any) -> FastroAgent[Any, str]:
    """A decider that says this; its own output type is text."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(answer, Exception):
            raise answer
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, answer)])

    return FastroAgent(FunctionModel(respond, model_name="paid"), name="decider", **options)


def deciding(
    decider: Any, output: object = "angry", **more: Any
) -> Callable[[StepContext[Any]], Awaitable[Choice]]:
    @step
    def node(ctx: StepContext[Any]) -> None: ...

    graph = Graph[Any, Any, Any](
        "mail",
        more.get("goal"),
        nodes={"read": node, "reply": Node(node, focus="answers the customer"), "escalate": node},
        edges=[
            Edge("read", "reply", when="llm_decide"),
            Edge("read", "escalate", when="llm_decide", fallback=True),
        ],
        decider=decider,
    )

    async def code(ctx: StepContext[Any]) -> Choice:
        return await DecideStep(graph._setup, "read", output).execute(ctx)

    return code


async def decision_of(decider: Any, **more: Any) -> Choice:
    decision = (await run_alone(deciding(decider, **more))).output
    assert isinstance(decision, Choice)
    return decision


async def test_the_decision_is_what_the_model_says_with_its_reasons() -> None:
    decider = choosing({"reasoning": "it is easy", "target": "reply"})
    assert await decision_of(decider) == Choice("reply", "it is easy")


async def test_the_model_is_asked_with_goal_output_and_exactly_the_candidates() -> None:
    model = TestModel(custom_output_args={"reasoning": "r", "target": "reply"})
    await decision_of(FastroAgent(model), output={"mood": "angry"}, goal="happy customers")
    asked = model.last_model_request_parameters
    assert asked is not None
    (tool,) = asked.output_tools
    assert tool.parameters_json_schema["properties"]["target"]["enum"] == ["reply", "escalate"]
    assert list(tool.parameters_json_schema["properties"]) == ["reasoning", "target"]


async def test_the_prompt_has_goal_node_output_and_descriptions() -> None:
    prompts: list[str] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (request,) = messages
        prompt = request.parts[-1]
        assert isinstance(prompt, UserPromptPart)
        prompts.append(str(prompt.content))
        args = {"reasoning": "r", "target": "reply"}
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, args)])

    await decision_of(FastroAgent(FunctionModel(respond)), output={"mood": "angry"}, goal="peace")
    await decision_of(FastroAgent(FunctionModel(respond)))
    assert "The goal of the work: peace" in prompts[0]
    assert "Node 'read' is done" in prompts[0]
    assert '"mood": "angry"' in prompts[0]
    assert prompts[0].endswith("- reply: answers the customer\n- escalate")
    assert "goal" not in prompts[1]


async def test_an_unknown_name_takes_the_fallback(caplog: pytest.LogCaptureFixture) -> None:
    decision = await decision_of(choosing({"reasoning": "r", "target": "refund"}))
    assert decision.target == "escalate"
    assert decision.failure is not None
    assert "UnexpectedModelBehavior" in decision.failure
    assert "the fallback 'escalate' is next" in caplog.text


async def test_an_agent_that_takes_no_output_type_gives_the_fallback_too() -> None:
    class Careless:
        """Gives what it likes."""

        def __init__(self, agent: FastroAgent[Any, str]) -> None:
            self.agent = agent

        async def dispatch(self, call: Any) -> Any:
            return await self.agent.dispatch(replace(call, output_type=None))

        def dispatch_stream(self, call: Any) -> Any:
            raise NotImplementedError

    said = FastroAgent[Any, str](
        FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("reply")]))
    )
    decision = await decision_of(Careless(said))
    assert decision == Choice("escalate", "", "the decider gave 'reply', which names no candidate")


async def test_a_call_that_fails_takes_the_fallback_after_its_retries() -> None:
    calls: list[int] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append(1)
        raise ConnectionResetError("gone")

    decider = FastroAgent[Any, str](FunctionModel(respond))
    one = step(retries=2, retry_delay=0)(deciding(decider))
    decision = (await run_alone(one)).output
    assert decision == Choice("escalate", "", "ConnectionResetError: gone")
    assert len(calls) == 3


async def test_a_budget_of_the_node_itself_takes_the_fallback() -> None:
    decider = choosing({"reasoning": "r", "target": "reply"}, cost_calculator=request_costs(100))
    config = StepConfig(cost_budget=50)
    one = step(deciding(decider))
    one.config = config
    decision = (await run_alone(one)).output
    assert isinstance(decision, Choice)
    assert decision.target == "escalate"
    assert "CostBudgetExceeded" in str(decision.failure)


async def test_a_budget_above_the_node_stops_more_than_the_decision() -> None:
    decider = choosing({"reasoning": "r", "target": "reply"}, cost_calculator=request_costs(100))
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"read": step(deciding(decider))}, config=PipelineConfig(cost_budget=50)
    )
    with pytest.raises(BudgetExceeded) as stop:
        await pipeline.execute()
    assert stop.value.scope_path == ("p",)


async def test_cancellation_is_no_failed_decision() -> None:
    asked = asyncio.Event()

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    task = asyncio.create_task(decision_of(FastroAgent(FunctionModel(respond))))
    await asyncio.wait_for(asked.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_the_decision_costs_is_in_the_node_that_asked() -> None:
    decider = choosing({"reasoning": "r", "target": "reply"}, cost_calculator=request_costs(100))
    result = await run_alone(deciding(decider))
    assert result.usage.steps["alone"].cost_microcents == 100


def test_a_choice_is_made_once_for_the_same_names() -> None:
    assert _choice_of(("a", "b")) is _choice_of(("a", "b"))
    assert issubclass(_choice_of(("a",)), NextNode)
