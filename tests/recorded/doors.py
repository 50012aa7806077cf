"""The pipelines, graphs, router and flow whose runs are recorded here. They change with the records only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic_ai import CallDeferred, DeferredToolRequests, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from fastroai import (
    AgentNode,
    BasePipeline,
    Budget,
    CostBudgetExceeded,
    CostCalculator,
    Edge,
    FastroAgent,
    Graph,
    Node,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    StepConfig,
    StepContext,
    Verdict,
    compute,
    flow,
    infer,
    step,
)
from fastroai.functions import HumanReviewContext, await_human
from fastroai.graphs import Send
from fastroai.store import EncryptingCodec, MemorySpendStore
from fastroai.workflows import BoundWorkflow, Workflow

CODEC: Final = EncryptingCodec({"recorded": "dGhlc2UgcmVjb3JkZWQgcnVucyBoaWRlIG5vdGhpbmc="})
"""Of the run that is sealed. Its key protects nothing."""
LEASE: Final = 1.0
"""Seconds after which a recorded run counts as interrupted."""
CONFIG: Final = PipelineConfig(retries=0, lease=LEASE)
PRICES: Final = CostCalculator(
    pricing_overrides={
        "function:recorded": {"input_per_mtok": 0, "output_per_mtok": 0, "per_request": Decimal("0.001")}
    }
)


class Invoice(BaseModel):
    number: int
    due: date
    total: Decimal


@dataclass
class World:
    """What is around a run: what happens at a place in it, what is broken, and what has happened."""

    at: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    broken: bool = False
    prompt: str = "check it"
    intent: str = "Name the tone of the text."
    happened: list[str] = field(default_factory=list)

    async def reach(self, place: str) -> None:
        """Note that the code of a run is at this place, and let happen what is to happen there."""
        self.happened.append(place)
        if (happens := self.at.get(place)) is not None:
            await happens()

    def agent(self, name: str, **options: Any) -> FastroAgent[Any, Any]:
        """An agent whose model answers with what it was asked, each request at $0.001."""

        async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            turn = sum(message.kind == "response" for message in messages) + 1
            await self.reach(f"{name} {turn}")
            usage = RequestUsage(input_tokens=10, output_tokens=2)
            if info.output_tools:
                (tool,) = info.output_tools
                said = {"reasoning": "it is the first", "target": "split"}
                return ModelResponse(parts=[ToolCallPart(tool.name, said)], usage=usage)
            if info.function_tools and not any(
                part.part_kind == "tool-return" for message in messages for part in message.parts
            ):
                return ModelResponse(parts=[ToolCallPart("look_up", {"number": 42})], usage=usage)
            return ModelResponse(parts=[TextPart(f"{name} answers {turn}")], usage=usage)

        return FastroAgent(
            FunctionModel(respond, model_name="recorded"), name=name, cost_calculator=PRICES, **options
        )

    async def look_up(self, number: int) -> dict[str, int]:
        """Look an invoice up."""
        await self.reach("tool")
        return {"number": number}


def pipeline(world: World) -> Pipeline[Any, Any, Any]:
    """Retries, side effects, requests, tools, a nested pipeline, a failure that is passed over."""
    checker = world.agent("checker", tools=[Tool(world.look_up)])
    drafter = world.agent("drafter")

    @step(retries=1, retry_delay=0.0)
    async def read(ctx: StepContext[Any]) -> Invoice:
        await world.reach("read")
        if ctx.attempt == 1:
            raise ConnectionError("the scanner is off")
        await ctx.once("archive", lambda: "archived")
        ctx.record_usage(model="scanner", cost_usd="0.002")
        return Invoice(number=ctx.get_input("number"), due=date(2027, 1, 31), total=Decimal("12.50"))

    @step
    async def check(ctx: StepContext[Any]) -> str:
        await world.reach("check")
        return str((await ctx.run(checker, world.prompt)).output)

    @step
    async def notify(ctx: StepContext[Any]) -> str:
        def refuses() -> str:
            raise ValueError("no address")

        return await ctx.once("mail", refuses)

    @step
    async def archive(ctx: StepContext[Any]) -> str:
        return "never, because it needs the notification"

    @step
    async def draft(ctx: StepContext[Any]) -> str:
        await world.reach("draft")
        return str((await ctx.run(drafter, "write")).output)

    @step
    async def book(ctx: StepContext[Any]) -> str:
        await world.reach("book")
        if world.broken:
            raise ConnectionError("the ledger is down")
        invoice = ctx.get_dependency("read", Invoice)
        return f"booked {invoice.number} of {invoice.total}: {ctx.get_dependency('check')}"

    return Pipeline(
        "invoice",
        {
            "read": read,
            "check": check,
            "letter": Pipeline("letter", {"draft": draft}).as_step(),
            "notify": notify,
            "archive": archive,
            "book": book,
        },
        {
            "check": ["read", "letter"],
            "letter": ["read"],
            "notify": ["read"],
            "archive": ["notify"],
            "book": ["read", "check"],
        },
        output_step="book",
        step_configs={"notify": StepConfig(on_error="continue")},
        config=CONFIG,
        version="2026-11",
    )


def two_at_once(world: World) -> Pipeline[Any, Any, Any]:
    """Two steps at once, and one after them."""

    @step
    async def waits(ctx: StepContext[Any]) -> str:
        await world.reach("waits")
        return "waited"

    @step
    async def works(ctx: StepContext[Any]) -> str:
        await world.reach("works")
        return "worked"

    @step
    async def last(ctx: StepContext[Any]) -> list[str]:
        return [ctx.get_dependency("waits", str), ctx.get_dependency("works", str)]

    return Pipeline(
        "two",
        {"waits": waits, "works": works, "last": last},
        {"last": ["waits", "works"]},
        config=CONFIG,
    )


def crowded(world: World) -> Pipeline[Any, Any, Any]:
    """Two steps at once, of which the budget pays for one: the other waits in line, and is refused."""
    agent = world.agent("clerk")

    def asking(name: str) -> Any:
        @step
        async def ask(ctx: StepContext[Any]) -> str:
            await world.reach(f"ask {name}")
            try:
                return (await ctx.run(agent, name)).output
            except CostBudgetExceeded:
                return "refused"

        return ask

    return Pipeline(
        "crowded",
        {name: asking(name) for name in ("one", "other")},
        output_step="other",
        config=replace(CONFIG, budget=Budget(usd="0.0015")),
    )


def scarce(world: World) -> Pipeline[Any, Any, Any]:
    """A step that asks twice, under a limit that pays for one request in an hour, and waits for the next."""
    agent = world.agent("clerk")

    @step
    async def ask(ctx: StepContext[Any]) -> list[str]:
        return [(await ctx.run(agent, name)).output for name in ("first", "second")]

    limit = SpendLimit(usd="0.0015", window="hour", on_limit="wait", store=MemorySpendStore())
    return Pipeline("scarce", {"ask": ask}, config=replace(CONFIG, budget=limit))


def waiting(world: World, codec: EncryptingCodec | None = None) -> Pipeline[Any, Any, Any]:
    """A question with options, a message and a sleep."""

    @step
    async def ask(ctx: StepContext[Any]) -> str:
        await world.reach("ask")
        allowed = await ctx.ask("pay it?", Literal["yes", "no"], options=["yes", "no"], to="finance")
        return f"{allowed}, pay it"

    @step
    async def receive(ctx: StepContext[Any]) -> str:
        await world.reach("receive")
        paid = await ctx.receive("paid", Invoice)
        return f"{paid.total} on {paid.due}"

    @step
    async def sleep(ctx: StepContext[Any]) -> str:
        if ctx.get_input("sleeps", default=False):
            await ctx.sleep(timedelta(seconds=11))  # a shorter one does not halt the run
        return "slept"

    @step
    async def close(ctx: StepContext[Any]) -> str:
        return f"{ctx.get_dependency('ask')}; {ctx.get_dependency('receive')}; {ctx.get_dependency('sleep')}"

    return Pipeline(
        "payment" if codec is None else "sealed payment",
        {"ask": ask, "receive": receive, "sleep": sleep, "close": close},
        {"close": ["ask", "receive", "sleep"]},
        config=PipelineConfig(codec=codec, lease=LEASE),
    )


def graph(world: World) -> Graph[Any, Any]:
    """Conditions, a loop, a judge, a choice of a model, sends, a join, memory, and a question."""

    def judge(ctx: StepContext[Any], output: str) -> Verdict:
        return Verdict.retry("be shorter") if output == "writer answers 1" else Verdict.accept()

    @step
    async def begin(ctx: StepContext[Any]) -> dict[str, Any]:
        await world.reach("begin")
        ctx.write("early", [1, 2])
        return {"count": ctx.visit, "more": ctx.visit < 2}

    @step
    async def split(ctx: StepContext[Any]) -> list[Send]:
        return [Send("work", {"page": page}) for page in ("a", "b")]

    @step
    async def work(ctx: StepContext[Any]) -> str:
        await world.reach(f"work {ctx.get_input('page')}")
        return f"page {ctx.get_input('page')}"

    @step
    async def ask(ctx: StepContext[Any]) -> str:
        await world.reach("ask")
        return f"publish {ctx.get_input('work')}?"

    @step
    async def publish(ctx: StepContext[Any]) -> str:
        await world.reach("publish")
        if world.broken:
            raise ConnectionError("the press is down")
        return f"published {ctx.get_input('work')}, {ctx.get_dependency('ask')}"

    @step
    async def give_up(ctx: StepContext[Any]) -> str:
        return "given up"

    return Graph(
        "book",
        goal="write a book",
        nodes={
            "begin": Node(begin, writes=["count", "more", "early"]),
            "write": AgentNode(world.agent("writer"), "write", judge=judge, max_iterations=2),
            "split": split,
            "work": work,
            "ask": Node(ask, answer_type=Literal["in red", "in blue"]),
            "publish": publish,
            "give_up": give_up,
        },
        edges=[
            Edge("begin", "begin", "conditional", "more"),
            Edge("begin", "write", "conditional", "count == 2"),
            Edge("write", "split", "llm_decide"),
            Edge("write", "give_up", "llm_decide", fallback=True),
            Edge("split", "work", "send"),
            Edge("work", "ask"),
            Edge("ask", "publish"),
        ],
        entry="begin",
        decider=world.agent("decider"),
        pause_nodes=["ask"],
        reducers={"work": "append"},
        config=CONFIG,
    )


def timed_graph(world: World) -> Graph[Any, Any]:
    """Two branches, of which one takes too long."""

    @step
    async def fork(ctx: StepContext[Any]) -> str:
        return "fork"

    @step
    async def slow(ctx: StepContext[Any]) -> str:
        await world.reach("slow")
        return "slow"

    @step
    async def fast(ctx: StepContext[Any]) -> str:
        return "fast"

    @step
    async def join(ctx: StepContext[Any]) -> str:
        return f"joined {sorted(ctx.errors)}"

    return Graph(
        "timed",
        nodes={"fork": fork, "slow": slow, "fast": fast, "join": join},
        edges=[
            Edge("fork", "slow"),
            Edge("fork", "fast"),
            Edge("slow", "join", "on_success"),
            Edge("fast", "join", "on_success"),
        ],
        on_branch_failure="continue_others",
        branch_timeout=0.05,
        config=CONFIG,
    )


def router(world: World) -> BasePipeline[Any, Any, Any]:
    """A variant that fails where something is broken, and its fallback."""

    @step
    async def quick(ctx: StepContext[Any]) -> str:
        await world.reach("quick")
        if world.broken:
            raise ConnectionError("no quick way")
        return "quick"

    @step
    async def careful(ctx: StepContext[Any]) -> str:
        await world.reach("careful")
        return "careful"

    class Choice(BasePipeline[Any, Any, Any]):
        async def route(self, inputs: Any, deps: Any) -> str:
            return "quick"

    made = Choice("choice", config=CONFIG)
    made.register_pipeline("quick", Pipeline("quick", {"quick": quick}), fallback="careful")
    made.register_pipeline("careful", Pipeline("careful", {"careful": careful}))
    return made


def tone_of(world: World) -> Any:
    """A function that a model implements."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await world.reach("inferred")
        usage = RequestUsage(input_tokens=10, output_tokens=2)
        if info.output_tools:
            return ModelResponse(
                parts=[ToolCallPart(info.output_tools[0].name, {"response": "calm"})], usage=usage
            )
        return ModelResponse(parts=[TextPart("calm")], usage=usage)

    @infer(intent=world.intent, model=FunctionModel(respond, model_name="recorded"))
    async def tone(text: str) -> str:
        raise NotImplementedError

    return tone


def typed_flow(world: World) -> Any:
    """A function that a model implements, one that is code, and a question to a person."""
    tone = tone_of(world)

    @compute
    async def louder(text: str) -> str:
        await world.reach("computed")
        return text.upper()

    @flow(config=CONFIG)
    async def triage(text: str) -> str:
        found = await louder(await tone(text))
        decision = await await_human(HumanReviewContext("is it?"), Literal["yes", "no"], to="support")
        await world.reach("decided")
        return f"{found}: {decision.value}"

    return triage


def of_rows(world: World) -> Mapping[str, Any]:
    """What is mapped over rows, by the id of the run: each row asks a model, and some then fail, or wait."""
    tone, clerk = tone_of(world), world.agent("clerk", instructions=world.intent)

    @step
    async def close(ctx: StepContext[Any]) -> str:
        text = ctx.get_input("text", str)
        await world.reach(f"close {text}")
        if text == "fails" and world.broken:
            raise ConnectionError("the archive is down")
        return await ctx.ask("close it?", str) if text == "waits" else text

    @flow(config=CONFIG)
    async def letters(text: str) -> str:
        found: str = await tone(text)
        await world.reach(f"close {text}")
        if text == "fails" and world.broken:
            raise ConnectionError("the archive is down")
        if text == "waits":
            return (await await_human(HumanReviewContext("close it?"), str)).value
        return f"{text}: {found}"

    steps = {"answer": clerk.as_step(lambda ctx: ctx.get_input("text", str)), "close": close}
    return {
        "rows-pipeline": Pipeline("mail", steps, {"close": ["answer"]}, config=CONFIG, version="2026-11"),
        "rows-graph": Graph(
            "mail", nodes=steps, edges=[Edge("answer", "close")], entry="answer", config=CONFIG
        ),
        "rows-flow": letters,
        "rows-function": tone,
        "rows-agent": clerk,
    }


def changing(world: World) -> Pipeline[Any, Any, Any]:
    """An agent whose answer decides which calls come next, and a tool that is called elsewhere."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await world.reach("booked" if info.function_tools else "decided")
        usage = RequestUsage(input_tokens=10, output_tokens=2)
        if info.function_tools:
            return ModelResponse(parts=[ToolCallPart("book", {}, tool_call_id="1")], usage=usage)
        return ModelResponse(parts=[TextPart(world.intent)], usage=usage)

    async def book() -> str:
        """Book a table."""
        raise CallDeferred

    model = FunctionModel(respond, model_name="recorded")
    clerk = FastroAgent(model, name="clerk", instructions=world.intent, cost_calculator=PRICES)
    booker = FastroAgent(
        model,
        name="booker",
        output_type=[str, DeferredToolRequests],
        tools=[book],
        cost_calculator=PRICES,
    )

    @step
    async def work(ctx: StepContext[Any]) -> str:
        decided = (await ctx.run(clerk, "decide")).output
        if decided == World.intent:
            await ctx.run(clerk, "and then")
        await ctx.run(booker, "book it")
        return str(decided)

    return Pipeline("changing", {"work": work}, config=CONFIG)


SPEC: Final = """
version: "0.2"
contracts:
  Found: {pages: {type: array}}
functions:
  search: {mode: compute, intent: Find pages, input: {topic: {type: string}}, output: Found, retries: 2,
           ensure: ["len(result.pages) > 0"]}
  notify: {mode: compute, intent: Tell somebody, output: Found}
  publish: {mode: gate, intent: Publish them?}
flows:
  pages:
    input: {topic: {type: string}}
    output: Found
    max_rounds: 3
    steps:
    - {id: notify, function: notify}
    - id: search
      function: search
      depends_on: [notify]
      inputs: {topic: $.input.topic}
      max_iterations: 3
      accumulate: pages
      exit_criterion: dry_streak >= 1
    - {id: publish, function: publish, inputs: {pages: $.steps.search.output.pages}, on_approve: null,
       on_revise: search, on_kill: null}
"""


def workflow(world: World) -> BoundWorkflow:
    """Code that is repeated until it finds nothing new, at first in vain, and a gate."""

    async def search(topic: str) -> dict[str, list[str]]:
        await world.reach(f"search {topic}")
        return {"pages": [] if world.broken and len(world.happened) < 3 else [topic]}

    async def notify() -> dict[str, list[str]]:
        await world.reach("notify")
        return {"pages": []}

    return Workflow.load(SPEC).bind(functions={"search": search, "notify": notify}, config=CONFIG)
