"""A kind of wait from outside the library: all that knows waits knows it, too."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.faulty_store import FaultyStore, Write, gone
from support.file_waits import FileAppears
from typer.testing import CliRunner

from fastroai import Pipeline, PipelineConfig, RunHistory, SQLiteRunStore, StepConfig, StepContext, step
from fastroai.cli.app import app
from fastroai.errors import (
    ConfigurationError,
    RunNotFound,
    RunStoreUnavailable,
    StepExecutionError,
    ValueNotStorable,
)
from fastroai.human import Awaited, StepWait
from fastroai.pipelines import WaitEnded
from fastroai.store import MemoryRunStore

PATIENCE = 500


def desk(folder: Path, done: Counter[str] | None = None, **options: Any) -> Pipeline[Any, Any, Any]:
    """A pipeline that does something, waits for a file, and does something with its text."""
    counted = Counter[str]() if done is None else done

    @step
    async def ask(ctx: StepContext) -> str:
        await ctx.once("order", lambda: counted.update(["order"]))
        text = await ctx.wait_for(FileAppears(name="report.txt", folder=folder, **options))
        await ctx.once("file", lambda: counted.update([text]))
        return text

    @step
    async def use(ctx: StepContext) -> str:
        return ctx.get_dependency("ask", str).upper()

    return Pipeline("desk", {"ask": ask, "use": use}, {"use": ["ask"]})


async def woken(door: Pipeline[Any, Any, Any], store: Any) -> Any:
    for _ in range(PATIENCE):
        if outcomes := await door.wake(store=store):
            (outcome,) = outcomes.values()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        await asyncio.sleep(0.002)
    raise AssertionError("the run is not due")


async def test_a_step_waits_for_a_file_without_a_process_and_goes_on_when_it_is_there(tmp_path: Path) -> None:
    store, done = MemoryRunStore(), Counter[str]()
    paused = await desk(tmp_path, done).execute(run_id="r", store=store)
    (wait,) = paused.waits
    assert (paused.status, wait.what, wait.name, paused.resume_at) == (
        "paused",
        "file",
        "report.txt",
        ("ask",),
    )
    assert wait.until is not None
    assert (await RunHistory(store).summary("r")).due_at == wait.until
    assert (await desk(tmp_path, done).get_state("r", store=store)).waits == (wait,)
    again = await woken(desk(tmp_path, done), store)
    assert again.status == "paused", "the file is not there"
    (tmp_path / "report.txt").write_text("all is well")
    result = await woken(desk(tmp_path, done), store)
    assert (result.output, dict(done)) == ("ALL IS WELL", {"order": 1, "all is well": 1})
    assert result.trace.replay(desk(tmp_path)) is None
    assert await desk(tmp_path, done).wake(store=store) == {}


async def test_the_pause_has_its_reason_and_explain_tells_of_the_wait(tmp_path: Path) -> None:
    store = MemoryRunStore()
    paused = await desk(tmp_path).execute(run_id="r", store=store)
    until = paused.waits[0].until
    waits = f"waits for file 'report.txt', and looks again at {until:%Y-%m-%d %H:%M:%S} UTC"
    assert paused.reason == f"'ask' {waits}"
    state = await desk(tmp_path).get_state("r", store=store)
    assert state.finish is not None
    assert state.finish.reason_code == "file"
    assert f"ask: {waits}" in paused.trace.explain()
    (tmp_path / "report.txt").write_text("well")
    assert "ask: has waited for file 'report.txt'" in (await woken(desk(tmp_path), store)).trace.explain()


async def test_a_file_that_is_there_already_is_on_record_too_and_repeated_attempts_have_its_text(
    tmp_path: Path,
) -> None:
    file, store, seen = tmp_path / "report.txt", MemoryRunStore(), list[str]()
    file.write_text("first")

    @step
    async def ask(ctx: StepContext) -> str:
        seen.append(await ctx.wait_for(FileAppears(name=file.name, folder=tmp_path)))
        file.write_text("changed")
        if len(seen) < 3:
            raise ConnectionError("gone")
        return seen[-1]

    config = StepConfig(retries=1, retry_delay=0.0)
    pipeline = Pipeline("desk", {"ask": ask}, step_configs={"ask": config})
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    assert (await pipeline.resume("r", store=store)).output == "first"
    assert seen == ["first"] * 3


async def test_two_waits_for_the_same_are_numbered_or_named(tmp_path: Path) -> None:
    file, store, looked = tmp_path / "report.txt", MemoryRunStore(), list[str]()

    @step
    async def ask(ctx: StepContext) -> str:
        for name in (None, None, "last"):
            looked.append(await ctx.wait_for(FileAppears(name=file.name, folder=tmp_path), name=name))
            file.write_text(f"{len(looked)}")
        return " ".join(looked)

    file.write_text("0")
    assert (await Pipeline("desk", {"ask": ask}).execute(run_id="r", store=store)).output == "0 1 2"


async def test_without_a_store_a_step_cannot_wait_for_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StepExecutionError) as caught:
        await desk(tmp_path).execute()
    assert isinstance(caught.value.__cause__, ConfigurationError)
    assert "waits for file 'report.txt'" in str(caught.value.__cause__)
    (tmp_path / "report.txt").write_text("well")
    assert (await desk(tmp_path).execute()).output == "WELL"


def test_the_command_line_shows_a_run_that_waits_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "runs.db"

    async def pause() -> None:
        store = SQLiteRunStore(path)
        await desk(tmp_path, every=timedelta(days=1)).execute(run_id="r", store=store)
        await store.aclose()

    asyncio.run(pause())

    def call(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--store", str(path)], prog_name="fastroai")
        assert result.exit_code == 0, result.output
        return result.stdout

    day = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    waits = f"waits for file 'report.txt', and looks again at {day}"
    assert waits in call("runs", "show", "r")
    assert f"ask: {waits}" in call("runs", "trace", "r")
    (run,) = json.loads(call("runs", "list", "--json"))
    assert (run["run_id"], run["status"]) == ("r", "paused")


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are tried as often as they are, with shorter pauses."""
    monkeypatch.setattr("fastroai.store.record.journal.backoff_delay", lambda *_: 0.0)
    monkeypatch.setattr("fastroai.store.record.runs._PAUSES", (0.0, 0.0, None))


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("after", [False, True])
async def test_a_process_that_dies_at_any_write_waits_again_or_has_the_text_that_is_on_record(
    after: bool, tmp_path: Path
) -> None:
    for number in count(1):
        (folder := tmp_path / f"{number}").mkdir()
        inner, done, has_died = MemoryRunStore(), Counter[str](), False

        def die(write: Write, number: int = number) -> None:
            nonlocal has_died
            has_died = has_died or write.number >= number
            if has_died:
                raise gone()

        store = FaultyStore(inner)
        store.before, store.after = (None, die) if after else (die, None)
        with suppress(RunStoreUnavailable):
            await desk(folder, done).execute(run_id="r", store=store)
            (folder / "report.txt").write_text("well")
            if not has_died:
                await woken(desk(folder, done), store)
        was_over = any(isinstance(fact, WaitEnded) for fact in await facts(inner))
        (folder / "report.txt").write_text("changed" if was_over else "well")
        result = await to_its_end(desk(folder, done), inner)
        assert result.output == "WELL", f"died at write {number}"
        assert sum(isinstance(fact, WaitEnded) for fact in result.trace.entries) == 1
        assert done.keys() == {"order", "well"}
        assert result.trace.replay(desk(folder)) is None
        if not has_died:
            break
    assert number > 8, "hardly anything was written"


async def facts(store: Any) -> Sequence[Any]:
    try:
        return (await RunHistory(store).trace("r")).entries
    except RunNotFound:
        return ()


async def to_its_end(door: Pipeline[Any, Any, Any], store: Any) -> Any:
    try:
        result = await door.resume("r", store=store)
    except RunNotFound:
        result = await door.execute(run_id="r", store=store)
    return await woken(door, store) if result.status == "paused" else result


class Codec:
    def encode(self, payload: bytes) -> bytes:
        return base64.b85encode(payload)

    def decode(self, payload: bytes) -> bytes:
        return base64.b85decode(payload)


async def test_the_text_of_a_file_goes_through_the_codec(tmp_path: Path) -> None:
    store = MemoryRunStore()
    door = Pipeline("desk", desk(tmp_path).steps, {"use": ["ask"]}, config=PipelineConfig(codec=Codec()))
    await door.execute(run_id="r", store=store)
    (tmp_path / "report.txt").write_text("a secret")
    assert (await woken(door, store)).output == "A SECRET"
    for found in await store.list(""):
        assert b"secret" not in b"".join((await store.read(found.key)).values).lower(), found.key


async def test_a_look_that_gives_the_value_itself_is_told_how_to_end_the_wait() -> None:
    class Given(Awaited[str]):
        what = "gift"

        async def look(self, wait: StepWait) -> WaitEnded | None:
            return "here it is"  # type: ignore[return-value]

    @step(retries=0)
    async def receive(ctx: StepContext) -> str:
        return await ctx.wait_for(Given())

    with pytest.raises(StepExecutionError) as failed:
        await Pipeline("p", {"receive": receive}).execute(store=MemoryRunStore())
    assert isinstance(failed.value.__cause__, ConfigurationError)
    assert "Given.look='here it is': expected wait.over(value) when the wait is over" in str(failed.value)


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
@pytest.mark.parametrize("value", ["3", object()], ids=["a text", "an object"])
async def test_a_value_of_another_type_is_refused_with_and_without_a_store(
    store: MemoryRunStore | None, value: object
) -> None:
    class Number(Awaited[int]):
        what, value_type = "number", int

        async def look(self, wait: StepWait) -> WaitEnded | None:
            return wait.over(value)

    @step(retries=0)
    async def receive(ctx: StepContext) -> int:
        return await ctx.wait_for(Number())

    with pytest.raises(StepExecutionError) as failed:
        await Pipeline("p", {"receive": receive}).execute(store=store)
    assert isinstance(failed.value.__cause__, ValueNotStorable)
    assert "the number that step 'receive' has waited for" in str(failed.value)
