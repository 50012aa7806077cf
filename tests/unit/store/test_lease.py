"""The lease of a run: who renews it, what it outlasts, and what an owner does that was asleep."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.agents import paid_agent
from support.faulty_store import FaultyStore, Write, everything_in, gone
from support.patience import PATIENCE
from support.stored_runs import begin, entries_of, header_of, take_up

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepContext, step
from fastroai.errors import (
    ConfigurationError,
    RevisionConflict,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
    RunTakenOver,
    StepExecutionError,
    usage_of,
)
from fastroai.records import Usage
from fastroai.runtime.facts import RunFinished, StepStarted
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.store.lease import LeaseTerms
from fastroai.store.record.headers import encode_header, header_key, read_header, spending_of
from fastroai.store.record.runs import DurableRun, seize
from fastroai.store.run_store import StoredValues

SHORT = LeaseTerms(seconds=0.3)
LONG = LeaseTerms(seconds=86_400)
"""The renewing thread does not come while a test runs."""


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2000, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass in which this machine was suspended."""
    from fastroai.runtime import owner

    slept, awake = [0.0], owner.steady_seconds
    for module in ("lease", "record.runs", "record.headers"):
        monkeypatch.setattr(f"fastroai.store.{module}.steady_seconds", lambda: awake() + slept[0])

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    return sleep


async def end(run: DurableRun) -> None:
    await run.end(RunFinished(status="finished"), Usage())


# --- the thread that renews ---


class Blocked:
    """A run whose step blocks its event loop, in a thread of its own, until it is let go on."""

    def __init__(self, store: Any, **options: float) -> None:
        self.store, self.charged = store, 0
        self.blocks, self.go_on = threading.Event(), threading.Event()
        self.attempts = 0
        config = PipelineConfig(store=store, durability="async", **options)  # type: ignore[arg-type]

        async def charge() -> str:
            self.charged += 1
            return "receipt"

        @step
        async def pay(ctx: StepContext) -> str:
            self.attempts += 1
            if self.attempts == 1:
                self.blocks.set()
                self.go_on.wait(PATIENCE)
            return await ctx.once("charge", charge)

        self.pipeline: Pipeline[Any, Any] = Pipeline("p", {"pay": pay}, config=config)

    async def renewals(self, wanted: int, before_each: Callable[[], None]) -> None:
        """Wait until the lease was renewed so often."""
        seen, revision = -1, 0
        async with asyncio.timeout(PATIENCE):
            while seen < wanted:
                found = await self.store.read(header_key("r"), after=revision)
                if found.revision > revision:
                    seen, revision = seen + 1, found.revision
                    before_each()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.slow
def test_a_step_that_blocks_its_event_loop_for_many_leases_keeps_its_run(
    kind: str, tmp_path: Path, sleep: Callable[[float], None]
) -> None:
    store: Any = MemoryRunStore() if kind == "memory" else SQLiteRunStore(tmp_path / "runs.db")
    run = Blocked(store, lease=12)

    async def others() -> None:
        await run.renewals(9, before_each=lambda: sleep(5))  # more than three leases
        with pytest.raises(RunInProgress):
            await run.pipeline.resume("r")
        run.go_on.set()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(lambda: asyncio.run(run.pipeline.execute(run_id="r")))
        assert run.blocks.wait(PATIENCE)
        asyncio.run(others())
        assert running.result(PATIENCE).output == "receipt"
    assert (run.attempts, run.charged) == (1, 1)
    asyncio.run(store.aclose())


def test_a_run_whose_event_loop_is_blocked_for_longer_than_max_stall_goes_to_another_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryRunStore()
    run = Blocked(store, lease=SHORT.seconds, max_stall=0.2)

    async def others() -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    result = await run.pipeline.resume("r")
                except RunInProgress:
                    await asyncio.sleep(0.01)
                else:
                    break
        assert result.output == "receipt"
        before = await everything_in(store)
        run.go_on.set()
        with pytest.raises(RunTakenOver):
            await asyncio.wrap_future(running)
        assert await everything_in(store) == before

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(lambda: asyncio.run(run.pipeline.execute(run_id="r")))
        assert run.blocks.wait(PATIENCE)
        asyncio.run(others())
    assert (run.attempts, run.charged) == (2, 1)  # the first owner did not begin its side effect
    assert "its event loop has been blocked for 0.2 s" in caplog.text


def test_a_run_that_nobody_has_taken_goes_on_after_a_stall() -> None:
    store = MemoryRunStore()
    run = Blocked(store, lease=SHORT.seconds, max_stall=0.0)

    async def others() -> None:
        async with asyncio.timeout(PATIENCE):
            while (await RunHistory(store).summary("r")).status != "interrupted":
                await asyncio.sleep(0.01)
        run.go_on.set()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(lambda: asyncio.run(run.pipeline.execute(run_id="r")))
        assert run.blocks.wait(PATIENCE)
        asyncio.run(others())
        assert running.result(PATIENCE).output == "receipt"
    assert run.charged == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.slow
async def test_renewals_that_fail_or_whose_answers_are_lost_are_followed_by_others(
    after: bool, sleep: Callable[[float], None]
) -> None:
    store = FaultyStore()
    run = await begin(store, terms=LeaseTerms(seconds=12))
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    renewals = 0

    def every_other(write: Write) -> None:
        nonlocal renewals
        if write.key == header_key("r"):
            renewals += 1
            if renewals == 11:
                loop.call_soon_threadsafe(enough.set)
            else:
                sleep(4)  # the next one is due
            if renewals % 2:
                raise ZeroDivisionError if renewals % 3 else gone()

    store.before, store.after = (None, every_other) if after else (every_other, None)
    async with asyncio.timeout(PATIENCE):
        await enough.wait()
    store.before = store.after = None
    with pytest.raises(RunInProgress):
        await take_up(store)
    await end(run)
    writes = len(store.writes)
    sleep(12)
    await asyncio.sleep(1)  # in which the background loop looks for leases twice
    assert len(store.writes) == writes
    assert (await header_of(store, "r")).status == "finished"


async def test_the_renewing_thread_puts_on_record_what_was_spent_and_keeps_what_senders_wrote() -> None:
    store = MemoryRunStore()
    run = await begin(store)
    run.lease.progress = lambda: spending_of(Usage(request_count=3))
    held = await read_header(store, "r")
    due = replace(held.header, due_at=held.now)
    await store.compare_and_set(header_key("r"), encode_header(due), revision=held.revision)
    await run.lease.renew()
    header = await header_of(store, "r")
    assert (header.requests, header.due_at) == (3, held.now)
    await run.release()


class CountingStore(MemoryRunStore):
    """A store that counts the reads of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = Counter[str]()

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        self.reads[key] += 1
        return await super().read(key, after=after)

    async def renewed(self, run_id: str, times: int) -> None:
        """Wait until the header of a run was written so many times."""
        key = header_key(run_id)
        wanted = (await super().read(key)).revision + times
        while (await super().read(key)).revision < wanted:
            await asyncio.sleep(0.01)


async def test_renewals_of_all_runs_in_a_store_ask_it_for_the_time_together_and_read_no_header_again() -> (
    None
):
    store, ids = CountingStore(), ("a", "b", "c")
    runs = [await begin(store, one, terms=SHORT) for one in ids]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(store.renewed(one, 2) for one in ids))
        store.reads.clear()
        await asyncio.gather(*(store.renewed(one, 6) for one in ids))
    assert not [one for one in ids if store.reads[header_key(one)]]
    assert store.reads[header_key("")] < 3 * 6
    for run in runs:
        await end(run)


async def test_a_renewal_keeps_what_a_sender_wrote_since_the_last_one() -> None:
    store = CountingStore()
    run = await begin(store, terms=SHORT)
    async with asyncio.timeout(PATIENCE):
        await store.renewed("r", 2)
        held = await read_header(store, "r")
        due = replace(held.header, due_at=held.now)
        while True:
            with suppress(RevisionConflict):
                await store.compare_and_set(header_key("r"), encode_header(due), revision=held.revision)
                break
            held = await read_header(store, "r")
        await store.renewed("r", 2)
    assert (await header_of(store, "r")).due_at == due.due_at
    await end(run)


async def test_a_renewal_leaves_the_header_of_whoever_has_taken_the_run() -> None:
    store = CountingStore()
    run = await begin(store, terms=SHORT)
    async with asyncio.timeout(PATIENCE):
        await store.renewed("r", 2)
        await seize(store, "r")
        winner = await take_up(store)
        store.reads.clear()
        while not store.reads[header_key("r")]:  # the loser's next renewal meets the conflict
            await asyncio.sleep(0.01)
    assert (await header_of(store, "r")).owner == winner.header.owner
    await end(winner)
    await run.release()


# --- clocks ---


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_clock_that_jumps_ends_no_lease_on_this_machine(hours: int) -> None:
    clock = Clock()
    store = MemoryRunStore(clock=clock)
    run = await begin(store)
    clock.now += timedelta(hours=hours)
    with pytest.raises(RunInProgress):
        await take_up(store)
    await end(run)


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_clock_that_jumps_keeps_no_lease_on_this_machine(
    hours: int, sleep: Callable[[float], None]
) -> None:
    clock = Clock()
    store = MemoryRunStore(clock=clock)
    run = await begin(store, terms=LONG)
    clock.now += timedelta(hours=hours)
    sleep(LONG.seconds + 1)
    winner = await take_up(store)
    await end(winner)
    await run.release()


# --- an owner that was asleep ---


async def test_an_owner_reads_its_header_only_if_its_lease_has_ended(sleep: Callable[[float], None]) -> None:
    store = FaultyStore()
    run = await begin(store, terms=LONG)
    reads: list[str] = []
    store.reading = reads.append
    await run.check_held()
    sleep(LONG.seconds - 1)
    await run.check_held()
    assert reads == []
    sleep(1)
    await run.check_held()
    assert reads == [header_key("r")]
    await run.check_held()
    assert len(reads) == 1, "it has its lease again"
    with pytest.raises(RunInProgress):
        await take_up(store)
    await end(run)


async def test_an_owner_that_wakes_up_without_its_run_puts_nothing_on_record(
    sleep: Callable[[float], None],
) -> None:
    store = MemoryRunStore()
    run = await begin(store, terms=LONG)
    sleep(LONG.seconds + 1)
    winner = await take_up(store)
    with pytest.raises(RunTakenOver):
        await run.check_held()
    log = await entries_of(store, "r")
    with pytest.raises(RunTakenOver):
        await run.journal.commit(StepStarted("a", ""))
    with pytest.raises(RunTakenOver):
        await end(run)
    assert await entries_of(store, "r") == log
    await end(winner)


async def test_an_owner_that_wakes_up_while_the_store_is_away_waits_for_it(
    sleep: Callable[[float], None],
) -> None:
    store = FaultyStore()
    run = await begin(store, terms=LONG)
    failures = [gone(), gone()]

    def away(key: str) -> None:
        if failures:
            raise failures.pop()

    store.reading = away
    sleep(LONG.seconds + 1)
    await run.check_held()
    assert not failures

    def broken(key: str) -> None:
        raise ZeroDivisionError

    store.reading = broken
    sleep(LONG.seconds + 1)
    with pytest.raises(RunStoreUnavailable, match="ZeroDivisionError"):
        await run.check_held()
    assert isinstance(run.journal.failure, RunStoreUnavailable)
    await run.release()


@pytest.mark.parametrize("on_record", [False, True])
@pytest.mark.parametrize("what", ["request", "once"])
async def test_an_owner_that_wakes_up_sends_nothing_and_does_nothing_once(
    sleep: Callable[[float], None], what: str, on_record: bool
) -> None:
    """With `durability="async"`, no step waits for a write by which it would find out."""
    store, asked = MemoryRunStore(), list[str]()
    is_lost, has_begun, go_on = False, asyncio.Event(), asyncio.Event()

    async def ask(prompt: str) -> None:
        asked.append(prompt)

    agent = paid_agent(before=ask)

    async def effect() -> str:
        asked.append("effect")
        return "done"

    @step
    async def work(ctx: StepContext) -> str:
        if is_lost:
            has_begun.set()
            await go_on.wait()
        output = await (ctx.once("effect", effect) if what == "once" else ctx.run(agent, "a"))
        if on_record and not is_lost:
            raise ValueError
        return str(output)

    config = PipelineConfig(store=store, durability="async", lease=LONG.seconds)
    pipeline = Pipeline("p", {"work": work}, config=config)
    if on_record:
        with pytest.raises(StepExecutionError):
            await pipeline.execute(run_id="r")
    before, is_lost = asked.copy(), True
    running = asyncio.create_task(pipeline.resume("r") if on_record else pipeline.execute(run_id="r"))
    await has_begun.wait()
    sleep(LONG.seconds + 1)
    winner = await take_up(store)
    go_on.set()
    with pytest.raises(RunTakenOver) as caught:
        await running
    assert asked == before
    spent = usage_of(caught.value)
    assert spent is not None
    assert spent.cost_usd == (Decimal("0.0001") if on_record and what == "request" else 0)
    await end(winner)


@pytest.mark.parametrize("what", ["request", "once", "spend"])
async def test_an_owner_that_is_suspended_while_it_announces_something_does_not_do_it(
    sleep: Callable[[float], None], what: str
) -> None:
    store, did, winners = FaultyStore(), list[str](), list[DurableRun]()

    async def suspend(write: Write) -> None:
        if any(
            b"request_sent" in one or b"once_started" in one or b"spending" in one for one in write.values
        ):
            store.after = None
            sleep(LONG.seconds + 1)
            winners.append(await take_up(store))

    async def act(text: str = "effect") -> str:
        did.append(text)
        return text

    agent = paid_agent(before=act)

    @step
    async def work(ctx: StepContext) -> None:
        if what == "once":
            await ctx.once("effect", act)
        elif what == "request":
            await ctx.run(agent, "a")
        else:
            async with ctx.spend(usd="0.01") as spending:
                await act()
                spending.settle()

    store.after = suspend
    config = PipelineConfig(store=store, lease=LONG.seconds)
    with pytest.raises(RunTakenOver):
        await Pipeline("p", {"work": work}, config=config).execute(run_id="r")
    assert did == []
    await end(winners[0])


async def test_an_owner_that_wakes_up_with_an_answer_calls_no_tool(sleep: Callable[[float], None]) -> None:
    store, winners, bought = MemoryRunStore(), list[DurableRun](), list[str]()

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sleep(LONG.seconds + 1)
        winners.append(await take_up(store))
        return ModelResponse(parts=[ToolCallPart("buy", {"what": "ink"})])

    async def buy(what: str) -> str:
        bought.append(what)
        return what

    agent = FastroAgent(FunctionModel(respond), tools=[buy])

    @step
    async def work(ctx: StepContext) -> str:
        return str((await ctx.run(agent, "a")).output)

    config = PipelineConfig(store=store, durability="async", lease=LONG.seconds)
    with pytest.raises(RunTakenOver):
        await Pipeline("p", {"work": work}, config=config).execute(run_id="r")
    assert bought == []
    await end(winners[0])


# --- the options ---


@pytest.mark.parametrize("lease", [0, -1, 86_401, float("nan"), True, None, "30"])
def test_a_lease_is_a_number_of_seconds(lease: Any) -> None:
    with pytest.raises(ConfigurationError, match="lease=.*seconds"):
        PipelineConfig(lease=lease)


@pytest.mark.parametrize("seconds", [-1, float("inf"), True, None])
def test_the_longest_stall_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_stall=.*seconds"):
        PipelineConfig(max_stall=seconds)


async def test_the_lease_of_a_run_is_as_long_as_its_configuration_says() -> None:
    for config, seconds in ((PipelineConfig(), 30), (PipelineConfig(lease=2), 2)):
        clock = Clock()
        store, found = MemoryRunStore(clock=clock), list[datetime | None]()

        @step
        async def look(ctx: StepContext) -> None:
            found.append((await header_of(store, "r")).lease_until)  # noqa: B023

        pipeline = Pipeline("p", {"look": look}, config=replace(config, store=store))
        await pipeline.execute(run_id="r")
        await pipeline.fork("r", at="look", new_run_id="f")
        await RunHistory(store).delete("r")
        await pipeline.fork("f", at="look", new_run_id="r")
        assert found[0] == found[-1] == clock.now + timedelta(seconds=seconds)


# --- taking a run by force ---


async def test_force_takes_a_run_from_a_living_process() -> None:
    store = MemoryRunStore()
    has_begun, go_on, ran = asyncio.Event(), asyncio.Event(), 0

    @step
    async def first(ctx: StepContext) -> str:
        return "first"

    @step
    async def hangs(ctx: StepContext) -> str:
        nonlocal ran
        ran += 1
        if ran == 1:
            has_begun.set()
            await go_on.wait()
        return "second"

    config = PipelineConfig(store=store)
    pipeline = Pipeline("p", {"first": first, "hangs": hangs}, {"hangs": ["first"]}, config=config)
    loser = asyncio.create_task(pipeline.execute(run_id="r"))
    await has_begun.wait()
    with pytest.raises(RunInProgress):
        await pipeline.resume("r")
    assert (await pipeline.resume("r", force=True)).output == "second"
    before = await everything_in(store)
    go_on.set()
    with pytest.raises(RunTakenOver, match="by force"):
        await loser
    assert await everything_in(store) == before
    assert ran == 2


async def test_a_process_that_writes_all_the_time_loses_its_run_to_force() -> None:
    store = FaultyStore()
    loser = await begin(store)
    appended = 0

    async def first(write: Write) -> None:
        """The other process is faster, twenty times."""
        nonlocal appended
        if write.key.startswith("log:") and appended < 20:
            appended += 1
            store.before = None
            await loser.journal.commit(StepStarted(f"s{appended}", ""))
            store.before = first

    store.before = first
    await seize(store, "r")
    store.before = None
    with pytest.raises(RunTakenOver):
        await loser.journal.commit(StepStarted("late", ""))
    with pytest.raises(RunTakenOver):
        await loser.lease.renew()
    assert (await RunHistory(store).summary("r")).status == "interrupted"
    kinds = [entry.kind for entry in await entries_of(store, "r")]
    assert kinds == ["run_started", *["step_started"] * 20, "run_resumed"]
    await loser.release()
    winner = await take_up(store)
    await end(winner)


async def test_force_leaves_a_run_that_nobody_has_as_it_is() -> None:
    store = MemoryRunStore()
    await end(await begin(store))
    before = await everything_in(store)
    await seize(store, "r")
    assert await everything_in(store) == before
    with pytest.raises(RunNotFound):
        await seize(store, "unknown")


async def test_a_run_that_is_deleted_while_it_is_taken_by_force_stays_deleted() -> None:
    store = FaultyStore()
    loser = await begin(store)

    async def deleted(write: Write) -> None:
        if write.key.startswith("log:"):
            store.before = None
            await RunHistory(store).delete("r", force=True)

    store.before = deleted
    with pytest.raises(RunNotFound):
        await seize(store, "r")
    assert await everything_in(store) == {}
    await loser.release()
