"""Runs of rows that workers carry."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars
import pytest
from pydantic_ai.capabilities import BatchModelRequests
from support.carried import Workers, application, repeat, repeat_cheaply
from support.carrying import check_steps, kill_and_replace, until_ready
from support.patience import PATIENCE
from support.typed_functions import listed_costs

from fastroai.distributed import Client, Distributed
from fastroai.errors import ConfigurationError, RunExists, RunNotFound, ValueNotStorable
from fastroai.human import Inbox
from fastroai.rows import RowTable
from fastroai.store import RowCounts, RunHistory
from fastroai.store.record.headers import keys_with
from fastroai.testing import ModelServer, Reply, Usage

USAGE = Usage(100, 20)


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """A model server that repeats texts, for this process and its workers."""
    for variable, value in model_server.environment().items():
        monkeypatch.setenv(variable, value)
    model_server.rule(None, lambda request: Reply(text=text_in(request), usage=USAGE, latency=0.05))
    return model_server


def text_in(request: Any) -> str:
    return f"said {str(request.prompt).rpartition('text ')[2][:3].strip()}"


def texts(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"id": f"T{number}", "text": f"text {number:03}"}


async def test_a_table_is_that_of_map(app: Distributed, server: ModelServer) -> None:
    here = await repeat.map(texts(8), key="id", store=app.store, run_id="here")
    async with app.worker(every=0.2):
        run = await app.map(repeat, texts(8), key="id", run_id="there", budget=None)
        table = await run.result(timeout=PATIENCE)
    assert (table.status, table.ok, len(table)) == ("finished", True, 8)
    assert [row.output for row in table] == [row.output for row in here]
    assert [(row.key, row.inputs, row.cost_usd) for row in table] == [
        (row.key, row.inputs, row.cost_usd) for row in here
    ]
    assert table.cost_usd == here.cost_usd > 0
    assert table.usage == here.usage
    standing = await run.status()
    assert (standing.status, standing.rows) == ("finished", RowCounts(done=8, total=8))
    assert [one.queue for one in await app.history.list(pipeline="repeat.map")][:1] == ["default"]


async def later(count: int) -> AsyncIterator[dict[str, Any]]:
    for row in texts(count):
        yield row


async def test_a_client_without_code_gives_rows_of_any_kind(
    app: Distributed, url: str, server: ModelServer
) -> None:
    async with app.worker(every=0.2), Client(url, name=app.app) as client:
        frame = polars.DataFrame([*texts(3)])
        for number, rows in enumerate((frame, later(3), [row["text"] for row in texts(3)])):
            run = await client.map("repeat", rows, run_id=f"r{number}", concurrency=2)
            assert (await run.wait(timeout=PATIENCE)).status == "finished"
            table = await app.handle(run.run_id).result()
            assert [row.output for row in table] == ["said 000", "said 001", "said 002"]
        missing = [{"text": "text 1"}, {"txt": "text 2"}]
        with pytest.raises(ConfigurationError, match="row 1: it has no column 'text', which 'repeat' needs"):
            await client.map("repeat", missing)
        with pytest.raises(ConfigurationError, match="repeat.*Did you mean 'repeat'"):
            await client.map("repeatt", missing)
        known: Any
        for known in ("repeat.map", 5, repeat):
            with pytest.raises(ConfigurationError, match="pipeline=.*that a worker of .* has registered"):
                await client.start(known, {})
            with pytest.raises(ConfigurationError, match="function=.*that a worker of .* has registered"):
                await client.map(known, [])
        for name, kind in (
            ("work", "pipeline"),
            ("routed", "router"),
            ("circle", "graph"),
            ("doubles", "flow"),
        ):
            with pytest.raises(ConfigurationError, match=f"batch=True.*'{name}' is a {kind}"):
                await client.map(name, [], batch=True)
        with pytest.raises(TypeError, match="'priorty'. Did you mean 'priority'"):
            await client.map("repeat", [], priorty=1)  # type: ignore[call-arg]


async def test_what_is_wrong_is_told_before_anything_runs(app: Distributed, server: ModelServer) -> None:
    wrong: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ([{"text": "a"}, {"text": 5}], {}, ConfigurationError, "row 1: .*text: Input should be"),
        ([{"text": "a"}, {"text": object()}], {}, ConfigurationError, "row 1: .*unknown type"),
        (polars.DataFrame({"txt": ["a"]}), {}, ConfigurationError, "a frame with column 'text'"),
        ([*texts(3), *texts(1)], {"key": "id"}, ConfigurationError, "row 3 has the key 'T0' of row 0"),
        ([{"text": "a" * 40_000_000}], {}, ValueNotStorable, "row 0"),
        ([], {"concurrency": 0}, ConfigurationError, "concurrency"),
        ([], {"batch": True}, ConfigurationError, "'repeat' to have a model with a batch API"),
    ]
    for rows, options, error, words in wrong:
        with pytest.raises(error, match=words):
            await app.map(repeat, rows, run_id="bad", **options)
        with pytest.raises(RunNotFound):
            await app.handle("bad").status()
    with pytest.raises(ConfigurationError, match="rows are given to map"):
        await app.start("repeat.map", {})
    other: Any = object()
    for begin in (app.start, app.map):
        with pytest.raises(ConfigurationError, match="that a worker of .* has registered"):
            await begin(other, [])  # type: ignore[arg-type]
    assert not [one async for one in keys_with(app.store, "rows:")]
    await app.map(repeat, texts(2), run_id="good")
    with pytest.raises(RunExists):
        await app.map(repeat, texts(2), run_id="good")
    standing = await app.handle("good").status()
    assert (standing.status, standing.rows) == ("queued", RowCounts(total=2))
    await RunHistory(app.store).delete("good")
    assert not [one async for one in keys_with(app.store, "rows:")]
    assert not server.ledger.entries


KINDS: Mapping[str, tuple[Callable[[int], Mapping[str, object]], Callable[[int], object]]] = {
    "repeat": (lambda number: {"text": f"text {number:03}"}, lambda number: f"said {number:03}"),
    "scribe": (lambda number: {"user_prompt": f"text {number:03}"}, lambda number: f"said {number:03}"),
    "work": (lambda number: {"number": number}, lambda number: f"t/None:{number * 2}"),
    "routed": (lambda number: {"number": number}, lambda number: f"t/None:{number * 2}"),
    "circle": (lambda number: {"number": number}, lambda number: "rested"),
    "doubles": (lambda number: {"number": number}, lambda number: 4 * number + 2),
    "writing": (lambda number: {"number": number}, lambda number: "rested"),
}
"""The row of a number and its output, by what rows are given to. A row of the last one waits for a time."""


@pytest.mark.slow
async def test_rows_of_every_kind_end_right_whichever_worker_is_killed(
    app: Distributed, workers: Workers, server: ModelServer
) -> None:
    kills, at_once, count, chance = 3, 4, 12, random.Random(5)
    for _ in range(2):
        workers.begin()
    await until_ready(app, 2)
    runs = {
        kind: await app.map(
            kind, [row(number) for number in range(count)], run_id=kind, concurrency=at_once, tenant="t"
        )
        for kind, (row, _) in KINDS.items()
    }
    await kill_and_replace(workers, kills, chance, stops=False)
    tables = {kind: await run.result() for kind, run in runs.items()}
    for kind, table in tables.items():
        assert table.ok, kind
        assert [row.output for row in table] == [KINDS[kind][1](number) for number in range(count)]
        assert sum((row.cost_usd for row in table), Decimal(0)) == table.cost_usd
        counts = (await runs[kind].status()).rows
        assert counts == RowCounts(done=count, total=count)
        for child in await app.history.list(pipeline=kind):
            await check_steps(app.handle(child.run_id))
    entries = server.ledger.entries
    asked = len({entry.raw_body for entry in entries})
    assert asked == 3 * count
    again = len(entries) - asked
    assert again <= kills * at_once * 3
    assert sum(table.usage.unmeasured_requests for table in tables.values()) >= again
    # What was in flight at a kill counts at its bound, and all else at what the server says.
    known, bound = (sum(amounts) for amounts in zip(*map(_amounts, tables.values()), strict=True))
    assert known <= listed_costs(server) <= bound


def _amounts(table: RowTable[Any]) -> tuple[Decimal, Decimal]:
    return table.cost_usd, table.usage.committed_usd


async def test_rows_that_wait_for_people_leave_the_worker_free(app: Distributed) -> None:
    async with asyncio.timeout(PATIENCE), app.worker(every=0.2) as worker:
        run = await app.map("people", [{"number": number} for number in range(3)], run_id="asks")
        assert (await run.wait()).status == "paused"
        while worker.running:
            await asyncio.sleep(0.05)
        standing = await run.status()
        assert (standing.status, standing.rows) == ("paused", RowCounts(waiting=3, total=3))
        inbox = Inbox(app.store)
        for asked in await inbox.list():
            await inbox.answer(asked.id, True)
        while (await run.status()).rows != RowCounts(done=3, total=3):
            await asyncio.sleep(0.05)
        table = await run.result()
    assert (table.status, table.outputs) == ("finished", ["rested"] * 3)


async def test_of_a_cancelled_run_nobody_is_asked_for_its_rows_until_it_continues(app: Distributed) -> None:
    inbox = Inbox(app.store)
    async with asyncio.timeout(PATIENCE), app.worker(every=0.2):
        run = await app.map("people", [{"number": number} for number in range(3)], run_id="asks")
        assert (await run.wait()).status == "paused"
        assert len(await inbox.list()) == 3
        await run.cancel()
        assert not await inbox.list()
        assert (await run.status()).rows == RowCounts(total=3)
        await run.resume()
        while len(await inbox.list()) < 3:
            await asyncio.sleep(0.05)
        for asked in await inbox.list():
            await inbox.answer(asked.id, True)
        while (await run.status()).status != "finished":
            await asyncio.sleep(0.05)
        assert (await run.result()).outputs == ["rested"] * 3


async def test_a_run_of_rows_is_paused_cancelled_and_handed_over(
    app: Distributed, server: ModelServer
) -> None:
    async with asyncio.timeout(PATIENCE):
        async with app.worker(every=0.2):
            run = await app.map(repeat, texts(40), run_id="r", concurrency=2)
            while not server.ledger.entries:
                await asyncio.sleep(0.02)
            await run.pause()
            assert ((await run.wait()).status, (await run.result()).status) == ("paused", "paused")
            with pytest.raises(ConfigurationError, match="a run of rows continues with those on record"):
                await run.resume(inputs={"options": "others"})
            await run.resume()
            await asyncio.sleep(0.2)
            await run.cancel()
            assert (await run.wait()).status == "cancelled"
            await run.resume()
            await asyncio.sleep(0.2)
        assert (await run.status()).status in ("interrupted", "finished")
        async with app.worker(every=0.2):
            table = await run.result()
    assert table.ok
    assert len(table) == 40
    assert sum((row.cost_usd for row in table), Decimal(0)) == table.cost_usd


@pytest.mark.slow
async def test_rows_in_batches_leave_workers_free_and_are_collected_by_another(
    app: Distributed, workers: Workers, server: ModelServer
) -> None:
    server.holds_batches = True
    soon = timedelta(milliseconds=50)
    batches = BatchModelRequests(
        max_requests=3, max_wait=soon, poll_interval=soon, max_poll_interval=soon, max_resubmissions=0
    )
    killed = workers.begin()
    async with asyncio.timeout(PATIENCE):
        await until_ready(app, 1)
        run = await app.map(repeat_cheaply, texts(7), run_id="r", batch=batches, concurrency=7)
        while (await run.status()).rows != RowCounts(waiting=7, total=7):
            await asyncio.sleep(0.05)
        workers.kill(killed)
        workers.begin()
        server.holds_batches = False
        table = await run.result()
    assert table.ok
    assert [row.output for row in table] == [f"said {number:03}" for number in range(7)]
    assert len(server.ledger.entries) == table.usage.request_count == 7
    assert table.cost_usd == listed_costs(server) / 2
    assert table.usage.cost_complete


# --- new code beside old code ---


class Held:
    """A model that answers some rows, and no more until it may."""

    def __init__(self, server: ModelServer, at_most: int) -> None:
        self.asked = list[tuple[str, str]]()
        self.at_most = at_most
        server.reset()
        server.rule(None, self.answer)

    def answer(self, request: Any) -> Reply:
        code = "new" if "in new words" in str(request.messages) else "old"
        self.asked.append((code, text_in(request)))
        return Reply(
            text=text_in(request), usage=USAGE, latency=PATIENCE if len(self.asked) > self.at_most else 0
        )


async def _done(run: Any, count: int) -> None:
    while (rows := (await run.status()).rows) is None or rows.done < count:
        await asyncio.sleep(0.05)


async def test_rows_of_new_code_are_not_asked_anew_by_old_code(
    url: str, name: str, workers: Workers, server: ModelServer
) -> None:
    model = Held(server, at_most=3)
    async with application(url, name) as app:
        workers.begin(CODE="old")
        await until_ready(app, 1)
        new = workers.begin(CODE="new")
        await until_ready(app, 2)
        async with Client(url, name=name) as client:
            run = await client.map("reword", texts(6), concurrency=1)
            await _done(run, 3)
            workers.kill(new)
            while "no running worker has 'reword" not in (await run.status()).reason:
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)  # the old worker looks for such runs five times a second
            assert {code for code, _ in model.asked} == {"new"}
            model.at_most = 100
            workers.begin(CODE="new")
            assert (await run.wait(timeout=PATIENCE)).status == "finished"
    finished = [("new", f"said {number:03}") for number in range(6)]
    assert sorted(model.asked) == sorted([*finished, finished[3]])  # the fourth was in flight at the kill


async def test_rows_of_old_code_are_asked_anew_by_new_code(
    url: str, name: str, workers: Workers, server: ModelServer
) -> None:
    model = Held(server, at_most=3)
    async with application(url, name) as app:
        old = workers.begin(CODE="old")
        await until_ready(app, 1)
        async with Client(url, name=name) as client:
            run = await client.map("reword", texts(6), concurrency=1)
            await _done(run, 3)
            model.at_most = 100
            workers.kill(old)
            workers.begin(CODE="new")
            assert (await run.wait(timeout=PATIENCE)).status == "finished"
    assert [text for code, text in model.asked if code == "new"] == [f"said {n:03}" for n in range(6)]
