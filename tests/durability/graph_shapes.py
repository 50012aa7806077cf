"""Graphs that are killed: every kind of edge, fork, loop and node, and what must come out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durability.shapes import AGAIN, RESPONSES, Letter, Shape, agent, effect, ran, talk, tools, waits

from fastroai import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.graphs import AgentNode, Edge, Graph, GraphConversation, Node, Send, Verdict
from fastroai.places import without_attempts
from fastroai.steps.base import BaseStep
from fastroai.steps.context import scope_of
from fastroai.steps.durability import step_place


@dataclass(frozen=True)
class GraphShape:
    """A graph, its inputs, and what people answer to the questions that its nodes ask."""

    graph: Graph[Any, Any]
    inputs: Mapping[str, Any]
    answers: Mapping[str, Any]


Build = Callable[[PipelineConfig], GraphShape | Shape]
GRAPHS: Final[dict[str, Build]] = {}

Parts = tuple[dict[str, Any], list[Edge], dict[str, Any]]
"""Nodes, edges and options."""


def graph(build: Callable[[], Parts]) -> Callable[[], Parts]:
    """Sweep such a graph."""
    name = f"graph_{build.__name__}"

    def shape(config: PipelineConfig) -> GraphShape:
        nodes, edges, options = build()
        answers = options.pop("answers", {})
        return GraphShape(
            Graph(
                name,
                goal="survive",
                nodes=nodes,
                edges=edges,
                entry=next(iter(nodes)),
                config=config,
                **options,
            ),
            {"text": name},
            answers,
        )

    GRAPHS[name] = shape
    return build


def says(name: str, *, of: str | None = None, **options: Any) -> BaseStep[Any, str]:
    """A node that gives its name, what it reads, and which visit it is."""

    @step(**options)
    async def say(ctx: StepContext) -> str:
        ran(ctx)
        heard = "" if of is None else f" of {ctx.get_input(of, default=None)}"
        return f"{name} {ctx.visit}{heard}"

    return say


def fails(name: str, times: int | None = None, **options: Any) -> BaseStep[Any, str]:
    """A node that fails, at each attempt or so many times."""

    @step(**(options or {"retries": 0}))
    async def fail(ctx: StepContext) -> str:
        ran(ctx)
        if times is None or ctx.attempt <= times:
            raise ConnectionError(f"{name} is down")
        return f"{name} {ctx.attempt}"

    return fail


def joins(*names: str) -> BaseStep[Any, str]:
    """A node that asks about what the branches before it have said, and what failed there."""
    joiner = agent("joiner")

    @step
    async def join(ctx: StepContext) -> str:
        ran(ctx)
        heard = [str(ctx.get_dependency_or_none(name)) for name in names]
        failed = [f"{node} failed: {error}" for node, error in sorted(ctx.errors.items())]
        return str((await ctx.run(joiner, "; ".join(heard + failed))).output)

    return join


def counts(limit: int) -> BaseStep[Any, dict[str, Any]]:
    """A node of a loop that posts something at each visit."""

    @step
    async def count(ctx: StepContext) -> dict[str, Any]:
        ran(ctx)
        place = without_attempts(step_place(scope_of(ctx)))
        await ctx.once("post", effect(ctx, f"post {place}"))
        return {"count": ctx.visit, "more": ctx.visit < limit}

    return count


MORE: Final = {"when": "conditional", "condition": "more"}


@graph
def conversation() -> Parts:
    """One conversation through three agents of two providers' protocols, the tools of the first included."""
    talker = agent("talker", tools=tools())

    @step
    async def polls(ctx: StepContext) -> str:
        ran(ctx)
        return str((await ctx.run(talker, "poll")).output)

    nodes = {"polls": polls, "b": Node(talk("b", "polls", RESPONSES), focus="be short"), "c": talk("c", "b")}
    return nodes, [Edge("polls", "b"), Edge("b", "c")], {}


@graph
def loop() -> Parts:
    nodes = {
        "count": Node(counts(3), writes=["count", "more"]),
        "ask": talk("ask", "count"),
        "end": says("end", of="count"),
    }
    edges = [Edge("count", "ask", **MORE), Edge("count", "end", "always"), Edge("ask", "count")]
    return nodes, edges, {}


@graph
def visit_limit() -> Parts:
    """A node that is over its limit is skipped, and routes with what it last gave."""
    nodes = {
        "count": Node(counts(9), writes=["count"], max_visits=2),
        "ask": Node(talk("ask", "count"), max_visits=3),
        "end": says("end", of="count"),
    }
    edges = [
        Edge("count", "ask"),
        Edge("ask", "end", when="conditional", condition="count > 1 and has(third)"),
    ]
    nodes["third"] = says("third")
    edges += [Edge("ask", "third", when="conditional", condition="count > 1"), Edge("ask", "count", "always")]
    return nodes, [*edges, Edge("third", "count")], {}


def fork(bad: str | None) -> tuple[dict[str, Any], list[Edge]]:
    """Three branches, of which one may be bad."""
    names = ("b1", "b2", "b3")
    nodes: dict[str, Any] = {"top": talk("top"), **{name: talk(name, "top") for name in names}}
    nodes["b3"] = says("b3")
    nodes["more"] = talk("more", "b2")
    if bad is not None:
        nodes[bad] = fails(bad)
    nodes["join"] = joins("b1", "b2", "b3", "more")
    edges = [Edge("top", name) for name in names]
    return nodes, [*edges, Edge("b2", "more"), *(Edge(name, "join") for name in ("b1", "b3", "more"))]


@graph
def fork_all() -> Parts:
    nodes, edges = fork(None)
    return nodes, edges, {"on_branch_failure": "fail_all", "on_conflict": "error"}


def without_always(edges: list[Edge], source: str) -> list[Edge]:
    """A failure of this node is not handled: `always` edges would."""
    return [Edge(e.source, e.target, "on_success") if e.source == source else e for e in edges]


@graph
def fork_continues() -> Parts:
    nodes, edges = fork("b3")
    return nodes, without_always(edges, "b3"), {"on_branch_failure": "continue_others"}


@graph
def fork_waits() -> Parts:
    nodes, edges = fork("b3")
    return nodes, without_always(edges, "b3"), {"on_branch_failure": "wait_all", "max_concurrency": 2}


@graph
def fork_dies() -> Parts:
    """Every branch fails, so the run does."""
    nodes = {"top": says("top"), "b1": fails("b1"), "b2": fails("b2"), "join": says("join")}
    edges = [Edge("top", "b1"), Edge("top", "b2")]
    edges += [Edge("b1", "join", "on_success"), Edge("b2", "join", "on_success")]
    return nodes, edges, {"on_branch_failure": "continue_others"}


@graph
def nested_fork() -> Parts:
    nodes = {
        "top": says("top"),
        "left": talk("left", "top"),
        "l1": Node(talk("l1", "left"), writes=["one"]),
        "l2": Node(says("l2"), writes=["two"]),
        "meet": Node(joins("l1", "l2"), writes=["left_side"]),
        "right": Node(talk("right", "top"), writes=["right_side"]),
        "end": says("end", of="left_side"),
    }
    edges = [Edge("top", "left"), Edge("top", "right"), Edge("left", "l1"), Edge("left", "l2")]
    edges += [Edge("l1", "meet"), Edge("l2", "meet"), Edge("meet", "end"), Edge("right", "end")]
    return nodes, edges, {"conversation": "isolated"}


@graph
def sends() -> Parts:
    """Two are sent, of which one sends again; each asks a model and posts something; in a loop."""

    @step
    async def split(ctx: StepContext) -> list[Send]:
        ran(ctx)
        ctx.write("more", ctx.visit < 2)
        return [Send("work", {"name": f"{ctx.visit}{one}"}) for one in "ab"]

    worker = agent("worker")

    @step
    async def work(ctx: StepContext) -> list[Send]:
        ran(ctx)
        name = str(ctx.get_input("name"))
        posted = await ctx.once("post", effect(ctx, f"post {name}"))
        said = (await ctx.run(worker, f"{posted} {name}")).output
        return [Send("part", {"said": said})] if name == "1b" else []

    @step
    async def part(ctx: StepContext) -> str:
        ran(ctx)
        return f"{ctx.get_input('name')} {ctx.get_input('said')}"

    nodes = {
        "split": Node(split, writes=["more"]),
        "work": work,
        "part": part,
        "join": says("join", of="part"),
        "end": says("end"),
    }
    edges = [Edge("split", "work", "send"), Edge("work", "part", "send"), Edge("part", "join")]
    edges += [Edge("join", "split", **MORE), Edge("join", "end", "always")]
    return nodes, edges, {"reducers": {"part": "append"}, "on_conflict": "error"}


@graph
def failure() -> Parts:
    """A node fails after its retries, and an edge handles it."""
    nodes = {
        "try": fails("try", retry=AGAIN),
        "mend": talk("mend", None),
        "never": says("never"),
        "end": says("end"),
    }
    edges = [Edge("try", "never", "on_success"), Edge("try", "mend", "on_failure"), Edge("never", "end")]
    return nodes, [*edges, Edge("mend", "end")], {}


@graph
def own_budget() -> Parts:
    """A budget of a node stops it, and an edge handles that."""
    nodes = {"poor": talk("poor", None, cost_budget=1), "mend": talk("mend", None), "end": says("end")}
    edges = [Edge("poor", "end", "on_success"), Edge("poor", "mend", "on_failure"), Edge("mend", "end")]
    return nodes, edges, {}


@graph
def unhandled() -> Parts:
    """Nothing handles it, so the run fails, with all that was done."""
    nodes = {"a": talk("a"), "bad": fails("bad", retry=AGAIN), "end": says("end")}
    return nodes, [Edge("a", "bad"), Edge("bad", "end", "on_success")], {}


@graph
def retried() -> Parts:
    asker = agent("asker")

    @step(retry=AGAIN)
    async def flaky(ctx: StepContext) -> str:
        ran(ctx)
        ctx.write("tried", ctx.attempt)
        first = (await ctx.run(asker, f"busy broken {ctx.attempt}")).output
        if ctx.attempt < 3:
            raise ConnectionError(f"attempt {ctx.attempt} failed after {first}")
        return str(first)

    return {"flaky": flaky, "end": talk("end", "flaky")}, [Edge("flaky", "end")], {}


@graph
def decided() -> Parts:
    """A model decides, twice; at last it gives no name that there is, and the fallback holds."""
    nodes = {
        "a": talk("a", None),
        "b": Node(says("b"), focus="decide b"),
        "c": Node(says("c"), focus="decide c"),
        "d": says("d"),
        "end": says("end"),
    }
    edges = [Edge("a", "b", "llm_decide"), Edge("a", "c", "llm_decide", fallback=True)]
    edges += [Edge("b", "c", "llm_decide", fallback=True), Edge("b", "d", "llm_decide")]
    edges += [Edge("c", "d"), Edge("d", "end")]
    return nodes, edges, {"decider": agent("decider")}


@graph
def judged() -> Parts:
    writer = agent("writer", tools=tools())

    def judge(context: StepContext[Any], output: str) -> Verdict:
        return Verdict.accept() if "more" in output else Verdict.retry("say more")

    nodes = {"write": AgentNode(writer, "write", judge=judge), "end": talk("end", "write")}
    return nodes, [Edge("write", "end")], {}


@graph
def cancelled() -> Parts:
    """A branch fails, and the other one, which would never end, keeps what it wrote."""

    @step
    async def endless(ctx: StepContext) -> str:
        ran(ctx)
        ctx.write("partial", "kept")
        ctx.shared.setdefault("written", asyncio.Event()).set()
        await asyncio.Event().wait()
        return ""

    @step(retries=0)
    async def bad(ctx: StepContext) -> str:
        ran(ctx)
        await ctx.shared.setdefault("written", asyncio.Event()).wait()
        raise ConnectionError("bad")

    nodes = {
        "top": talk("top"),
        "endless": Node(endless, writes=["partial"]),
        "bad": bad,
        "end": says("end"),
    }
    edges = [Edge("top", "endless"), Edge("top", "bad"), Edge("endless", "end")]
    return nodes, [*edges, Edge("bad", "end", "on_success")], {}


@graph
def timed_out() -> Parts:
    """A branch takes too long, as does the decision in another."""

    @step
    async def endless(ctx: StepContext) -> str:
        ran(ctx)
        ctx.write("partial", "kept")
        await asyncio.Event().wait()
        return ""

    nodes = {"top": says("top"), "endless": endless, "quick": says("quick"), "end": talk("end", "top")}
    nodes["slow"] = says("slow")
    edges = [Edge("top", "endless"), Edge("top", "quick"), Edge("top", "slow")]
    edges += [Edge("endless", "end", "on_success"), Edge("quick", "end")]
    edges += [Edge("slow", "end", "llm_decide", fallback=True)]
    options = {"on_branch_failure": "wait_all", "branch_timeout": 0.5, "decider": Hanging()}
    return nodes, edges, options


class Hanging:
    """A decider that never says anything."""

    async def dispatch(self, call: Any) -> Any:
        await asyncio.Event().wait()

    def dispatch_stream(self, call: Any) -> Any:
        raise NotImplementedError


@graph
def pipeline_node() -> Parts:
    """A pipeline as a node of a loop, with a failing attempt at its first visit."""

    @step
    async def pay(ctx: StepContext) -> str:
        ran(ctx)
        place = step_place(scope_of(ctx))
        return await ctx.once("pay", effect(ctx, f"pay {place.partition('@')[0]}"))

    @step
    async def check(ctx: StepContext) -> str:
        ran(ctx)
        if step_place(scope_of(ctx)).startswith("inner@1/"):
            raise ConnectionError("not yet")
        return f"checked {ctx.get_dependency('ask')}"

    inner = Pipeline(
        "inner", {"ask": talk("ask"), "pay": pay, "check": check}, {"pay": ["ask"], "check": ["pay"]}
    )
    nodes = {
        "inner": Node(inner.as_step(config=StepConfig(retry=AGAIN)), writes=["said"]),
        "count": Node(counts(2), writes=["count", "more"]),
        "end": talk("end", "inner"),
    }
    return nodes, [Edge("inner", "count"), Edge("count", "inner", **MORE), Edge("count", "end", "always")], {}


def inner_graph(name: str) -> Graph[Any, Any]:
    nodes = {
        "count": Node(counts(2), writes=["count", "more"]),
        "left": talk("left", "count"),
        "right": fails("right"),
        "mend": says("mend"),
        "end": joins("left", "mend"),
    }
    edges = [
        Edge("count", "count", **MORE),
        Edge("count", "left", "always"),
        Edge("count", "right", "always"),
    ]
    edges += [Edge("left", "end"), Edge("right", "end", "on_success"), Edge("right", "mend", "on_failure")]
    return Graph(name, nodes=nodes, edges=[*edges, Edge("mend", "end")], entry="count")


@graph
def graph_node() -> Parts:
    """A graph as a node, which is visited twice."""
    nodes = {
        "inner": inner_graph("inner"),
        "again": Node(counts(2), writes=["count", "more"]),
        "end": talk("end", "inner"),
    }
    return nodes, [Edge("inner", "again"), Edge("again", "inner", **MORE), Edge("again", "end", "always")], {}


def graph_in_pipeline(config: PipelineConfig) -> Shape:
    steps = {"first": talk("first"), "graph": inner_graph("inner").as_step(), "last": talk("last", "graph")}
    edges = {"graph": ["first"], "last": ["graph"]}
    return Shape(Pipeline("graph_in_pipeline", steps, edges, config=config), {"text": "graph in pipeline"})


GRAPHS["graph_in_pipeline"] = graph_in_pipeline


@graph
def paused() -> Parts:
    """Two branches ask people, and what comes after goes on with the answers."""

    @step
    async def ask(ctx: StepContext) -> dict[str, str]:
        ran(ctx)
        posted = await ctx.once("post", effect(ctx, f"post {ctx.step_id}"))
        return {"question": f"is {ctx.get_dependency('top')} fine?", "posted": posted}

    nodes = {
        "top": talk("top"),
        "boss": Node(ask, writes=["boss_says"], answer_type=str),
        "user": Node(ask, writes=["user_says"], answer_type=list[int]),
        "work": talk("work", "top"),
        "end": joins("boss", "user", "work"),
    }
    edges = [Edge("top", name) for name in ("boss", "user", "work")]
    edges += [Edge(name, "end") for name in ("boss", "user", "work")]
    return nodes, edges, {"pause_nodes": ["boss", "user"], "answers": {"boss": "yes", "user": [1, 2]}}


def asking_graph() -> Graph[Any, Any, Any]:
    """A graph that asks, after it has posted something and asked a model."""

    @step
    async def ask(ctx: StepContext) -> str:
        ran(ctx)
        posted = await ctx.once("post", effect(ctx, f"post {without_attempts(step_place(scope_of(ctx)))}"))
        return f"{posted}?"

    return Graph(
        "inner",
        nodes={"top": talk("top"), "boss": Node(ask, answer_type=str), "end": talk("end", "boss")},
        edges=[Edge("top", "boss"), Edge("boss", "end")],
        pause_nodes=["boss"],
    )


@graph
def paused_inside() -> Parts:
    """A graph with a pause node is a node, which is visited twice, beside a branch that goes on."""
    nodes = {
        "count": Node(counts(2), writes=["count", "more"]),
        "inner": asking_graph().as_step(),
        "work": talk("work", "count"),
        "join": joins("inner", "work"),
        "end": says("end"),
    }
    edges = [Edge("count", "inner"), Edge("count", "work"), Edge("inner", "join"), Edge("work", "join")]
    edges += [Edge("join", "count", **MORE), Edge("join", "end", "always")]
    return (
        nodes,
        edges,
        {"answers": {"post inner/inner/boss done?": "yes", "post inner#2/inner/boss done?": "no"}},
    )


def paused_inside_pipeline(config: PipelineConfig) -> Shape:
    steps = {"first": talk("first"), "graph": asking_graph().as_step(), "last": talk("last", "graph")}
    edges = {"graph": ["first"], "last": ["graph"]}
    pipeline = Pipeline("paused_inside_pipeline", steps, edges, config=config)
    return Shape(pipeline, {"text": "paused"}, answers={"post graph/inner/boss done?": "yes"})


GRAPHS["paused_inside_pipeline"] = paused_inside_pipeline


@graph
def asked() -> Parts:
    """Nodes ask people in two branches and in a loop, and write before they do."""

    @step
    async def ask(ctx: StepContext) -> str:
        ran(ctx)
        ctx.write(f"{ctx.step_id}_asks", ctx.visit)
        posted = await ctx.once("post", effect(ctx, f"post {ctx.step_id} {ctx.visit}"))
        return f"{posted} {await ctx.ask(f'{ctx.step_id} {ctx.visit}?', int)}"

    nodes = {
        "top": talk("top"),
        "boss": ask,
        "user": ask,
        "count": Node(counts(2), writes=["count", "more"]),
        "again": ask,
        "end": talk("end"),
    }
    edges = [Edge("top", "boss"), Edge("top", "user"), Edge("boss", "count"), Edge("user", "count")]
    edges += [Edge("count", "again"), Edge("again", "count", **MORE), Edge("again", "end", "always")]
    return nodes, edges, {"answers": {"boss 1?": 1, "user 1?": 2, "again 1?": 3, "again 2?": 4}}


@graph
def waited() -> Parts:
    """Nodes wait in a branch and in a loop, while another branch asks a person."""

    @step
    async def nap(ctx: StepContext) -> str:
        ran(ctx)
        ctx.write(f"{ctx.step_id}_waits", ctx.visit)
        return await waits(ctx, f"{ctx.step_id} {ctx.visit}")

    @step
    async def ask(ctx: StepContext) -> str:
        ran(ctx)
        return f"{await ctx.ask('sure?', int)}"

    nodes = {
        "top": talk("top"),
        "nap": nap,
        "ask": ask,
        "count": Node(counts(2), writes=["count", "more"]),
        "again": nap,
        "end": talk("end"),
    }
    edges = [Edge("top", "nap"), Edge("top", "ask"), Edge("nap", "count"), Edge("ask", "count")]
    edges += [Edge("count", "again"), Edge("again", "count", **MORE), Edge("again", "end", "always")]
    return nodes, edges, {"answers": {"sure?": 1}}


@graph
def compacted() -> Parts:
    """A conversation that gets too long, and is summarized, in each turn of a loop."""
    conversation = GraphConversation(compact_above=40, summarizer=agent("summarizer"), keep_phases=1)
    nodes = {
        "count": Node(counts(3), writes=["count", "more"]),
        "tell": talk("tell", "count"),
        "end": talk("end", "tell"),
    }
    edges = [Edge("count", "tell"), Edge("tell", "count", **MORE), Edge("tell", "end", "always")]
    return nodes, edges, {"conversation": conversation}


@graph
def typed() -> Parts:
    """Models go into memory by field, and conditions read them."""

    @step
    async def letter(ctx: StepContext) -> Letter:
        ran(ctx)
        ctx.write("early", {"pages": [1, None, 2.5]})
        return Letter(lines=[str(ctx.get_input("text"))], pages=ctx.visit)

    @step
    async def last(ctx: StepContext) -> list[Letter]:
        ran(ctx)
        return [ctx.get_dependency("letter", Letter)]

    nodes = {
        "letter": Node(letter, writes=["early", "lines", "pages"]),
        "read": talk("read", "letter"),
        "last": last,
    }
    edges = [
        Edge("letter", "read", "conditional", "pages < 2 and early.pages[2] == 2.5"),
        Edge("letter", "last", "conditional", "len(lines) == 1"),
        Edge("read", "letter"),
    ]
    return nodes, edges, {"accepts": {"text": str}}
