"""Rows whose process is killed with SIGKILL go on: none is lost, none that had ended is paid for twice."""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from durability.row_worker import rows_for, target
from support.accounting import listed_cost
from support.fork_server import Program

from fastroai.rows import RowTable
from fastroai.store import SQLiteRunStore
from fastroai.testing import ModelServer, Reply

ROWS = int(os.environ.get("FASTROAI_TEST_ROWS", "24"))
KILLS = int(os.environ.get("FASTROAI_TEST_ROW_KILLS", "2"))
CONCURRENCY = 8 if KILLS < 10 else 2
"""Rows that are asked at once: few, so that there are rows left for many kills."""
WORKER = Path(__file__).with_name("row_worker.py")


def work(kind: str, store: Path, server: ModelServer, seed: int, *more: str) -> tuple[int, str, str]:
    """Map the rows in a process of its own, which is killed unless the seed is negative."""
    return Program(WORKER, kind, store, server.openai_url, ROWS, CONCURRENCY, seed, *more).end()


KINDS = ["function", "pipeline"] if KILLS < 10 else ["function", "agent", "pipeline"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
async def test_killed_rows_go_on_and_cost_what_the_server_says(
    kind: str, model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.rule(None, Reply(text="fine", latency=0.005))
    store, killed = tmp_path / "rows.db", 0
    for seed in range(KILLS):
        code, _, err = work(kind, store, model_server, seed)
        killed += code == -9
        assert code in (-9, 0), err
    code, out, err = work(kind, store, model_server, -1)
    assert code == 0, err
    count, cost, committed, ok, _ = out.strip().split("\t")
    assert (count, ok) == (str(ROWS), "True")
    assert killed >= KILLS * 3 // 4

    table: RowTable[str] = await target(kind, model_server.openai_url).map(
        rows_for(kind, ROWS), store=SQLiteRunStore(store), run_id="rows"
    )
    assert [row.number for row in table] == list(range(ROWS))
    assert [row.inputs[[*row.inputs][0]] for row in table] == [f"text {number}" for number in range(ROWS)]
    assert table.outputs == ["fine"] * ROWS
    assert table.resumed is not None
    assert table.resumed.finished == ROWS

    entries = [entry for entry in model_server.ledger.entries if entry.billed]
    billed = sum((listed_cost(entry) for entry in entries), Decimal(0))
    times = Counter(entry.raw_body for entry in entries)
    again = len(entries) - ROWS
    assert len(times) == ROWS
    assert again <= killed * CONCURRENCY
    # What was in flight at a kill counts at its bound, so the known cost is that of the rest, to the cent.
    assert Decimal(cost) <= billed <= Decimal(committed)
    assert table.usage.unmeasured_requests >= again
    if not table.usage.unmeasured_requests:
        assert Decimal(cost) == billed
    assert table.cost_usd == Decimal(cost)


@pytest.mark.slow
async def test_rows_on_record_are_recovered_without_their_caller(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.rule(None, Reply(text="fine", latency=0.005))
    store = tmp_path / "rows.db"
    code, _, told = work("function", store, model_server, 1, "record")
    assert code == -9, told
    runs = target("function", model_server.openai_url).row_runs
    [table] = (await runs.recover(store=store)).values()
    assert table.ok
    assert table.outputs == ["fine"] * ROWS
    assert len({entry.raw_body for entry in model_server.ledger.entries}) == ROWS
    assert len(model_server.ledger.entries) - ROWS <= CONCURRENCY
    assert table.resumed is not None
    assert table.resumed.finished >= 1
    assert [row.inputs for row in table] == [{"text": f"text {number}"} for number in range(ROWS)]
