"""What nodes give and say, however odd, and what is said to a graph that cannot be meant."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, RootModel
from pydantic_ai import Agent
from support.agents import paid_agent
from support.virtual_time import in_virtual_time, now

from fastroai import MemoryRunStore, Pipeline, PipelineConfig, RetryPolicy, StepContext, step
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.graphs import AgentNode, Edge, Graph, GraphResult, Node, Verdict
from fastroai.pipelines import ConversationState, ConversationStatus


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int


@dataclass
class NeverSet:
    x: int = field(init=False)


class Unspeakable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def endless() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


def giving(value: object) -> Any:
    @step
    async def give(ctx: StepContext) -> Any:
        return value

    return give


# --- conditions ---


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"x": b"\xff\x00"}, "x is of type bytes, which is not JSON data"),
        ({"x": Unspeakable()}, "x is of type Unspeakable, which is not JSON data"),
        ({"x": endless()}, "'>' compares two numbers or two texts, not list and int"),
        ({"x": 10**400}, "x is an integer of 1,329 bits"),
        ({"x": None}, "'>' compares two numbers or two texts"),
        (NeverSet(), "x is missing"),
        (b"\xff", "x is missing"),
        (ValueError("x"), "x is missing"),
        (None, "x is missing"),
    ],
)
async def test_a_condition_on_what_is_no_json_does_not_hold_and_says_why(output: object, why: str) -> None:
    graph = Graph(
        "g",
        nodes={"a": giving(output), "large": giving(1), "small": giving(2)},
        edges=[Edge("a", "large", when="conditional", condition="x > 2"), Edge("a", "small", "always")],
    )
    result = await graph.run()
    assert (result.status, result.path) == ("finished", ["a", "small"])
    assert result.outputs["a"] is output
    [line] = [line for line in result.explain().splitlines() if "conditional edge" in line]
    assert why in line


@pytest.mark.parametrize("output", [Open(x=1, y=5), RootModel[dict[str, int]]({"y": 5}), {"x": 1, "y": 5}])
async def test_conditions_and_writes_see_every_field_that_an_output_has(output: object) -> None:
    graph = Graph(
        "g",
        nodes={"a": Node(giving(output), writes=["y"]), "five": giving(1), "other": giving(2)},
        edges=[Edge("a", "five", when="conditional", condition="y == 5"), Edge("a", "other", "always")],
    )
    result = await graph.run()
    assert (result.path, result.memory["y"]) == (["a", "five"], 5)


@pytest.mark.parametrize("output", [b"\xff\x00", Unspeakable(), endless()])
async def test_the_story_of_a_run_is_told_whatever_its_outputs_are(output: object) -> None:
    result = await Graph("g", nodes={"a": giving(output)}).run()
    assert "a: finished" in result.explain()
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"a": giving(output)})
    assert "a: finished" in (await pipeline.execute()).trace.explain()


# --- outputs ---


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ({"x": 1}, "y: Field required: the node declares to write it; its output has 'x'"),
        (RootModel[int](5), "expected an output with these fields, not a RootModel[int]"),
        (None, "expected an output with these fields, not None"),
        ((1, 2), "expected an output with these fields, not a tuple"),
    ],
)
async def test_an_output_without_what_the_node_declares_to_write_is_its_failure(
    output: object, complaint: str
) -> None:
    result = await Graph("g", nodes={"a": Node(giving(output), writes=["x", "y"])}).run()
    assert isinstance(result.errors["a"], ContractViolation)
    assert complaint in str(result.errors["a"])
    assert dict(result.memory) == {}


async def test_a_conversation_that_is_not_complete_is_no_output_of_a_node() -> None:
    incomplete = giving(ConversationState(status=ConversationStatus.INCOMPLETE))
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"a": incomplete, "b": giving(1)}, {"b": ["a"]})
    for node in (incomplete, pipeline):
        result = await Graph("g", nodes={"a": node}).run()
        assert "To ask a person, call ctx.ask in node 'a'" in str(result.errors["a"])


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
async def test_a_copy_of_a_result_says_all_that_it_said(clone: Callable[[Any], Any]) -> None:
    @step(retries=0)
    async def fail(ctx: StepContext) -> None:
        raise ValueError("no")

    nodes: dict[str, Any] = {"a": paid_agent(10).as_step("?"), "fail": fail, "b": giving(2)}
    result = await Graph(
        "g", nodes=nodes, edges=[Edge("a", "fail"), Edge("fail", "b", when="on_failure")]
    ).run()
    copied: GraphResult[Any] = clone(result)
    assert copied.explain() == result.explain()
    assert copied.usage.by_visit == result.usage.by_visit
    assert copied.usage.by_node["a"].cost_microcents == 10
    assert (copied.path, copied.status, copied.quality) == (["a", "fail", "b"], "finished", "degraded")
    assert str(copied.errors["fail"]) == "no"


# --- attempts ---


@in_virtual_time
@pytest.mark.parametrize(
    ("config", "own", "attempts"),
    [
        (None, {}, 3),
        (None, {"retries": 0}, 1),
        (PipelineConfig(retries=0), {}, 1),
        (PipelineConfig(retries=1), {}, 2),
        (PipelineConfig(retries=1), {"retries": 3}, 4),
        (PipelineConfig(retry=RetryPolicy(max_retries=1)), {}, 2),
    ],
)
async def test_nodes_have_three_attempts_with_backoff_unless_somebody_says_otherwise(
    config: PipelineConfig | None, own: dict[str, Any], attempts: int
) -> None:
    seen: list[tuple[int, float]] = []

    @step(**own)
    async def fail(ctx: StepContext) -> None:
        ctx.write(f"attempt {ctx.attempt}", value=True)
        seen.append((ctx.attempt, now()))
        raise ValueError("no")

    result = await Graph("g", nodes={"a": fail}, config=config).run()
    assert [attempt for attempt, _ in seen] == list(range(1, attempts + 1))
    assert (seen[-1][1] > 0) == (attempts > 1)
    assert dict(result.memory) == {f"attempt {attempts}": True}


async def test_what_was_tried_as_often_as_it_may_inside_is_not_tried_again_outside() -> None:
    attempts = 0

    @step(retry_delay=0)
    async def fail(ctx: StepContext) -> None:
        nonlocal attempts
        attempts += 1
        raise ValueError("no")

    inner = Graph("inner", nodes={"a": fail})
    await Graph("g", nodes={"inner": inner}, config=PipelineConfig(retry_delay=0)).run()
    assert attempts == 3


async def test_a_judge_that_is_not_satisfied_is_not_asked_for_more_by_the_graph() -> None:
    async def never(ctx: StepContext, output: str) -> Verdict:
        return Verdict.retry("better")

    node = AgentNode(paid_agent(10), "?", judge=never, max_iterations=2)
    result = await Graph("g", nodes={"a": node}).run()
    assert (result.status, result.usage.request_count) == ("failed", 2)


# --- mistakes ---

NODES: dict[str, Any] = {"a": giving({"x": 1}), "b": giving(2)}


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("name", "", "a non-empty string"),
        ("goal", 3, "a text"),
        ("nodes", [1], "a mapping of node ids to steps"),
        ("config", {}, "a PipelineConfig"),
        ("decider", "gpt-5", "a FastroAgent"),
        ("decider", Agent("test"), "a FastroAgent; of a PydanticAI agent, FastroAgent(agent=agent)"),
        ("budget", 5, "a Budget, a SpendLimit"),
        ("conversation", 3, "'continuous', 'isolated' or a GraphConversation"),
        ("accepts", 3, "a mapping from names to types"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_name(option: str, value: object, expected: str) -> None:
    options: dict[str, Any] = {"name": "g", "nodes": NODES, "edges": [Edge("a", "b")], option: value}
    with pytest.raises(ConfigurationError) as caught:
        Graph(**options)
    assert caught.value.option == option
    assert caught.value.value is value
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"), [("inputs", ["x"]), ("run_id", ""), ("run_id", 3), ("store", 3), ("context", 3)]
)
async def test_a_run_refuses_what_cannot_be_meant_by_name(option: str, value: Any) -> None:
    graph = Graph("g", nodes=NODES, edges=[Edge("a", "b")])
    with pytest.raises(ConfigurationError) as caught:
        await graph.run(**{option: value})
    assert caught.value.option == option
    if option in ("run_id", "store"):
        for call in (graph.cancel, graph.pause, graph.resume):
            with pytest.raises(ConfigurationError) as caught:
                await call(**{"run_id": "r", "store": MemoryRunStore(), option: value})
            assert caught.value.option == option
