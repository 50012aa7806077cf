"""Runs of every kind that workers carry while somebody kills, stops and replaces them."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from fastroai.distributed import Distributed, RunHandle
from fastroai.distributed.roster import read_roster
from fastroai.errors import QuestionClosed
from fastroai.runtime.facts import StepFinished
from fastroai.testing import ModelServer
from support.accounting import check_account
from support.carried import Notes, Workers

KINDS: Final = ("work", "people", "circle", "doubles", "writing", "routed", "tripled")
STOPPED_FOR: Final = 3.0
"""Seconds for which a worker is stopped: more than its lease, which is two."""


async def answer_questions(app: Distributed) -> None:
    """Say yes to everybody, for ever."""
    while True:
        for asked in await app.inbox.list():
            with suppress(QuestionClosed):  # its worker was killed just then, and another one asks again
                await app.handle(asked.run_id).answer(asked.id, True)
        await asyncio.sleep(0.05)


async def kill_and_replace(workers: Workers, kills: int, chance: random.Random, *, stops: bool) -> None:
    """Kill one worker, two or all at once, and begin as many; or stop one for longer than its lease."""
    most = len(workers.running)
    while kills > 0:
        await asyncio.sleep(chance.uniform(0.3, 1.2))
        if stops and chance.random() < 0.2:
            stopped = chance.choice(workers.running)
            stopped.send_signal(signal.SIGSTOP)
            await asyncio.sleep(STOPPED_FOR)
            stopped.send_signal(signal.SIGCONT)
        victims = chance.sample(workers.running, min(kills, chance.choices((1, 2, most), (8, 2, 1))[0]))
        for victim in victims:
            workers.kill(victim)
        for _ in victims:
            workers.begin()
        kills -= len(victims)


async def start_all(app: Distributed, count: int, seconds: float, chance: random.Random) -> Started:
    """Start runs of every kind, over a while."""
    runs = list[tuple[str, int, RunHandle[Any]]]()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        handle = await app.start(kind, {"number": number}, run_id=f"{app.app}-{number}", tenant="t")
        runs.append((kind, number, handle))
        await asyncio.sleep(chance.uniform(0, 2 * seconds / count))
    return runs


async def check_all(runs: Started) -> None:
    """Wait for the ends of runs whose questions somebody answers, and check each."""
    for kind, number, handle in runs:
        result = await result_of(handle)
        output = result if kind == "doubles" else result.output
        assert output == _expected(kind, number)
    for _, _, handle in runs:
        await check_steps(handle)


Started = Sequence[tuple[str, int, RunHandle[Any]]]
"""Kind and number of each run."""


def _expected(kind: str, number: int) -> object:
    return {
        "work": f"t/{number}:{number * 2}",
        "people": "rested",
        "circle": "rested",
        "doubles": 4 * number + 2,
        "writing": "rested",
        "routed": f"t/{number}:{number * 2}",
        "tripled": {"number": 9 * number},
    }[kind]


async def result_of(handle: RunHandle[Any]) -> Any:
    """Return the result of a run whose questions somebody answers."""
    while (await handle.wait()).status == "paused":
        await asyncio.sleep(0.05)
    return await handle.result()


async def check_steps(handle: RunHandle[Any]) -> None:
    """No finished step ran again, and a step has one key, however often it began."""
    facts = [fact async for _, fact in handle.follow()]
    finished = [fact.step_id for fact in facts if isinstance(fact, StepFinished) and not fact.part.place]
    assert len(finished) == len(set(finished))
    keys = {(words[2], words[3]) for words in Notes.read() if words[0] == "ran" and words[1] == handle.run_id}
    assert len(keys) == len({step for step, _ in keys})
    posted = [words for words in Notes.read() if words[:2] == ["posted", handle.run_id]]
    assert len({key for *_, key in posted}) <= 1


async def check_costs(runs: Sequence[RunHandle[Any]], server: ModelServer) -> None:
    """The runs have paid what the server billed."""
    traces = [(await run.state()).trace for run in runs]
    check_account([record for trace in traces for record in trace.records], server)
    assert sum((trace.usage.cost_usd for trace in traces), Decimal(0)) > 0


async def until_ready(app: Distributed, count: int) -> None:
    while len((await read_roster(app.store, app.app)).workers) < count:
        await asyncio.sleep(0.05)
