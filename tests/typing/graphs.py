"""What a type checker knows of graphs: their deps, what they give, and what happens in them. Never run."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, assert_type

from fastroai import (
    AgentNode,
    BaseStep,
    Edge,
    FastroAgent,
    Graph,
    GraphResult,
    Node,
    Pipeline,
    StepContext,
    Verdict,
    step,
)
from fastroai.graphs import (
    EdgesResolved,
    Ending,
    GraphConversation,
    GraphPath,
    GraphQuality,
    GraphStream,
    NodeFailure,
    Ruling,
    When,
)
from fastroai.human import Question
from fastroai.pipelines import (
    RunEvent,
    RunFinished,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
    StepUsage,
)
from fastroai.store import RunTrace


class Deps:
    tenant: str


class OtherDeps: ...


text_agent = FastroAgent("openai:gpt-5-mini")
number_agent = FastroAgent("openai:gpt-5-mini", output_type=int)


@step
async def no_deps(ctx: StepContext[object]) -> str:
    assert_type(ctx.visit, int)
    assert_type(ctx.goal, str | None)
    assert_type(ctx.errors, Mapping[str, BaseException])
    assert_type(ctx.failures, Mapping[str, NodeFailure])
    ctx.write("key", 1)
    return "a"


@step
async def with_deps(ctx: StepContext[Deps]) -> int:
    return 1


@step
async def with_other_deps(ctx: StepContext[OtherDeps]) -> int:
    return 1


def judge(ctx: StepContext[Deps], output: int) -> Verdict:
    return Verdict.accept() if output else Verdict.retry("more")


# --- nodes and edges ---

node = Node(with_deps, reads=["text"], writes=["count"], max_visits=3, focus="be quick", answer_type=bool)
assert_type(node, Node[Deps])
assert_type(node.step, BaseStep[Deps, Any])
assert_type(node.reads, tuple[str, ...])
assert_type(Node(Pipeline[Deps, Any, str]("p", {"a": with_deps})), Node[Deps])
Node(with_deps, writes="count", visits=3)  # type: ignore[call-arg]
Node(text_agent)  # type: ignore[arg-type]  # an agent needs a prompt

edge = Edge("a", "b", "conditional", "count > 3")
assert_type(edge.when, When)
Edge("a", "b", "sometimes")  # type: ignore[arg-type]
edge.when = "always"  # type: ignore[misc]  # frozen

judged = AgentNode(number_agent, lambda ctx: ctx.get_input("text"), judge=judge, max_iterations=2)
AgentNode(number_agent, "How many?", judge="output > 3")
AgentNode(number_agent, "How many?", judge=FastroAgent("openai:gpt-5-mini", output_type=Verdict))
AgentNode(number_agent, "How many?", judge=text_agent)  # type: ignore[arg-type]  # gives no verdicts
assert_type(Verdict.escalate("why").ruling, Ruling)


# --- graphs ---

graph = Graph[Deps, Any, str](
    "g",
    "a goal",
    nodes={"no": no_deps, "with": with_deps, "node": node, "judged": judged},
    edges=[edge],
    decider=text_agent,
    on_branch_failure="wait_all",
    on_conflict="error",
    conversation=GraphConversation(compact_above=1_000, summarizer=text_agent),
)
Graph[OtherDeps, Any, str]("g", nodes={"with": with_deps})  # type: ignore[dict-item]  # needs other deps
Graph[OtherDeps, Any, str]("g", nodes={"with": node})  # type: ignore[dict-item]
Graph[Deps, Any, str]("g", nodes={"with": with_deps, "other": with_other_deps})  # type: ignore[dict-item]
Graph[OtherDeps, Any, str]("g", nodes={"inner": graph})  # type: ignore[dict-item]
Graph[Deps, Any, str]("g", nodes={"inner": graph, "step": graph.as_step()})
Graph("g", nodes={"no": no_deps}, on_conflict="never")  # type: ignore[arg-type]
Graph("g", nodes={"no": no_deps}, conversation="shared")  # type: ignore[arg-type]
Graph("g", nodes={"no": no_deps}, start="no")  # type: ignore[call-arg]
Graph("g", nodes={"no": text_agent})  # type: ignore[dict-item]

assert_type(graph.as_step(), BaseStep[Deps, str])
assert_type(graph.as_step(lambda ctx: {"tenant": ctx.deps.tenant}), BaseStep[Deps, str])
Pipeline[Deps, Any, str]("p", {"graph": graph.as_step()})
Pipeline[OtherDeps, Any, str]("p", {"graph": graph.as_step()})  # type: ignore[dict-item]
loaded: Graph[Deps, Any, str] = Graph.from_yaml("name: g", nodes={"with": with_deps})
assert_type(graph.to_yaml(), str)


async def runs() -> None:
    result = await graph.run({"text": "x"}, Deps())
    assert_type(result, GraphResult[str])
    assert_type(result.output, str | None)
    assert_type(result.status, Ending)
    assert_type(result.cost_usd, Decimal)
    assert_type(result.quality, GraphQuality)
    assert_type(result.path, GraphPath)
    assert_type(result.visits, Mapping[str, int])
    assert_type(result.errors, Mapping[str, BaseException])
    assert_type(result.questions, tuple[Question, ...])
    assert_type(result.usage.by_node["no"], StepUsage)
    assert_type(result.usage.by_visit["no", 1], StepUsage)
    assert_type(result.trace, RunTrace)
    assert_type(graph.to_mermaid(result), str)
    assert_type(graph.run_sync({"text": "x"}, Deps()), GraphResult[str])
    assert_type(await graph.execute({"text": "x"}, Deps()), GraphResult[str])
    assert_type(graph.resume_stream("r", input=True, deps=Deps()), GraphStream[str])
    assert_type(await graph.resume(result.run_id, input=True, deps=Deps()), GraphResult[str])
    assert_type(graph.resume_sync(result.run_id, node="node", input=True, deps=Deps()), GraphResult[str])
    await graph.run({"text": "x"}, OtherDeps())  # type: ignore[call-overload]
    await graph.resume(result.run_id, deps=OtherDeps())  # type: ignore[arg-type]
    await graph.resume(result.run_id, answer=True)  # type: ignore[call-arg]
    await graph.pause(result.run_id)


async def streams() -> None:
    async with graph.stream({"text": "x"}, Deps()) as stream:
        assert_type(stream, GraphStream[str])
        async for event in stream:
            assert_type(event, RunEvent)
            match event:
                case StepStarted(step_id=node_id, visit=visit, cause=cause):
                    assert_type((node_id, visit, cause), tuple[str, int, str])
                case StepFinished(output=output):
                    assert_type(output, Any)
                case StepFailed(error=error):
                    assert_type(error, BaseException)
                case EdgesResolved(edges=edges):
                    for one in edges:
                        assert_type(one.target, str)
                        assert_type(one.taken, bool)
                case StepSkipped(cause=reason):
                    assert_type(reason, str)
                case RunFinished(status="paused", resume_at=nodes):
                    assert_type(nodes, tuple[str, ...])
                case _:
                    pass
    assert_type(stream.result, GraphResult[str] | None)
