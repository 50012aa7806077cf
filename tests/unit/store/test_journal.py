"""The journal of a run: order, waiting, and what it does about stores that fail."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from support.faulty_store import FaultyStore, Write, fails_at, gone
from support.leftovers import assert_no_task_is_left
from support.virtual_time import in_virtual_time, now

from fastroai.errors import RevisionConflict, RunStoreUnavailable, RunTakenOver, ScopeClosedError
from fastroai.runtime.facts import StepStarted
from fastroai.store import MemoryRunStore
from fastroai.store.record.entries import (
    entry_in_store,
    entry_to_store,
)
from fastroai.store.record.journal import ENTRIES_AT_ONCE, LINGER, MOST_UNSTORED, PATIENCE, Journal

KEY = "log:r:epoch"


def entry(number: int) -> StepStarted:
    return StepStarted(f"s{number}", "")


async def stored(store: Any) -> list[str]:
    found = await store.read(KEY)
    return [entry_in_store("r", 1, value).place for value in found.values]  # type: ignore[union-attr]


def names(count: int) -> list[str]:
    return [f"s{number}" for number in range(count)]


@in_virtual_time
async def test_a_committed_entry_is_stored_when_commit_returns_with_what_was_noted_before() -> None:
    store = FaultyStore()
    journal = Journal(store, "r", KEY, revision=0)
    journal.note(entry(0))
    journal.note(entry(1))
    await journal.commit(entry(2))
    assert await stored(store) == names(3)
    assert [len(write.values) for write in store.writes] == [3]
    assert now() == 0
    await journal.aclose()


@in_virtual_time
async def test_a_note_lingers_and_is_then_written_with_the_others_of_that_time() -> None:
    store = FaultyStore()
    journal = Journal(store, "r", KEY, revision=0)
    for number in range(3):
        journal.note(entry(number))
    await asyncio.sleep(LINGER * 0.9)
    assert not store.writes
    await asyncio.sleep(LINGER * 0.2)
    assert [len(write.values) for write in store.writes] == [3]
    await journal.aclose()
    assert_no_task_is_left()


@in_virtual_time
async def test_what_many_commit_at_once_is_written_in_order_and_in_few_writes() -> None:
    store = FaultyStore(before=lambda write: asyncio.sleep(1))
    journal = Journal(store, "r", KEY, revision=0)
    count = ENTRIES_AT_ONCE + 100
    await asyncio.gather(*(journal.commit(entry(number)) for number in range(count)))
    assert await stored(store) == names(count)
    assert [len(write.values) for write in store.writes] == [ENTRIES_AT_ONCE, 100]
    await journal.aclose()


@in_virtual_time
async def test_async_durability_waits_only_while_too_much_is_unstored() -> None:
    store = FaultyStore(before=lambda write: asyncio.sleep(10))
    journal = Journal(store, "r", KEY, revision=0, durability="async")
    for number in range(MOST_UNSTORED):
        await journal.commit(entry(number))
    assert now() == 0
    await journal.commit(entry(MOST_UNSTORED))
    assert now() > 0
    await journal.aclose()
    assert await stored(store) == names(MOST_UNSTORED + 1)


@in_virtual_time
async def test_who_is_cancelled_while_waiting_has_it_written_all_the_same() -> None:
    store = FaultyStore(before=lambda write: asyncio.sleep(1))
    journal = Journal(store, "r", KEY, revision=0)
    waiting = asyncio.create_task(journal.commit(entry(0)))
    await asyncio.sleep(0.5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await journal.commit(entry(1))
    assert await stored(store) == names(2)
    await journal.aclose()


@in_virtual_time
async def test_a_store_that_fails_for_a_while_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(before=fails_at(*range(1, PATIENCE)))
    journal = Journal(store, "r", KEY, revision=0)
    await journal.commit(entry(0))
    assert await stored(store) == names(1)
    assert len(caplog.records) == PATIENCE - 1
    await journal.aclose()


@in_virtual_time
async def test_a_store_that_fails_for_good_ends_the_journal() -> None:
    store = FaultyStore(before=fails_at(*range(1, 100)))
    journal = Journal(store, "r", KEY, revision=0)
    commits = await asyncio.gather(journal.commit(entry(0)), journal.commit(entry(1)), return_exceptions=True)
    assert all(isinstance(error, RunStoreUnavailable) for error in commits)
    assert isinstance(journal.failure, RunStoreUnavailable)
    assert len(store.writes) == PATIENCE
    journal.note(entry(2))
    with pytest.raises(RunStoreUnavailable):
        await journal.commit(entry(3))
    with pytest.raises(RunStoreUnavailable):
        await journal.flush()
    await journal.aclose()
    assert len(store.writes) == PATIENCE
    assert_no_task_is_left()


@pytest.mark.parametrize("lost", [1, 2, 3])
@in_virtual_time
async def test_a_write_whose_answer_was_lost_is_not_written_twice(lost: int) -> None:
    store = FaultyStore(after=fails_at(*range(1, lost + 1)))
    journal = Journal(store, "r", KEY, revision=0)
    await journal.commit(entry(0))
    await journal.commit(entry(1))
    assert await stored(store) == names(2)
    await journal.aclose()


@in_virtual_time
async def test_a_lost_answer_and_then_a_lost_read_are_both_tried_again() -> None:
    reads = [gone(), None]

    def reading(key: str) -> None:
        if error := reads.pop(0):
            raise error

    store = FaultyStore(after=fails_at(1), reading=reading)
    journal = Journal(store, "r", KEY, revision=0)
    await journal.commit(entry(0))
    store.reading = None
    assert await stored(store) == names(1)
    await journal.aclose()


@in_virtual_time
async def test_what_was_added_after_a_write_was_cut_off_is_no_sign_of_another_writer() -> None:
    async def late(write: Write) -> None:
        if write.number == 1:
            await asyncio.sleep(1)

    store = FaultyStore(after=late)
    journal = Journal(store, "r", KEY, revision=0)
    waiting = asyncio.create_task(journal.commit(entry(0)))
    await asyncio.sleep(0.5)
    assert journal._writer is not None
    journal._writer.cancel()  # as a loop does that is about to end
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await journal.commit(entry(1))
    await waiting
    assert await stored(store) == names(2)
    await journal.aclose()


@pytest.mark.parametrize("theirs", [["other"], ["ours", "other"], ["ours", "ours too", "other"]])
@in_virtual_time
async def test_somebody_elses_entries_end_the_journal_and_stay(theirs: list[str]) -> None:
    store = MemoryRunStore()
    entries = {name: StepStarted(name, "") for name in ("ours", "ours too", "other")}
    await store.append(KEY, [entry_to_store(entries[name]) for name in theirs], revision=0)
    journal = Journal(store, "r", KEY, revision=0)
    journal.note(entries["ours"])
    with pytest.raises(RunTakenOver):
        await journal.commit(entries["ours too"])
    assert await stored(store) == theirs
    await journal.aclose()


@in_virtual_time
async def test_a_run_that_was_deleted_is_not_written_to() -> None:
    store = MemoryRunStore()
    journal = Journal(store, "r", KEY, revision=0)
    await journal.commit(entry(0))
    await store.delete(KEY)
    with pytest.raises(RunTakenOver):
        await journal.commit(entry(1))
    assert await stored(store) == []
    await journal.aclose()


@in_virtual_time
async def test_a_store_that_raises_what_it_should_not_is_an_unavailable_store() -> None:
    def broken(write: Write) -> None:
        raise ZeroDivisionError("a bug")

    journal = Journal(FaultyStore(before=broken), "r", KEY, revision=0)
    with pytest.raises(RunStoreUnavailable, match="ZeroDivisionError: a bug") as caught:
        await journal.commit(entry(0))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    await journal.aclose()


@in_virtual_time
async def test_closing_writes_what_is_left() -> None:
    store = MemoryRunStore()
    journal = Journal(store, "r", KEY, revision=0)
    journal.note(entry(0))
    await journal.aclose()
    assert await stored(store) == names(1)
    await journal.aclose()
    assert_no_task_is_left()


@in_virtual_time
async def test_closing_a_journal_whose_store_never_answers_can_be_cancelled_and_leaves_no_task() -> None:
    store = FaultyStore(before=lambda write: asyncio.sleep(1_000_000))
    journal = Journal(store, "r", KEY, revision=0)
    waiting = asyncio.create_task(journal.commit(entry(0)))
    await asyncio.sleep(0)  # it has begun: from Python 3.12 on, `wait_for` does not let others go first
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(journal.aclose(), 1)
    with pytest.raises(ScopeClosedError, match="run 'r' was made after that run had ended"):
        await waiting
    with pytest.raises(ScopeClosedError):
        await journal.commit(entry(1))
    journal.note(entry(2))
    assert len(store.writes) == 1
    assert_no_task_is_left()


@in_virtual_time
async def test_an_abandoned_journal_writes_nothing_more() -> None:
    store = FaultyStore()
    journal = Journal(store, "r", KEY, revision=0)
    journal.note(entry(0))
    await journal.abandon()
    await asyncio.sleep(LINGER * 2)
    assert not store.writes


# --- threads and loops ---


async def test_notes_and_commits_of_other_threads_and_loops_are_written_in_their_order() -> None:
    store = MemoryRunStore()
    journal = Journal(store, "r", KEY, revision=0)

    def note_and_commit() -> None:
        journal.note(entry(0))
        asyncio.run(journal.commit(entry(1)))

    await asyncio.to_thread(note_and_commit)
    await journal.commit(entry(2))
    assert await stored(store) == names(3)
    await journal.aclose()


async def test_a_note_comes_after_a_commit_of_its_thread_that_was_cancelled_while_this_loop_was_busy() -> (
    None
):
    store = FaultyStore()
    journal = Journal(store, "r", KEY, revision=0)

    async def commit_and_note() -> None:
        commit = asyncio.create_task(journal.commit(entry(0)))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
        journal.note(entry(1))

    thread = threading.Thread(target=asyncio.run, args=[commit_and_note()])
    thread.start()
    thread.join()  # blocks the loop of the journal
    await asyncio.sleep(LINGER * 2)
    assert await stored(store) == names(2)
    await journal.aclose()


async def test_a_commit_of_another_loop_raises_what_it_would_raise_here() -> None:
    store = FaultyStore(before=fails_at(*range(1, 100)))
    journal = Journal(store, "r", KEY, revision=5)
    await store.inner.append(KEY, [b"x"] * 6, revision=0)
    store.before = None
    with pytest.raises(RunTakenOver):
        await asyncio.to_thread(lambda: asyncio.run(journal.commit(entry(0))))
    await journal.aclose()


async def test_many_threads_lose_nothing() -> None:
    store = MemoryRunStore()
    journal = Journal(store, "r", KEY, revision=0)

    def work(thread: int) -> None:
        for number in range(50):
            journal.note(entry(thread * 50 + number))

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    await journal.aclose()
    assert sorted(await stored(store)) == sorted(names(200))


def test_a_thread_that_outlives_the_loop_of_the_run_is_told_so() -> None:
    async def run() -> Journal:
        return Journal(MemoryRunStore(), "r", KEY, revision=0)

    journal = asyncio.run(run())
    journal.note(entry(0))
    with pytest.raises(ScopeClosedError):
        asyncio.run(journal.commit(entry(1)))


async def test_a_journal_of_a_store_that_conflicts_with_nothing_there_is_taken_over() -> None:
    class Odd(MemoryRunStore):
        async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
            raise RevisionConflict(key, revision, revision)

    journal = Journal(Odd(), "r", KEY, revision=0)
    with pytest.raises(RunTakenOver):
        await journal.commit(entry(0))
    await journal.aclose()
