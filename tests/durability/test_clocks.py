"""The clock of a process jumps by hours while it has runs: leases, waits, time limits and spend limits hold.

A library that is preloaded into the process sets its wall clock.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import redis
from durability.clock_worker import HELD
from durability.preloaded import NEEDS_LINUX, compiled
from support.patience import PATIENCE

from fastroai import Pipeline, StepContext, step
from fastroai.errors import RunInProgress
from fastroai.store import RunHistory, SQLiteRunStore

WORKER = Path(__file__).with_name("clock_worker.py")

pytestmark = [NEEDS_LINUX, pytest.mark.slow]


@step
async def work(ctx: StepContext) -> Any:
    raise AssertionError("another process has the run")


@pytest.mark.parametrize("hours", [5, -5])
def test_a_process_whose_clock_jumps_keeps_its_runs_and_its_limits(
    hours: int, tmp_path: Path, redis_url: str
) -> None:
    offset, runs, prefix = tmp_path / "offset", tmp_path / "runs.db", f"test_{uuid.uuid4().hex}"
    offset.write_bytes(bytes(8))
    worker = subprocess.Popen(
        [sys.executable, WORKER, str(hours), runs, tmp_path / "spending.db", redis_url, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": str(compiled("clock.c", tmp_path)),
            "CLOCK_OFFSET": str(offset),
        },
    )
    with worker:
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stdout.readline() == "look\n", "it has failed before, as it says"
            with pytest.raises(RunInProgress):
                Pipeline("p", {"work": work}).resume_sync(HELD, store=SQLiteRunStore(runs))
            worker.stdin.write("\n")
            worker.stdin.close()
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
    assert asyncio.run(RunHistory(SQLiteRunStore(runs)).summary(HELD)).status == "finished"
    with redis.Redis.from_url(redis_url) as client:
        client.delete(*client.keys(f"{{{prefix}}}*"), b"none")
