"""A process whose clock jumps by hours, in the middle of what it does. It ends with an error if that shows.

It is told the hours, a SQLite file of runs, another of spending, and the URL and the prefix of a Redis.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from time import time
from typing import Any, Final

from fastroai import Budget, Inbox, Pipeline, PipelineConfig, SpendLimit, StepContext, budget_scope, step
from fastroai.errors import SpendLimitExceeded, StepExecutionError, TimeLimitExceeded
from fastroai.store import RedisRunStore, RunHistory, SQLiteRunStore, SQLiteSpendStore
from fastroai.store.record.headers import header_key, read_header

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.agents import paid_agent

HOUR: Final = 3600
HELD: Final = "held"
"""The run that other processes try to take."""
LEASE: Final = 3.0
Act = Callable[[StepContext[Any]], Awaitable[object]]


def set_clock(hours: int, seconds: int = 0) -> None:
    """So far ahead of the machine's clock is that of this process, from now on."""
    ahead = hours * HOUR + seconds
    with open(os.environ["CLOCK_OFFSET"], "r+b") as file:
        (before,) = struct.unpack("=q", file.read())
        started = time()
        file.seek(0)
        file.write(struct.pack("=q", ahead))
    assert abs(time() - started - ahead + before) < HOUR, "the clock was not set"


def one(act: Act, name: str = "p", *, timeout: float | None = None, **options: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step."""

    @step(timeout=timeout)
    async def work(ctx: StepContext[Any]) -> Any:
        return await act(ctx)

    return Pipeline(name, {"work": work}, config=PipelineConfig(**options))


async def keeps_its_lease(hours: int, store: SQLiteRunStore) -> None:
    """While another process looks, which the process that started this one does when it reads a line."""

    async def hold(ctx: StepContext[Any]) -> str:
        set_clock(hours)
        revision = (await store.read(header_key(HELD))).revision
        for _ in range(4):  # which takes longer than the lease
            while (found := await store.read(header_key(HELD))).revision == revision:
                await asyncio.sleep(LEASE / 100)
            revision = found.revision
        print("look", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return await ctx.once("pay", lambda: "paid")

    pipeline = one(hold, store=store, lease=LEASE, timeout=HOUR, total_timeout=HOUR)
    assert (await pipeline.execute(run_id=HELD)).output == "paid"
    set_clock(0)


async def keeps_its_time_limits(hours: int) -> None:
    async def jump(ctx: StepContext[Any]) -> str:
        set_clock(hours)
        await asyncio.sleep(0.01)
        return "in time"

    async def jump_and_hang(ctx: StepContext[Any]) -> None:
        set_clock(hours)
        await asyncio.Event().wait()

    slow = one(jump, timeout=60, total_timeout=60, budget=Budget(ms=60_000))
    assert (await slow.execute()).output == "in time"
    set_clock(0)
    for limits in ({"timeout": 0.1}, {"total_timeout": 0.1}):
        try:
            await one(jump_and_hang, **limits).execute()
        except (StepExecutionError, TimeLimitExceeded):
            set_clock(0)
        else:
            raise AssertionError("it went on")


async def waits_by_the_clock_of_its_store(hours: int, store: RedisRunStore) -> None:
    """The server has the right time, and the process has not."""

    async def sleep(ctx: StepContext[Any]) -> str:
        await ctx.sleep(HOUR)
        return "awake"

    async def nap(ctx: StepContext[Any]) -> str:
        await asyncio.gather(ctx.sleep(0.02), asyncio.to_thread(set_clock, -hours))
        return "awake"

    async def ask(ctx: StepContext[Any]) -> bool:
        return await ctx.ask("Send it?", bool, timeout=HOUR)

    async def receive(ctx: StepContext[Any]) -> int:
        return await ctx.receive("paid", int, timeout=HOUR)

    set_clock(hours)
    sleeper, asker, receiver = one(sleep, "sleep"), one(ask, "ask"), one(receive, "receive")
    for door in (sleeper, asker, receiver):
        assert (await door.execute(run_id=door.name, store=store)).status == "paused"
        found = await read_header(store, door.name)
        assert found.header.due_at is not None
        left = found.header.due_at - found.now
        assert timedelta(minutes=55) < left < timedelta(minutes=65), f"{door.name}: {left} left of an hour"
        assert abs(found.now - found.header.updated_at) < timedelta(minutes=5)
        assert not await door.wake(store=store), f"{door.name} is not due"
    assert (await sleeper.resume("sleep", store=store)).status == "paused"
    (question,) = await Inbox(store).list()
    await Inbox(store).answer(question.id, True)
    assert [run.output for run in (await asker.wake(store=store)).values()] == [True]  # type: ignore[union-attr]
    await receiver.send("receive", "paid", 120, store=store)
    assert [run.output for run in (await receiver.wake(store=store)).values()] == [120]  # type: ignore[union-attr]
    assert (await one(nap, "nap").execute(run_id="nap", store=store)).output == "awake"
    set_clock(0)
    assert {run.status for run in await RunHistory(store).list()} == {"finished", "paused"}


async def keeps_its_spend_limits(hours: int, store: SQLiteSpendStore) -> None:
    """A later window has its own amount. One that the clock goes back to has been used up."""
    agent, limit = paid_agent(100), SpendLimit(microcents=150, window="hour", store=store)
    to_half_past = HOUR // 2 - int(time()) % HOUR  # so that no hour ends meanwhile

    async def is_refused() -> bool:
        try:
            async with budget_scope(limit):
                await agent.run("spend")
        except SpendLimitExceeded:
            return True
        return False

    set_clock(0, to_half_past)
    assert [await is_refused() for _ in range(2)] == [False, True]
    set_clock(hours, to_half_past)
    assert [await is_refused() for _ in range(2)] == [hours < 0, True]
    set_clock(0, to_half_past)
    assert await is_refused()


async def main(hours: int, runs: str, spending: str, url: str, prefix: str) -> None:
    set_clock(0)
    in_file, on_server = SQLiteRunStore(runs), RedisRunStore(url, prefix=prefix)
    await keeps_its_time_limits(hours)
    await waits_by_the_clock_of_its_store(hours, on_server)
    await keeps_its_spend_limits(hours, SQLiteSpendStore(spending))
    await keeps_its_lease(hours, in_file)
    await in_file.aclose()
    await on_server.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
