"""Workers are killed again and again, and every run ends right."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from support.carried import Notes, Workers
from support.patience import PATIENCE

from fastroai.distributed import Distributed, RunHandle
from fastroai.distributed.roster import read_roster
from fastroai.runtime.facts import StepFinished
from fastroai.testing import ModelServer, Reply

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("FASTROAI_MACHINES", "1"))
"""Times as many runs, and kills, as in the suite: `make machines`."""
KINDS = ("work", "people", "circle", "doubles", "writing")


async def _answer_questions(app: Distributed) -> None:
    while True:
        for asked in await app.inbox.list():
            await app.handle(asked.run_id).answer(asked.id, True)
        await asyncio.sleep(0.05)


async def _kill_and_replace(workers: Workers, kills: int, chance: random.Random) -> None:
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.3, 1.2))
        workers.kill(chance.choice(workers.running))
        workers.begin()


async def test_every_run_ends_right_whichever_worker_is_killed(
    url: str,
    name: str,
    app: Distributed,
    workers: Workers,
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number_of_runs, kills, count = (50, 20, 3) if url.startswith("postgres") else (20, 5, 2)
    number_of_runs, kills = number_of_runs * TIMES, kills * TIMES
    for variable, value in model_server.environment().items():
        monkeypatch.setenv(variable, value)
    model_server.rule(None, lambda request: Reply(request.prompt))
    chance = random.Random(3)
    for _ in range(count):
        workers.begin()
    async with asyncio.timeout(PATIENCE * TIMES), asyncio.TaskGroup() as tasks:
        await _until_ready(app, count)
        killing = tasks.create_task(_kill_and_replace(workers, kills, chance))
        answering = tasks.create_task(_answer_questions(app))
        runs = list[tuple[str, int, RunHandle[Any]]]()
        for number in range(number_of_runs):
            kind = KINDS[number % len(KINDS)]
            handle = await app.start(kind, {"number": number}, run_id=f"{name}-{number}", tenant="t")
            runs.append((kind, number, handle))
            await asyncio.sleep(chance.uniform(0, 20 * TIMES / number_of_runs))
        await killing
        results = {handle.run_id: await _result(handle) for _, _, handle in runs}
        answering.cancel()
    for kind, number, handle in runs:
        result = results[handle.run_id]
        output = result if kind == "doubles" else result.output
        assert output == _expected(kind, number)
        await _check_steps(handle)
    await _check_account([handle for _, _, handle in runs], model_server)


def _expected(kind: str, number: int) -> object:
    return {
        "work": f"t/{number}:{number * 2}",
        "people": "rested",
        "circle": "rested",
        "doubles": 4 * number + 2,
        "writing": "rested",
    }[kind]


async def _result(handle: RunHandle[Any]) -> Any:
    """Return the result of a run whose questions somebody answers."""
    while (await handle.wait()).status == "paused":
        await asyncio.sleep(0.05)
    return await handle.result()


async def _check_steps(handle: RunHandle[Any]) -> None:
    """No finished step ran again, and a step has one key, however often it began."""
    facts = [fact async for _, fact in handle.follow()]
    finished = [fact.step_id for fact in facts if isinstance(fact, StepFinished) and not fact.part.place]
    assert len(finished) == len(set(finished))
    keys = {(words[2], words[3]) for words in Notes.read() if words[0] == "ran" and words[1] == handle.run_id}
    assert len(keys) == len({step for step, _ in keys})
    posted = [words for words in Notes.read() if words[:2] == ["posted", handle.run_id]]
    assert len({key for *_, key in posted}) <= 1


async def _check_account(runs: Sequence[RunHandle[Any]], server: ModelServer) -> None:
    """Each request that the server billed is on record, to the token; or a kill has cut it off."""
    states = [await run.state() for run in runs]
    records = [record for state in states for record in state.trace.records]
    served = {entry.response_id: entry for entry in server.ledger.billed}
    for record in records:
        if record.outcome == "settled":
            ours, theirs = record.tokens, served.pop(record.response_id).usage
            assert (ours.input_tokens, ours.output_tokens) == (theirs.input_tokens, theirs.output_tokens)
    assert len(served) <= sum(record.outcome == "unmeasured" for record in records)
    assert sum((state.trace.usage.cost_usd for state in states), Decimal(0)) > 0


async def _until_ready(app: Distributed, count: int) -> None:
    while len((await read_roster(app.store, app.app)).workers) < count:
        await asyncio.sleep(0.05)
