"""What identifies an answer on record: what is declared for its call, and not what its requests say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import DeferredToolRequests
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from support.agents import TOKEN_IS_MICROCENT, prompt_of
from support.interruptions import RUN, DyingStore, When, entries_of, go_on, interrupt, nth

from fastroai import FastroAgent, Pipeline, RunHistory, StepContext, compute, flow, infer, step
from fastroai.errors import CallChangedError, RunStoreUnavailable, StepExecutionError
from fastroai.functions import contract
from fastroai.functions.errors import FlowDiverged
from fastroai.runtime.facts import (
    CallChanged,
    CallEnded,
    CallLeftOver,
    ReplayDiverged,
    RequestEnded,
    StepFinished,
    ToolEnded,
)
from fastroai.store import MemoryRunStore
from fastroai.testing import ModelServer, Reply, ServedRequest

MODEL = "openai:gpt-4.1-mini"
OLD, NEW = "Name the animal", "Name the plant"


@contract
class Named(BaseModel):
    """A name."""

    response: str
    certainty: float = 1.0


class Desk:
    """A model server whose answers say which intent they were given, and a flow over some texts."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.model = server.model(MODEL)

        @server.rule()
        def answer(request: ServedRequest) -> Reply:
            text = str(request.body["input"])
            said = "plant" if "plant" in text else "animal"
            is_typed = "name" in str(request.body.get("tools")) or "schema" in str(request.body.get("text"))
            return Reply(data={"response": said}) if is_typed else Reply(said)

    @property
    def sent(self) -> int:
        return len(self.server.ledger.entries)

    def flow_of(self, intent: str = OLD, returns: Any = str, number: int = 30, **options: Any) -> Any:
        async def name_it(text: str) -> Any:
            raise NotImplementedError

        name_it.__annotations__["return"] = returns
        named = infer(**{"intent": intent, "model": self.model, **options})(name_it)

        @flow
        async def names(prefix: str) -> list[str]:
            outputs: list[Any] = [await named(f"{prefix} {index}") for index in range(number)]
            return [one.response if isinstance(one, Named) else one for one in outputs]

        return names


async def interrupt_flow(flow: Any, store: Any, when: When, *arguments: Any) -> None:
    """Run a flow until the write, which happens as the last one."""
    with pytest.raises(RunStoreUnavailable):
        await flow.run(*arguments, run_id=RUN, store=DyingStore(store, when, written=True))


async def of_kind(store: Any, kind: type[Any]) -> list[Any]:
    return [one for one in await entries_of(store) if isinstance(one, kind)]


# --- typed functions in flows ---


async def test_a_flow_whose_intent_was_edited_asks_anew_what_it_has_on_record(server: ModelServer) -> None:
    desk, store, told = Desk(server), MemoryRunStore(), list[Any]()
    await interrupt_flow(desk.flow_of(OLD), store, nth(CallEnded, 9), "a")
    assert desk.sent == 9

    names = await desk.flow_of(NEW).resume(RUN, store=store, on_event=told.append)

    assert names == ["plant"] * 30
    assert desk.sent == 9 + 30
    changed = await of_kind(store, CallChanged)
    assert [(one.answer, one.changed) for one in changed] == [("asked_anew", ("intent",))] * 9
    assert [one for one in told if isinstance(one, CallChanged)] == changed
    trace = await RunHistory(store).trace(RUN)
    assert trace.changed_calls == tuple(changed)
    assert trace.usage.request_count == 39, "what was on record stays charged"
    assert "asks anew, because its intent has changed since its answer was put on record" in trace.explain()


async def test_a_flow_can_keep_the_answers_of_the_intent_before(server: ModelServer) -> None:
    desk, store = Desk(server), MemoryRunStore()
    await interrupt_flow(desk.flow_of(OLD), store, nth(CallEnded, 9), "a")

    names = await desk.flow_of(NEW).resume(RUN, store=store, on_changed="keep")

    assert names == ["animal"] * 9 + ["plant"] * 21
    assert desk.sent == 30
    changed = await of_kind(store, CallChanged)
    assert [(one.answer, one.changed) for one in changed] == [("kept", ("intent",))] * 9
    told = (await RunHistory(store).trace(RUN)).explain()
    assert "keeps its answer, although its intent has changed since its answer was put on record" in told


async def test_a_flow_can_refuse_answers_of_the_intent_before_and_still_keep_them_later(
    server: ModelServer,
) -> None:
    desk, store = Desk(server), MemoryRunStore()
    await interrupt_flow(desk.flow_of(OLD), store, nth(CallEnded, 9), "a")

    with pytest.raises(CallChangedError) as refused:
        await desk.flow_of(NEW).resume(RUN, store=store, on_changed="fail")

    error = refused.value
    assert (error.run_id, error.step, error.changed, error.misfit) == (RUN, "body", ("intent",), None)
    assert str(error) == (
        "step 'body' of run 'r1': the declaration of 'name_it' has changed (intent) since its answer was "
        "stored, and on_changed='fail'; nothing was sent. Resume the run with the earlier declaration, "
        "with on_changed='ask' to ask the model again, or with on_changed='keep' to use the stored answer"
    )
    assert desk.sent == 9
    assert not await of_kind(store, CallChanged)
    assert await desk.flow_of(OLD).resume(RUN, store=store, on_changed="fail") == ["animal"] * 30
    assert desk.sent == 30


@pytest.mark.parametrize(
    ("changed", "before", "now"),
    [
        ("context", {"context": "Be brief."}, {"context": ["Be brief.", "Be exact."]}),
        ("settings", {"temperature": 0.5}, {"temperature": 1.0}),
        ("model", {}, {"model": "openai:gpt-4.1-nano"}),
        ("output", {}, {"returns": Named}),
    ],
)
async def test_everything_that_is_declared_for_a_function_is_compared(
    server: ModelServer, changed: str, before: dict[str, Any], now: dict[str, Any]
) -> None:
    desk, store = Desk(server), MemoryRunStore()
    if "model" in now:
        now = {"model": server.model(now["model"])}
    await interrupt_flow(desk.flow_of(number=3, **before), store, nth(CallEnded, 2), "a")

    names = await desk.flow_of(number=3, **now).resume(RUN, store=store)

    assert names == ["animal"] * 3
    assert desk.sent == 2 + 3
    assert [one.changed for one in await of_kind(store, CallChanged)] == [(changed,)] * 2


async def test_what_is_not_declared_for_the_answer_is_not_compared(server: ModelServer) -> None:
    desk, store = Desk(server), MemoryRunStore()
    await interrupt_flow(desk.flow_of(number=3), store, nth(CallEnded, 2), "a")

    fallback = FallbackModel(desk.model, server.model("openai:gpt-4.1-nano"))
    other: dict[str, Any] = {
        "ensure": lambda name: bool(name),
        "retries": 1,
        "budget": None,
        "model": fallback,
    }
    names = await desk.flow_of(number=3, **other).resume(RUN, store=store, on_changed="fail")

    assert names == ["animal"] * 3
    assert desk.sent == 3
    assert not await of_kind(store, CallChanged)


async def test_an_answer_that_is_kept_must_still_be_of_the_type(server: ModelServer) -> None:
    desk, store = Desk(server), MemoryRunStore()
    await interrupt_flow(desk.flow_of(number=3), store, nth(CallEnded, 2), "a")

    with pytest.raises(CallChangedError, match="does not fit it") as refused:
        await desk.flow_of(returns=Named, number=3).resume(RUN, store=store, on_changed="keep")
    assert refused.value.changed == ("output",)
    assert desk.sent == 2

    assert await desk.flow_of(returns=Named, number=3).resume(RUN, store=store) == ["animal"] * 3
    assert desk.sent == 2 + 3


async def test_a_call_that_is_asked_anew_is_on_record_for_the_next_process(server: ModelServer) -> None:
    desk, store = Desk(server), MemoryRunStore()
    await interrupt_flow(desk.flow_of(OLD, number=4), store, nth(CallEnded, 3), "a")
    with pytest.raises(RunStoreUnavailable):
        dying = DyingStore(store, nth(CallEnded, 2), written=True)
        await desk.flow_of(NEW, number=4).resume(RUN, store=dying)
    assert desk.sent == 3 + 2

    names = await desk.flow_of(NEW, number=4).resume(RUN, store=store)

    assert names == ["plant"] * 4
    assert desk.sent == 3 + 4
    assert len(await of_kind(store, CallChanged)) == 3


async def test_a_call_whose_first_answer_is_on_record_when_it_has_changed_is_asked_anew(
    server: ModelServer,
) -> None:
    desk, store = Desk(server), MemoryRunStore()
    await interrupt_flow(desk.flow_of(OLD, number=1), store, nth(RequestEnded), "a")

    assert await desk.flow_of(NEW, number=1).resume(RUN, store=store) == ["plant"]

    assert desk.sent == 2
    [changed] = await of_kind(store, CallChanged)
    assert (changed.call, changed.answer, changed.changed) == ("attempt 1", "asked_anew", ("intent",))
    assert not await of_kind(store, ReplayDiverged), "told once"


async def test_steps_that_have_finished_stay_finished(server: ModelServer) -> None:
    desk, store = Desk(server), MemoryRunStore()

    def pipeline(intent: str) -> Pipeline[Any, Any]:
        @infer(intent=intent, model=desk.model)
        async def name_it(text: str) -> str:
            raise NotImplementedError

        @step
        async def last(ctx: StepContext[None]) -> str:
            return f"{ctx.get_dependency('name_it')}, {await name_it('other')}"

        return Pipeline("p", {"name_it": name_it, "last": last}, {"last": ["name_it"]})

    await interrupt(pipeline(OLD), store, nth(StepFinished), written=True, inputs={"text": "first"})
    result = await go_on(pipeline(NEW), store)

    assert result.output == "animal, plant"
    assert desk.sent == 2
    assert result.changed_calls == ()


# --- the calls after an answer that was asked anew ---


class Path:
    """A flow whose first answer decides which calls come next."""

    def __init__(self, server: ModelServer) -> None:
        self.desk = Desk(server)
        self.done: list[str] = []

    def flow(self, intent: str, *, computes: str = "", nested: bool = False, other: bool = True) -> Any:
        @infer(intent=intent, model=self.desk.model)
        async def kind_of(text: str) -> str:
            raise NotImplementedError

        @infer(intent="Name the animal or plant", model=self.desk.model)
        async def describe(kind: str) -> str:
            raise NotImplementedError

        @compute
        async def save(kind: str) -> str:
            self.done.append(kind)
            return kind

        @compute
        async def last(text: str) -> str:
            return text

        @flow
        async def inner(kind: str) -> str:
            described = await describe(kind)
            if computes == "inside":
                await save(kind)
            return described

        @flow
        async def outer(text: str) -> str:
            kind = await kind_of(text)
            if kind == "animal" or other:
                await (inner(kind) if nested else describe(kind))
            if computes == "outside":
                await save(kind)
            return await last(kind)

        return outer


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("other", [True, False], ids=["other calls", "fewer calls"])
async def test_other_calls_after_an_answer_that_was_asked_anew_are_no_divergence(
    server: ModelServer, nested: bool, other: bool
) -> None:
    path, store = Path(server), MemoryRunStore()
    await interrupt_flow(path.flow(OLD, nested=nested), store, nth(CallEnded, 2), "a")
    told: list[Any] = []

    result = await path.flow(NEW, nested=nested, other=other).resume(RUN, store=store, on_event=told.append)

    assert result == "plant"
    assert path.desk.sent == 2 + (2 if other else 1)
    [left] = await of_kind(store, CallLeftOver)
    assert [one for one in told if isinstance(one, CallLeftOver)] == [left]
    trace = await RunHistory(store).trace(RUN)
    assert trace.left_over_calls == (left,)
    assert "on record is not made again, because an answer before it was asked anew" in trace.explain()
    assert trace.usage.request_count == path.desk.sent, "it stays charged"


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_a_computation_that_would_be_left_over_refuses(server: ModelServer, where: str) -> None:
    path, store = Path(server), MemoryRunStore()
    when = nth(CallEnded, 3)
    await interrupt_flow(path.flow(OLD, computes=where, nested=True), store, when, "a")
    assert path.done == ["animal"]

    with pytest.raises(FlowDiverged):
        await path.flow(NEW, computes=where, nested=True).resume(RUN, store=store)
    with pytest.raises(FlowDiverged):  # in the next process, too
        await path.flow(NEW, computes=where, nested=True).resume(RUN, store=store)

    result = await path.flow(OLD, computes=where, nested=True).resume(RUN, store=store)
    assert result == "animal"


async def test_a_flow_that_makes_other_calls_by_itself_still_diverges(server: ModelServer) -> None:
    path, store = Path(server), MemoryRunStore()
    await interrupt_flow(path.flow(OLD), store, nth(CallEnded, 2), "a")
    desk = path.desk

    @infer(intent=OLD, model=desk.model)
    async def kind_of(text: str) -> str:
        raise NotImplementedError

    @compute
    async def last(text: str) -> str:
        return text

    @flow
    async def outer(text: str) -> str:
        return await last(await kind_of(text))

    with pytest.raises(FlowDiverged):
        await outer.resume(RUN, store=store)


# --- agents in steps ---


class Clerk:
    """Agents whose model calls the tool `work` until it has been asked `requests` times."""

    def __init__(self, requests: int = 1) -> None:
        self.requests, self.asked, self.worked = requests, list[str](), list[str]()
        self.clock = count(1)

    def agent(self, model_name: str = "paid", answer: str = "", **options: Any) -> FastroAgent[Any, Any]:
        async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            prompt = prompt_of(messages)
            self.asked.append(prompt)
            returned = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
            usage = RequestUsage(input_tokens=100)
            if len(returned) + 1 < self.requests:
                part = ToolCallPart("work", {"what": prompt}, tool_call_id=f"{prompt} {len(returned)}")
                return ModelResponse(parts=[part], usage=usage)
            return ModelResponse(parts=[TextPart(answer or f"{model_name}: {prompt}")], usage=usage)

        async def work(what: str) -> str:
            """Work."""
            self.worked.append(what)
            return "done"

        if self.requests > 1:
            options.setdefault("tools", [work])
        options.setdefault("cost_calculator", TOKEN_IS_MICROCENT)
        return FastroAgent(FunctionModel(respond, model_name=model_name), name="clerk", **options)

    def now(self) -> str:
        return f"It is {next(self.clock)} o'clock."


def one_step(agent: FastroAgent[Any, Any], prompts: Sequence[str] = ("a", "b"), **run: Any) -> Any:
    @step
    async def work(ctx: StepContext[None]) -> list[Any]:
        return [(await ctx.run(agent, prompt, **run)).output for prompt in prompts]

    return Pipeline("p", {"work": work})


async def test_agent_calls_that_have_finished_are_found_although_their_instructions_have_the_time() -> None:
    clerk, store = Clerk(requests=2), MemoryRunStore()

    def pipeline() -> Any:
        return one_step(clerk.agent(instructions=clerk.now))

    await interrupt(pipeline(), store, nth(RequestEnded, 4), written=True)
    assert (clerk.asked, clerk.worked) == (["a", "a", "b", "b"], ["a", "b"])

    result = await go_on(pipeline(), store)

    assert result.output == ["paid: a", "paid: b"]
    assert (len(clerk.asked), len(clerk.worked)) == (4, 2)
    assert result.changed_calls == ()
    assert not await of_kind(store, ReplayDiverged)


async def test_an_agent_call_that_has_not_finished_is_found_by_its_requests() -> None:
    clerk, store = Clerk(requests=3), MemoryRunStore()

    def pipeline() -> Any:
        return one_step(clerk.agent(instructions=clerk.now), prompts=["a"])

    await interrupt(pipeline(), store, nth(ToolEnded, 2), written=True)
    assert len(clerk.asked) == 2

    await go_on(pipeline(), store)

    assert len(clerk.asked) == 2 + 3
    assert await of_kind(store, ReplayDiverged)


async def test_calls_that_have_finished_and_changed_places_are_found_too() -> None:
    clerk, store, prompts = Clerk(), MemoryRunStore(), ["a", "b"]

    def pipeline() -> Any:
        agent = clerk.agent(instructions=clerk.now)

        @step
        async def work(ctx: StepContext[None]) -> list[Any]:
            return [one.output for one in await asyncio.gather(*(ctx.run(agent, p) for p in prompts))]

        return Pipeline("p", {"work": work})

    await interrupt(pipeline(), store, nth(RequestEnded, 2), written=True)
    prompts.reverse()

    result = await go_on(pipeline(), store)

    assert result.output == ["paid: b", "paid: a"]
    assert len(clerk.asked) == 2


def function_of_time() -> str:
    return "It is late."


def function_of_place() -> str:
    return "It is late."


Declare = Callable[[Clerk, bool], Any]
CHANGES: dict[str, tuple[str, Declare]] = {
    "instructions": (
        "instructions",
        lambda clerk, new: one_step(clerk.agent(instructions="Be exact." if new else "Be brief.")),
    ),
    "system prompt": (
        "instructions",
        lambda clerk, new: one_step(clerk.agent(system_prompt="Be exact." if new else "Be brief.")),
    ),
    "more instructions": (
        "instructions",
        lambda clerk, new: one_step(clerk.agent(instructions=["Be brief.", "Be exact."][: 1 + new])),
    ),
    "function of instructions": (
        "instructions",
        lambda clerk, new: one_step(clerk.agent(instructions=function_of_place if new else function_of_time)),
    ),
    "model": ("model", lambda clerk, new: one_step(clerk.agent("other" if new else "paid"))),
    "model of the call": (
        "model",
        lambda clerk, new: one_step(clerk.agent(), model=clerk.agent("other").agent.model if new else None),
    ),
    "settings": ("settings", lambda clerk, new: one_step(clerk.agent(max_tokens=200 if new else 100))),
    "settings of the call": (
        "settings",
        lambda clerk, new: one_step(clerk.agent(), model_settings={"seed": 2} if new else None),
    ),
    "output": (
        "output",
        lambda clerk, new: one_step(clerk.agent(output_type=[str, int] if new else str)),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_an_agent_that_was_changed_is_asked_anew(what: str) -> None:
    (changed, pipeline), clerk, store = CHANGES[what], Clerk(), MemoryRunStore()
    await interrupt(pipeline(clerk, False), store, nth(RequestEnded), written=True)

    result = await go_on(pipeline(clerk, True), store)

    by = "other" if changed == "model" else "paid"
    assert result.output == [f"{by}: a", f"{by}: b"]
    assert clerk.asked == ["a", "a", "b"]
    assert [(one.place, one.call, one.changed) for one in result.changed_calls] == [
        ("work@1", "1", (changed,))
    ]
    assert result.usage.request_count == 3
    uses = sorted(record.use for record in result.usage.records)
    assert uses == ["kept", "kept", "retried"]
    assert not await of_kind(store, ReplayDiverged)


@pytest.mark.parametrize("what", [one for one in CHANGES if one != "output"])
async def test_an_agent_that_was_changed_can_keep_its_answer(what: str) -> None:
    (changed, pipeline), clerk, store = CHANGES[what], Clerk(), MemoryRunStore()
    await interrupt(pipeline(clerk, False), store, nth(RequestEnded), written=True)

    result = await pipeline(clerk, True).resume(RUN, store=store, on_changed="keep")

    by = "other" if changed == "model" else "paid"
    assert result.output == ["paid: a", f"{by}: b"]
    assert clerk.asked == ["a", "b"]
    assert [(one.answer, one.changed) for one in result.changed_calls] == [("kept", (changed,))]


@pytest.mark.parametrize("what", CHANGES)
async def test_an_agent_that_was_changed_can_fail_before_anything_is_sent(what: str) -> None:
    (changed, pipeline), clerk, store = CHANGES[what], Clerk(), MemoryRunStore()
    await interrupt(pipeline(clerk, False), store, nth(RequestEnded), written=True)

    with pytest.raises(StepExecutionError) as failed:
        await pipeline(clerk, True).resume(RUN, store=store, on_changed="fail")

    error = failed.value.original_error
    assert isinstance(error, CallChangedError)
    assert (error.step, error.call, error.changed) == ("work", "agent call 1", (changed,))
    assert clerk.asked == ["a"]
    result = await pipeline(clerk, False).resume(RUN, store=store, on_changed="fail")
    assert result.output == ["paid: a", "paid: b"]
    assert clerk.asked == ["a", "b"], "the answer on record was not lost"


async def test_a_refusal_in_a_group_of_tasks_loses_no_answer_either() -> None:
    clerk, store = Clerk(), MemoryRunStore()

    def pipeline(model_name: str) -> Any:
        agent = clerk.agent(model_name)

        @step
        async def work(ctx: StepContext[None]) -> list[Any]:
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(ctx.run(agent, prompt)) for prompt in ("a", "b")]
            return [call.result().output for call in calls]

        return Pipeline("p", {"work": work})

    dying = DyingStore(store, nth(RequestEnded, 2), written=True)
    with pytest.raises(StepExecutionError):
        await pipeline("old").execute(run_id=RUN, store=dying)
    with pytest.raises(StepExecutionError):
        await pipeline("new").resume(RUN, store=store, on_changed="fail")

    result = await pipeline("new").resume(RUN, store=store, on_changed="keep")

    assert result.output == ["old: a", "old: b"]
    assert clerk.asked == ["a", "b"]


class Answer(BaseModel):
    """An answer."""

    number: int


async def test_an_agent_whose_kept_answer_does_not_fit_any_more_says_so_and_sends_nothing() -> None:
    clerk, store = Clerk(), MemoryRunStore()
    await interrupt(one_step(clerk.agent()), store, nth(RequestEnded), written=True)

    with pytest.raises(StepExecutionError) as failed:
        changed = one_step(clerk.agent(output_type=Answer, retries=3))
        await changed.resume(RUN, store=store, on_changed="keep")

    error = failed.value.original_error
    assert isinstance(error, CallChangedError)
    assert error.changed == ("output",)
    assert error.misfit is not None
    assert clerk.asked == ["a"]


async def test_tools_of_a_call_that_is_asked_anew_are_called_anew() -> None:
    clerk, store = Clerk(requests=2), MemoryRunStore()
    await interrupt(one_step(clerk.agent(instructions="Old.")), store, nth(RequestEnded, 2), written=True)

    dying = DyingStore(store, nth(ToolEnded), written=True)
    with pytest.raises(RunStoreUnavailable):
        await one_step(clerk.agent(instructions="New.")).resume(RUN, store=dying)
    assert (clerk.asked, clerk.worked) == (["a", "a", "a"], ["a", "a"])

    result = await one_step(clerk.agent(instructions="New.")).resume(RUN, store=store)

    assert result.output == ["paid: a", "paid: b"]
    assert (len(clerk.asked), len(clerk.worked)) == (2 + 4, 3), "and only once"
    assert [one.answer for one in result.changed_calls] == ["asked_anew"]


async def test_an_unfinished_call_that_is_kept_uses_the_answers_so_far() -> None:
    clerk, store = Clerk(requests=3), MemoryRunStore()
    await interrupt(one_step(clerk.agent(instructions="Old."), ["a"]), store, nth(ToolEnded), written=True)

    changed = one_step(clerk.agent(instructions="New."), ["a"])
    result = await changed.resume(RUN, store=store, on_changed="keep")

    assert result.output == ["paid: a"]
    assert (len(clerk.asked), len(clerk.worked)) == (3, 2)


async def test_calls_after_an_agent_that_was_asked_anew_are_told_if_they_do_not_come() -> None:
    clerk, store = Clerk(), MemoryRunStore()

    def pipeline(answer: str) -> Any:
        agent = clerk.agent(answer=answer, instructions=answer)

        @step
        async def work(ctx: StepContext[None]) -> str:
            first = (await ctx.run(agent, "which")).output
            if first == "both":
                await ctx.run(agent, "and more")
            return first

        return Pipeline("p", {"work": work})

    await interrupt(pipeline("both"), store, nth(RequestEnded, 2), written=True)

    result = await go_on(pipeline("one"), store)

    assert result.output == "one"
    assert [(one.place, one.call) for one in result.left_over_calls] == [("work@1", "2")]
    assert result.usage.request_count == 3


async def test_a_call_that_has_deferred_tools_is_found_when_the_step_goes_on() -> None:
    asked: list[str] = []
    clock = count(1)

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(prompt_of(messages))
        return ModelResponse(parts=[ToolCallPart("book", {}, tool_call_id="1")])

    def pipeline() -> Any:
        agent = FastroAgent(
            FunctionModel(respond, model_name="paid"),
            instructions=lambda: f"It is {next(clock)} o'clock.",
            output_type=[str, DeferredToolRequests],
        )

        @agent.tool_plain
        async def book() -> str:
            """Book."""
            raise CallDeferred

        @step
        async def work(ctx: StepContext[None]) -> str:
            await ctx.run(agent, "Book it")
            return str(await ctx.ask("Did it work?", name="asked"))

        return Pipeline("p", {"work": work})

    store = MemoryRunStore()
    paused = await pipeline().execute(run_id=RUN, store=store)
    [question] = paused.questions

    result = await pipeline().resume(RUN, store=store, answers={question.id: "yes"})

    assert result.output == "yes"
    assert asked == ["Book it"]


# --- logs of format 2 ---


async def test_records_without_what_was_declared_count_as_unchanged(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, clerk, store, other = Desk(server), Clerk(), MemoryRunStore(), MemoryRunStore()
    with monkeypatch.context() as before:
        before.setattr("fastroai.functions.inferring.InferFunction.declares", lambda self: {})
        before.setattr("fastroai.agent.requests.recorded_requests.CallOnRecord.to_record", lambda self: None)
        await interrupt_flow(desk.flow_of(OLD, number=3), store, nth(CallEnded, 2), "a")
        await interrupt(one_step(clerk.agent("old")), other, nth(RequestEnded), written=True)

    names = await desk.flow_of(NEW, number=3).resume(RUN, store=store, on_changed="fail")
    result = await one_step(clerk.agent("new")).resume(RUN, store=other, on_changed="fail")

    assert names == ["animal", "animal", "plant"]
    assert result.output == ["old: a", "new: b"]
    assert not await of_kind(store, CallChanged)
    assert result.changed_calls == ()
