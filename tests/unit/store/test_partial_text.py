"""The text of running steps: kept a few times a second, whatever happens while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from support.patience import PATIENCE

from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.runtime.events import TextChunk
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import StepFinished, StepStarted
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store import partial_text as module
from fastroai.store.partial_text import PartialTextWriter, read_partial_text
from fastroai.store.run_store import StoredValues

PART = Part("r", "p", ("p",))


def chunk(text: str) -> TextChunk:
    return TextChunk(part=PART, step_id="write", text=text)


def started() -> StepStarted:
    return StepStarted("write", "it needs no other step", part=PART)


def finished() -> StepFinished:
    return StepFinished("write", "a", part=PART)


class SlowStore(MemoryRunStore):
    """A store in which the writer can be met in the middle of an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.reads, self.may_read = asyncio.Event(), asyncio.Event()
        self.writes_now, self.may_write = asyncio.Event(), asyncio.Event()
        self.may_read.set()
        self.may_write.set()

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        self.reads.set()
        await self.may_read.wait()
        return await super().read(key, after=after)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        if key.startswith("text:"):
            self.writes += 1
            self.writes_now.set()
            await self.may_write.wait()
        await super().compare_and_set(key, value, revision=revision)


@step
async def nothing(ctx: StepContext) -> str:
    return ""


@pytest.fixture
async def store() -> SlowStore:
    store = SlowStore()
    await Pipeline("p", {"write": nothing}).run(run_id="r", store=store)
    store.reads.clear()
    return store


@pytest.fixture
async def writer(store: SlowStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PartialTextWriter]:
    monkeypatch.setattr(module, "PAUSE", 0.01)
    writer = PartialTextWriter(store)
    task = asyncio.create_task(writer.write())
    yield writer
    assert not task.done(), "the writer has ended"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(store: MemoryRunStore, texts: dict[str, str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while await read_partial_text(store, "r") != texts:
            await asyncio.sleep(0.005)


async def test_other_processes_read_the_text_until_its_step_ends(
    store: SlowStore, writer: PartialTextWriter
) -> None:
    for text in ("Dear ", "Ada"):
        writer.add(chunk(text))
    assert writer.texts("r") == {"write": "Dear Ada"}
    await until(store, {"write": "Dear Ada"})
    writer.add(finished())
    await until(store, {})
    assert not await store.list("text:")


async def test_an_attempt_begins_with_no_text(store: SlowStore, writer: PartialTextWriter) -> None:
    writer.add(chunk("a first attempt"))
    await until(store, {"write": "a first attempt"})
    writer.add(started())
    writer.add(chunk("a second"))
    await until(store, {"write": "a second"})


async def test_a_step_that_ends_before_its_text_is_written_ends_no_writer(
    store: SlowStore, writer: PartialTextWriter
) -> None:
    store.may_read.clear()
    writer.add(chunk("a"))
    await store.reads.wait()
    writer.add(finished())
    store.may_read.set()
    await until(store, {})
    writer.add(started())
    writer.add(chunk("again"))
    await until(store, {"write": "again"})


async def test_pieces_that_come_while_a_text_is_written_wait_for_the_next_write(
    store: SlowStore, writer: PartialTextWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 60)
    store.may_write.clear()
    writer.add(chunk("a"))
    await store.writes_now.wait()
    writer.add(chunk("b"))
    store.may_write.set()
    await until(store, {"write": "a"})
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.writes == 1


async def test_a_writer_takes_over_from_another_process(store: SlowStore, writer: PartialTextWriter) -> None:
    writer.add(chunk("here"))
    await until(store, {"write": "here"})
    (found,) = await store.list("text:")
    await store.compare_and_set(found.key, b'{"write":"there"}', revision=found.revision)
    writer.add(chunk(" and on"))
    await until(store, {"write": "here and on"})


async def test_a_deleted_run_ends_no_writer(store: SlowStore, writer: PartialTextWriter) -> None:
    await RunHistory(store).delete("r")
    writer.add(chunk("a"))
    async with asyncio.timeout(PATIENCE):
        while writer.texts("r") is not None:
            await asyncio.sleep(0.005)


async def test_a_text_grows_to_a_bound(store: SlowStore, writer: PartialTextWriter) -> None:
    for _ in range(3):
        writer.add(chunk("x" * 60_000))
    texts = writer.texts("r")
    assert texts is not None
    assert len(texts["write"]) == module.MOST
