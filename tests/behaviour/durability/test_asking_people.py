"""Steps that ask people: the run halts, and goes on with the answer; nothing is paid for or done twice."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel
from pydantic_ai.models import Model
from support import doors
from support.faulty_store import FaultyStore, Write
from support.fork_server import Program
from support.patience import PATIENCE
from support.run_stores import run_stores
from support.stored_runs import entries_of

from fastroai import (
    Edge,
    FastroAgent,
    Graph,
    Inbox,
    MemoryRunStore,
    Node,
    Pipeline,
    PipelineConfig,
    StepContext,
    flow,
    step,
)
from fastroai.errors import (
    AnswerRejected,
    ConfigurationError,
    QuestionClosed,
    QuestionTimedOut,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
    StepExecutionError,
    ValueNotStorable,
)
from fastroai.functions import HumanReviewContext, await_human, configured
from fastroai.human import Question, to_console
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, RunFinished, StepHalted, StepStarted
from fastroai.steps.base import FunctionStep
from fastroai.store.record.memo import Memo
from fastroai.testing import ModelServer, Reply, ToolCall
from fastroai.testing.requests import ServedRequest


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


class Refund(BaseModel):
    approved: bool
    amount: int


def asks(question: str = "sure?", answer_type: Any = bool, **options: Any) -> FunctionStep[Any, Any]:
    """A step that asks one question, and gives the answer."""

    @step
    async def ask(ctx: StepContext[Any]) -> Any:
        return await ctx.ask(question, answer_type, **options)

    return ask


@step
async def other(ctx: StepContext[Any]) -> str:
    return "done"


@step
async def after(ctx: StepContext[Any]) -> list[Any]:
    return [ctx.get_dependency(before) for before in ctx.dependencies]


def desk(ask: FunctionStep[Any, Any], **options: Any) -> Pipeline[Any, Any]:
    return Pipeline(
        "desk", {"ask": ask, "other": other, "after": after}, {"after": ["ask", "other"]}, **options
    )


# --- halted, answered, resumed ---


async def test_the_run_halts_and_goes_on_with_the_answer_and_pays_for_nothing_twice(
    server: ModelServer, model: Model, store: Any
) -> None:
    server.rule(None, Reply("refund it"))
    agent, effects = FastroAgent(model), Counter[str]()

    def post() -> str:
        effects["post"] += 1
        return "posted"

    @step
    async def review(ctx: StepContext[Any]) -> str:
        advice = (await ctx.run(agent, "what now?")).output
        posted = await ctx.once("post", post)
        if await ctx.ask({"advice": advice}, bool, to="finance"):
            return f"{advice}, {posted}"
        return "no"

    pipeline = desk(review)
    paused = await pipeline.execute(run_id="r", store=store)
    (asked,) = paused.questions
    assert (asked.node, asked.question, asked.to) == ("ask", {"advice": "refund it"}, "finance")
    assert (paused.output, dict(paused.step_outputs)) == (None, {"other": "done"})
    assert (await pipeline.get_state("r", store=store)).outputs == {"other": "done"}
    assert paused.trace.replay(pipeline) is None
    assert await Inbox(store).list() == (asked,)
    assert await Inbox(store).get(asked.id) == asked

    assert await Inbox(store).answer(asked.id, True, reviewer="Mia", rationale="they are right")
    assert await Inbox(store).list() == ()
    assert (await entries_of(store, "r"))[-2].status == "paused", "an answer alone runs nothing"

    result = await pipeline.resume("r", store=store)
    assert (result.output, result.questions) == (["refund it, posted", "done"], ())
    assert result.trace.replay(pipeline) is None
    assert (len(server.ledger.entries), effects["post"]) == (1, 1)
    assert result.usage.request_count == 1
    (given,) = [fact for fact in result.trace.entries if isinstance(fact, AnswerGiven)]
    assert (given.answer, given.reviewer, given.rationale) == (True, "Mia", "they are right")
    explained = result.trace.explain()
    assert "ask: halted, and waits for an answer" in explained
    assert "ask: Mia has answered, because they are right" in explained


async def test_an_answer_can_come_with_the_resumption(store: Any) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> str:
        refund = await ctx.ask("how much?", Refund)
        return f"{refund.amount}, {refund.approved}"

    paused = await desk(ask).execute(run_id="r", store=store)
    (asked,) = paused.questions
    answers = {asked.id: Refund(approved=True, amount=3)}
    result = await desk(ask).resume("r", store=store, answers=answers)
    assert result.output == ["3, True", "done"]


async def test_a_step_that_is_resumed_without_an_answer_asks_the_same_question(store: Any) -> None:
    paused = await desk(asks()).execute(run_id="r", store=store)
    again = await desk(asks()).resume("r", store=store)
    assert [one.id for one in again.questions] == [one.id for one in paused.questions]
    assert [one.id for one in await Inbox(store).list()] == [paused.questions[0].id]


async def test_two_steps_ask_at_once_and_each_goes_on_with_its_answer(store: Any) -> None:
    pipeline = Pipeline(
        "both", {"a": asks("a?"), "b": asks("b?"), "end": after}, {"end": ["a", "b"]}, output_step="end"
    )
    paused = await pipeline.execute(run_id="r", store=store)
    first, second = paused.questions
    assert (first.question, second.question) == ("a?", "b?")
    assert await Inbox(store).answer(second.id, False) is False, "the other question is open"
    again = await pipeline.resume("r", store=store)
    assert [one.id for one in again.questions] == [first.id]
    assert dict(again.step_outputs) == {"b": False}
    assert await Inbox(store).answer(first.id, True) is True
    assert (await pipeline.resume("r", store=store)).output == [True, False]


async def test_questions_of_one_step_that_are_asked_side_by_side_are_answered_together(store: Any) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.ask(one, name=one)) for one in ("a", "b")]
        return [task.result() for task in tasks]

    paused = await desk(ask).execute(run_id="r", store=store)
    assert [one.question for one in paused.questions] == ["a", "b"]
    answers = {one.id: f"{one.question}!" for one in paused.questions}
    assert (await desk(ask).resume("r", store=store, answers=answers)).output == [["a!", "b!"], "done"]


async def test_each_item_of_a_map_can_ask(store: Any) -> None:
    @step
    async def item(ctx: StepContext[Any]) -> str:
        return f"{ctx.get_input('item')}: {await ctx.ask('which?', options=['left', 'right'])}"

    @step
    async def ask(ctx: StepContext[Any]) -> list[str]:
        return await ctx.map(item, ["x", "y"])

    paused = await desk(ask).execute(run_id="r", store=store)
    assert [one.node for one in paused.questions] == ["ask[0]", "ask[1]"]
    answers = dict(zip([one.id for one in paused.questions], ["left", "right"], strict=True))
    result = await desk(ask).resume("r", store=store, answers=answers)
    assert result.output == [["x: left", "y: right"], "done"]


async def test_an_item_that_asks_cuts_no_other_one_off(server: ModelServer, model: Model, store: Any) -> None:
    server.rule(None, Reply("advice"))
    agent = FastroAgent(model)

    @step
    async def item(ctx: StepContext[Any]) -> str:
        number = ctx.get_input("item")
        advice = "none" if number == 0 else (await ctx.run(agent, str(number))).output
        return f"{advice} {await ctx.ask(str(number))}"

    @step
    async def ask(ctx: StepContext[Any]) -> list[str]:
        return await ctx.map(item, range(4), concurrency=2)

    paused = await desk(ask).execute(run_id="r", store=store)
    assert sorted(one.question for one in paused.questions) == ["0", "1", "2", "3"]
    assert (len(server.ledger.entries), paused.usage.unmeasured_requests) == (3, 0)
    answers = {one.id: "yes" for one in paused.questions}
    result = await desk(ask).resume("r", store=store, answers=answers)
    assert result.output == [["none yes", *["advice yes"] * 3], "done"]
    assert len(server.ledger.entries) == 3


async def test_a_tool_of_an_agent_asks_and_the_model_is_not_asked_again(
    server: ModelServer, model: Model, store: Any
) -> None:
    def answer(request: ServedRequest) -> Reply:
        if request.tool_results:
            return Reply(f"the person said {request.tool_results[0].text}")
        return Reply(tool_calls=(ToolCall("confirm", {"what": "pay"}),))

    server.rule(None, answer)

    @step
    async def ask(ctx: StepContext[Any]) -> str:
        async def confirm(what: str) -> bool:
            return await ctx.ask(f"{what}?", bool)

        return str((await ctx.run(FastroAgent(model, tools=[confirm]), "go on")).output)

    paused = await desk(ask).execute(run_id="r", store=store)
    (asked,) = paused.questions
    assert (asked.question, len(server.ledger.entries)) == ("pay?", 1)
    result = await desk(ask).resume("r", store=store, answers={asked.id: True})
    assert result.output == ["the person said true", "done"]
    assert len(server.ledger.entries) == result.usage.request_count == 2


async def test_a_tool_that_asks_cuts_no_other_one_off(server: ModelServer, model: Model) -> None:
    served, asked = threading.Event(), threading.Event()

    def answer(request: ServedRequest) -> Reply:
        if request.prompt == "inner":
            served.set()
            asked.wait(PATIENCE)
            return Reply("advice")
        if request.tool_results:
            return Reply(" & ".join(one.text for one in request.tool_results))
        return Reply(tool_calls=(ToolCall("confirm", {}), ToolCall("research", {})))

    server.rule(None, answer)
    inner = FastroAgent(model, name="inner")

    @step
    async def ask(ctx: StepContext[Any]) -> str:
        async def confirm() -> str:
            await asyncio.to_thread(served.wait, PATIENCE)
            try:
                return await ctx.ask("sure?")
            finally:
                asked.set()

        async def research() -> str:
            return str((await inner.run("inner")).output)

        return str((await ctx.run(FastroAgent(model, tools=[confirm, research]), "go")).output)

    store = MemoryRunStore()
    paused = await desk(ask).execute(run_id="r", store=store)
    assert paused.usage.unmeasured_requests == 0
    answers = {paused.questions[0].id: "yes"}
    result = await desk(ask).resume("r", store=store, answers=answers)
    assert result.output == ["yes & advice", "done"]
    assert len(server.ledger.entries) == result.usage.request_count == 3


async def test_a_sync_step_asks_too(store: Any) -> None:
    @step
    def ask(ctx: StepContext[Any]) -> int:
        return ctx.ask_sync("how many?", int)

    paused = await desk(ask).execute(run_id="r", store=store)
    answers = {paused.questions[0].id: 4}
    assert (await desk(ask).resume("r", store=store, answers=answers)).output == [4, "done"]


async def test_a_pipeline_in_a_pipeline_asks_and_the_outer_run_waits(store: Any) -> None:
    inner = Pipeline("inner", {"ask": asks(), "other": other}, output_step="ask")
    outer = Pipeline("outer", {"inner": inner.as_step(), "end": after}, {"end": ["inner"]}, output_step="end")
    paused = await outer.execute(run_id="r", store=store)
    (asked,) = paused.questions
    assert (asked.pipeline, asked.node, paused.skipped) == ("outer", "ask", {})
    assert paused.trace.replay(outer) is None
    await Inbox(store).answer(asked.id, True)
    result = await outer.resume("r", store=store)
    assert result.output == [True]
    assert result.trace.replay(outer) is None
    started = [fact.step_id for fact in result.trace.entries if isinstance(fact, StepStarted)]
    assert started.count("other") == 1


async def test_code_of_the_step_does_not_take_the_halt_for_a_failure(store: Any) -> None:
    @step(retries=3, on_error="continue")
    async def ask(ctx: StepContext[Any]) -> object:
        try:
            return await ctx.ask("sure?", bool)
        except Exception:
            return "swallowed"

    paused = await desk(ask).execute(run_id="r", store=store)
    assert (len(paused.questions), paused.errors) == (1, {})
    started = [fact for fact in paused.trace.entries if isinstance(fact, StepStarted)]
    assert [fact.step_id for fact in started] == ["ask", "other"], "no retry"


async def test_a_failure_of_another_step_ends_the_run_and_the_question_with_it(store: Any) -> None:
    broken = [True]

    @step
    async def fails(ctx: StepContext[Any]) -> str:
        if broken:
            raise ValueError("broken")
        return "mended"

    pipeline = Pipeline("p", {"ask": asks(), "fails": fails}, output_step="ask")
    with pytest.raises(StepExecutionError, match="broken"):
        await pipeline.execute(run_id="r", store=store)
    assert await Inbox(store).list() == ()
    broken.clear()
    paused = await pipeline.resume("r", store=store)
    assert [one.question for one in paused.questions] == ["sure?"]


async def test_a_step_whose_place_is_free_again_lets_the_next_one_start(store: Any) -> None:
    pipeline = desk(asks(), config=PipelineConfig(max_concurrency=1))
    paused = await pipeline.execute(run_id="r", store=store)
    assert dict(paused.step_outputs) == {"other": "done"}
    assert paused.trace.replay(pipeline) is None


async def test_waiting_costs_no_time_of_the_run(store: Any) -> None:
    paused = await desk(asks()).execute(run_id="r", store=store)
    await Inbox(store).answer(paused.questions[0].id, True)
    *before, given = await entries_of(store, "r")
    later = replace(given, timestamp=given.timestamp + 86_400)
    assert Memo("r", [*before, later]).seconds < 3_600


# --- in graphs ---


async def test_nodes_of_a_graph_ask_and_each_branch_waits_for_itself(store: Any) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> str:
        ctx.write(f"seen_{ctx.step_id}", True)
        return await ctx.ask(f"{ctx.step_id}?")

    graph = Graph(
        "g",
        nodes={"top": other, "a": ask, "b": ask, "c": other, "end": other},
        edges=[
            *(Edge("top", name) for name in "abc"),
            *(Edge(name, "end") for name in "abc"),
        ],
    )
    paused = await graph.run(run_id="r", store=store)
    assert (paused.status, paused.resume_at) == ("paused", ("a", "b"))
    assert paused.questions == await graph.questions("r", store=store)
    assert paused.trace.replay(graph) is None
    a, b = paused.questions
    assert await Inbox(store).answer(b.id, "from b") is False
    again = await graph.resume("r", store=store)
    assert [one.id for one in again.questions] == [a.id]
    assert again.trace.replay(graph) is None
    result = await graph.resume("r", answers={a.id: "from a"}, store=store)
    assert (result.status, dict(result.visits)) == (
        "finished",
        {"top": 1, "a": 1, "b": 1, "c": 1, "end": 1},
    )
    assert (result.outputs["a"], result.outputs["b"]) == ("from a", "from b")
    assert result.memory["seen_a"] is True
    assert result.trace.replay(graph) is None


async def test_each_visit_to_a_node_asks_anew(store: Any) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> bool:
        return await ctx.ask(f"again? ({ctx.visit})", bool)

    graph = Graph(
        "loop",
        nodes={"ask": Node(ask, writes=["more"]), "end": other},
        edges=[Edge("ask", "ask", "conditional", "more"), Edge("ask", "end", "always")],
        entry="ask",
    )
    result = await graph.run(run_id="r", store=store)
    for more in (True, True, False):
        (asked,) = result.questions
        result = await graph.resume("r", answers={asked.id: more}, store=store)
    assert (result.status, result.visits["ask"]) == ("finished", 3)
    assert result.trace.replay(graph) is None


async def test_a_graph_in_a_pipeline_asks(store: Any) -> None:
    graph = Graph("g", nodes={"ask": asks(), "end": after}, edges=[Edge("ask", "end")])
    pipeline = Pipeline("p", {"graph": graph.as_step()})
    paused = await pipeline.execute(run_id="r", store=store)
    await Inbox(store).answer(paused.questions[0].id, True)
    assert (await pipeline.resume("r", store=store)).output == [True]


async def test_a_pause_node_is_answered_through_the_inbox(store: Any) -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value

    graph = Graph(
        "g",
        nodes={"ask": Node(other, answer_type=Annotated[int, AfterValidator(even)]), "end": after},
        edges=[Edge("ask", "end")],
        pause_nodes=["ask"],
    )
    paused = await graph.run(run_id="r", store=store)
    (asked,) = await Inbox(store).list()
    assert asked.id == paused.questions[0].id
    with pytest.raises(AnswerRejected, match="of the type string, not integer"):
        await Inbox(store).answer(asked.id, "two")
    await Inbox(store).answer(asked.id, 3)  # which the JSON Schema cannot tell
    with pytest.raises(ConfigurationError, match="the answer that node 'ask'"):
        await graph.resume("r", store=store)
    result = await graph.resume("r", input=4, store=store)
    assert (result.status, result.outputs["ask"]) == ("finished", 4)
    assert result.trace.replay(graph) is None


async def test_the_result_the_state_and_the_inbox_have_the_same_questions(store: Any) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> list[str]:
        return list(await asyncio.gather(*(ctx.ask(name, name=name, timeout=60) for name in "ab")))

    graph = Graph(
        "g",
        nodes={"begin": other, "pause": other, "ask": ask},
        edges=[Edge("begin", "pause"), Edge("begin", "ask")],
        pause_nodes=["pause"],
    )
    for door in (desk(ask), graph):
        run_id = str(door.name)
        paused = await door.execute(run_id=run_id, store=store)
        state = await door.get_state(run_id, store=store)
        listed = await Inbox(store).list(pipeline=run_id)
        assert paused.questions == state.questions == listed
        assert len(listed) == (3 if door is graph else 2)
        await Inbox(store).answer(listed[0].id, "yes")
        state = await door.get_state(run_id, store=store)
        assert state.questions == await Inbox(store).list(pipeline=run_id) == listed[1:]
    assert await graph.questions("g", store=store) == await Inbox(store).list(pipeline="g")


async def test_a_question_that_is_answered_is_open_no_more_although_its_header_still_says_so() -> None:
    is_answered = False

    def no_header(write: Write) -> None:
        nonlocal is_answered
        is_answered |= write.key.startswith("log:")
        if is_answered and write.key.startswith("run:"):
            raise RunStoreUnavailable("a store", "no connection")

    store = MemoryRunStore()
    paused = await desk(asks()).execute(run_id="r", store=store)
    with pytest.raises(RunStoreUnavailable):
        await Inbox(FaultyStore(store, before=no_header)).answer(paused.questions[0].id, True)
    assert await Inbox(store).list() == ()
    assert (await desk(asks()).get_state("r", store=store)).questions == ()
    assert (await desk(asks()).resume("r", store=store)).output == [True, "done"]


# --- answers that are not taken ---


async def test_an_answer_that_does_not_fit_is_rejected_and_the_question_stays_open(store: Any) -> None:
    paused = await desk(asks("how much?", Refund)).execute(run_id="r", store=store)
    (asked,) = paused.questions
    before = len(await entries_of(store, "r"))
    for wrong in ("yes", {"approved": True}, {"approved": 1, "amount": 2}, object()):
        with pytest.raises(AnswerRejected, match="stays open"):
            await Inbox(store).answer(asked.id, wrong)
        with pytest.raises(AnswerRejected, match="stays open"):
            await desk(asks("how much?", Refund)).resume("r", store=store, answers={asked.id: wrong})
    assert len(await entries_of(store, "r")) == before
    assert await Inbox(store).list() == (asked,)


@pytest.mark.parametrize(
    "value",
    ["half a pair: \ud83d", 10**4_400, json.loads("[" * 195 + "]" * 195)],
    ids=["text", "number", "list"],
)
async def test_an_answer_that_could_not_be_read_again_is_rejected(store: Any, value: object) -> None:
    (asked,) = (await desk(asks("what?", Any)).execute(run_id="r", store=store)).questions
    with pytest.raises(AnswerRejected, match="JSON cannot hold it"):
        await Inbox(store).answer(asked.id, value)
    assert await Inbox(store).list() == (asked,)


async def test_only_an_option_is_taken(store: Any) -> None:
    paused = await desk(asks("which?", int, options=[1, 2])).execute(run_id="r", store=store)
    (asked,) = paused.questions
    assert asked.options == (1, 2)
    for wrong in (3, True, "1"):
        with pytest.raises(AnswerRejected, match="none of the options: 1, 2"):
            await Inbox(store).answer(asked.id, wrong)
    assert await Inbox(store).answer(asked.id, 2)


async def test_a_question_is_answered_once(store: Any) -> None:
    paused = await desk(asks()).execute(run_id="r", store=store)
    (asked,) = paused.questions
    answers = (Inbox(store).answer(asked.id, bool(number), reviewer=f"{number}") for number in range(5))
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(outcome is True for outcome in outcomes) == 1
    assert sum(isinstance(outcome, QuestionClosed) for outcome in outcomes) == 4
    with pytest.raises(QuestionClosed, match="it was answered by"):
        await desk(asks()).resume("r", store=store, answers={asked.id: True})
    closed = await Inbox(store).get(asked.id)
    assert closed.answer is not None
    assert closed.closed.startswith(f"it was answered by {closed.answer.reviewer} at")
    await desk(asks()).resume("r", store=store)
    assert await Inbox(store).get(asked.id) == closed
    with pytest.raises(QuestionClosed, match="it was answered by"):
        await Inbox(store).answer(asked.id, True)


async def test_what_is_no_open_question_takes_no_answer(store: Any) -> None:
    paused = await desk(asks()).execute(run_id="r", store=store)
    with pytest.raises(QuestionClosed, match="the run has not asked it"):
        await Inbox(store).answer("r:nothing", True)
    with pytest.raises(RunNotFound):
        await Inbox(store).answer("unknown:123", True)
    with pytest.raises(ConfigurationError, match="the id of a question"):
        await Inbox(store).answer("r", True)
    with pytest.raises(QuestionClosed, match="run 'r' has not asked it"):
        await desk(asks()).resume("r", store=store, answers={"s:1": True})
    with pytest.raises(ConfigurationError, match="a mapping of question ids"):
        await desk(asks()).resume("r", store=store, answers=[True])  # type: ignore[arg-type]
    assert await Inbox(store).list() == paused.questions


async def test_an_answer_that_only_the_type_refuses_is_asked_for_again(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value

    pipeline = desk(asks("which?", Annotated[int, AfterValidator(even)]))
    paused = await pipeline.execute(run_id="r", store=store)
    (asked,) = paused.questions
    await Inbox(store).answer(asked.id, 3)
    again = await pipeline.resume("r", store=store)
    assert [one.id for one in again.questions] == [asked.id]
    assert "is asked again: its answer does not fit" in caplog.text
    await Inbox(store).answer(asked.id, 4)
    assert (await pipeline.resume("r", store=store)).output == [4, "done"]


# --- time ---


async def passed(deadline: float) -> None:
    while time() < deadline:
        await asyncio.sleep(0)


async def test_after_its_time_a_question_takes_no_answer_and_the_step_goes_on_without(store: Any) -> None:
    pipeline = desk(asks(timeout=0.02, on_timeout=False))
    paused = await pipeline.execute(run_id="r", store=store)
    (asked,) = paused.questions
    assert asked.deadline is not None
    await passed(asked.deadline.timestamp())
    with pytest.raises(QuestionClosed, match="its deadline was"):
        await Inbox(store).answer(asked.id, True)
    assert (await pipeline.resume("r", store=store)).output == [False, "done"]


async def test_without_an_answer_for_that_case_the_step_fails_in_time(store: Any) -> None:
    pipeline = desk(asks(timeout=0.02))
    paused = await pipeline.execute(run_id="r", store=store)
    assert paused.questions[0].deadline is not None
    await passed(paused.questions[0].deadline.timestamp())
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.resume("r", store=store)
    assert isinstance(caught.value.original_error, QuestionTimedOut)
    assert isinstance(caught.value.original_error, TimeoutError)


async def test_a_question_is_asked_however_short_its_time_is(store: Any) -> None:
    paused = await desk(asks(timeout=1e-9, on_timeout=False)).execute(run_id="r", store=store)
    assert len(paused.questions) == 1


async def test_the_deadline_is_that_of_the_first_time(store: Any) -> None:
    pipeline = desk(asks(timeout=7 * 86_400))  # which is no warning, as people take their time
    paused = await pipeline.execute(run_id="r", store=store)
    again = await pipeline.resume("r", store=store)
    assert again.questions[0].deadline == paused.questions[0].deadline


# --- at the same time ---


class Meeting(FaultyStore):
    """A resumption stops before it writes to a key, until somebody has answered meanwhile.

    The answer is ready then, too: its process has looked at the header before the resumption wrote it.
    """

    def __init__(self, inner: Any, key: str) -> None:
        super().__init__(inner)
        self.resuming, self.answered = asyncio.Event(), asyncio.Event()

        async def wait(write: Write) -> None:
            if write.key.startswith(key) and not self.resuming.is_set():
                self.resuming.set()
                await self.answered.wait()

        self.before = wait

    def for_answer(self) -> FaultyStore:
        async def wait(write: Write) -> None:
            if write.key.startswith("log:"):
                await self.resuming.wait()

        async def tell(write: Write) -> None:
            if write.key.startswith("log:"):
                self.answered.set()

        return FaultyStore(self.inner, before=wait, after=tell)


@pytest.mark.parametrize("key", ["index:", "run:", "log:"])
async def test_an_answer_that_comes_while_the_run_is_being_resumed_is_taken(key: str) -> None:
    store = MemoryRunStore()
    paused = await desk(asks()).execute(run_id="r", store=store)
    meeting = Meeting(store, key)
    given, result = await asyncio.gather(
        Inbox(meeting.for_answer()).answer(paused.questions[0].id, True, reviewer="Mia"),
        desk(asks()).resume("r", store=meeting),
    )
    assert given
    assert result.output == [True, "done"]
    assert result.trace.replay(desk(asks())) is None
    kinds = [one.kind for one in await entries_of(store, "r")]
    assert kinds[kinds.index("run_finished") + 1 :][:2] == ["answer_given", "run_resumed"]


async def test_of_two_answers_at_the_same_time_the_first_counts() -> None:
    store = MemoryRunStore()
    paused = await desk(asks()).execute(run_id="r", store=store)
    meeting, asked = Meeting(store, "log:"), paused.questions[0].id
    given, result = await asyncio.gather(
        Inbox(meeting.for_answer()).answer(asked, True),
        desk(asks()).resume("r", store=meeting, answers={asked: False}),
        return_exceptions=True,
    )
    assert given
    assert isinstance(result, QuestionClosed)
    assert (await desk(asks()).resume("r", store=store)).output == [True, "done"]


async def test_a_run_that_was_resumed_and_ended_meanwhile_is_not_resumed_again() -> None:
    store = MemoryRunStore()
    paused = await desk(asks()).execute(run_id="r", store=store)
    meeting = Meeting(store, "run:")

    async def other() -> None:
        await meeting.resuming.wait()
        await desk(asks()).resume("r", store=store, answers={paused.questions[0].id: True})
        meeting.answered.set()

    with pytest.raises(RunInProgress):
        await asyncio.gather(other(), desk(asks()).resume("r", store=meeting))


# --- telling people ---


async def test_people_are_told_once_when_they_can_answer(store: Any) -> None:
    told: list[Any] = []

    async def later(asked: Question) -> None:
        told.append(asked)
        assert await Inbox(store).get(asked.id) == asked, "it is on record, and the run waits"

    def at_once(asked: Question) -> None:
        told.append(threading.current_thread() is threading.main_thread())

    def even(value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value

    config = PipelineConfig(store=store, sinks=[later, at_once])
    inner = Pipeline("inner", {"ask": asks("which?", Annotated[int, AfterValidator(even)])}, config=config)
    pipeline = Pipeline("p", {"inner": inner.as_step()}, config=config)
    (asked,) = (await pipeline.execute(run_id="r")).questions
    assert told == [asked, False]
    await pipeline.resume("r")
    assert told == [asked, False], "they know"
    (again,) = (await pipeline.resume("r", answers={asked.id: 3})).questions
    assert told == [asked, False, again, False], "the type has refused the answer"
    assert (await pipeline.resume("r", answers={asked.id: 4})).output == 4


@pytest.mark.parametrize("kind", ["pipeline", "graph", "router", "flow"])
async def test_the_sinks_of_a_nested_run_are_told_its_questions_and_those_of_the_run_around_all(
    store: Any, kind: str
) -> None:
    async def ask(ctx: StepContext[Any] | None, text: str) -> object:
        if ctx is None:
            return (await await_human(HumanReviewContext("inside?"), str)).value
        return await ctx.ask("inside?", str)

    all_told: list[Question] = []
    told: list[Question] = []
    inner = doors.door(kind, ask, {"sinks": [told.append, all_told.append]})
    steps: dict[str, Any] = {"inner": inner.as_step(), "outside": asks("outside?", str)}
    config = PipelineConfig(store=store, sinks=[all_told.append])
    outer = Pipeline[Any, Any, Any]("p", steps, output_step="outside", config=config)
    await outer.execute(run_id="r")
    assert sorted(one.question for one in all_told) == ["inside?", "outside?"]
    assert [one.question for one in told] == ["inside?"]


async def test_the_review_sink_is_told_the_questions_of_a_flow_that_is_a_step(store: Any) -> None:
    @flow
    async def decide() -> str:
        return (await await_human(HumanReviewContext("inside?"), str)).value

    told: list[Question] = []
    outer = Pipeline[Any, Any, Any]("p", {"decide": decide.as_step()}, config=PipelineConfig(store=store))
    with configured(review_sink=told.append):
        await outer.execute(run_id="r")
    assert [one.question for one in told] == ["inside?"]


async def test_a_sink_that_fails_changes_nothing(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(asked: Question) -> None:
        raise ConnectionError("no chat today")

    told: list[Question] = []
    config = PipelineConfig(sinks=[broken, told.append])
    graph = Graph(
        "g",
        nodes={"ask": other, "end": other},
        edges=[Edge("ask", "end")],
        pause_nodes=["ask"],
        config=config,
    )
    result = await graph.run(run_id="r", store=store)
    assert result.status == "paused"
    assert [one.question for one in told] == ["done"]
    assert "failed to tell of question 'r:" in caplog.text


async def test_the_console_says_how_to_answer(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = PipelineConfig(sinks=[to_console])
    (asked,) = (await desk(asks(to="Mia"), config=config).execute(run_id="r", store=store)).questions
    said = f"question to Mia: sure?\n  fastroai review answer {asked.id} ANSWER\n"
    assert capsys.readouterr().err == said


async def test_a_question_on_the_console_neither_changes_it_nor_imitates_the_command(
    store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    @step
    async def ask(ctx: StepContext) -> str:
        return await ctx.ask("sure?\u202e\x1b[2J\n  fastroai review answer r:1 YES", str, to="Mia\x07")

    pipeline = Pipeline("p", {"ask": ask}, config=PipelineConfig(sinks=[to_console]))
    (asked,) = (await pipeline.execute(run_id="r", store=store)).questions
    said = (
        "question to Mia\\x07:\n"
        "> sure?\\u202e\\x1b[2J\n"
        ">   fastroai review answer r:1 YES\n"
        f"  fastroai review answer {asked.id} ANSWER\n"
    )
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("sinks", [3, "print", [print, 3]])
def test_a_sink_is_a_function(sinks: Any) -> None:
    with pytest.raises(ConfigurationError, match="a list of functions that take a question"):
        PipelineConfig(sinks=sinks)


# --- what cannot be asked ---


async def test_a_run_that_nobody_keeps_cannot_wait() -> None:
    with pytest.raises(StepExecutionError, match="a store that keeps the run"):
        await desk(asks()).execute()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": -1}, "timeout"),
        ({"on_timeout": True}, "timeout= too"),
        ({"options": []}, "a list of the answers"),
        ({"options": "yes"}, "a list of the answers"),
        ({"to": 3}, "text"),
        ({"name": ""}, "a non-empty text"),
        ({"answer_type": asyncio.Event}, "a type with a JSON Schema"),
    ],
)
async def test_what_cannot_be_meant_is_refused(store: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(StepExecutionError, match=words) as caught:
        await desk(asks("?", **options)).execute(run_id="r", store=store)
    assert isinstance(caught.value.original_error, ConfigurationError)


async def test_a_question_is_plain_json(store: Any) -> None:
    with pytest.raises(StepExecutionError) as caught:
        await desk(asks({1, 2})).execute(run_id="r", store=store)  # type: ignore[arg-type]
    assert isinstance(caught.value.original_error, ValueNotStorable)


# --- on record ---


class Codec:
    def encode(self, payload: bytes) -> bytes:
        return base64.b85encode(payload)

    def decode(self, payload: bytes) -> bytes:
        return base64.b85decode(payload)


async def test_questions_options_answers_and_reasons_go_through_the_codec(store: Any) -> None:
    pipeline = desk(asks("secret?", str, options=["alpha", "beta"]), config=PipelineConfig(codec=Codec()))
    paused = await pipeline.execute(run_id="r", store=store)
    inbox = Inbox(store, codec=Codec())
    (asked,) = await inbox.list()
    assert (asked.question, asked.options) == ("secret?", ("alpha", "beta"))
    assert asked == paused.questions[0]
    await inbox.answer(asked.id, "alpha", rationale="gamma")
    found = await entries_of(store, "r")
    stored = repr([one for one in found if isinstance(one, QuestionAsked | AnswerGiven)])
    assert not any(word in stored for word in ("secret", "alpha", "beta", "gamma"))
    given = (await inbox.get(asked.id)).answer
    assert given is not None
    assert (given.value, given.rationale) == ("alpha", "gamma")
    assert (await pipeline.resume("r", store=store)).output == ["alpha", "done"]


async def test_the_end_of_the_run_names_the_questions_and_the_steps_that_wait(store: Any) -> None:
    paused = await desk(asks()).execute(run_id="r", store=store)
    (halted,) = [fact for fact in paused.trace.entries if isinstance(fact, StepHalted)]
    (finish,) = [fact for fact in paused.trace.entries if isinstance(fact, RunFinished)]
    assert finish.waits == halted.waits == paused.waits
    assert finish.questions == (paused.questions[0].id.removeprefix("r:"),)
    assert (finish.status, finish.reason, finish.resume_at) == (
        "paused",
        "'ask' waits for an answer",
        ("ask",),
    )
    assert [attempt.status for attempt in paused.trace.attempts if attempt.place == "ask"] == ["incomplete"]


# --- from process to process ---

PROGRAM = """
import asyncio, os, sys
from fastroai import Pipeline, SQLiteRunStore, StepContext, step

@step
async def ask(ctx: StepContext) -> str:
    await ctx.once("pay", lambda: open("paid", "a").write("x"))
    print("paid", flush=True)
    return "sent" if await ctx.ask("May we send it?", bool, to="Mia") else "kept"

@step
async def slow(ctx: StepContext) -> str:
    if os.environ.get("HANG"):
        await asyncio.Event().wait()
    return "slow"

@step
async def end(ctx: StepContext) -> str:
    return ctx.get_dependency("ask")

pipeline = Pipeline("letters", {"ask": ask, "slow": slow, "end": end}, {"end": ["ask", "slow"], "slow": []})

async def main() -> None:
    store = SQLiteRunStore("runs.db")
    begins = sys.argv[1] == "begin"
    result = await (pipeline.execute if begins else pipeline.resume)(run_id="r", store=store)
    print(result.output, len(result.questions))
    await store.aclose()

asyncio.run(main())
"""


def run_program(folder: Path, *arguments: str) -> str:
    code, out, err = Program(*arguments, folder=folder).end()
    assert code == 0, err
    return out.removeprefix("paid\n").strip()


def test_a_run_that_was_killed_goes_on_with_an_answer_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    process = Program("app.py", "begin", folder=tmp_path, environment={"HANG": "1"})
    assert process.stdout.readline() == "paid\n"
    process.kill()
    assert process.end()[0] == -signal.SIGKILL
    assert run_program(tmp_path, "app.py", "resume") == "None 1"
    review = ("-m", "fastroai.cli", "review")
    (asked,) = json.loads(run_program(tmp_path, *review, "list", "--store", "runs.db", "--json"))
    assert (asked["question"], asked["to"]) == ("May we send it?", "Mia")
    said = run_program(tmp_path, *review, "answer", asked["id"], "true", "--store", "runs.db")
    assert said == "answered; run r waits for no other answer: resume it"
    assert run_program(tmp_path, "app.py", "resume") == "sent 0"
    assert (tmp_path / "paid").read_text() == "x"


async def test_a_question_keeps_the_time_at_which_it_was_asked_first(store: Any) -> None:
    pipeline = Pipeline("support", {"ask": asks()})
    [first] = (await pipeline.execute({}, run_id="r", store=store)).questions
    for _ in range(2):
        [again] = (await pipeline.resume("r", store=store)).questions
        assert (again.id, again.asked_at) == (first.id, first.asked_at)
        assert (await Inbox(store).get(first.id)).asked_at == first.asked_at
