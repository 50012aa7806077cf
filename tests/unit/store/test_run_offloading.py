"""Large values in files, or where fsspec reaches, and a store of runs that refers to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.run_stores import OpenStore

from fastroai import Inbox, Pipeline, PipelineConfig, RunHistory, StepContext, send_message, step
from fastroai.errors import ConfigurationError, RunCorrupt, RunStoreUnavailable
from fastroai.store import (
    EncryptingCodec,
    FilePayloadStore,
    FsspecPayloadStore,
    MemoryRunStore,
    OffloadingRunStore,
    PayloadStore,
    SQLiteRunStore,
)
from fastroai.store.record.checksums import REFERENCE
from fastroai.testing import RunStoreSuite

SECRET = "Zwetschge"
LARGE = f"{SECRET} " * 50_000
NOW = timedelta(0)


@pytest.fixture(params=["files", "fsspec"])
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PayloadStore]:
    if request.param == "files":
        yield FilePayloadStore(tmp_path / "payloads")
    else:
        yield FsspecPayloadStore(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def inner() -> MemoryRunStore:
    return MemoryRunStore()


@pytest.fixture
def store(inner: MemoryRunStore, payloads: PayloadStore) -> OffloadingRunStore:
    return OffloadingRunStore(inner, payloads)


class TestInFiles(RunStoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def opened() -> OffloadingRunStore:
            inner = SQLiteRunStore(tmp_path / "runs.db")
            return OffloadingRunStore(inner, FilePayloadStore(tmp_path / "payloads"), above=1_000)

        return opened


class TestWithFsspec(RunStoreSuite):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        inner, payloads = MemoryRunStore(), FsspecPayloadStore(f"memory://{uuid.uuid4().hex}")
        return lambda: OffloadingRunStore(inner, payloads, above=1_000)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def ended(program: str, *arguments: object) -> int:
    """How a program ends that is run in a process of its own."""
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=False).returncode


def desk(**settings: Any) -> Pipeline[Any, Any]:
    """A run with a large input, output, answer and message."""

    @step
    async def copy(ctx: StepContext[Any]) -> str:
        return str(ctx.get_input("text")) + "copied"

    @step
    async def waits(ctx: StepContext[Any]) -> int:
        answer = await ctx.ask("what?", str)
        note = await ctx.receive("note", str)
        return len(answer) + len(note) + len(ctx.get_dependency("copy", str))

    steps = {"copy": copy, "waits": waits}
    return Pipeline("desk", steps, {"waits": ["copy"]}, config=PipelineConfig(**settings))


async def began(pipeline: Pipeline[Any, Any], store: OffloadingRunStore, run_id: str = "r") -> None:
    codec = pipeline.config.codec
    await pipeline.execute({"text": LARGE}, run_id=run_id, store=store)
    (asked,) = await Inbox(store, codec=codec).list(run_id=run_id)
    await Inbox(store, codec=codec).answer(asked.id, LARGE)
    await send_message(run_id, "note", LARGE, store=store, codec=codec)


async def test_a_run_with_large_values_is_like_any_other(
    store: OffloadingRunStore, inner: MemoryRunStore, payloads: PayloadStore
) -> None:
    pipeline = desk()
    await began(pipeline, store)
    held = [one for found in await inner.list("") for one in (await inner.read(found.key)).values]
    assert max(map(len, held)) < 10_000
    assert len(await payloads.groups()) == 2  # of the log and of the messages
    result = await pipeline.resume("r", store=store)
    assert result.output == 3 * len(LARGE) + len("copied")
    trace = await store.trace("r")
    assert trace.inputs == {"text": LARGE}
    assert [fact async for _, fact in pipeline.follow("r", store=store)] == list(trace.entries)
    fork = await pipeline.fork("r", at="waits", new_run_id="f", store=store)
    assert fork.step_outputs["copy"] == LARGE + "copied"
    await RunHistory(store).delete("r")
    assert (await store.trace("f")).outputs["copy"] == LARGE + "copied"
    assert len(await payloads.groups()) == 1
    assert await RunHistory(store).purge(NOW) == ("f",)
    assert not await payloads.groups()
    assert not await inner.list("")


async def test_files_are_for_their_owner_alone_and_hold_nothing_readable_with_a_codec(tmp_path: Path) -> None:
    codec = EncryptingCodec({"k": EncryptingCodec.new_key()})
    inner = SQLiteRunStore(tmp_path / "runs.db")
    store = OffloadingRunStore(inner, FilePayloadStore(tmp_path / "payloads"))
    for kept, is_there in ((codec, False), (None, True)):
        await began(desk(codec=kept), store, run_id=f"r{is_there}")
        assert any(SECRET.encode() in path.read_bytes() for path in files_in(tmp_path)) == is_there
    files = files_in(tmp_path / "payloads")
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files} == {0o700}
    assert (await desk(codec=codec).resume("rFalse", store=store)).ok
    await inner.aclose()


async def test_the_folder_of_payloads_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await FilePayloadStore(tmp_path / "new" / "payloads").put("ab", "cd", b"1")
    finally:
        os.umask(before)
    folder = tmp_path / "new" / "payloads"
    made = (folder, folder / "ab", folder / "ab" / "cd")
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("damage", ["lost", "changed", "cut"])
async def test_a_payload_that_is_lost_or_damaged_is_an_error_of_its_run_alone(
    damage: str, tmp_path: Path
) -> None:
    store = OffloadingRunStore(MemoryRunStore(), FilePayloadStore(tmp_path / "payloads"))
    pipeline = desk()
    await pipeline.execute({"text": LARGE}, run_id="r1", store=store)
    (damaged,) = (tmp_path / "payloads").iterdir()
    await began(pipeline, store, "r2")
    for file in damaged.iterdir():
        match damage:
            case "lost":
                file.unlink()
            case "changed":
                file.write_bytes(file.read_bytes().replace(b"Z", b"z", 1))
            case _:
                file.write_bytes(file.read_bytes()[:-1])
    said = "are missing from" if damage == "lost" else "have changed"
    for read in (pipeline.resume("r1", store=store), store.trace("r1")):
        with pytest.raises(
            RunCorrupt, match=rf"entry \d of run 'r1' cannot be read: its [\d]+ bytes.*{said}"
        ):
            await read
    assert {run.run_id for run in await RunHistory(store).list()} == {"r1", "r2"}
    assert (await pipeline.resume("r2", store=store)).ok
    await RunHistory(store).delete("r1", force=True)
    assert not damaged.exists()


async def test_a_message_whose_payload_is_lost_is_named(tmp_path: Path) -> None:
    store = OffloadingRunStore(MemoryRunStore(), FilePayloadStore(tmp_path / "payloads"))
    pipeline = desk()
    await pipeline.execute({"text": "short"}, run_id="r", store=store)
    await send_message("r", "note", LARGE, store=store)
    for file in (tmp_path / "payloads").rglob("*/*"):
        file.unlink()
    (asked,) = await Inbox(store).list()
    await Inbox(store).answer(asked.id, "yes")
    with pytest.raises(Exception, match=r"value 1 of 'mail:r:.*are missing from") as caught:
        await pipeline.resume("r", store=store)
    assert any(isinstance(one, RunCorrupt) for one in (caught.value, caught.value.__cause__))


async def test_without_the_payload_store_a_run_says_what_is_missing(
    store: OffloadingRunStore, inner: MemoryRunStore
) -> None:
    await desk().execute({"text": LARGE}, run_id="r", store=store)
    with pytest.raises(RunCorrupt, match="it is in a payload store: give the OffloadingRunStore"):
        await desk().resume("r", store=inner)


async def test_a_value_that_looks_like_a_reference_comes_back(store: OffloadingRunStore) -> None:
    likely = REFERENCE + b"0" * 64 + b" 12"
    await store.append("a", [likely], revision=0)
    await store.compare_and_set("b", likely, revision=0)
    assert [(await store.read(key)).values for key in "ab"] == [(likely,), (likely,)]
    assert [found.value for found in await store.list("")] == [likely, likely]


KILLED = """
import asyncio, os, signal, sys
from fastroai import Pipeline, StepContext, step
from fastroai.store import FilePayloadStore, OffloadingRunStore, SQLiteRunStore

class Killed(FilePayloadStore):
    async def put(self, group, name, payload):
        await super().put(group, name, payload)
        os.kill(os.getpid(), signal.SIGKILL)

@step
async def grows(ctx: StepContext) -> str:
    return "x" * 1_000_000

store = OffloadingRunStore(SQLiteRunStore(sys.argv[1]), Killed(sys.argv[2]))
inputs = {"text": "x" * 1_000_000} if sys.argv[3] == "input" else {}
asyncio.run(Pipeline("p", {"grows": grows}).execute(inputs, run_id="r", store=store))
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["input", "output"])
async def test_a_process_that_dies_between_payload_and_log_leaves_at_most_an_orphan(
    where: str, tmp_path: Path
) -> None:
    folder, file = tmp_path / "payloads", tmp_path / "runs.db"
    assert ended(KILLED, file, folder, where) == -signal.SIGKILL
    assert len(list(folder.iterdir())) == 1
    store = OffloadingRunStore(SQLiteRunStore(file), FilePayloadStore(folder))

    @step
    async def grows(ctx: StepContext[Any]) -> str:
        return "x" * 1_000_000

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"grows": grows})
    if where == "output":
        result = await pipeline.resume("r", store=store)
        assert len(str(result.output)) == 1_000_000
    await RunHistory(store).purge(NOW)
    assert len(list(folder.iterdir())) == (where == "input"), "it may be of a run that is about to begin"
    for orphan in folder.iterdir():
        long_ago = time.time() - 10_000
        os.utime(orphan, (long_ago, long_ago))
    await RunHistory(store).purge(NOW, dry_run=True)
    assert len(list(folder.iterdir())) == (where == "input")
    await RunHistory(store).purge(NOW)
    assert not list(folder.iterdir())
    await store.aclose()


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "payloads").write_text("this is a file")
    payloads = FilePayloadStore(tmp_path / "payloads")
    with pytest.raises(RunStoreUnavailable, match="FilePayloadStore") as caught:
        await payloads.put("ab", "cd", b"payload")
    assert "see that the place of the payloads can be reached" in str(caught.value)


async def test_half_a_file_never_has_the_name_of_a_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = FilePayloadStore(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError("the disk is full")))
        with pytest.raises(RunStoreUnavailable, match="the disk is full"):
            await payloads.put("ab", "cd", b"payload")
    assert not files_in(tmp_path)
    await payloads.put("ab", "cd", b"payload")
    assert await payloads.get("ab", "cd") == b"payload"


def test_two_stores_of_one_place_are_equal(tmp_path: Path) -> None:
    one, same, other = [
        OffloadingRunStore(SQLiteRunStore(tmp_path / "runs.db"), FilePayloadStore(tmp_path / folder))
        for folder in ("a", "a", "b")
    ]
    assert one == same != other
    assert FsspecPayloadStore("memory://x") == FsspecPayloadStore("memory://x")


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: FilePayloadStore(""), "folder"),
        (lambda: FilePayloadStore(1), "folder"),  # type: ignore[arg-type]
        (lambda: FsspecPayloadStore("nowhere://x:password@y"), "url"),
        (lambda: FsspecPayloadStore(1), "url"),  # type: ignore[arg-type]
        (lambda: OffloadingRunStore(MemoryRunStore(), "payloads"), "payloads"),  # type: ignore[arg-type]
        (lambda: OffloadingRunStore(MemoryRunStore(), FilePayloadStore("p"), above=-1), "above"),
    ],
)
def test_what_cannot_be_a_place_is_refused(make: Any, option: str) -> None:
    with pytest.raises(ConfigurationError, match=option) as caught:
        make()
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "fsspec"])
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b"])
async def test_names_that_lead_elsewhere_are_refused_and_nothing_is_deleted(
    kind: str, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "payloads"
    store = FilePayloadStore(folder) if kind == "folder" else FsspecPayloadStore(f"file://{folder}")
    await store.put("group", "name", b"kept")
    for call in (
        store.delete(name),
        store.get("group", name),
        store.put(name, "x", b""),
        store.get(name, "x"),
    ):
        with pytest.raises(ConfigurationError, match="without a path"):
            await call
    assert await store.get("group", "name") == b"kept"
