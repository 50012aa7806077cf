"""What users of Hive type."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pydantic import BaseModel
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent
from support.migrating import Tried, assert_renamed

from fastroai import (
    AgentNode,
    Budget,
    CostBudgetExceeded,
    Edge,
    FastroAgent,
    Graph,
    Inbox,
    MemoryRunStore,
    Node,
    PipelineConfig,
    StepContext,
    Verdict,
    step,
)
from fastroai.errors import ConfigurationError, ContractViolation, MissingInputError
from fastroai.graphs import GraphConversation, GraphResult
from fastroai.graphs.errors import GraphValidationError
from fastroai.runtime.events import TextChunk

TRIED: Final = Tried()


class Grade(BaseModel):
    score: float
    remark: str | None = None


@step
async def grade(ctx: StepContext[None]) -> Grade:
    return Grade(score=ctx.get_input("given", 0.9))


@step
async def publish(ctx: StepContext[None]) -> str:
    return "published"


@step
async def improve(ctx: StepContext[None]) -> str:
    return "improved"


@step
async def broken(ctx: StepContext[None]) -> str:
    raise ValueError("no")


ONCE: Final = PipelineConfig(retries=0)


def graded(*edges: Edge, **options: Any) -> Graph[None, Any, str]:
    nodes = {"grade": Node(grade, writes=["score"]), "publish": publish, "improve": improve}
    return Graph("review", nodes=nodes, edges=edges, **options)


def one_node(node: Any, **options: Any) -> Graph[None, Any, Any]:
    return Graph("one", nodes={"one": node}, **options)


def refused(made: Any, **options: str) -> None:
    """Each of these arguments is refused, with an error that says this."""
    for option, here in options.items():
        with pytest.raises(TypeError) as raised:
            made(**{option: "x"})
        assert str(raised.value).endswith(
            f"got an unexpected keyword argument {option!r}; here, it is {here}"
        )


# --- specs ---


@TRIED("`GraphSpec(entry_node=, terminal_nodes=, pause_nodes=, max_steps=)`")
async def graph_spec() -> None:
    refused(Graph, entry_node="entry=", terminal_nodes="terminals=", goal_id="goal=, a text")
    graph = graded(
        Edge("grade", "publish"),
        Edge("grade", "improve", when="on_failure"),
        entry="grade",
        terminals=["publish", "improve"],
        pause_nodes=[],
        max_steps=10,
    )
    assert (await graph.run()).output == "published"
    with pytest.raises(ConfigurationError, match="a mapping of node ids to steps"):
        Graph("g", nodes=[grade])  # type: ignore[arg-type]


@TRIED("`Goal(name=, description=, success_criteria=, constraints=)`")
def goal() -> None:
    says = "goal=, a text that says them"
    refused(Graph, success_criteria=says, constraints=says)
    with pytest.raises(ConfigurationError, match="a text"):
        one_node(grade, goal={"description": "good"})
    assert one_node(grade, goal="A text that is good enough").goal == "A text that is good enough"


@TRIED("`NodeSpec(input_keys=, output_keys=, max_node_visits=)`")
def node_spec() -> None:
    refused(Node, input_keys="reads=", output_keys="writes=", max_node_visits="max_visits=")
    node = Node(grade, reads=["given"], writes=["score"], max_visits=3)
    assert (node.reads, node.writes, node.max_visits) == (("given",), ("score",), 3)


@TRIED("`max_node_visits` is 1 by default, and 0 means no limit")
async def visits() -> None:
    with pytest.raises(GraphValidationError, match="max_visits=0: expected a whole number, 1 or more"):
        one_node(Node(grade, max_visits=0))
    rounds: list[int] = []

    @step
    async def again(ctx: StepContext[None]) -> bool:
        rounds.append(len(rounds))
        return len(rounds) < 5

    loop = Graph(
        "loop",
        nodes={"again": Node(again, writes=["more"]), "end": publish},
        edges=[
            Edge("again", "again", when="conditional", condition="more"),
            Edge("again", "end", when="always"),
        ],
        entry="again",
    )
    assert (await loop.run()).visits["again"] == 5
    rounds.clear()
    assert Node(again).max_visits is None


@TRIED("`nullable_output_keys=`")
async def nullable() -> None:
    graph = one_node(Node(grade, writes=["score", "remark"]))
    assert (await graph.run()).memory["remark"] is None

    @step
    async def empty(ctx: StepContext[None]) -> dict[str, float]:
        return {}

    result = await one_node(Node(empty, writes=["score"]), config=ONCE).run()
    assert isinstance(result.errors["one"], ContractViolation)


@TRIED("`NodeSpec(system_prompt=, tools=, model=)`")
async def agents_in_nodes() -> None:
    refused(
        AgentNode,
        system_prompt="instructions= of the agent",
        tools="tools= of the agent",
        model="the model of the agent",
    )
    refused(Node, system_prompt="instructions= of the agent, or focus= for what holds in this node alone")
    agent = FastroAgent(TestModel(custom_output_text="Hello."), instructions="Be brief.", tools=[])
    result = await one_node(Node(AgentNode(agent, "one"), focus="Greet.")).run()
    assert result.output == "Hello."


@TRIED("`NodeSpec(output_model=)`")
async def output_model() -> None:
    agent = FastroAgent(TestModel(custom_output_args={"score": 0.5}), output_type=Grade)
    assert (await one_node(AgentNode(agent, "one")).run()).output == Grade(score=0.5)

    @step(returns=Grade)
    async def loose(ctx: StepContext[None]) -> Any:
        return {"score": 0.5}

    assert (await one_node(loose).run()).output == Grade(score=0.5)


async def attempts(**options: Any) -> int:
    """How often a node that fails is tried."""
    tried: list[int] = []

    @step(retry_delay=0, **options)
    async def fail(ctx: StepContext[None]) -> None:
        tried.append(ctx.attempt)
        raise ConnectionRefusedError

    await one_node(fail).run()
    return len(tried)


@TRIED("`NodeSpec(max_retries=3)`, three attempts in all")
async def retries() -> None:
    refused(Node, max_retries="retries= of the step")
    refused(Graph, max_retries_per_node="config=PipelineConfig(retries=…)")
    assert await attempts() == 3
    assert await attempts(retries=3) == 4


@TRIED("a `function` node")
async def function_node() -> None:
    assert (await one_node(publish).run()).output == "published"


@TRIED("an `event_loop` node and its judge")
async def event_loop_node() -> None:
    refused(Graph, loop_config="AgentNode(max_iterations=…)")
    seen: list[str] = []

    def judge(ctx: StepContext[None], output: str) -> Verdict:
        seen.append(output)
        return Verdict.accept() if len(seen) == 2 else Verdict.retry("Say more.")

    node = AgentNode(FastroAgent(TestModel(custom_output_text="Yes.")), "one", judge=judge, max_iterations=3)
    assert (await one_node(node).run()).output == "Yes."
    assert len(seen) == 2


@TRIED('`JudgeVerdict(action="RETRY", feedback="…")`')
def verdicts() -> None:
    assert Verdict.retry("Say more.").reason == "Say more."
    assert [one.ruling for one in (Verdict.accept(), Verdict.escalate("why"))] == ["ACCEPT", "ESCALATE"]


@TRIED("a `router` node")
async def router_node() -> None:
    graph = graded(
        Edge("grade", "publish", when="conditional", condition="score > 0.8"),
        Edge("grade", "improve", when="conditional", condition="score <= 0.8"),
        accepts={"given": float},
    )
    for given, output in ((0.9, "published"), (0.5, "improved")):
        assert (await graph.run({"given": given})).output == output


async def paused() -> tuple[Graph[None, Any, str], GraphResult[str], MemoryRunStore]:
    store = MemoryRunStore()

    @step
    async def ask(ctx: StepContext[None]) -> str:
        return "Is it good?"

    @step
    async def end(ctx: StepContext[None]) -> str:
        return f"it is {ctx.get_input('ask')}"

    graph = Graph[None, Any, str](
        "asking", nodes={"ask": ask, "end": end}, edges=[Edge("ask", "end")], pause_nodes=["ask"]
    )
    return graph, await graph.run(run_id="r", store=store), store


@TRIED("a `human_input` node, `pause_nodes`")
async def human_input() -> None:
    _, result, store = await paused()
    assert result.status == "paused"
    assert [one.question for one in await Inbox(store).list()] == ["Is it good?"]

    @step
    async def ask(ctx: StepContext[None]) -> bool:
        return await ctx.ask("Is it good?", bool)

    result = await one_node(ask).run(run_id="s", store=store)
    assert result.status == "paused"
    resumed = await one_node(ask).resume("s", answers={result.questions[0].id: True}, store=store)
    assert resumed.output is True


@TRIED("`client_facing=True`")
async def client_facing() -> None:
    @step
    async def greet(ctx: StepContext[None]) -> str:
        async with ctx.run_stream(FastroAgent(TestModel(custom_output_text="Hello there.")), "one") as texts:
            return "".join([chunk.content async for chunk in texts])

    graph = one_node(greet)
    async with graph.stream() as stream:
        texts = [event.text async for event in stream if isinstance(event, TextChunk)]
    assert "".join(texts) == "Hello there."


@TRIED("`EdgeSpec(source=, target=, condition=EdgeCondition.ON_FAILURE)`")
async def edge_spec() -> None:
    refused(Edge, id="left out: an edge is named by its source and target")
    for word in ("always", "on_success", "on_failure"):
        with pytest.raises(GraphValidationError, match=f"has a condition; set when='{word}'"):
            graded(Edge(source="grade", target="publish", condition=word))
    failing = Graph(
        "failing",
        nodes={"broken": broken, "publish": publish},
        edges=[Edge("broken", "publish", when="on_failure")],
        config=ONCE,
    )
    assert (await failing.run()).output == "published"


@TRIED("an `EdgeSpec` without a condition, which is `ALWAYS`")
async def edge_without_condition() -> None:
    for edge, reached in ((Edge("broken", "end"), False), (Edge("broken", "end", when="always"), True)):
        graph = Graph("g", nodes={"broken": broken, "end": publish}, edges=[edge], config=ONCE)
        assert (await graph.run()).ok is reached


@TRIED('`condition_expr="output.score > 0.8"`')
async def condition_expr() -> None:
    refused(Edge, condition_expr='when="conditional", condition="…"')
    for whole, told in (("output", "Fields of the output"), ("memory", "Keys of memory")):
        says = f"{told} need no prefix: `score`, not `{whole}.score`"
        with pytest.raises(GraphValidationError, match=says):
            graded(Edge("grade", "publish", when="conditional", condition=f"{whole}.score > 0.8"))
    graph = graded(
        Edge("grade", "publish", when="conditional", condition="score > 0.8"),
        Edge("grade", "improve", when="always"),
    )
    assert (await graph.run()).output == "published"


@TRIED("`EdgeCondition.LLM_DECIDE`")
async def llm_decide() -> None:
    edges = (
        Edge("grade", "publish", when="llm_decide"),
        Edge("grade", "improve", when="llm_decide", fallback=True),
    )
    with pytest.raises(GraphValidationError, match=r"no decider; give an agent: decider="):
        graded(*edges)
    with pytest.raises(GraphValidationError, match="set fallback=True"):
        graded(edges[0], Edge("grade", "improve", when="llm_decide"), decider=paid_agent())
    decider = FastroAgent(TestModel(custom_output_args={"reasoning": "good", "target": "publish"}))
    assert (await graded(*edges, decider=decider).run()).output == "published"


@TRIED("`priority=`")
async def priority() -> None:
    refused(Edge, priority="the order of the edges: the first condition that holds is taken")
    graph = graded(
        Edge("grade", "improve", when="conditional", condition="score > 0.5"),
        Edge("grade", "publish", when="conditional", condition="score > 0.8"),
    )
    assert (await graph.run()).output == "improved"


@TRIED("`input_mapping=`")
async def input_mapping() -> None:
    refused(Edge, input_mapping="Node(reads=…, writes=…)")

    @step
    async def show(ctx: StepContext[None]) -> object:
        return ctx.get_input("score")

    nodes = {"grade": Node(grade, writes=["score"]), "show": Node(show, reads=["score"])}
    assert (await Graph("g", nodes=nodes, edges=[Edge("grade", "show")]).run()).output == 0.9


@TRIED("`ParallelExecutionConfig(on_branch_failure=, memory_conflict_strategy=, branch_timeout_seconds=)`")
async def parallel_config() -> None:
    refused(Graph, memory_conflict_strategy="on_conflict=", branch_timeout_seconds="branch_timeout=")
    graph = Graph(
        "fork",
        nodes={"grade": grade, "publish": publish, "broken": broken, "end": improve},
        edges=[
            Edge("grade", "publish"),
            Edge("grade", "broken"),
            Edge("publish", "end"),
            Edge("broken", "end"),
        ],
        on_branch_failure="continue_others",
        on_conflict="first_wins",
        branch_timeout=300,
        config=ONCE,
    )
    assert (await graph.run()).output == "improved"


@TRIED('`conversation_mode="continuous"`')
def conversation_mode() -> None:
    refused(Graph, conversation_mode="conversation=")
    for conversation in ("continuous", "isolated", GraphConversation(compact_above=50_000)):
        assert one_node(grade, conversation=conversation)


@TRIED("`identity_prompt=`")
def identity_prompt() -> None:
    refused(Graph, identity_prompt="instructions= of the agents")


@TRIED("`default_model=`")
def default_model() -> None:
    refused(Graph, default_model="the model of each agent")


@TRIED("several `entry_points`, webhooks and timers")
def entry_points() -> None:
    with pytest.raises(GraphValidationError, match="entry"):
        Graph("g", nodes={"grade": grade, "publish": publish})


@TRIED("`CredentialStore`, `CREDENTIAL_SPECS`")
async def credentials() -> None:
    class Keys:
        mail = "top secret"

    @step
    async def send(ctx: StepContext[Keys]) -> bool:
        return ctx.deps.mail == "top secret"

    result = await Graph[Keys]("g", nodes={"send": send}).run(deps=Keys(), store=MemoryRunStore())
    assert result.output is True
    assert "top secret" not in result.trace.to_json()


# --- runs and results ---


@TRIED("`executor.execute(graph, goal, input_data)`")
async def execute() -> None:
    for run in (one_node(grade).run, one_node(grade).execute):
        assert (await run({"given": 0.5})).output == Grade(score=0.5)


@TRIED('`SharedMemory`, `memory.read("key")`, `memory.write("key", …)`')
async def shared_memory() -> None:
    @step
    async def note(ctx: StepContext[None]) -> None:
        ctx.write("noted", ctx.get_input("score"))

    nodes = {"grade": Node(grade, writes=["score"]), "note": Node(note, writes=["noted"])}
    result = await Graph("g", nodes=nodes, edges=[Edge("grade", "note")]).run()
    assert result.memory["score"] == 0.9
    assert result.memory["noted"] == 0.9


@TRIED("`memory.read` of a key that is not there is `None`")
async def missing_key() -> None:
    @step
    async def read(ctx: StepContext[None]) -> object:
        return ctx.get_input("key", None) or ctx.get_input("key")

    assert isinstance((await one_node(read, config=ONCE).run()).errors["one"], MissingInputError)
    assert (await one_node(grade).run()).output == Grade(score=0.9)


async def failed() -> GraphResult[Any]:
    return await one_node(broken, config=ONCE).run()


def told(result: object, **fields: str) -> None:
    """Results do not have these fields, and say what they are here."""
    for field, here in fields.items():
        with pytest.raises(AttributeError) as raised:
            getattr(result, field)
        assert str(raised.value).endswith(f"here, it is {here}")


@TRIED("`result.success`, `result.error`, for failures too")
async def success() -> None:
    result = await failed()
    told(result, success="result.ok")
    assert (result.ok, result.status) == (False, "failed")
    assert "no" in str(result.error)
    poor = await one_node(AgentNode(paid_agent(120), "one"), budget=Budget(usd="0.0001")).run()
    assert (poor.ok, poor.status) == (False, "budget_exceeded")
    assert isinstance(poor.error, CostBudgetExceeded)


@TRIED("`paused_at`, `session_state`")
async def paused_at() -> None:
    graph, result, store = await paused()
    told(
        result,
        paused_at="result.resume_at",
        session_state="the store: graph.resume(result.run_id, store=…)",
    )
    assert result.resume_at == ("ask",)
    assert (await graph.resume("r", input="good", store=store)).output == "it is good"


@TRIED("`execution_quality`")
async def quality() -> None:
    tried: list[int] = []

    @step(retries=1, retry_delay=0)
    async def flaky(ctx: StepContext[None]) -> None:
        tried.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionRefusedError

    nodes = {"broken": broken, "end": publish}
    around = Graph("g", nodes=nodes, edges=[Edge("broken", "end", when="always")], config=ONCE)
    results = [await one_node(flaky).run(), await around.run(), await failed()]
    assert [one.quality for one in results] == ["clean", "degraded", "failed"]
    told(results[0], execution_quality="result.quality", had_partial_failures='result.quality == "degraded"')


@TRIED("`total_tokens`, `path`")
async def totals() -> None:
    result = await one_node(AgentNode(paid_agent(120), "one")).run()
    assert list(result.path) == ["one"]
    assert result.total_tokens == result.usage.total_tokens > 0


@TRIED("`steps_executed`, `node_visit_counts`, `nodes_with_failures`")
async def counts() -> None:
    result = await failed()
    told(
        result,
        steps_executed="sum(result.visits.values())",
        node_visit_counts="result.visits",
        nodes_with_failures="result.errors",
    )
    assert (dict(result.visits), set(result.errors)) == ({"one": 1}, {"one"})


@TRIED("`total_retries`, `retry_details`")
async def retry_details() -> None:
    result = await failed()
    told(result, total_retries="result.trace.attempts", retry_details="result.trace.attempts")
    assert len(result.trace.attempts) == 1


@TRIED("`from fastroai import GraphSpec`, `NodeSpec`, `Goal`, …")
def names() -> None:
    assert_renamed(
        GraphExecutor="Graph(",
        GraphSpec="Graph(",
        NodeSpec="Node(",
        EdgeSpec="Edge(",
        Goal="Graph(name, goal)",
        JudgeVerdict="Verdict.accept()",
    )
