"""Rows whose process is killed with SIGKILL go on: none is lost, none that had ended is paid for twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from durability.row_worker import rows_for, target
from support.accounting import listed_cost

from fastroai.rows import RowTable
from fastroai.store import SQLiteRunStore
from fastroai.testing import ModelServer, Reply

ROWS = int(os.environ.get("FASTROAI_TEST_ROWS", "24"))
KILLS = int(os.environ.get("FASTROAI_TEST_ROW_KILLS", "2"))
CONCURRENCY = 8 if KILLS < 10 else 2
"""Rows that are asked at once: few, so that there are rows left for many kills."""
WORKER = Path(__file__).with_name("row_worker.py")


def work(kind: str, store: Path, server: ModelServer, seed: int) -> subprocess.CompletedProcess[str]:
    """Map the rows in a process of its own, which is killed unless the seed is negative."""
    numbers = map(str, (ROWS, CONCURRENCY, seed))
    command = [sys.executable, str(WORKER), kind, str(store), server.openai_url, *numbers]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


KINDS = ["function", "pipeline"] if KILLS < 10 else ["function", "agent", "pipeline"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
async def test_killed_rows_go_on_and_cost_what_the_server_says(
    kind: str, model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.rule(None, Reply(text="fine", latency=0.005))
    store, killed = tmp_path / "rows.db", 0
    for seed in range(KILLS):
        ended = work(kind, store, model_server, seed)
        killed += ended.returncode == -9
        assert ended.returncode in (-9, 0), ended.stderr
    ended = work(kind, store, model_server, -1)
    assert ended.returncode == 0, ended.stderr
    count, cost, committed, ok, _ = ended.stdout.strip().split("\t")
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
