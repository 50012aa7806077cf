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
from support.run_stores import KINDS, run_stores
from support.stored_runs import begin, entries_of, header_of, take_up

from fastroai.errors import (
    ConfigurationError,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
    RunTakenOver,
)
from fastroai.records import Usage
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import AnyFact, RunFinished, RunResumed, RunStarted, StepFinished, StepStarted
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.lease import DEFAULT_TERMS
from fastroai.store.record.entries import (
    RunHeader,
)
from fastroai.store.record.headers import (
    check_run_id,
    encode_header,
    header_key,
    log_key,
    read_header,
    read_log,
)
from fastroai.store.record.memo import Memo
from fastroai.store.record.runs import DurableRun, RecordOptions

LEASE = DEFAULT_TERMS.seconds


def opened(run_id: str = "r") -> RunStarted:
    return RunStarted(part=Part(run_id, "p", ("p",)))


def ended() -> RunFinished:
    return RunFinished(status="finished")


async def header(store: Any) -> RunHeader:
    return await header_of(store, "r")


class Clock:
    """Of a store, which is not that of this machine."""

    def __init__(self) -> None:
        self.now = datetime(2000, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def lend(owner: str | None) -> str:
    """The same owner on another machine, whose cost is unknown."""
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
    with pytest.raises(RunInProgress, match="which holds it until"):
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


async def test_a_process_whose_run_another_one_has_renews_nothing_and_writes_nothing() -> None:
    store = MemoryRunStore()
    loser = await begin(store)
    held = await read_header(store, "r")
    lapsed = replace(held.header, owner=lend(held.header.owner), lease_until=held.now)
    await store.compare_and_set(header_key("r"), encode_header(lapsed), revision=held.revision)
    winner = await take_up(store)
    before = await everything_in(store)
    with pytest.raises(RunTakenOver):
        await loser.lease.renew()
    with pytest.raises(RunTakenOver):
        await loser.journal.commit(StepStarted("a", ""))
    with pytest.raises(RunTakenOver):
        await loser.end(ended(), Usage())
    assert await everything_in(store) == before
    await winner.end(ended(), Usage())


async def test_a_run_that_is_deleted_while_it_goes_on_stops_and_leaves_nothing() -> None:
    store = MemoryRunStore()
    run = await begin(store)
    await RunHistory(store).delete("r", force=True)
    with pytest.raises(RunTakenOver):
        await run.lease.renew()
    with pytest.raises(RunTakenOver):
        await run.end(ended(), Usage())
    assert await everything_in(store) == {}


@pytest.fixture(params=KINDS)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        store = open_store()
        yield store
        if request.param != "memory":
            asyncio.run(store.aclose())


@pytest.mark.parametrize("run_id", ["r", "a:b", "r:" + "0" * 32])
async def test_the_process_of_a_deleted_run_writes_nothing_into_the_next_run_with_its_id(
    any_store: Any, run_id: str
) -> None:
    async def begun() -> DurableRun:
        return await begin(any_store, run_id)

    deleted = await begun()
    await RunHistory(any_store).delete(run_id, force=True)
    later = await begun()
    before = await everything_in(any_store)
    with pytest.raises(RunTakenOver, match="was deleted"):
        await deleted.journal.commit(StepFinished("a", "of the deleted run"))
    with pytest.raises(RunTakenOver):
        await deleted.end(ended(), Usage())
    assert await everything_in(any_store) == before
    await later.journal.commit(StepStarted("a", ""))
    await later.end(ended(), Usage())
    assert kinds(await entries_of(any_store, run_id)) == ["run_started", "step_started", "run_finished"]


async def test_the_keys_of_runs_are_told_apart_whatever_their_ids(any_store: Any) -> None:
    """One id ends like the epoch of another run: to delete one run leaves the other as it was."""
    one = await begin(any_store)
    await one.end(ended(), Usage())
    other_id = f"r:{one.header.epoch}"
    other = await begin(any_store, other_id)
    await other.end(ended(), Usage())
    before = await everything_in(any_store)
    for run_id, kept in (("r", other), (other_id, one)):
        await RunHistory(any_store).delete(run_id)
        left = await everything_in(any_store)
        assert left.items() >= {(key, before[key]) for key in (header_key(kept.run_id), log_key(kept.header))}
        await any_store.append(header_key(run_id), [b"{"], revision=0)
        await RunHistory(any_store).delete(run_id, force=True)  # its header cannot be read
        assert await everything_in(any_store) == left
        for key, (values, _) in before.items():
            await any_store.delete(key)
            await any_store.append(key, values, revision=0)
        before = await everything_in(any_store)


async def test_a_run_that_could_not_begin_can_begin_later() -> None:
    for number in range(1, 6):
        for after in (False, True):
            store = FaultyStore()

            def gone_at(write: Write, number: int = number) -> None:
                if write.number == number:
                    raise gone()

            store.before, store.after = (None, gone_at) if after else (gone_at, None)
            with pytest.raises(RunStoreUnavailable):
                await begin(store)
            if number == 5 and after:
                run = await take_up(store)  # it has begun, and nobody knew
            else:
                run = await begin(store)
            await run.end(ended(), Usage())


async def test_a_run_that_could_not_be_taken_up_can_be_later() -> None:
    store = FaultyStore()
    await (await begin(store)).end(ended(), Usage())
    for after in (False, True):
        for part in ("index:", "run:", "log:"):
            if part == "index:":
                await (await take_up(store)).end(ended(), Usage())  # else it has that entry already

            def gone_at(write: Write, part: str = part) -> None:
                if write.key.startswith(part):
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
    assert kinds(await entries_of(store, "r")) == before
    assert run.recorded.outputs == {"ask": answer}
    assert run.recorded.ended is None
    assert kinds(run.entries()) == before
    await run.journal.commit(StepStarted("next", "ask finished"))
    await run.end(ended(), Usage())
    whole = [*before, "step_started", "run_finished"]
    assert kinds(await entries_of(store, "r")) == kinds(run.entries()) == whole


async def test_a_resume_that_is_not_on_record_brings_nothing_with_it() -> None:
    store = FaultyStore()
    await (await begin(store)).end(ended(), Usage())

    def gone_at(write: Write) -> None:
        if write.key.startswith("log:"):
            raise gone()

    answer = StepFinished("ask", "yes")
    for after in (False, True):  # whether it was stored before the store was gone
        store.before, store.after = (None, gone_at) if after else (gone_at, None)
        with pytest.raises(RunStoreUnavailable):
            await take_up(store, answer)
        assert kinds(await entries_of(store, "r"))[2:] == (["run_resumed", "step_finished"] if after else [])


async def test_who_reads_a_run_before_another_has_it_does_not_get_it_afterwards() -> None:
    store = MemoryRunStore()
    await (await begin(store)).end(ended(), Usage())
    found = await read_header(store, "r")
    recorded = Memo("r", await read_log(store, found.header))
    await (await take_up(store)).end(ended(), Usage())
    before = await everything_in(store)
    with pytest.raises(RunInProgress):
        await DurableRun.take_up(RecordOptions(store=store, codec=None), recorded, RunResumed(), found=found)
    assert await everything_in(store) == before


async def test_what_is_left_of_a_deleted_run_is_no_part_of_the_next_one_with_its_id() -> None:
    store = MemoryRunStore()
    await (await begin(store)).end(ended(), Usage())
    await store.delete(header_key("r"))
    await (await begin(store)).end(ended(), Usage())
    assert len(await entries_of(store, "r")) == 2


async def test_who_reads_a_run_that_is_replaced_meanwhile_does_not_take_up_the_other_one() -> None:
    """Both logs have the same length, and both headers the same revision."""
    store = MemoryRunStore()
    await (await begin(store)).release()
    found = await read_header(store, "r")
    recorded = Memo("r", await read_log(store, found.header))
    await RunHistory(store).delete("r")
    await (await begin(store)).release()
    before = await everything_in(store)
    with pytest.raises(RunNotFound):
        await DurableRun.take_up(RecordOptions(store=store, codec=None), recorded, RunResumed(), found=found)
    assert await everything_in(store) == before


async def test_a_run_that_is_deleted_while_it_is_taken_up_is_not_found() -> None:
    store = FaultyStore()
    await (await begin(store)).end(ended(), Usage())
    to_the_log = len(store.writes) + 3

    async def deleted(write: Write) -> None:
        if write.number == to_the_log:
            await RunHistory(store.inner).delete("r", force=True)

    store.before = deleted
    with pytest.raises(RunNotFound):
        await take_up(store)
    assert await everything_in(store) == {}


async def test_who_wakes_up_before_its_run_has_begun_does_not_touch_the_run_of_another() -> None:
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
    assert len(await entries_of(store, "r")) == 3


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
    assert "its new status could not be written" in caplog.text
    store.before = None
    assert (await RunHistory(store).summary("r")).status == "interrupted"
    await (await take_up(store)).release()


async def test_a_run_that_is_gone_cannot_be_taken_up() -> None:
    store = MemoryRunStore()
    await (await begin(store)).end(ended(), Usage())
    found = await read_header(store, "r")
    await RunHistory(store).delete("r")
    recorded = Memo("r", [opened()])
    with pytest.raises(RunNotFound):
        await DurableRun.take_up(RecordOptions(store=store, codec=None), recorded, RunResumed(), found=found)


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


@pytest.mark.slow
async def test_of_two_processes_that_resume_a_run_at_once_one_goes_on_and_nothing_runs_twice(
    place: str, workers: ResumeWorkers, tmp_path: Path
) -> None:
    file, store = tmp_path / "lines", store_at(place)
    with pytest.raises(Exception, match="second"):
        await pipeline_that_writes_to(file, fails=True).execute(run_id="r", store=store)
    outcomes = await asyncio.to_thread(workers.resume, place, "r", file)
    assert len(outcomes) == 2
    assert "second" in outcomes
    # On a busy machine one may begin after the other has ended: then it gets the result that is on record.
    assert set(outcomes) <= {"RunInProgress", "second"}
    assert file.read_text().split() == ["first", "second"]
    assert (await RunHistory(store).summary("r")).status == "finished"
    await store.aclose()
