"""Pipelines that are killed: their steps, what models answer in them, and what must come out.

Every step says that it runs, and so does every tool and every side effect, in a file that survives.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, ModelRetry, RunContext, TextOutput, Tool
from pydantic_ai.models.fallback import FallbackModel
from support.file_waits import FileAppears

from fastroai import (
    BasePipeline,
    Budget,
    FastroAgent,
    Metered,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    step,
)
from fastroai.agent import AskPeople
from fastroai.runtime import RetryPolicy
from fastroai.steps.context import scope_of
from fastroai.store.record.log_of_scope import run_of
from fastroai.testing import Fault, Reply, ToolCall
from fastroai.testing.requests import ServedRequest

CHAT: Final = "openai-chat:gpt-5-mini"
RESPONSES: Final = "openai:gpt-5-mini"
CLAUDE: Final = "anthropic:claude-haiku-4-5"
MAX_TOKENS: Final = 100
AGAIN: Final = RetryPolicy(2, backoff=0.005, max_backoff=0.01)


# --- what is noted ---


class Notebook:
    """A file to which each line is added whole, whatever becomes of the process."""

    path: Path

    @classmethod
    def write(cls, *words: str) -> None:
        file = os.open(cls.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, ("\t".join(words) + "\n").encode())
        os.close(file)


def attempt_place(ctx: StepContext) -> str:
    """Where an attempt at a step is in the run that is on record."""
    durable = run_of(scope_of(ctx))
    assert durable is not None
    return durable.place(scope_of(ctx))


def ran(ctx: StepContext) -> None:
    Notebook.write("step", attempt_place(ctx))


def effect(ctx: StepContext, name: str) -> Callable[[], str]:
    """A side effect in the world outside, which knows the key that it is asked with."""
    key = ctx.idempotency_key

    def happen() -> str:
        Notebook.write("effect", name, key)
        return f"{name} done"

    return happen


# --- what models answer ---


class Oracle:
    """Answers from what is asked alone, but for faults, which each request has once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, bytes]] = set()
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget which faults there were."""
        with self._lock:
            self._seen.clear()

    def _first_time(self, word: str, request: ServedRequest) -> bool:
        asked = word, request.raw_body
        with self._lock:
            if asked in self._seen:
                return False
            self._seen.add(asked)
        return True

    def __call__(self, request: ServedRequest) -> Reply:
        prompt = request.prompt
        words = prompt.split() if "echo:" not in prompt else ()
        if "busy" in words and self._first_time("busy", request):
            return Reply(fault=Fault.status(429))
        if "broken" in words and self._first_time("broken", request):
            return Reply(fault=Fault.status(500))
        if "garbled" in words and self._first_time("garbled", request):
            return Reply(fault=Fault.malformed())
        if prompt.startswith("fall back") and "claude" not in request.model:
            return Reply(fault=Fault.status(503))
        if prompt == "write a draft" and len(request.messages) < 3:
            return Reply("draft")
        if "Decide which node the work goes on with" in prompt:
            return _decision(request)
        if prompt in SCRIPTS:
            return _by_script(SCRIPTS[prompt], request)
        if prompt.startswith("at length"):
            return Reply("word " * 500)
        if prompt == "spending":
            return Reply("word " * 80)
        return Reply(f"echo: {prompt}")


def _decision(request: ServedRequest) -> Reply:
    """The first candidate after `a`; after other nodes none, in a way that nobody repeats."""
    if "Node 'a' is done" not in request.prompt or request.output_tool is None:
        return Reply(fault=Fault.status(400))
    said = {"reasoning": "it is the first", "target": "b"}
    return Reply(tool_calls=(ToolCall(request.output_tool.name, said),))


Turn = tuple[ToolCall, ...]


def _by_script(script: tuple[Turn, ...], request: ServedRequest) -> Reply:
    """The turn that comes after so many results of tools."""
    done = len(request.tool_results)
    for turn in script:
        if done == 0:
            return Reply(tool_calls=turn)
        done -= len(turn)
    assert done == 0
    return Reply("; ".join(result.text for result in request.tool_results))


def _call(name: str, number: int, call_id: str | None = None) -> ToolCall:
    return ToolCall(name, {"number": number}, id=call_id or f"call_{name}_{number}")


SCRIPTS: Final[Mapping[str, tuple[Turn, ...]]] = {
    "loop": (
        (_call("fact", 1),),
        (_call("ask", 2),),
        (_call("ask", 3), _call("ask", 4)),
        (_call("look", 5),),
        (_call("fact", 6), _call("look", 7)),
        (_call("ask_look", 8),),
        (_call("wobble", 9),),
        (_call("wobble", 9, "call_wobble_again"),),
        (_call("fact", 10),),
        (_call("ask", 11),),
    ),
    # As some servers do it: the same id for every call.
    "poll": tuple((_call("poll", 0, "call_0"),) for _ in range(4)),
    "poll again": tuple((_call("poll", 0, "call_0"),) for _ in range(3)),
    "team": tuple((_call("team", 0, "call_0"),) for _ in range(3)),
    # An answer with a call that needs approval, one for a result from outside, and one that just runs; and
    # then the first again, with the same id.
    "refunds": (
        (_call("approved", 1), _call("elsewhere", 2), _call("fact", 3)),
        (_call("approved", 1),),
    ),
    "pipe": ((_call("pipe", 1), _call("pipe", 2)), (_call("pipe", 3),), (_call("pipe", 4),)),
    "pipe two": ((_call("pipe", 5),), (_call("pipe", 6),)),
}


# --- tools ---


def tools() -> list[Tool[Any]]:
    helper = agent("helper")
    poller = agent("poller", tools=[Tool(poll)])
    inner = Pipeline(
        "piped", {"first": talk("first"), "second": talk("second", "first")}, {"second": ["first"]}
    )

    async def ask(ctx: RunContext[Any], number: int) -> str:
        Notebook.write("tool", f"ask({number})")
        return (await helper.run(f"ask {number}")).output

    async def ask_look(ctx: RunContext[Any], number: int) -> str:
        return (await helper.run(f"look {number}")).output

    async def team(ctx: RunContext[Any], number: int) -> str:
        """Always the same question, and the same calls inside."""
        turn = _returns(ctx, "team")
        Notebook.write("tool", f"team({turn})")
        first = (await helper.run("what now")).output
        return f"{turn} {first} {(await poller.run('poll again')).output}"

    async def pipe(ctx: RunContext[Any], number: int) -> str:
        Notebook.write("tool", f"pipe({number})")
        return f"pipe({number}) {(await inner.execute({'text': f'pipe {number}'})).output}"

    return [
        Tool(fact),
        Tool(ask),
        Tool(look, metadata={"repeatable": True}),
        Tool(ask_look, metadata={"repeatable": True}),
        Tool(wobble),
        Tool(poll),
        Tool(team),
        Tool(pipe),
    ]


def _returns(ctx: RunContext[Any], tool: str) -> int:
    """How many results of a tool the model has seen."""
    return sum(
        part.part_kind == "tool-return" and part.tool_name == tool
        for message in ctx.messages
        for part in message.parts
    )


async def approved(ctx: RunContext[Any], number: int) -> str:
    turn = _returns(ctx, "approved")
    Notebook.write("tool", f"approved({turn})")
    return f"{turn} approved"


async def elsewhere(number: int) -> str:
    Notebook.write("tool", f"elsewhere({number})")
    raise CallDeferred(metadata={"elsewhere": number})


async def fact(number: int) -> dict[str, object]:
    Notebook.write("tool", f"fact({number})")
    return {"fact": number, "square": number * number}


async def look(number: int) -> str:
    return f"look {number}"


async def wobble(ctx: RunContext[Any], number: int) -> str:
    Notebook.write("tool", f"wobble({ctx.retry})")
    if ctx.retry == 0:
        raise ModelRetry("once more")
    return "steady"


async def poll(ctx: RunContext[Any], number: int) -> str:
    return f"poll {_returns(ctx, 'poll')}"


def agent(name: str, model: Any = CHAT, **options: Any) -> FastroAgent[Any, Any]:
    return FastroAgent(model, name=name, max_tokens=MAX_TOKENS, **options)


# --- steps ---


def talk(name: str, before: str | None = None, model: Any = CHAT, **options: Any) -> Any:
    """A step that asks one question, about the text or what another step has said."""
    one = agent(name, model)

    @step(**options)
    async def talk_step(ctx: StepContext) -> str:
        ran(ctx)
        about = ctx.get_input("text") if before is None else ctx.get_dependency(before)
        return str((await ctx.run(one, f"{name} of {about}")).output)

    return talk_step


class Letter(BaseModel):
    """What a step gives that is no plain JSON."""

    lines: list[str]
    pages: int


@dataclass(frozen=True)
class Shape:
    """A pipeline, its inputs, and what it gives."""

    pipeline: Pipeline[Any, Any]
    inputs: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)
    """What people answer, by question, or by the tool that a question is about."""

    def answer_to(self, question: Any) -> Any:
        """What people answer to a question."""
        return self.answers[question if isinstance(question, str) else question["tool_name"]]


BUDGETS_USD: Final = {"budgeted": Decimal("0.0015"), "cut_short": Decimal("0.0045")}
"""Of the shapes that have one: it may stop them after requests were lost."""

Build = Callable[[PipelineConfig], Shape]
SHAPES: Final[dict[str, Build]] = {}


def shape(build: Build) -> Build:
    SHAPES[build.__name__] = build
    return build


@shape
def chain(config: PipelineConfig) -> Shape:
    letter_agent = agent("letter", CLAUDE)

    @step
    async def letter(ctx: StepContext) -> Letter:
        ran(ctx)
        response = await ctx.run(letter_agent, f"write {ctx.get_dependency('b')}")
        return Letter(lines=[response.output], pages=1)

    @step
    def count(ctx: StepContext) -> int:
        ran(ctx)
        return len(ctx.get_dependency("letter", Letter).lines[0]) + len(
            str(ctx.run_sync(letter_agent, "x").output)
        )

    steps = {"a": talk("a"), "b": talk("b", "a", RESPONSES), "letter": letter, "count": count}
    edges = {"b": ["a"], "letter": ["b"], "count": ["letter"]}
    return Shape(Pipeline("chain", steps, edges, config=config), {"text": "chain"})


@shape
def diamond(config: PipelineConfig) -> Shape:
    joiner = agent("joiner")
    middle = [f"m{number}" for number in range(4)]

    @step
    async def join(ctx: StepContext) -> str:
        ran(ctx)
        return str((await ctx.run(joiner, " ".join(ctx.get_dependency(one) for one in middle))).output)

    steps = {"top": talk("top"), **{one: talk(one, "top") for one in middle}, "join": join}
    return Shape(
        Pipeline("diamond", steps, {**{one: ["top"] for one in middle}, "join": middle}, config=config),
        {"text": "diamond"},
    )


@shape
def tool_loop(config: PipelineConfig) -> Shape:
    looper = agent("looper", tools=tools())

    @step
    async def loop(ctx: StepContext) -> str:
        ran(ctx)
        return str((await ctx.run(looper, "loop")).output)

    return Shape(
        Pipeline(
            "tool_loop", {"loop": loop, "after": talk("after", "loop")}, {"after": ["loop"]}, config=config
        ),
        {},
    )


@shape
def same_ids(config: PipelineConfig) -> Shape:
    """Tools that are called with the same id and arguments each time, here and in agents that they ask."""
    looper = agent("looper", tools=tools())
    plain = Agent(CHAT, name="plain", model_settings={"max_tokens": MAX_TOKENS}, capabilities=[Metered()])

    @step
    async def loop(ctx: StepContext) -> str:
        ran(ctx)
        answers = [(await ctx.run(looper, "poll")).output, (await ctx.run(looper, "poll again")).output]
        answers.append((await ctx.run(looper, "team")).output)
        answers.append((await plain.run("plain")).output)
        return " / ".join(answers)

    return Shape(Pipeline("same_ids", {"loop": loop}, config=config), {})


@shape
def pipeline_in_tool(config: PipelineConfig) -> Shape:
    looper = agent("looper", tools=tools())

    @step
    async def loop(ctx: StepContext) -> str:
        ran(ctx)
        one = (await ctx.run(looper, "pipe")).output
        return f"{one} / {(await ctx.run(looper, 'pipe two')).output}"

    return Shape(Pipeline("pipeline_in_tool", {"loop": loop}, config=config), {})


@shape
def nested(config: PipelineConfig) -> Shape:
    @step
    async def pay(ctx: StepContext) -> str:
        ran(ctx)
        return await ctx.once("pay", effect(ctx, "pay"))

    @step
    async def check(ctx: StepContext) -> str:
        ran(ctx)
        if attempt_place(ctx).startswith("outer@1/"):
            raise ConnectionError("not yet")
        return f"checked {ctx.get_dependency('ask')}"

    steps = {"ask": talk("ask"), "pay": pay, "check": check}
    inner = Pipeline("inner", steps, {"pay": ["ask"], "check": ["pay"]})
    twice = Pipeline(
        "twice", {"deep": inner.as_step(), "deeper": talk("deeper", "deep")}, {"deeper": ["deep"]}
    )

    @step
    async def both(ctx: StepContext) -> str:
        ran(ctx)
        direct = Pipeline("direct", {"one": talk("one"), "two": talk("two", "one")}, {"two": ["one"]})
        outputs = [(await direct.execute({"text": f"number {number}"})).output for number in range(3)]
        return " ".join([ctx.get_dependency("outer"), *outputs])

    return Shape(
        Pipeline(
            "nested",
            {"outer": twice.as_step(config=StepConfig(retry=AGAIN)), "both": both},
            {"both": ["outer"]},
            config=config,
        ),
        {"text": "nested"},
    )


def asks(name: str, **options: Any) -> Any:
    """A step that pays for advice and posts something before it asks a person two questions."""
    adviser = agent(name)

    @step(**options)
    async def ask(ctx: StepContext) -> str:
        ran(ctx)
        advice = (await ctx.run(adviser, f"advise {name}")).output
        posted = await ctx.once("post", effect(ctx, f"post {name}"))
        sure = await ctx.ask(f"{name}: sure?", bool)
        which = await ctx.ask(f"{name}: which?", options=["left", "right"])
        return f"{advice} {posted} {sure} {which} {(await ctx.run(adviser, f'go {which}')).output}"

    return ask


MESSAGES: Final = [1, 2, 3]
"""To each run that waits for `number`, which it receives in this order."""


async def waits(ctx: StepContext, name: str) -> str:
    """Sleep, and receive a message, and do something before and between that must not be done twice."""
    before = await ctx.once("before", effect(ctx, f"before {name}"))
    await ctx.sleep(0.02)
    between = await ctx.once("between", effect(ctx, f"between {name}"))
    number = await ctx.receive("number", int)
    late = await ctx.receive("never", timeout=0.01, on_timeout="late")
    return f"{before} {between} {number} {late}"


def naps(name: str, *needs: str, sure: bool = False) -> Any:
    """A step that pays for advice, and waits; what it says of the number is for others to tell."""
    adviser = agent(name)

    @step
    async def nap(ctx: StepContext) -> str:
        ran(ctx)
        advice = (await ctx.run(adviser, f"advise {name}")).output
        waited = await waits(ctx, name)
        said = await ctx.ask(f"{name}: sure?", bool) if sure else None
        return f"{advice} {waited} {said} {(await ctx.run(adviser, f'go {waited}')).output}"

    return nap


@shape
def waited(config: PipelineConfig) -> Shape:
    """Steps sleep and receive messages one after the other, one of them nested; one asks meanwhile."""
    inner = Pipeline("inner", {"nap": naps("in"), "after": talk("after", "nap")}, {"after": ["nap"]})
    steps = {"out": naps("out", sure=True), "inner": inner.as_step(), "last": naps("last")}
    edges = {"inner": ["out"], "last": ["inner", "ask"]}
    answers = {f"{name}: sure?": True for name in ("out", "ask")}
    answers |= {"ask: which?": "left"}
    pipeline = Pipeline("waited", {**steps, "ask": asks("ask")}, edges, config=config)
    return Shape(pipeline, {"text": "waited"}, answers)


@shape
def files(config: PipelineConfig) -> Shape:
    """A step waits for a file, which is a kind of wait from outside the library; another one writes it."""

    @step
    async def wait(ctx: StepContext) -> str:
        ran(ctx)
        before = await ctx.once("before", effect(ctx, "before"))
        text = await ctx.wait_for(FileAppears(name=ctx.run_id, folder=Notebook.path.parent))
        return f"{before} {text} {await ctx.once('after', effect(ctx, 'after'))}"

    @step
    async def write(ctx: StepContext) -> None:
        ran(ctx)
        await ctx.once("write", effect(ctx, "write"))
        partial = Notebook.path.parent / f"{ctx.run_id}.partial"
        partial.write_text("report")
        partial.rename(Notebook.path.parent / ctx.run_id)

    steps = {"wait": wait, "write": write, "end": talk("end", "wait")}
    pipeline = Pipeline("files", steps, {"end": ["wait"]}, output_step="end", config=config)
    return Shape(pipeline, {"text": "files"})


@shape
def asked(config: PipelineConfig) -> Shape:
    """Two steps ask side by side, one of them in a nested pipeline, and a third goes on meanwhile."""
    inner = Pipeline("inner", {"ask": asks("in"), "after": talk("after", "ask")}, {"after": ["ask"]})
    steps = {"out": asks("out"), "inner": inner.as_step(), "free": talk("free"), "end": talk("end", "inner")}
    edges = {"end": ["out", "inner", "free"]}
    answers = {f"{name}: sure?": True for name in ("in", "out")}
    answers |= {"in: which?": "left", "out: which?": "right"}
    return Shape(Pipeline("asked", steps, edges, config=config), {"text": "asked"}, answers)


@shape
def approvals(config: PipelineConfig) -> Shape:
    """Tool calls wait for people, whose answers come with several resumptions."""
    clerk = agent(
        "clerk",
        tools=[Tool(approved, requires_approval=True), Tool(elsewhere), Tool(fact)],
        capabilities=[AskPeople()],
    )

    @step
    async def refund(ctx: StepContext) -> str:
        ran(ctx)
        return str((await ctx.run(clerk, "refunds")).output)

    steps = {"refund": refund, "free": talk("free"), "end": talk("end", "refund")}
    pipeline = Pipeline("approvals", steps, {"end": ["refund", "free"]}, config=config)
    answers = {"approved": True, "elsewhere": "from outside"}
    return Shape(pipeline, {"text": "refunds"}, answers)


@shape
def mapped(config: PipelineConfig) -> Shape:
    mapper = agent("mapper")

    @step
    async def item(ctx: StepContext) -> str:
        number = ctx.get_input("item")
        answer = (await ctx.run(mapper, f"item {number}")).output
        done = await ctx.once("post", effect(ctx, f"post {number}"))
        return f"{answer} {done}"

    @step
    async def agents(ctx: StepContext) -> list[str]:
        ran(ctx)
        same = await ctx.map(mapper, ["same", "same", "same"])
        return [
            response.output for response in [*same, *await ctx.map(mapper, ["x", "y", "z"], concurrency=2)]
        ]

    @step
    async def steps(ctx: StepContext) -> list[str]:
        ran(ctx)
        return await ctx.map(item, [1, 2, 3]) + await ctx.map(item, [4, 5], concurrency=1)

    @step
    async def join(ctx: StepContext) -> str:
        ran(ctx)
        return " ".join([*ctx.get_dependency("agents"), *ctx.get_dependency("steps")])

    return Shape(
        Pipeline(
            "mapped",
            {"agents": agents, "steps": steps, "join": join},
            {"join": ["agents", "steps"]},
            config=config,
        ),
        {},
    )


@shape
def effects(config: PipelineConfig) -> Shape:
    teller = agent("teller")

    @step(retry=AGAIN)
    async def pay(ctx: StepContext) -> str:
        ran(ctx)
        paid = await ctx.once("pay", effect(ctx, "pay"))
        if ctx.attempt == 1:
            raise ConnectionError("after it was paid")
        told = await ctx.run(teller, f"{paid}, attempt {ctx.attempt}")
        mailed = await ctx.once("mail", effect(ctx, "mail"))
        return f"{told.output} {mailed}"

    @step
    def ship(ctx: StepContext) -> str:
        ran(ctx)
        return ctx.once_sync("ship", effect(ctx, "ship"))

    @step
    async def done(ctx: StepContext) -> str:
        ran(ctx)
        return f"{ctx.get_dependency('pay')}, {ctx.get_dependency('ship')}"

    return Shape(
        Pipeline(
            "effects", {"pay": pay, "ship": ship, "done": done}, {"done": ["pay", "ship"]}, config=config
        ),
        {},
    )


@shape
def retried(config: PipelineConfig) -> Shape:
    asker = agent("asker")

    def draft(text: str) -> str:
        if text == "draft":
            raise ModelRetry("that was a draft")
        return text

    drafter = agent("drafter", output_type=TextOutput(draft))

    @step(retry=AGAIN)
    async def flaky(ctx: StepContext) -> str:
        ran(ctx)
        first = (await ctx.run(asker, f"busy broken {ctx.attempt}")).output
        if ctx.attempt < 3:
            raise ConnectionError(f"attempt {ctx.attempt} failed after {first}")
        return str(first)

    @step(retry=AGAIN)
    async def garbled(ctx: StepContext) -> str:
        ran(ctx)
        before = (await ctx.run(asker, "before")).output
        return before + str((await ctx.run(asker, "garbled")).output)

    @step
    async def drafted(ctx: StepContext) -> str:
        ran(ctx)
        return str((await ctx.run(drafter, "write a draft")).output)

    @step
    async def join(ctx: StepContext) -> str:
        ran(ctx)
        return " ".join(ctx.get_dependency(one) for one in ("flaky", "garbled", "drafted"))

    steps = {"flaky": flaky, "garbled": garbled, "drafted": drafted, "join": join}
    return Shape(Pipeline("retried", steps, {"join": ["flaky", "garbled", "drafted"]}, config=config), {})


@shape
def streamed(config: PipelineConfig) -> Shape:
    streamer = agent("streamer", tools=[Tool(fact), Tool(poll)])

    @step
    async def stream(ctx: StepContext) -> str:
        ran(ctx)
        text = ""
        for prompt in ("stream this text which comes in pieces", "poll"):
            async with ctx.run_stream(streamer, prompt) as chunks:
                async for chunk in chunks:
                    text += chunk.content or ""
        return text

    return Shape(
        Pipeline(
            "streamed",
            {"stream": stream, "after": talk("after", "stream")},
            {"after": ["stream"]},
            config=config,
        ),
        {},
    )


@shape
def fallback(config: PipelineConfig) -> Shape:
    faller = agent("faller", FallbackModel(*(agent("one", model).agent.model for model in (CHAT, CLAUDE))))

    @step(retry=AGAIN)
    async def fall(ctx: StepContext) -> str:
        ran(ctx)
        first = (await ctx.run(faller, "fall back one")).output
        return f"{first} {(await ctx.run(faller, 'fall back two')).output}"

    return Shape(
        Pipeline(
            "fallback", {"fall": fall, "after": talk("after", "fall")}, {"after": ["fall"]}, config=config
        ),
        {},
    )


class Desk(BasePipeline[Any, Any, str]):
    """Asks an agent where to go."""

    def __init__(self) -> None:
        super().__init__("desk")
        self.chooser = agent("chooser")

        @step
        async def fail(ctx: StepContext) -> str:
            ran(ctx)
            raise ConnectionError("this one never works")

        first = Pipeline("short", {"say": talk("say"), "fail": fail}, {"fail": ["say"]})
        second = Pipeline("long", {"say": talk("long"), "on": talk("on", "say")}, {"on": ["say"]})
        self.register_pipeline("short", first, fallback="long")
        self.register_pipeline("long", second)

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        answer = (await self.chooser.run("where to")).output
        return "short" if answer == "echo: where to" else "nowhere"


@shape
def routed(config: PipelineConfig) -> Shape:
    desk = Desk()

    @step
    async def twice(ctx: StepContext) -> str:
        ran(ctx)
        return " ".join([str((await desk.execute({"text": text})).output) for text in ("one", "two")])

    steps = {"desk": desk.as_step(), "after": talk("after", "desk"), "twice": twice}
    edges = {"after": ["desk"], "twice": ["after"]}
    return Shape(Pipeline("routed", steps, edges, config=config), {"text": "routed"})


@shape
def budgeted(config: PipelineConfig) -> Shape:
    """With room for a few requests that are lost, and no more. The steps have more of their own."""
    steps = {"a": talk("a"), **{f"b{n}": talk(f"b{n}", "a", cost_budget=6_000) for n in range(4)}}
    ends = {"end": talk("end", "b0")}
    edges = {f"b{n}": ["a"] for n in range(4)} | {"end": [f"b{n}" for n in range(4)]}
    return Shape(
        Pipeline("budgeted", steps | ends, edges, config=_with_budget(config, BUDGETS_USD["budgeted"])),
        {"text": "budgeted"},
    )


@shape
def cut_short(config: PipelineConfig) -> Shape:
    """Steps that share a budget, which cuts the answer of one of them; it is asked for again."""

    def ask(name: str) -> Any:
        one: FastroAgent[Any, Any] = FastroAgent(CHAT, name=name)

        @step
        async def ask_step(ctx: StepContext) -> str:
            ran(ctx)
            return str((await ctx.run(one, f"{name} of {ctx.get_input('text')}")).output)

        return ask_step

    asking = {name: ask(name) for name in ("at length", "b", "c", "d")}
    edges = {"end": list(asking)}
    limited = _with_budget(config, BUDGETS_USD["cut_short"])
    return Shape(
        Pipeline("cut_short", asking | {"end": talk("end", "at length")}, edges, config=limited),
        {"text": "cut_short"},
    )


def _with_budget(config: PipelineConfig, usd: Decimal) -> PipelineConfig:
    return replace(config, budget=Budget(usd=usd))
