import asyncio
import threading
from datetime import UTC, datetime

import pytest

from fastroai.testing import Ledger, LedgerEntry, LedgerTotals, Usage


def an_entry(request_id: str, usage: Usage | None = None) -> LedgerEntry:
    return LedgerEntry(
        protocol="openai-chat",
        model="gpt-5-mini",
        streamed=False,
        status=200,
        billed=usage is not None,
        usage=usage or Usage(),
        fault=None,
        error=None,
        request_id=request_id,
        response_id=None,
        headers={},
        body={},
        raw_body=b"",
        started=datetime.now(UTC),
    )


def test_entries_are_numbered_as_they_arrive() -> None:
    ledger = Ledger()

    for name in ("a", "b", "c"):
        ledger.record(an_entry(name))

    assert [(entry.ordinal, entry.request_id) for entry in ledger.entries] == [(1, "a"), (2, "b"), (3, "c")]


def test_totals_count_all_requests_and_sum_what_is_billed() -> None:
    ledger = Ledger()
    ledger.record(an_entry("a", Usage(10, 2, cache_read_tokens=4)))
    ledger.record(an_entry("b"))
    ledger.record(an_entry("c", Usage(1, 1)))

    assert ledger.totals() == LedgerTotals(requests=3, billed=2, usage=Usage(11, 3, cache_read_tokens=4))
    assert [entry.request_id for entry in ledger.billed] == ["a", "c"]


def test_an_entry_that_ended_says_when_and_how() -> None:
    ledger = Ledger()
    entry = ledger.record(an_entry("a"))
    assert entry.ended is None

    ledger.finish(entry, completed=False, client_disconnected=True)

    (ended,) = ledger.entries
    assert ended.ended is not None
    assert ended.ended >= ended.started
    assert (ended.completed, ended.client_disconnected) == (False, True)


def test_an_answer_that_ends_after_the_ledger_was_cleared_leaves_no_entry() -> None:
    ledger = Ledger()
    entry = ledger.record(an_entry("a"))

    ledger.clear()
    ledger.finish(entry, completed=True, client_disconnected=False)

    assert ledger.entries == ()
    assert ledger.record(an_entry("b")).ordinal == 1


async def test_waiting_ends_with_the_request_that_was_waited_for() -> None:
    ledger = Ledger()
    waiting = asyncio.create_task(ledger.wait_for(2))
    ledger.record(an_entry("a"))
    await asyncio.sleep(0)
    assert not waiting.done()

    threading.Thread(target=ledger.record, args=[an_entry("b")]).start()

    assert [entry.request_id for entry in await waiting] == ["a", "b"]


async def test_waiting_for_an_end_does_not_end_with_an_arrival() -> None:
    ledger = Ledger()
    entry = ledger.record(an_entry("a"))
    assert await ledger.wait_for(1) == ledger.entries
    waiting = asyncio.create_task(ledger.wait_for(1, state="finished"))
    await asyncio.sleep(0)
    assert not waiting.done()

    ledger.finish(entry, completed=True, client_disconnected=False)

    assert (await waiting)[0].completed


def test_a_thread_can_wait_without_an_event_loop() -> None:
    ledger = Ledger()
    threading.Thread(target=ledger.record, args=[an_entry("a")]).start()

    assert len(ledger.wait_for_sync(1)) == 1


def test_waiting_in_vain_says_what_came() -> None:
    ledger = Ledger()
    ledger.record(an_entry("a"))

    with pytest.raises(TimeoutError, match=r"waited 0.01 s for 2 requests to have arrived; 1 arrived, 0 fin"):
        ledger.wait_for_sync(2, timeout=0.01)


async def test_waiting_in_vain_without_blocking_says_what_came() -> None:
    ledger = Ledger()

    with pytest.raises(TimeoutError, match="for 1 requests to have finished; 0 arrived, 0 finished"):
        await ledger.wait_for(1, state="finished", timeout=0.01)
    ledger.record(an_entry("a"))  # nobody waits any more, and nothing breaks


async def test_a_cancelled_wait_takes_no_result() -> None:
    ledger = Ledger()
    waiting = asyncio.create_task(ledger.wait_for(1))
    await asyncio.sleep(0)

    waiting.cancel()
    ledger.record(an_entry("a"))

    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_entries_of_many_threads_are_all_there() -> None:
    ledger = Ledger()

    def serve(name: int) -> None:
        for number in range(50):
            entry = ledger.record(an_entry(f"{name}-{number}", Usage(1, 1)))
            ledger.finish(entry, completed=True, client_disconnected=False)

    threads = [threading.Thread(target=serve, args=[name]) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ledger.totals() == LedgerTotals(requests=400, billed=400, usage=Usage(400, 400))
    assert sorted(entry.ordinal for entry in ledger.entries) == list(range(1, 401))


def test_an_entry_is_a_snapshot_that_nobody_can_change() -> None:
    ledger = Ledger()
    ledger.record(an_entry("a"))

    (entry,) = ledger.entries

    with pytest.raises(AttributeError):
        entry.status = 500  # type: ignore[misc]
