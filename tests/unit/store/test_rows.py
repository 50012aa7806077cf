"""One small fact can be all that a log has of a unit, such as a row: its key, its result and its cost."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any, Final

from support.rows import RowDone
from support.run_logs import record

from fastroai import RunHistory
from fastroai.runtime import Scope
from fastroai.runtime.fact_base import Begins, Ends, Fact, Part
from fastroai.runtime.facts import RunFinished, RunResumed, RunStarted, StepStarted
from fastroai.store import EncryptingCodec, MemoryRunStore, RunTrace
from fastroai.store.record.effect import effect
from fastroai.store.record.headers import log_key, read_header, read_log
from fastroai.store.record.log import Log
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, seal
from fastroai.store.record.runs import DurableRun, RecordOptions
from fastroai.store.record.unsealing import entries_to_go_on

ROWS: Final = 1_000
PART: Final = Part("r", "p", ("p",))
DEFINITION: Final[Any] = {"name": "p", "steps": {"rows": {}}, "output_step": "rows"}
START: Final = (RunStarted(part=PART, definition=DEFINITION), StepStarted("rows", part=PART, cause="first"))


async def begun(store: MemoryRunStore, codec: PayloadCodec | None = None) -> Log:
    run = await DurableRun.begin(RecordOptions(store=store, codec=codec), START)
    return Log(Scope("pipeline", "p", parent=None), run)


async def taken_up(store: MemoryRunStore, log: Log) -> Log:
    """The log in another process, after the first one has died."""
    assert log.run is not None
    await log.run.journal.flush()
    await log.run.release()
    found, codec = await read_header(store, "r"), log.run.codec
    known = Memo("r", entries_to_go_on("r", await read_log(store, found.header), codec))
    run = await DurableRun.take_up(RecordOptions(store=store, codec=codec), known, RunResumed(), found=found)
    return Log(Scope("pipeline", "p", parent=None), run)


def given(known: Begins | Ends) -> tuple[Any] | None:
    return (known.result,) if isinstance(known, RowDone) and not known.failed else None


async def row(log: Log, number: int, done: list[int], *, fails: bool = False) -> Any:
    """What a row comes to, by the record or by work that costs $0.001."""
    key = f"T{number}"

    async def work() -> dict[str, object]:
        done.append(number)
        if fails:
            raise ValueError(key)
        return {"category": "billing", "order": number}

    def end(result: object) -> RowDone:
        assert log.run is not None
        sealed = seal(result, log.run.codec)  # type: ignore[arg-type]
        return RowDone(place="rows", key=key, result=sealed, record=record("0.001"))

    def failed(error: Exception) -> RowDone:
        return RowDone(place="rows", key=key, failed=True, record=record("0.001"))

    return await effect(log, ("row", "rows", key), work, given=given, done=end, failed=failed)


async def test_a_run_of_rows_writes_one_small_fact_a_row_and_does_no_row_twice() -> None:
    log, done = await begun(store := MemoryRunStore()), list[int]()
    for number in range(ROWS):
        await row(log, number, done)
    log = await taken_up(store, log)
    values = (await store.read(log_key((await read_header(store, "r")).header))).values
    assert len(values) == len(START) + ROWS + 1
    assert sum(map(len, values)) / ROWS < 350
    results = [await row(log, number, done) for number in range(ROWS + 1)]
    assert done == list(range(ROWS + 1))
    assert results == [{"category": "billing", "order": number} for number in range(ROWS + 1)]
    assert log.run is not None
    charges = log.run.recorded.requests.charges("rows")
    assert sum(one.record.cost_usd or 0 for one in charges) == Decimal("0.001") * ROWS
    await log.run.journal.flush()
    await log.run.release()
    trace = await RunHistory(store).trace("r")
    assert trace.usage.cost_usd == Decimal("0.001") * (ROWS + 1)
    assert trace.steps[0].usage == trace.usage
    (spent,) = await RunHistory(store).spending()
    assert spent.usage.cost_usd == trace.usage.cost_usd
    assert len(trace.events_for("rows")) == 1 + ROWS + 1
    assert RunTrace.from_json(trace.to_json()) == trace


async def test_a_row_that_failed_is_done_again_and_both_are_charged() -> None:
    log, done = await begun(store := MemoryRunStore()), list[int]()
    with contextlib.suppress(ValueError):
        await row(log, 7, done, fails=True)
    for _ in range(2):
        log = await taken_up(store, log)
        assert await row(log, 7, done) == {"category": "billing", "order": 7}
    assert done == [7, 7]
    log = await taken_up(store, log)
    assert log.run is not None
    known = log.run.recorded
    assert [one.record.cost_usd for one in known.requests.charges()] == [Decimal("0.001")] * 2
    assert [one.ends and one.ends.outcome for one in known.requests.charges("rows")] == [
        "failed",
        "succeeded",
    ]
    trace = RunTrace(log.run.entries())
    assert trace.usage.cost_usd == Decimal("0.002")
    await log.run.release()


async def test_keys_and_results_of_rows_go_through_the_codec() -> None:
    codec = EncryptingCodec({"k": EncryptingCodec.new_key()})
    log, done = await begun(store := MemoryRunStore(), codec), list[int]()
    await row(log, 7, done)
    log = await taken_up(store, log)
    stored = b"".join((await store.read(log_key((await read_header(store, "r")).header))).values)
    assert b"row_done" in stored
    assert b'"T7"' not in stored  # in quotes, which no sealed text has
    assert b"billing" not in stored
    entries = (await RunHistory(store, codec=codec).trace("r")).entries
    assert [one.result for one in entries if isinstance(one, RowDone)] == [
        {"category": "billing", "order": 7}
    ]
    assert log.run is not None
    assert log.run.recorded.first(("row", "rows", "T7"), RowDone) is not None
    await log.run.release()


def test_the_end_of_a_row_does_not_end_its_run() -> None:
    facts: list[Fact] = [*START, RowDone(place="rows", key="a"), RunFinished(part=PART, status="cancelled")]
    trace = RunTrace(facts)
    assert (trace.status, trace.steps[0].status) == ("cancelled", "cancelled")
    assert "row" not in trace.explain().replace("rows", "")
