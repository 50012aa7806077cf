"""What is asked of a run in another process reaches it, once, whatever was asked before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.run_logs import START, support_desk

from fastroai.errors import RunStoreUnavailable
from fastroai.store import MemoryRunStore, RunHistory, StoredKey, StoredValues, signals
from fastroai.store.record.entries import (
    RunHeader,
)
from fastroai.store.record.headers import new_epoch, signal_key
from fastroai.store.signals import Signal, heeding_signals, last_signal, send_signal

RUN = RunHeader(
    run_id="r", epoch=new_epoch(), pipeline="p", status="running", started_at=START, updated_at=START
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "EVERY", 0)


class Watched(MemoryRunStore):
    """Tells after each look at a signal that it was there, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.fails = asyncio.Condition(), False

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        async with self.looks:
            self.looks.notify_all()
        if self.fails:
            raise RunStoreUnavailable(repr(self), "it is away")
        return await super().list(prefix, after=after, limit=limit)

    async def looked_at(self, times: int) -> None:
        for _ in range(times):
            async with asyncio.timeout(PATIENCE), self.looks:
                await self.looks.wait()


class Heard:
    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self._came = asyncio.Event()

    def __call__(self, signal: Signal) -> None:
        self.signals.append(signal)
        self._came.set()

    async def next(self) -> Sequence[Signal]:
        async with asyncio.timeout(PATIENCE):
            await self._came.wait()
        self._came.clear()
        return self.signals


async def test_each_signal_is_heeded_once() -> None:
    store, heard = Watched(), Heard()
    async with heeding_signals(store, RUN, heard):
        await send_signal(store, RUN, "pause")
        assert await heard.next() == ["pause"]
        await store.looked_at(3)
        assert heard.signals == ["pause"]
        await send_signal(store, RUN, "cancel")
        assert await heard.next() == ["pause", "cancel"]
    assert not (await store.read(signal_key(RUN))).values, "nothing stays behind"


async def test_what_was_asked_of_an_earlier_process_is_not_heeded_but_what_was_while_the_run_began() -> None:
    store, heard = Watched(), Heard()
    await send_signal(store, RUN, "cancel")
    async with heeding_signals(store, RUN, heard, after=await last_signal(store, RUN)):
        await store.looked_at(3)
        assert heard.signals == []
        await send_signal(store, RUN, "pause")
        assert await heard.next() == ["pause"]
    await send_signal(store, RUN, "cancel")
    async with heeding_signals(store, RUN, heard):
        assert await heard.next() == ["pause", "cancel"]


async def test_a_store_that_fails_for_a_while_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    store, heard = Watched(), Heard()
    async with heeding_signals(store, RUN, heard):
        store.fails = True
        await store.looked_at(2)
        store.fails = False
        await send_signal(store, RUN, "pause")
        assert await heard.next() == ["pause"]
    assert "signals to runs could not be read: " in caplog.text


async def test_words_that_are_no_signals_are_passed_over() -> None:
    store, heard = Watched(), Heard()
    async with heeding_signals(store, RUN, heard):
        await store.compare_and_set(signal_key(RUN), b"\xff dance", revision=0)
        await store.looked_at(3)
        await send_signal(store, RUN, "pause")
        assert await heard.next() == ["pause"]


async def test_many_runs_of_a_store_are_looked_at_together() -> None:
    """Each run looked by itself, so that waiting runs filled a core."""
    store, runs = Watched(), [replace(RUN, run_id=f"r{number}") for number in range(50)]
    heard = [Heard() for _ in runs]
    async with AsyncExitStack() as stack:
        for run, one in zip(runs, heard, strict=True):
            await stack.enter_async_context(heeding_signals(store, run, one))
        assert len(signals._watches) == 1
        await send_signal(store, runs[7], "pause")
        assert await heard[7].next() == ["pause"]
        await store.looked_at(3)
        assert [len(one.signals) for one in heard] == [number == 7 for number in range(50)]
    assert not signals._watches
    assert_no_task_is_left()


async def test_a_run_that_was_taken_over_in_the_process_is_heeded_by_both_until_each_ends() -> None:
    store, first, second = Watched(), Heard(), Heard()
    async with heeding_signals(store, RUN, first):
        async with heeding_signals(store, RUN, second):
            await send_signal(store, RUN, "pause")
            assert await first.next() == await second.next() == ["pause"]
        assert len(signals._watches) == 1
    assert not signals._watches


async def test_a_run_that_begins_while_the_last_one_ends_is_looked_at_with_those_after_it() -> None:
    """The end of the first look took the second one out of the register, so that a third began."""
    store, second, third = Watched(), Heard(), Heard()
    async with AsyncExitStack() as later:
        async with heeding_signals(store, RUN, Heard()):
            await store.looked_at(1)
            ending = asyncio.ensure_future(signals._watches[id(store), asyncio.get_running_loop()].end())
            await asyncio.sleep(0)
            await later.enter_async_context(heeding_signals(store, replace(RUN, run_id="r2"), second))
            await ending
        await later.enter_async_context(heeding_signals(store, replace(RUN, run_id="r3"), third))
        assert [len(watch.runs) for watch in signals._watches.values()] == [2]
    assert not signals._watches


class Overtaken(MemoryRunStore):
    """Somebody else writes between a look and the write that follows, once."""

    is_overtaken = False

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        found = await super().read(key, after=after)
        if not self.is_overtaken:
            self.is_overtaken = True
            await self.compare_and_set(key, b"pause", revision=found.revision)
        return found


async def test_of_two_that_ask_at_once_neither_fails_and_the_later_word_stands() -> None:
    store = Overtaken()
    await send_signal(store, RUN, "cancel")
    found = await store.read(signal_key(RUN))
    assert (found.revision, found.values[-1]) == (2, b"cancel")


async def test_what_was_asked_of_a_run_is_forgotten_with_it() -> None:
    store = MemoryRunStore()
    header = await support_desk().write(store)
    await send_signal(store, header, "cancel")
    await RunHistory(store).delete("r1")
    assert await last_signal(store, header) == 0


async def test_what_is_asked_of_a_run_is_not_asked_of_a_later_one_with_its_id() -> None:
    store, heard = Watched(), Heard()
    async with heeding_signals(store, RUN, heard):
        await send_signal(store, replace(RUN, epoch=new_epoch()), "cancel")
        await store.looked_at(3)
    assert heard.signals == []
