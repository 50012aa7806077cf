"""Limits hold across workers: of spending, of queues, of requests at one time, and of failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from support.accounting import listed_cost
from support.carried import AT_ONCE, FAILURES, LIMIT_USD, Notes, application, workers_of
from support.carrying import until_ready

from fastroai.distributed import Distributed
from fastroai.testing import Fault, ModelServer, Reply, Usage

pytestmark = pytest.mark.slow
WORKERS = 2
LATENCY = 0.1


@pytest.fixture
async def app(
    postgres_dsn: str, name: str, tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Distributed]:
    """An application with two workers."""
    for variable, value in (model_server.environment() | {"LIMITS": str(tmp_path / "spending.db")}).items():
        monkeypatch.setenv(variable, value)
    answer = Reply("hello", usage=Usage(100, 90), latency=LATENCY)
    model_server.rule(lambda request: "ill" in request.prompt, Reply("ill", fault=Fault.status(500)))
    model_server.rule(None, answer)
    with workers_of(postgres_dsn, name, tmp_path / "notes") as workers:
        async with application(postgres_dsn, name) as app:
            for _ in range(WORKERS):
                workers.begin("default", "two-at-once")
            await until_ready(app, WORKERS)
            yield app


async def test_limits_hold_across_workers(app: Distributed, model_server: ModelServer) -> None:
    """One test, as its workers take seconds to begin."""
    await _two_at_a_time(app)
    await _no_more_than_the_money(app, model_server)
    await _no_more_at_once(app, model_server)
    await _breakers(app, model_server)
    processes = {words[4] for words in Notes.read() if words[0] == "ran"}
    assert len(processes) == WORKERS


async def _two_at_a_time(app: Distributed) -> None:
    """A queue lets two runs go on at a time, whoever carries them."""
    runs = [await app.start("people", {"number": 1}, queue="two-at-once") for _ in range(3)]
    assert {(await run.wait()).status for run in runs} == {"paused"}  # they wait, and keep no place
    runs = [await app.start("work", {"number": 1}, queue="two-at-once") for _ in range(12)]
    at_once = 0
    while len(going := [run for run in (await app.list()).items if run.pipeline == "work"]) < 12 or any(
        run.status != "finished" for run in going
    ):
        at_once = max(at_once, sum(run.status == "running" for run in going))
        await asyncio.sleep(0.01)
    assert at_once <= 2


async def _no_more_than_the_money(app: Distributed, server: ModelServer) -> None:
    runs = [await app.start("spending", {"text": f"hello {number}"}) for number in range(12)]
    statuses = [(await run.wait()).status for run in runs]
    spent = sum(map(listed_cost, server.ledger.billed), Decimal(0))
    assert LIMIT_USD / 2 < spent <= LIMIT_USD
    assert statuses.count("finished") == len(server.ledger.billed)
    assert set(statuses) == {"finished", "failed"}


async def _no_more_at_once(app: Distributed, server: ModelServer) -> None:
    before = len(server.ledger.entries)
    runs = [await app.start("busy", {"text": f"hello {number}"}) for number in range(12)]
    assert {(await run.wait()).status for run in runs} == {"finished"}
    came = sorted(entry.started for entry in server.ledger.entries[before:])
    gaps = [(later - earlier).total_seconds() for earlier, later in zip(came, came[AT_ONCE:], strict=False)]
    assert min(gaps) >= 0.9 * LATENCY


async def _breakers(app: Distributed, server: ModelServer) -> None:
    """What one worker finds out of a provider that is ill, the other knows."""
    before = len(server.ledger.entries)
    for number in range(16):
        state = await (await app.start("ill", {"text": f"ill {number}"})).wait()
        assert state.status == "failed"
    # The failure that opens the circuit is on its way to the store while the next run begins.
    assert FAILURES <= len(server.ledger.entries) - before <= FAILURES + WORKERS - 1
