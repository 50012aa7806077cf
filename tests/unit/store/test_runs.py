"""Who has a run: leases, their renewal and their end, in one process and in several."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.faulty_store import FaultyStore, Write, everything_in, gone
from support.leftovers import assert_no_task_is_left
from support.resume_worker import ResumeWorkers, pipeline_that_writes_to, store_at
from support.virtual_time import in_virtual_time

from fastroai.errors import (
    ConfigurationError,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
    RunTakenOver,
)
from fastroai.records import Usage
from fastroai.runtime.facts import (
    AnyFact,
    RunFinished,
    RunResumed,
    Part,
    RunStarted,
    StepFinished,
    StepStarted,
)
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.entries import (
    RunHeader,
)
from fastroai.store.headers import decode_header, encode_header, header_key, log_key, read_log
from fastroai.store.recorded import RecordedRun
from fastroai.store.runs import LEASE, DurableRun, check_run_id


def opened(run_id: str = "r") -> RunStarted:
    return RunStarted(part=Part(run_id, "p", ("p",)))


def ended() -> RunFinished:
    return RunFinished(status="finished")


async def begin(store: Any) -> DurableRun:
    return await DurableRun.begin(store, [opened()], durability="sync", codec=None)


async def take_up(store: Any, *also: AnyFact) -> DurableRun:
    revision = (await store.read(header_key("r"))).revision
    recorded = RecordedRun("r", await read_log(store, "r"))
    return await DurableRun.take_up(
        store,
        recorded,
        RunResumed(),
        position=len(recorded.entries),
        revision=revision,
        durability="sync",
        codec=None,
        also=also,
    )


async def header(store: Any) -> RunHeader:
    return decode_header("r", (await store.read(header_key("r"))).values[-1])


class Clock:
    """Of a store, which is not that of this machine."""

    def __init__(self) -> None:
        self.now = datetime(2000, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def lend(owner: str | None) -> str:
    """The same owner on another machine, of which nothing is known."""
    assert owner is not None
    return owner.replace("(", "(elsewhere-")


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert_no_task_is_left()


async def test_a_run_that_has_begun_is_owned_for_so_long_by_the_clock_of_the_store() -> None:
    clock = Clock()
    run = await begin(MemoryRunStore(clock=clock))
    held = await header(run.store)
    assert (held.status, held.started_at) == ("running", clock.now)
    assert held.lease_until == clock.now + timedelta(seconds=LEASE)
    with pytest.raises(RunExists):
        await begin(run.store)
    with pytest.raises(RunInProgress, match="whose lease is until"):
        await take_up(run.store)
    await run.end(ended(), Usage())
    held = await header(run.store)
    assert (held.status, held.owner, held.lease_until) == ("finished", None, None)


async def test_a_lease_of_another_machine_holds_until_it_ends_and_not_longer() -> None:
    clock = Clock()
    store = MemoryRunStore(clock=clock)
    run = await begin(store)
    await run.release()
    held = replace(await header(store), owner=lend((await header(store)).owner))
    await store.compare_and_set(header_key("r"), encode_header(held), revision=1)
    clock.now += timedelta(seconds=LEASE - 1)
    with pytest.raises(RunInProgress):
        await take_up(store)
    clock.now += timedelta(seconds=2)
    taken = await take_up(store)
    await taken.end(ended(), Usage())


async def test_a_run_that_this_process_gave_up_is_free_at_once() -> None:
    store = MemoryRunStore()
    await (await begin(store)).release()
    assert (await header(store)).status == "running"
    await (await take_up(store)).release()


@in_virtual_time
async def test_a_lease_is_renewed_while_the_run_goes_on() -> None:
    clock = Clock()
    store = FaultyStore(MemoryRunStore(clock=clock))
    run = await begin(store)
    for _ in range(5):
        clock.now += timedelta(seconds=LEASE / 2)
        await asyncio.sleep(LEASE / 2)
        with pytest.raises(RunInProgress):
            await take_up(store)
    await run.end(ended(), Usage())
    writes = len(store.writes)
    await asyncio.sleep(LEASE * 2)
    assert len(store.writes) == writes


@pytest.mark.parametrize("after", [False, True])
@in_virtual_time
async def test_renewals_that_fail_or_whose_answers_are_lost_are_followed_by_others(after: bool) -> None:
    clock = Clock()
    store = FaultyStore(MemoryRunStore(clock=clock))
    run = await begin(store)

    def every_other(write: Write) -> None:
        if write.number % 2:
            raise ZeroDivisionError if write.number % 3 else gone()

    store.before, store.after = (None, every_other) if after else (every_other, None)
    for _ in range(12):
        clock.now += timedelta(seconds=LEASE / 3)
        await asyncio.sleep(LEASE / 3)
    store.before = store.after = None
    lease = (await header(store)).lease_until
    assert lease is not None
    assert lease > clock.now
    await run.end(ended(), Usage())
    assert (await header(store)).status == "finished"


@in_virtual_time
async def test_who_has_lost_a_run_renews_nothing_and_writes_nothing() -> None:
    clock = Clock()
    store = MemoryRunStore(clock=clock)
    loser = await begin(store)
    clock.now += timedelta(seconds=LEASE + 1)
    winner = await take_up(store)
    before = await everything_in(store)
    await asyncio.sleep(LEASE)
    with pytest.raises(RunTakenOver):
        await loser.journal.commit(StepStarted("a", ""))
    with pytest.raises(RunTakenOver):
        await loser.end(ended(), Usage())
    held = await everything_in(store)
    assert held[log_key("r")] == before[log_key("r")]
    assert (await header(store)).owner == winner._header.owner
    await winner.end(ended(), Usage())


@in_virtual_time
async def test_a_run_that_is_deleted_while_it_goes_on_stops_and_leaves_nothing() -> None:
    store = MemoryRunStore()
    run = await begin(store)
    await RunHistory(store).delete("r", force=True)
    await asyncio.sleep(LEASE)
    with pytest.raises(RunTakenOver):
        await run.end(ended(), Usage())
    assert await everything_in(store) == {}


async def test_a_run_that_could_not_begin_can_begin_later() -> None:
    for number in (1, 2):
        for after in (False, True):
            store = FaultyStore()

            def gone_at(write: Write, number: int = number) -> None:
                if write.number == number:
                    raise gone()

            store.before, store.after = (None, gone_at) if after else (gone_at, None)
            with pytest.raises(RunStoreUnavailable):
                await begin(store)
            if number == 2 and after:
                run = await take_up(store)  # it has begun, and nobody knew
            else:
                run = await begin(store)
            await run.end(ended(), Usage())


async def test_a_run_that_could_not_be_taken_up_can_be_later() -> None:
    store = FaultyStore()
    await (await begin(store)).end(ended(), Usage())
    for after in (False, True):
        for number in (1, 2):
            first = len(store.writes)

            def gone_at(write: Write, number: int = number + first) -> None:
                if write.number == number:
                    raise gone()

            store.before, store.after = (None, gone_at) if after else (gone_at, None)
            with pytest.raises(RunStoreUnavailable):
                await take_up(store)
            store.before = store.after = None
            assert (await RunHistory(store).summary("r")).status in ("interrupted", "finished")
    await (await take_up(store)).end(ended(), Usage())


def kinds(entries: Sequence[AnyFact]) -> list[str]:
    return [entry.kind for entry in entries]


async def test_what_comes_with_a_resume_is_on_record_with_it_and_the_log_goes_on_after_it() -> None:
    store = MemoryRunStore()
    await (await begin(store)).end(ended(), Usage())
    answer = StepFinished("ask", "yes")
    run = await take_up(store, answer)
    before = ["run_started", "run_finished", "run_resumed", "step_finished"]
    assert kinds(await read_log(store, "r")) == before
    assert run.recorded.outputs == {"ask": answer}
    assert run.recorded.ended is None
    assert kinds(run.entries()) == before
    await run.journal.commit(StepStarted("next", "ask finished"))
    await run.end(ended(), Usage())
    whole = [*before, "step_started", "run_finished"]
    assert kinds(await read_log(store, "r")) == kinds(run.entries()) == whole


async def test_a_resume_that_is_not_on_record_brings_nothing_with_it() -> None:
    store = FaultyStore()
    await (await begin(store)).end(ended(), Usage())
    to_the_log = len(store.writes) + 2

    def gone_at(write: Write) -> None:
        if write.number == to_the_log:
            raise gone()

    answer = StepFinished("ask", "yes")
    for after in (False, True):  # whether it was stored before the store was gone
        store.before, store.after = (None, gone_at) if after else (gone_at, None)
        with pytest.raises(RunStoreUnavailable):
            await take_up(store, answer)
        assert kinds(await read_log(store, "r"))[2:] == (["run_resumed", "step_finished"] if after else [])
        to_the_log = len(store.writes) + 2


async def test_who_reads_a_run_before_another_has_it_does_not_get_it_afterwards() -> None:
    store = MemoryRunStore()
    await (await begin(store)).end(ended(), Usage())
    recorded = RecordedRun("r", await read_log(store, "r"))
    revision = (await store.read(header_key("r"))).revision
    await (await take_up(store)).end(ended(), Usage())
    before = await everything_in(store)
    with pytest.raises(RunInProgress):
        await DurableRun.take_up(
            store,
            recorded,
            RunResumed(),
            position=len(recorded.entries),
            revision=revision,
            durability="sync",
            codec=None,
        )
    assert await everything_in(store) == before


async def test_what_is_left_of_a_deleted_run_is_removed_when_its_id_is_used() -> None:
    store = MemoryRunStore()
    await (await begin(store)).end(ended(), Usage())
    await store.delete(header_key("r"))
    await (await begin(store)).end(ended(), Usage())
    assert len(await read_log(store, "r")) == 2


async def test_who_wakes_up_before_the_first_entry_does_not_remove_the_run_of_another() -> None:
    clock = Clock()
    store = FaultyStore(MemoryRunStore(clock=clock))
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def sleep(write: Write) -> None:
        if write.number == 2:
            asleep.set()
            await wake.wait()

    store.before = sleep
    sleeper = asyncio.create_task(begin(store))
    await asleep.wait()
    clock.now += timedelta(seconds=LEASE + 1)
    other = await begin(store)
    await other.journal.commit(StepStarted("a", ""))
    wake.set()
    with pytest.raises(RunExists):
        await sleeper
    await other.end(ended(), Usage())
    assert len(await read_log(store, "r")) == 3


async def test_a_header_that_cannot_be_written_at_the_end_is_only_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FaultyStore()
    run = await begin(store)

    def refuse_headers(write: Write) -> None:
        if write.key == header_key("r"):
            raise ZeroDivisionError

    store.before = refuse_headers
    await run.end(ended(), Usage())
    assert "could not be brought up to date" in caplog.text
    store.before = None
    assert (await RunHistory(store).summary("r")).status == "interrupted"
    await (await take_up(store)).release()


async def test_a_run_that_is_gone_cannot_be_taken_up() -> None:
    store = MemoryRunStore()
    with pytest.raises(RunNotFound):
        await DurableRun.take_up(
            store,
            RecordedRun("r", [opened()]),
            RunResumed(),
            position=1,
            revision=1,
            durability="sync",
            codec=None,
        )


@pytest.mark.parametrize("run_id", ["r", "é", "a b", "../x", "x" * 200, "\U0001f600"])
def test_ids_of_runs(run_id: str) -> None:
    check_run_id(run_id)


@pytest.mark.parametrize("run_id", ["", " ", "a\u2028b", "a\x9f", "x" * 201, "\udc00", None])
def test_what_is_no_id_of_a_run(run_id: Any) -> None:
    with pytest.raises(ConfigurationError):
        check_run_id(run_id)


# --- processes ---


@pytest.fixture(scope="module")
def workers() -> Iterator[ResumeWorkers]:
    some = ResumeWorkers(2)
    yield some
    some.end()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    if request.param == "sqlite":
        yield f"sqlite|{tmp_path / 'runs.db'}|"
    elif request.param == "redis":
        yield f"redis|{request.getfixturevalue('redis_url')}|{name}"
    else:
        dsn = request.getfixturevalue("postgres_dsn")
        yield f"postgres|{dsn}|{name}"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


async def test_of_two_processes_that_resume_a_run_at_once_one_goes_on_and_nothing_runs_twice(
    place: str, workers: ResumeWorkers, tmp_path: Path
) -> None:
    file, store = tmp_path / "lines", store_at(place)
    with pytest.raises(Exception, match="second"):
        await pipeline_that_writes_to(file, fails=True).execute(run_id="r", store=store)
    outcomes = await asyncio.to_thread(workers.resume, place, "r", file)
    assert sorted(outcomes) == ["RunInProgress", "second"]
    assert file.read_text().split() == ["first", "second"]
    assert (await RunHistory(store).summary("r")).status == "finished"
    await store.aclose()
