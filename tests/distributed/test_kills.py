"""Workers are killed again and again, and every run ends right."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator

import pytest
from support.carried import Workers
from support.carrying import (
    answer_questions,
    check_all,
    check_costs,
    kill_and_replace,
    start_all,
    until_ready,
)
from support.patience import PATIENCE

from fastroai.distributed import Distributed
from fastroai.testing import ModelServer, Reply

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("FASTROAI_MACHINES", "1"))
"""Times as many runs, and kills, as in the suite: `make machines`."""


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE * TIMES):
        yield


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_every_run_ends_right_whichever_worker_is_killed(
    url: str, app: Distributed, workers: Workers, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_file = not url.startswith("postgres")
    number_of_runs, kills, count = (21, 5, 2) if is_file else (49, 20, 3)
    for variable, value in model_server.environment().items():
        monkeypatch.setenv(variable, value)
    model_server.rule(None, lambda request: Reply(request.prompt))
    chance = random.Random(3)
    for _ in range(count):
        workers.begin()
    async with asyncio.TaskGroup() as tasks:
        await until_ready(app, count)
        # A process that is stopped keeps its locks on a file.
        stops = TIMES > 1 and not is_file
        killing = tasks.create_task(kill_and_replace(workers, kills * TIMES, chance, stops=stops))
        answering = tasks.create_task(answer_questions(app))
        runs = await start_all(app, number_of_runs * TIMES, 10 * TIMES, chance)
        await killing
        await check_all(runs)
        answering.cancel()
    await check_costs([handle for _, _, handle in runs], model_server)
