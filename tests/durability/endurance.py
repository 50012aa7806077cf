"""Runs of many kinds, on and on, in processes that must not grow: `MINUTES RUNS_A_SECOND PROCESSES`.

All of them spend under one limit; most are on record; some fail, are cancelled, or wait for a person. The
processes share their stores, and the rate.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from fastroai import Budget, Edge, Graph, Inbox, Pipeline, PipelineConfig, SpendLimit, StepContext, step
from fastroai.errors import StepExecutionError
from fastroai.steps.context import scope_of
from fastroai.store import RunHistory, SQLiteRunStore, SQLiteSpendStore

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.agents import paid_agent

AT_ONCE: Final = 50
"""Runs, at most."""
FEW, AT_ONCE_OF_FEW = 144, 12
"""Runs of the brief form."""
PATIENCE: Final = 500
"""Looks at a process, a tenth of a second apart, until it has put away what it had."""
EVERY: Final = 10.0
"""Seconds between two looks at the process."""
WARM_UP: Final = 0.1
"""The share of all runs after which it has all that it needs."""


@dataclass(frozen=True)
class Counts:
    """What a process has, while nothing runs in it."""

    descriptors: int
    threads: int
    tasks: int
    objects: Counter[str]
    """Instances of classes of FastroAI, by class."""
    memory: int
    """Bytes that are resident."""

    @classmethod
    async def now(cls) -> Counts:
        """Those of this process, once what it has done with is gone."""
        loop = asyncio.get_running_loop()
        for _ in range(4):  # async generators end on the loop, and what they hold goes after that
            for _ in range(1000):  # so many that asyncio forgets those of its timers that are cancelled
                loop.call_later(60, print).cancel()
            await asyncio.sleep(0.01)
            gc.collect()
        kinds = Counter(type(one) for one in gc.get_objects())
        ours = {kind: count for kind, count in kinds.items() if str(kind.__module__).startswith("fastroai.")}
        return cls(
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(asyncio.all_tasks()),
            Counter({f"{kind.__module__}.{kind.__qualname__}": count for kind, count in ours.items()}),
            _resident(),
        )

    @classmethod
    async def settled(cls, before: Counts) -> Counts:
        """Those of this process, when it has no more than before, or has had the time to come to that."""
        for _ in range(PATIENCE):
            now = await cls.now()
            if now.has_no_more_than(before):
                break
            await asyncio.sleep(0.1)  # what was spent last is settled in the background
        return now

    def has_no_more_than(self, before: Counts) -> bool:
        """Whether nothing has grown that can be counted; memory is for people to judge."""
        pairs = ((self.descriptors, before.descriptors), (self.threads, before.threads))
        has_more = any(now > then for now, then in (*pairs, (self.tasks, before.tasks)))
        return self.objects <= before.objects and not has_more

    def __str__(self) -> str:
        return (
            f"{self.memory / 2**20:7.1f} MiB, {self.objects.total():6,} objects, "
            f"{self.descriptors} descriptors, {self.threads} threads, {self.tasks} tasks"
        )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Load:
    """Runs, in turn of five kinds, on stores in a folder."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.spending = SQLiteRunStore(folder / "runs.db"), SQLiteSpendStore(folder / "spend.db")
        self.begun = self.cancelled = self.failed = 0
        limit = SpendLimit(usd=1_000_000, store=self.spending)
        agent = paid_agent(10)

        @step
        async def ask(ctx: StepContext) -> str:
            return (await ctx.run(agent, "what now?")).output

        async def effect() -> str:
            return "done"

        @step
        async def act(ctx: StepContext) -> str:
            return await ctx.once("act", effect)

        @step
        async def approve(ctx: StepContext) -> bool:
            return await ctx.ask("Is that fine?", bool)

        @step
        async def fail(ctx: StepContext) -> None:
            raise LookupError("no such thing")

        @step
        async def hang(ctx: StepContext) -> None:
            self._hanging.pop(scope_of(ctx).run_id).set()
            await asyncio.Event().wait()

        self._hanging: dict[str, asyncio.Event] = {}
        """By the run: told when it has come to the step that hangs."""
        config = PipelineConfig(budget=[Budget(usd=1), limit])
        kept = PipelineConfig(budget=limit, store=self.runs)
        self.plain = Pipeline("plain", {"ask": ask}, config=config)
        self.kept = Pipeline("kept", {"ask": ask, "act": act}, {"act": ["ask"]}, config=kept)
        self.asking = Pipeline("asking", {"act": act, "approve": approve}, {"approve": ["act"]}, config=kept)
        self.failing = Pipeline("failing", {"act": act, "fail": fail}, {"fail": ["act"]}, config=kept)
        self.hanging = Pipeline("hanging", {"ask": ask, "hang": hang}, {"hang": ["ask"]}, config=kept)
        self.forking: Graph[Any, Any] = Graph(
            "forking",
            nodes={"top": act, "left": ask, "right": act, "end": act},
            edges=[Edge("top", "left"), Edge("top", "right"), Edge("left", "end"), Edge("right", "end")],
            config=kept,
        )
        self._kinds = (
            self._plain,
            self._kept,
            self._forked,
            self._failed,
            self._cancelled,
            self._answered,
        )

    async def run(self) -> None:
        """Make the next one."""
        self.begun += 1
        await self._kinds[self.begun % len(self._kinds)](f"r{os.getpid()}-{self.begun}")

    async def _plain(self, run_id: str) -> None:
        assert (await self.plain.execute()).ok

    async def _kept(self, run_id: str) -> None:
        assert (await self.kept.execute(run_id=run_id)).ok

    async def _forked(self, run_id: str) -> None:
        assert (await self.forking.run(run_id=run_id)).status == "finished"

    async def _failed(self, run_id: str) -> None:
        with suppress(StepExecutionError):
            await self.failing.execute(run_id=run_id)
        self.failed += 1

    async def _cancelled(self, run_id: str) -> None:
        self._hanging[run_id] = hangs = asyncio.Event()
        running = asyncio.ensure_future(self.hanging.execute(run_id=run_id))
        await hangs.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        self.cancelled += 1

    async def _answered(self, run_id: str) -> None:
        result = await self.asking.execute(run_id=run_id)
        await Inbox(self.runs).answer(result.questions[0].id, True)
        assert (await self.asking.resume(run_id)).output is True

    async def at_once(self, count: int) -> None:
        """Make so many."""
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self.run())

    async def forget(self) -> None:
        """Purge what has ended, which costs a service no memory, but a file its disk."""
        await RunHistory(self.runs).purge(timedelta(0), status=("finished", "failed", "cancelled"))

    async def close(self) -> None:
        await self.runs.aclose()
        await self.spending.aclose()


async def endure(folder: Path, minutes: float, rate: float) -> bool:
    """Return whether the process has at the end what it had when it was warm, and no more."""
    load, began, warm = Load(folder), perf_counter(), None
    while (now := perf_counter()) < began + minutes * 60:
        made = await make(load, now + min(EVERY, minutes * 6), rate)
        took = perf_counter() - now
        await load.forget()
        counts = await Counts.now()
        if warm is None and perf_counter() - began >= WARM_UP * minutes * 60:
            warm = counts
        print(f"{os.getpid()}: {now - began:5.0f} s: {made / took:5.1f} runs/s, {counts}", flush=True)
    assert warm is not None
    counts = await Counts.settled(warm)
    await load.close()
    grown = counts.objects - warm.objects
    print(
        f"{os.getpid()}: {load.begun:,} runs, {load.cancelled:,} cancelled, {load.failed:,} failed\n"
        f"  when warm: {warm}\n  at the end: {counts}\n  more objects: {dict(grown) or 'none'}"
    )
    return counts.has_no_more_than(warm)


async def make(load: Load, until: float, rate: float) -> int:
    """Make runs at this rate, if the machine can, and return how many they were when all have ended."""
    room, first, made = asyncio.Semaphore(AT_ONCE), perf_counter(), 0

    async def one() -> None:
        try:
            await load.run()
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        while perf_counter() < until:
            await room.acquire()
            group.create_task(one())
            made += 1
            await asyncio.sleep(max(0.0, first + made / rate - perf_counter()))
    return made


async def briefly(folder: Path) -> bool:
    """The same after so many runs, whatever time they take."""
    load, warm = Load(folder), None
    for _ in range(2):
        for _ in range(FEW // AT_ONCE_OF_FEW):
            await load.at_once(AT_ONCE_OF_FEW)
        await load.forget()
        before, warm = warm, await (Counts.now() if warm is None else Counts.settled(warm))
    await load.close()
    assert before is not None
    assert warm is not None
    assert load.cancelled == load.failed == 2 * FEW // 6
    print(f"  when warm: {before}\n  at the end: {warm}\n  more objects: {warm.objects - before.objects}")
    return warm.has_no_more_than(before)


def main(minutes: float, rate: float, processes: int) -> bool:
    """Return whether no process has grown."""
    with tempfile.TemporaryDirectory() as folder:
        each = [sys.executable, __file__, str(minutes), str(rate / processes), "0", folder]
        started = [subprocess.Popen(each) for _ in range(processes)]
        codes = [process.wait() for process in started]
        return not any(codes)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [place]:
            sys.exit(not asyncio.run(briefly(Path(place))))
        case [minutes, rate, processes]:
            sys.exit(not main(float(minutes), float(rate), int(processes)))
        case [minutes, rate, _, place]:
            sys.exit(not asyncio.run(endure(Path(place), float(minutes), float(rate))))
