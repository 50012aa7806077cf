"""`execute` with an id that the store has, and callers who come while a process has the run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import Program
from support.patience import PATIENCE

from fastroai.errors import ConfigurationError, RunExists, RunInProgress, RunStatusConflict, RunTakenOver
from fastroai.pipelines import ConversationState, ConversationStatus, Pipeline, StepContext, step
from fastroai.store import RunHistory, SQLiteRunStore
from fastroai.store.record.headers import encode_header, read_header

"""Seconds, as in `support.patience`, which this file cannot import where it runs as a program."""


class Desk:
    """A pipeline of two steps. The second one fails, or waits, as long as it is told to."""

    def __init__(self, store: SQLiteRunStore) -> None:
        self.store = store
        self.ran: list[str] = []
        self.fails = False
        self.arrived, self.leave = asyncio.Event(), asyncio.Event()
        self.leave.set()

        @step
        async def read(ctx: StepContext) -> str:
            self.ran.append("read")
            return ctx.get_input("text", str)

        @step
        async def book(ctx: StepContext) -> str:
            self.ran.append("book")
            self.arrived.set()
            await self.leave.wait()
            if self.fails:
                raise ConnectionError("the ledger is down")
            return f"{ctx.get_dependency('read', str)} for {ctx.get_input('customer', str)}"

        self.pipeline = Pipeline[None, str]("desk", {"read": read, "book": book}, {"book": ["read"]})

    async def run(self, text: str = "tea", customer: str = "Ada", **options: Any) -> Any:
        inputs = {"text": text, "customer": customer}
        return await self.pipeline.run(inputs, run_id="r", store=self.store, **options)

    async def failed(self) -> None:
        self.fails = True
        with pytest.raises(Exception, match="the ledger is down"):
            await self.run()
        self.fails = False
        self.ran.clear()

    async def waiting(self) -> asyncio.Task[Any]:
        """A run whose second step waits until `leave` is set."""
        self.leave.clear()
        run = asyncio.create_task(self.run())
        await asyncio.wait_for(self.arrived.wait(), PATIENCE)
        self.arrived.clear()
        self.ran.clear()
        return run

    async def facts(self) -> list[str]:
        return [fact.kind for fact in (await RunHistory(self.store).trace("r")).entries]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SQLiteRunStore(tmp_path / "runs.db")
    yield Desk(store)
    await store.aclose()


# --- an id that the store has ---


async def test_a_run_that_did_not_end_well_is_gone_on_with(desk: Desk) -> None:
    await desk.failed()
    result = await desk.run(on_existing="resume")
    assert (result.output, desk.ran) == ("tea for Ada", ["book"])


async def test_inputs_that_differ_replace_those_on_record(desk: Desk) -> None:
    await desk.failed()
    result = await desk.run(customer="Noor", on_existing="resume")
    assert result.output == "tea for Noor"
    resumed = next(fact for fact in result.trace.entries if fact.kind == "run_resumed")
    assert resumed.inputs == {"customer": "Noor"}


@pytest.mark.parametrize("on_existing", ["resume", "return"])
async def test_the_result_of_a_finished_run_is_given_again_and_nothing_is_written(
    desk: Desk, on_existing: Any
) -> None:
    await desk.run()
    before, cost = await desk.facts(), (await RunHistory(desk.store).summary("r")).cost_usd
    desk.ran.clear()
    results = await asyncio.gather(*(desk.run(on_existing=on_existing) for _ in range(5)))
    assert [one.output for one in results] == ["tea for Ada"] * 5
    assert (desk.ran, await desk.facts()) == ([], before)
    assert {one.usage.cost_usd for one in results} == {cost}
    assert results[0].step_outputs == {"read": "tea", "book": "tea for Ada"}


async def test_a_finished_run_has_no_result_for_other_inputs(desk: Desk) -> None:
    await desk.run()
    for on_existing in ("resume", "return"):
        with pytest.raises(RunStatusConflict, match="is finished"):
            await desk.run(text="ink", on_existing=on_existing)


async def test_the_result_of_a_run_that_has_not_finished_is_not_there(desk: Desk) -> None:
    await desk.failed()
    with pytest.raises(RunExists, match="failed"):
        await desk.run(on_existing="return")
    assert desk.ran == []


async def test_a_run_is_replaced(desk: Desk) -> None:
    await desk.run()
    result = await desk.run(text="ink", on_existing="replace")
    assert (result.output, desk.ran) == ("ink for Ada", ["read", "book"] * 2)
    assert (await desk.facts()).count("run_started") == 1
    assert [run.run_id for run in await RunHistory(desk.store).list()] == ["r"]
    kept = [found.key for found in await desk.store.list("", limit=100)]
    assert len([key for key in kept if key.startswith("log:")]) == 1
    assert [key for key in kept if key.startswith("index:")] == []  # SQLite has an index of its own


async def test_whatever_is_to_be_done_with_a_run_that_exists_a_new_one_begins(desk: Desk) -> None:
    for on_existing in ("fail", "resume", "return", "replace"):
        inputs = {"text": "tea", "customer": "Ada"}
        async with desk.pipeline.stream(
            inputs, run_id=on_existing, store=desk.store, on_existing=on_existing
        ) as events:
            assert [event async for event in events]
        assert events.result is not None
        assert events.result.output == "tea for Ada"


async def test_of_two_that_replace_a_run_the_store_lets_one_do_it(desk: Desk) -> None:
    await desk.run()
    desk.leave.clear()
    first, second = (asyncio.create_task(desk.run(text="ink", on_existing="replace")) for _ in range(2))
    done, pending = await asyncio.wait((first, second), return_when="FIRST_COMPLETED", timeout=PATIENCE)
    assert [type(one.exception()) for one in done] == [RunInProgress]
    desk.leave.set()
    assert [(await one).output for one in pending] == ["ink for Ada"]
    assert (await RunHistory(desk.store).summary("r")).status == "finished"


async def test_a_process_whose_run_was_replaced_stops_at_its_next_write(desk: Desk) -> None:
    run = await desk.waiting()
    # The lease has run out, as if the process had been asleep.
    found = await read_header(desk.store, "r")
    late = replace(found.header, lease_until=found.header.started_at, steady_until=None)
    await desk.store.compare_and_set("run:r", encode_header(late), revision=found.revision)

    other = Desk(desk.store)
    result = await other.run(text="ink", on_existing="replace")
    assert result.output == "ink for Ada"
    desk.leave.set()
    with pytest.raises(RunTakenOver):
        await run
    trace = await RunHistory(desk.store).trace("r")
    assert (trace.inputs["text"], trace.status) == ("ink", "finished")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"on_existing": "overwrite"}, "on_existing"),
        ({"on_busy": "wait"}, "on_busy"),
        ({"on_busy": "enqueue"}, "on_existing"),
        ({"on_existing": "return", "on_busy": "interrupt"}, "on_busy"),
        ({"on_existing": "resume", "on_busy": "enqueue", "busy_timeout": -1}, "busy_timeout"),
    ],
)
async def test_what_cannot_be_meant_is_refused(desk: Desk, options: Any, what: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await desk.run(**options)
    assert refused.value.option == what
    with pytest.raises(ConfigurationError):
        await desk.pipeline.run({}, store=desk.store, on_existing="resume")
    with pytest.raises(ConfigurationError):
        await desk.pipeline.run({}, run_id="r", on_existing="resume")


# --- runs that are busy ---


async def test_who_does_not_wait_is_rejected(desk: Desk) -> None:
    run = await desk.waiting()
    for on_existing in ("resume", "return", "replace"):
        with pytest.raises(RunInProgress):
            await desk.run(on_existing=on_existing)
    desk.leave.set()
    assert (await run).output == "tea for Ada"


async def test_a_caller_in_line_gets_the_result_of_the_run_that_it_waited_for(desk: Desk) -> None:
    run = await desk.waiting()
    others = [
        asyncio.create_task(Desk(desk.store).run(on_existing="return", on_busy="enqueue")) for _ in range(3)
    ]
    await in_line(desk.store, 3)
    desk.leave.set()
    assert {one.output for one in await asyncio.gather(run, *others)} == {"tea for Ada"}
    assert desk.ran == []
    assert await desk.store.list("line:") == []


async def test_nobody_waits_longer_than_the_time_that_was_given(desk: Desk) -> None:
    run = await desk.waiting()
    with pytest.raises(RunInProgress):
        await desk.run(on_existing="resume", on_busy="enqueue", busy_timeout=0.1)
    assert await desk.store.list("line:") == []
    desk.leave.set()
    await run


async def test_a_caller_that_is_cancelled_leaves_the_line(desk: Desk) -> None:
    run = await desk.waiting()
    other = asyncio.create_task(desk.pipeline.resume("r", store=desk.store, on_busy="enqueue"))
    await in_line(desk.store, 1)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert await desk.store.list("line:") == []
    desk.leave.set()
    await run


async def test_a_run_does_not_wait_for_itself(desk: Desk) -> None:
    @step
    async def own(ctx: StepContext) -> None:
        await door.resume(ctx.run_id, store=desk.store, on_busy="enqueue")

    door = Pipeline[None, None]("own", {"own": own})
    with pytest.raises(Exception, match="would wait for itself"):
        await door.run({}, store=desk.store)


async def in_line(store: SQLiteRunStore, callers: int) -> None:
    """Return when so many callers wait for a run."""
    async with asyncio.timeout(PATIENCE):
        while sum(len(json.loads(line.value)) for line in await store.list("line:")) < callers:
            await asyncio.sleep(0.01)


class Chat:
    """A conversation: each message makes the run go on, and each answer stops it until the next one."""

    def __init__(self, store: SQLiteRunStore) -> None:
        self.store, self.heard = store, list[str]()
        self.arrived, self.leave = asyncio.Event(), asyncio.Event()

        @step
        async def reply(ctx: StepContext) -> ConversationState[str]:
            message = ctx.get_input("message", str)
            self.heard.append(message)
            self.arrived.set()
            if message == "slow":
                await self.leave.wait()
            return ConversationState(data=message, status=ConversationStatus.INCOMPLETE)

        self.pipeline = Pipeline[None, Any]("chat", {"reply": reply})

    async def say(self, message: str, **options: Any) -> Any:
        return await self.pipeline.run(
            {"message": message}, run_id="chat", store=self.store, on_existing="resume", **options
        )


async def test_messages_that_are_enqueued_are_heard_in_order(desk: Desk) -> None:
    chat = Chat(desk.store)
    first = asyncio.create_task(chat.say("slow"))
    await asyncio.wait_for(chat.arrived.wait(), PATIENCE)
    later = []
    for number in range(5):
        later.append(asyncio.create_task(Chat(desk.store).say(f"m{number}", on_busy="enqueue")))
        await in_line(desk.store, number + 1)
    chat.leave.set()
    results = [await one for one in (first, *later)]
    assert [one.conversation_state.data for one in results] == ["slow", "m0", "m1", "m2", "m3", "m4"]
    trace = await RunHistory(desk.store).trace("chat")
    said = [one.inputs["message"] for one in trace.entries if one.kind in ("run_started", "run_resumed")]
    assert said == ["slow", "m0", "m1", "m2", "m3", "m4"]


async def test_a_message_that_interrupts_is_heard_as_soon_as_the_run_has_ended(desk: Desk) -> None:
    chat = Chat(desk.store)
    first = asyncio.create_task(chat.say("slow"))
    await asyncio.wait_for(chat.arrived.wait(), PATIENCE)
    second = await chat.say("stop", on_busy="interrupt")
    assert second.conversation_state.data == "stop"
    assert (await first).status == "cancelled"
    assert chat.heard == ["slow", "stop"]


async def test_a_run_that_is_interrupted_can_be_replaced(desk: Desk) -> None:
    run = await desk.waiting()
    desk_later = Desk(desk.store)
    result = await desk_later.run(text="ink", on_existing="replace", on_busy="interrupt")
    assert (result.output, (await run).status) == ("ink for Ada", "cancelled")


async def test_a_run_of_another_process_is_waited_for_or_interrupted(desk: Desk, tmp_path: Path) -> None:
    process = Program(__file__, tmp_path / "runs.db")
    try:
        assert await asyncio.to_thread(process.stdout.readline) == "arrived\n"
        with pytest.raises(RunInProgress):
            await desk.pipeline.resume("r", store=desk.store)
        with pytest.raises(RunInProgress):
            await desk.pipeline.resume("r", store=desk.store, on_busy="enqueue", busy_timeout=0.2)
        result = await desk.pipeline.resume("r", store=desk.store, on_busy="interrupt")
        assert (result.output, desk.ran) == ("tea for Ada", ["book"])
        assert await asyncio.to_thread(process.end) == (0, "", "")
    finally:
        process.kill()


async def _main(place: str) -> None:
    store = SQLiteRunStore(place)
    desk = Desk(store)
    run = await desk.waiting()
    print("arrived", flush=True)
    assert (await run).status == "cancelled"
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
