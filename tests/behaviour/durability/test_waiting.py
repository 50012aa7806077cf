"""Steps that sleep and that receive messages: the run halts, and goes on when it can."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel
from support.faulty_store import FaultyStore, Write
from support.file_waits import FileAppears
from support.patience import PATIENCE
from support.run_stores import run_stores

from fastroai import (
    Edge,
    Graph,
    Inbox,
    Pipeline,
    PipelineConfig,
    RunHistory,
    StepContext,
    send_message,
    step,
)
from fastroai.errors import (
    ConfigurationError,
    MessageRejected,
    MessageTimedOut,
    QuestionTimedOut,
    RunNotFound,
    StepExecutionError,
)
from fastroai.human import waiting
from fastroai.runtime.facts import WaitEnded, WaitStarted
from fastroai.store import MemoryRunStore, mailbox
from fastroai.store.record import runs
from fastroai.store.record.headers import log_key, mail_key, read_header

LONG = 3600.0


@pytest.fixture(params=("memory", "sqlite"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


@pytest.fixture
def memory() -> MemoryRunStore:
    return MemoryRunStore()


@pytest.fixture
def every_sleep_halts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SHORT_SLEEP", 0.0)


class Payment(BaseModel):
    amount: int


def one(do: Callable[[StepContext[Any]], Awaitable[Any]], **options: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step."""

    @step(**options)
    async def work(ctx: StepContext[Any]) -> Any:
        return await do(ctx)

    return Pipeline("desk", {"work": work})


def receives(*types: Any, name: str = "paid", **options: Any) -> Pipeline[Any, Any]:
    """A pipeline that receives so many messages, one after the other."""

    async def receive(ctx: StepContext[Any]) -> list[Any]:
        return [await ctx.receive(name, value_type, **options) for value_type in types]

    return one(receive)


async def due(store: Any, pipeline: str = "desk") -> list[str]:
    return [run.run_id for run in await RunHistory(store).due(pipeline)]


async def until_due(store: Any) -> None:
    end = monotonic() + PATIENCE
    while not await due(store):
        assert monotonic() < end, "the run is not due"
        await asyncio.sleep(0.01)


async def woken(door: Any, store: Any) -> Any:
    """The result of the one run that can go on."""
    outcomes = await door.wake(store=store)
    assert list(outcomes) == ["r"]
    if isinstance(outcomes["r"], Exception):
        raise outcomes["r"]
    return outcomes["r"]


# --- sleep ---


@pytest.mark.usefixtures("every_sleep_halts")
async def test_a_sleeping_run_frees_its_process_and_goes_on_when_the_time_is_over(store: Any) -> None:
    posted = Counter[str]()

    async def nap(ctx: StepContext[Any]) -> str:
        await ctx.once("post", lambda: posted.update(["post"]))
        await ctx.sleep(timedelta(seconds=0.3))
        return "awake"

    desk = one(nap)
    paused = await desk.execute(run_id="r", store=store)
    (wait,) = paused.waits
    assert (paused.status, wait.what, paused.resume_at) == ("paused", "sleep", ("work",))
    assert wait.until is not None
    assert paused.reason == f"'work' sleeps until {wait.until:%Y-%m-%d %H:%M:%S} UTC"
    state = await desk.get_state("r", store=store)
    assert (state.status, state.waits) == ("paused", (wait,))
    assert state.finish is not None
    assert state.finish.reason_code == "sleep"
    assert (await RunHistory(store).summary("r")).due_at == wait.until
    await until_due(store)
    result = await woken(desk, store)
    assert (result.output, result.waits, dict(posted)) == ("awake", (), {"post": 1})
    assert datetime.now(UTC) >= wait.until
    assert result.trace.replay(desk) is None
    explained = result.trace.explain()
    assert f"work: halted, and sleeps until {wait.until:%Y-%m-%d}" in explained
    assert "work: has slept" in explained
    assert await due(store) == []
    assert await desk.wake(store=store) == {}


async def test_a_run_is_not_woken_before_its_time(store: Any) -> None:
    desk = one(lambda ctx: ctx.sleep(LONG))
    await desk.execute(run_id="r", store=store)
    assert await desk.wake(store=store) == {}
    assert await desk.recover(store=store) == {}


async def test_a_restart_does_not_move_the_end_of_a_sleep(memory: Any) -> None:
    desk = one(lambda ctx: ctx.sleep(timedelta(days=2)))
    paused = await desk.execute(run_id="r", store=memory)
    again = await desk.resume("r", store=memory)
    assert again.waits == paused.waits
    assert again.waits[0].until is not None
    assert timedelta(days=1.9) < again.waits[0].until - datetime.now(UTC) < timedelta(days=2)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_short_sleep_waits_in_the_process_and_costs_no_time_of_the_attempt(
    memory: Any, kept: bool
) -> None:
    async def nap(ctx: StepContext[Any]) -> float:
        began = monotonic()
        await ctx.sleep(2.1)
        return monotonic() - began

    result = await one(nap, timeout=2).execute(store=memory if kept else None)
    assert result.output is not None
    assert result.output >= 2.09
    kinds = [type(fact) for fact in result.trace.entries]
    assert kinds.count(WaitStarted) == kinds.count(WaitEnded) == 1


async def test_a_sleep_without_a_store_waits_in_the_process_however_long_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    async def nap(ctx: StepContext[Any]) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", note)
            await ctx.sleep(LONG)
        return "awake"

    assert (await one(nap).execute()).output == "awake"
    assert len(slept) == 1
    assert LONG - 5 < slept[0] <= LONG


async def test_an_attempt_that_is_repeated_does_not_sleep_again() -> None:
    async def nap(ctx: StepContext[Any]) -> int:
        await ctx.sleep(0.2)
        if ctx.attempt < 20:
            raise ConnectionError("again")
        return ctx.attempt

    result = await one(nap, retries=19, retry_delay=0.0).execute()
    assert result.output == 20
    kinds = [type(fact) for fact in result.trace.entries]
    assert kinds.count(WaitStarted) == kinds.count(WaitEnded) == 1


async def test_a_time_that_is_over_returns_at_once_and_others_are_refused(memory: Any) -> None:
    await one(lambda ctx: ctx.sleep(datetime.now(UTC) - timedelta(days=1))).execute(store=memory)
    refused: list[Any] = [
        datetime.now(),
        -1,
        timedelta(seconds=-1),
        float("nan"),
        True,
        "1s",
        timedelta.max,
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    ]
    for until in refused:
        with pytest.raises(StepExecutionError, match="until=") as caught:
            await one(lambda ctx, until=until: ctx.sleep(until)).execute(store=memory)  # type: ignore[misc]
        assert isinstance(caught.value.original_error, ConfigurationError)


@pytest.mark.usefixtures("every_sleep_halts")
async def test_a_sync_step_sleeps_and_receives_too(memory: Any) -> None:
    @step
    def work(ctx: StepContext[Any]) -> int:
        ctx.sleep_sync(0.05)
        return ctx.receive_sync("paid", int)

    desk = Pipeline("desk", {"work": work})
    await desk.execute(run_id="r", store=memory)
    await send_message("r", "paid", 3, store=memory)
    await until_due(memory)
    assert (await woken(desk, memory)).output == 3


@pytest.mark.usefixtures("every_sleep_halts")
async def test_a_sleep_in_nested_pipelines_and_graphs_halts_the_whole_run(store: Any) -> None:
    @step
    async def nap(ctx: StepContext[Any]) -> str:
        await ctx.sleep(0.2)
        return f"{ctx.step_id} {await ctx.receive(ctx.step_id, int)}"

    inner = Pipeline("inner", {"deep": nap})
    middle = Graph("middle", nodes={"in": inner.as_step(), "after": nap}, edges=[Edge("in", "after")])
    desk = Graph(
        "desk",
        nodes={"top": nap, "left": middle.as_step(), "right": nap, "end": _joined},
        edges=[
            Edge("top", "left"),
            Edge("top", "right"),
            Edge("left", "end"),
            Edge("right", "end"),
        ],
    )
    for number, name in enumerate(("right", "after", "deep", "top")):
        with suppress(RunNotFound):
            await send_message("r", name, number, store=store)
    result = await desk.run(run_id="r", store=store)
    assert (result.status, result.reason_code) == ("paused", "sleep")
    for number, name in enumerate(("right", "after", "deep", "top")):
        await send_message("r", name, number, store=store)
    while result.status == "paused":
        await until_due(store)
        result = await woken(desk, store)
    assert result.output == ["after 1", "right 0"]
    assert result.trace.replay(desk) is None


@step
async def _joined(ctx: StepContext[Any]) -> list[Any]:
    return [ctx.get_dependency("left"), ctx.get_dependency("right")]


# --- messages ---


async def test_a_message_wakes_the_run_that_waits_for_it(store: Any) -> None:
    async def work(ctx: StepContext[Any]) -> int:
        paid = await ctx.receive("paid", Payment)
        return paid.amount

    desk = one(work)
    paused = await desk.execute(run_id="r", store=store)
    assert (paused.status, paused.reason) == ("paused", "'work' waits for message 'paid'")
    assert await desk.wake(store=store) == {}
    await desk.send("r", "something else", 1, store=store)
    assert await due(store) == [], "nobody waits for that"
    await desk.send("r", "paid", Payment(amount=3), store=store)
    assert await due(store) == ["r"]
    result = await woken(desk, store)
    assert result.output == 3
    assert result.trace.replay(desk) is None
    (ended,) = [fact for fact in result.trace.entries if isinstance(fact, WaitEnded)]
    assert (ended.number, ended.value, ended.wait.name) == (2, {"amount": 3}, "paid")
    assert "work: has received message 'paid' (number 2)" in result.trace.explain()


async def test_messages_are_received_in_order_each_once_and_sent_before_or_after(store: Any) -> None:
    async def work(ctx: StepContext[Any]) -> list[Any]:
        first = [await ctx.receive("a", int) for _ in range(2)]
        return [*first, await ctx.receive("b", str), await ctx.receive("a", int)]

    desk = one(work)
    assert (await desk.execute(run_id="r", store=store)).status == "paused"
    for name, value in (("b", "x"), ("a", 1), ("b", "y"), ("a", 2)):
        await send_message("r", name, value, store=store)
    assert (await woken(desk, store)).reason == "'work' waits for message 'a'"
    await send_message("r", "a", 3, store=store)
    assert (await woken(desk, store)).output == [1, 2, "x", 3]


async def test_a_message_can_be_sent_while_the_run_is_running(memory: Any) -> None:
    async def work(ctx: StepContext[Any]) -> int:
        await send_message("r", "paid", 3, store=memory)
        return await ctx.receive("paid", int)

    assert (await one(work).execute(run_id="r", store=memory)).output == 3


async def test_steps_side_by_side_receive_different_messages(memory: Any) -> None:
    @step
    async def receive(ctx: StepContext[Any]) -> int:
        return await ctx.receive("number", int)

    steps = {"a": receive, "b": receive, "end": _all}
    desk = Pipeline("desk", steps, {"end": ["a", "b"]})
    paused = await desk.execute(run_id="r", store=memory)
    assert [wait.name for wait in paused.waits] == ["number", "number"]
    await send_message("r", "number", 1, store=memory)
    paused = await woken(desk, memory)
    assert len(paused.waits) == 1
    await send_message("r", "number", 2, store=memory)
    assert sorted((await woken(desk, memory)).output) == [1, 2]


@step
async def _all(ctx: StepContext[Any]) -> list[Any]:
    return [ctx.get_dependency(before) for before in ctx.dependencies]


async def test_an_attempt_that_is_repeated_receives_the_same_message(memory: Any) -> None:
    async def work(ctx: StepContext[Any]) -> list[int]:
        number = await ctx.receive("number", int)
        if ctx.attempt < 3:
            raise ConnectionError("again")
        return [ctx.attempt, number]

    desk = one(work, retries=2, retry_delay=0.0)
    await desk.execute(run_id="r", store=memory)
    await send_message("r", "number", 7, store=memory)
    await send_message("r", "number", 8, store=memory)
    assert (await woken(desk, memory)).output == [3, 7]


async def test_a_message_that_does_not_fit_is_refused_while_the_run_waits_for_it(store: Any) -> None:
    desk = receives(Payment)
    await desk.execute(run_id="r", store=store)
    with pytest.raises(MessageRejected, match=r"not sent to run 'r': amount is missing") as caught:
        await desk.send("r", "paid", {"sum": 3}, store=store)
    assert (caught.value.run_id, caught.value.name) == ("r", "paid")
    assert await due(store) == []


async def test_a_message_that_only_the_type_refuses_is_passed_over(
    memory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("not even")
        return value

    desk = receives(Annotated[int, AfterValidator(even)])
    await desk.execute(run_id="r", store=memory)
    await send_message("r", "paid", 3, store=memory)
    with caplog.at_level(logging.WARNING, "fastroai.human"):
        assert (await woken(desk, memory)).status == "paused"
    assert "run 'r' skips message 'paid' (number 1), which step 'work' cannot take" in caplog.text
    assert await due(memory) == [], "it is not woken again and again"
    await send_message("r", "paid", 4, store=memory)
    assert (await woken(desk, memory)).output == [4]


async def test_after_its_time_a_step_goes_on_without_the_message(store: Any) -> None:
    desk = receives(int, int, timeout=0.2, on_timeout=-1)
    paused = await desk.execute(run_id="r", store=store)
    assert paused.waits[0].until is not None
    assert "'work' waits for message 'paid' until 2" in paused.reason
    await until_due(store)
    await send_message("r", "paid", 5, store=store)  # too late for the first, in time for the second
    result = await woken(desk, store)
    assert result.output == [-1, 5]
    assert "work: message 'paid' has not come in time" in result.trace.explain()
    ends = [(fact.number, fact.in_vain) for fact in result.trace.entries if isinstance(fact, WaitEnded)]
    assert ends == [(0, True), (1, False)]


@pytest.mark.parametrize(("first", "later"), [(LONG, None), (LONG, 2 * LONG), (None, LONG)])
async def test_another_timeout_in_later_code_does_not_move_the_end_of_a_wait(
    memory: Any, first: float | None, later: float | None
) -> None:
    async def receive(ctx: StepContext[Any], timeout: float | None) -> Any:
        return await ctx.receive("paid", int, timeout=timeout)

    async def ask(ctx: StepContext[Any], timeout: float | None) -> Any:
        return await ctx.ask("sure?", bool, timeout=timeout)

    for wait in (receive, ask):
        before = await one(partial(wait, timeout=first)).execute(run_id=wait.__name__, store=memory)
        after = await one(partial(wait, timeout=later)).resume(wait.__name__, store=memory)
        assert before.waits_until == after.waits_until
        assert (before.waits_until is None) == (first is None)


async def test_without_a_value_for_that_case_the_step_fails_in_time(memory: Any) -> None:
    desk = receives(int, timeout=0.05)
    await desk.execute(run_id="r", store=memory)
    await until_due(memory)
    with pytest.raises(StepExecutionError) as caught:
        await woken(desk, memory)
    assert isinstance(caught.value.original_error, MessageTimedOut)
    assert await due(memory) == []


async def test_messages_that_nobody_can_receive_are_refused(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = receives(Any, Any)
    with pytest.raises(RunNotFound):
        await desk.send("r", "paid", 1, store=memory)
    await desk.execute(run_id="r", store=memory)
    for name in ("", 3, "x" * 201):
        with pytest.raises(ConfigurationError, match="name="):
            await desk.send("r", name, 1, store=memory)  # type: ignore[arg-type]
    for value in (object(), "half a pair: \ud83d", 10**4_400):
        with pytest.raises(MessageRejected, match="JSON cannot hold it"):
            await desk.send("r", "paid", value, store=memory)
    monkeypatch.setattr(mailbox, "MOST_MESSAGES", 2)
    await desk.send("r", "paid", store=memory)
    await desk.send("r", "paid", [1], store=memory)
    with pytest.raises(MessageRejected, match="has had 2 messages"):
        await desk.send("r", "paid", 1, store=memory)
    assert (await woken(desk, memory)).output == [None, [1]]
    with pytest.raises(MessageRejected, match="the run has finished"):
        await desk.send("r", "paid", 1, store=memory)


async def test_a_message_that_would_answer_a_question_is_pointed_to_the_inbox(memory: Any) -> None:
    desk = one(lambda ctx: ctx.ask("sure?", bool, name="approval"))
    (asked,) = (await desk.execute(run_id="r", store=memory)).questions
    for name in ("approval", asked.id.removeprefix("r:")):
        with pytest.raises(MessageRejected, match=f"Use Inbox.answer\\('{asked.id}', ...\\)"):
            await desk.send("r", name, True, store=memory)


async def test_a_run_that_nobody_keeps_receives_nothing() -> None:
    with pytest.raises(StepExecutionError, match="a store that keeps the run, which waits for mess.* 'paid'"):
        await receives(int).execute()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": -1}, "timeout of ctx.receive"),
        ({"timeout": timedelta.max}, "timeout of ctx.receive=.*: expected at most 1,000 years"),
        ({"on_timeout": 3}, "timeout= too"),
    ],
)
async def test_what_cannot_be_meant_is_refused(memory: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(StepExecutionError, match=words):
        await receives(int, **options).execute(store=memory)


async def test_a_deadline_that_has_no_date_is_refused_before_it_is_on_record(memory: Any) -> None:
    """It was put on record, and nobody could read the run again."""
    forever = FileAppears(name="report", folder=Path(), every=timedelta.max)
    for wait in (lambda ctx: ctx.ask("well?", bool, timeout=1e12), lambda ctx: ctx.wait_for(forever)):
        with pytest.raises(StepExecutionError, match="expected at most 1,000 years") as caught:
            await one(wait).execute(store=memory)
        assert isinstance(caught.value.original_error, ConfigurationError)
        (run,) = await RunHistory(memory).list(limit=1)
        assert run.status == "failed"


class Codec:
    def encode(self, payload: bytes) -> bytes:
        return base64.b85encode(payload)

    def decode(self, payload: bytes) -> bytes:
        return base64.b85decode(payload)


async def test_messages_go_through_the_codec(memory: Any) -> None:
    desk = one(lambda ctx: ctx.receive("paid", str))
    desk = Pipeline("desk", dict(desk.steps), config=PipelineConfig(codec=Codec()))
    await desk.execute(run_id="r", store=memory)
    await desk.send("r", "paid", "a secret", store=memory)
    assert (await woken(desk, memory)).output == "a secret"
    for found in await memory.list(""):
        values = (await memory.read(found.key)).values
        assert b"a secret" not in b"".join(values), found.key


async def test_the_messages_of_a_run_are_deleted_with_it(store: Any) -> None:
    desk = receives(int)
    await desk.execute(run_id="r", store=store)
    await desk.send("r", "paid", 1, store=store)
    header = (await read_header(store, "r")).header
    assert (await store.read(mail_key(header))).revision == 1
    await RunHistory(store).delete("r")
    assert await store.list("") == []


async def test_a_message_to_a_run_that_is_deleted_meanwhile_leaves_nothing(memory: Any) -> None:
    dying = FaultyStore(memory)
    await receives(int).execute(run_id="r", store=memory)

    async def delete(write: Write) -> None:
        if write.key.startswith("mail:") and write.values:
            await RunHistory(memory).delete("r")

    dying.before = delete
    with pytest.raises(RunNotFound):
        await send_message("r", "paid", 1, store=dying)
    assert await memory.list("") == []


# --- who is woken ---


async def test_an_answer_wakes_the_run_that_asks(store: Any) -> None:
    desk = one(lambda ctx: ctx.ask("sure?", bool))
    (asked,) = (await desk.execute(run_id="r", store=store)).questions
    assert await due(store) == []
    await Inbox(store).answer(asked.id, True)
    assert await due(store) == ["r"]
    assert (await woken(desk, store)).output is True


async def test_a_question_wakes_its_run_when_its_time_is_over(store: Any) -> None:
    desk = one(lambda ctx: ctx.ask("sure?", bool, timeout=0.1))
    await desk.execute(run_id="r", store=store)
    await until_due(store)
    with pytest.raises(StepExecutionError) as caught:
        await woken(desk, store)
    assert isinstance(caught.value.original_error, QuestionTimedOut)


@pytest.mark.usefixtures("every_sleep_halts")
async def test_a_run_waits_for_several_things_and_each_lets_its_step_go_on(store: Any) -> None:
    steps = {
        "ask": one(lambda ctx: ctx.ask("sure?", bool)).steps["work"],
        "nap": one(lambda ctx: ctx.sleep(0.2)).steps["work"],
        "far": one(lambda ctx: ctx.sleep(LONG)).steps["work"],
        "mail": one(lambda ctx: ctx.receive("paid", int)).steps["work"],
        "free": _free,
        "end": _all,
    }
    desk: Pipeline[Any, Any] = Pipeline("desk", steps, {"end": ["ask", "mail", "free"]}, output_step="end")
    result = await desk.execute(run_id="r", store=store)
    assert sorted(wait.what for wait in result.waits) == ["message", "question", "sleep", "sleep"]
    assert (result.reason, dict(result.step_outputs)) == ("'ask' waits for an answer", {"free": "free"})
    finish = (await desk.get_state("r", store=store)).finish
    assert finish is not None
    assert finish.reason_code == "question"
    assert set(finish.resume_at) == {"ask", "nap", "far", "mail"}
    await until_due(store)
    result = await woken(desk, store)
    assert "nap" in result.step_outputs
    assert sorted(wait.what for wait in result.waits) == ["message", "question", "sleep"]
    assert await due(store) == []
    await send_message("r", "paid", 3, store=store)
    result = await woken(desk, store)
    (asked,) = result.questions
    await Inbox(store).answer(asked.id, True)
    result = await woken(desk, store)
    assert (result.step_outputs["end"], result.status) == ([True, 3, "free"], "paused")
    assert [wait.what for wait in result.waits] == ["sleep"]


@step
async def _free(ctx: StepContext[Any]) -> str:
    return "free"


@pytest.mark.usefixtures("every_sleep_halts")
async def test_a_run_that_somebody_has_asked_to_pause_is_not_woken(memory: Any) -> None:
    arrived = asyncio.Event()

    @step
    async def nap(ctx: StepContext[Any]) -> None:
        await ctx.sleep(0.01)

    @step
    async def busy(ctx: StepContext[Any]) -> str:
        arrived.set()
        while (await desk.get_state("r", store=memory)).trace.steps[0].status == "running":
            await asyncio.sleep(0)
        await desk.pause("r", store=memory)
        return "busy"

    desk: Pipeline[Any, Any] = Pipeline("desk", {"nap": nap, "busy": busy}, output_step="busy")
    await desk.execute(run_id="r", store=memory)
    finish = (await desk.get_state("r", store=memory)).finish
    assert finish is not None
    assert (finish.reason_code, [wait.what for wait in finish.waits]) == ("pause_requested", ["sleep"])
    assert (await RunHistory(memory).summary("r")).due_at is None
    await asyncio.sleep(0.02)
    assert await due(memory) == []
    await desk.resume("r", store=memory)


async def test_a_run_that_fails_waits_for_nothing(memory: Any) -> None:
    @step
    async def bad(ctx: StepContext[Any]) -> None:
        raise ValueError("bad")

    nap = one(lambda ctx: ctx.sleep(LONG)).steps["work"]
    desk: Pipeline[Any, Any] = Pipeline("desk", {"nap": nap, "bad": bad}, output_step="bad")
    with pytest.raises(StepExecutionError):
        await desk.execute(run_id="r", store=memory)
    summary = await RunHistory(memory).summary("r")
    assert (summary.status, summary.due_at) == ("failed", None)


async def test_only_one_of_several_processes_wakes_a_run(store: Any) -> None:
    ran: list[int] = []

    async def work(ctx: StepContext[Any]) -> int:
        number = await ctx.receive("paid", int)
        ran.append(number)
        return number

    desk = one(work)
    await desk.execute(run_id="r", store=store)
    await send_message("r", "paid", 1, store=store)
    outcomes = await asyncio.gather(*(desk.wake(store=store) for _ in range(5)))
    assert [outcome["r"].output for outcome in outcomes if outcome] == [1]
    assert ran == [1]


async def test_a_pipeline_wakes_its_own_runs_only_and_finds_them_without_reading_others(memory: Any) -> None:
    desk, other = receives(int), Pipeline("other", dict(receives(int).steps))
    for number in range(3):
        await other.execute(run_id=f"other {number}", store=memory)
        await send_message(f"other {number}", "paid", 1, store=memory)
    await desk.execute(run_id="r", store=memory)
    await send_message("r", "paid", 1, store=memory)
    read: list[str] = []
    assert await due(FaultyStore(memory, reading=read.append)) == ["r"]
    assert [key for key in read if "other" in key] == []
    assert await due(memory, "other") == ["other 0", "other 1", "other 2"], "due for longest first"


async def test_the_index_of_runs_that_are_due_is_rebuilt(memory: Any) -> None:
    desk = receives(int)
    await desk.execute(run_id="r", store=memory)
    await send_message("r", "paid", 1, store=memory)
    for found in await memory.list("index:"):
        await memory.delete(found.key)
    assert await due(memory) == []
    await RunHistory(memory).rebuild_indexes()
    assert await due(memory) == ["r"]


async def test_a_service_wakes_runs_again_and_again_until_it_is_cancelled(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    finished = asyncio.Event()

    async def work(ctx: StepContext[Any]) -> None:
        assert ctx.deps == f"deps of {ctx.run_id}"
        for _ in range(3):
            if await ctx.receive("paid", int) == 9:
                raise ValueError("nine")
        finished.set()

    desk = one(work)
    for run_id in ("r", "bad"):
        await desk.execute(run_id=run_id, store=store, deps=f"deps of {run_id}")
    loop = asyncio.create_task(
        desk.wake_every(0.01, deps_for=lambda run: f"deps of {run.run_id}", store=store)
    )
    with caplog.at_level(logging.WARNING, "fastroai.runs"):
        await send_message("bad", "paid", 9, store=store)
        for number in range(3):
            await send_message("r", "paid", number, store=store)
            await asyncio.sleep(0.02)
        await asyncio.wait_for(finished.wait(), PATIENCE)
        while "run 'bad' was not continued" not in caplog.text:
            await asyncio.sleep(0.01)
    loop.cancel()
    with suppress(asyncio.CancelledError):
        await loop
    assert loop.cancelled()


async def test_the_loop_of_a_service_survives_its_store_and_does_not_repeat_itself(
    memory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from support.faulty_store import gone

    desk = receives(int)
    await desk.execute(run_id="r", store=memory)
    await send_message("r", "paid", 1, store=memory)
    failures, looked = iter([gone()]), asyncio.Event()

    def reading(key: str) -> None:
        for failure in failures:
            raise failure

    asked: list[str] = []

    def no_deps(run: Any) -> Any:
        asked.append(run.run_id)
        if len(asked) == 3:
            looked.set()
        raise LookupError("no such tenant")

    store = FaultyStore(memory, reading=reading)
    loop = asyncio.create_task(desk.wake_every(0, deps_for=no_deps, store=store))
    with caplog.at_level(logging.WARNING, "fastroai.runs"):
        await asyncio.wait_for(looked.wait(), PATIENCE)
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
    assert caplog.text.count("could not be looked up") == 1
    assert caplog.text.count("no such tenant") == 1


# --- nothing is lost ---


class Died(BaseException):
    """A process does nothing more."""


@pytest.mark.parametrize("after", [False, True])
async def test_a_message_that_comes_at_any_write_of_a_halting_run_is_not_missed(after: bool) -> None:
    """The run looks for messages and says that it waits; the sender sends and looks who waits."""
    calm = FaultyStore()
    await receives(int).execute(run_id="r", store=calm)
    first = next(write.number for write in calm.writes if write.key.startswith("run:"))
    for number in count(first + (not after)):
        inner = MemoryRunStore()
        store = FaultyStore(inner)

        async def send(write: Write, number: int = number, inner: MemoryRunStore = inner) -> None:
            if write.number == number:
                await send_message("r", "paid", 5, store=inner)

        store.before, store.after = (None, send) if after else (send, None)
        desk = receives(int)
        result = await desk.execute(run_id="r", store=store)
        if len(store.writes) < number:  # how many there are depends on what is written together
            break
        if result.status == "paused":
            assert await due(inner) == ["r"], f"the message is lost that came at write {number}"
            result = await woken(desk, inner)
        assert result.output == [5]


@pytest.mark.parametrize("what", ["answer", "message"])
async def test_a_run_is_due_whenever_the_process_dies_that_gives_it_what_it_waits_for(
    what: str,
) -> None:
    async def ask(ctx: StepContext[Any]) -> Any:
        return await ctx.ask("Pay?", bool) if what == "answer" else await ctx.receive("paid", bool)

    async def give(store: Any) -> None:
        if what == "message":
            await send_message("r", "paid", True, store=store)
            return
        for asked in await Inbox(store).list():
            await Inbox(store).answer(asked.id, True)

    desk, given = one(ask), 0
    for survived in count():
        inner = MemoryRunStore()
        await desk.execute(run_id="r", store=inner)

        def die(write: Write, survived: int = survived) -> None:
            if write.number > survived:
                raise Died

        store = FaultyStore(inner, before=die)
        with suppress(Died):
            await give(store)
        header = (await read_header(inner, "r")).header
        key = mail_key(header) if what == "message" else log_key(header)
        has_come = any(write.key == key for write in store.writes[:survived])
        given += has_come
        if has_come:
            assert header.due_at is not None, f"it died after write {survived}"
            assert header.due_at < datetime.now(UTC) + timedelta(seconds=11)
        if len(store.writes) <= survived:
            break
    assert given >= 3
    assert (await woken(desk, inner)).output is True


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_message_that_was_announced_and_never_came_wakes_a_run_for_nothing_and_once(
    memory: Any, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    if is_late:
        monkeypatch.setattr(runs, "_FORESEEN", timedelta(0))
    desk = receives(int)
    await desk.execute(run_id="r", store=memory)

    def die(write: Write) -> None:
        if write.key.startswith("mail:"):
            raise Died

    with pytest.raises(Died):
        await send_message("r", "paid", 1, store=FaultyStore(memory, before=die))
    assert await due(memory) == (["r"] if is_late else []), "it has some time to come"
    if is_late:
        assert (await woken(desk, memory)).status == "paused"
        assert await due(memory) == []
    await send_message("r", "paid", 2, store=memory)
    assert (await woken(desk, memory)).output == [2]


@pytest.mark.parametrize("hours", [-5, 5])
async def test_waits_end_by_the_clock_of_the_store_and_not_by_that_of_the_process(hours: int) -> None:
    ahead = timedelta(hours=hours)
    store = MemoryRunStore(clock=lambda: datetime.now(UTC) + ahead)

    async def wait(ctx: StepContext[Any]) -> int:
        await ctx.sleep(LONG)
        return await ctx.receive("paid", int, timeout=LONG)

    pipeline = one(wait)
    assert (await pipeline.execute(run_id="r", store=store)).status == "paused"
    assert await due(store) == []
    ahead += timedelta(seconds=LONG + 1)
    assert await due(store) == ["r"]
    assert [run.status for run in (await pipeline.wake(store=store)).values()] == ["paused"]  # type: ignore[union-attr]
    assert await due(store) == []
    await pipeline.send("r", "paid", 120, store=store)
    assert [run.output for run in (await pipeline.wake(store=store)).values()] == [120]  # type: ignore[union-attr]
