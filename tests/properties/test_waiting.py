"""Random graphs that send, sleep, receive and ask, whose processes die at random writes, and their forks.

However a run gets there, it comes to the same output; each message and each side effect counts once; its
record replays; and once it has ended, it is not due.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.faulty_store import FaultyStore, Write, gone

from fastroai import Edge, Graph, Inbox, RunHistory, StepContext, send_message, step
from fastroai.errors import (
    ConfigurationError,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    RunStoreUnavailable,
    RunTakenOver,
)
from fastroai.graphs import Send
from fastroai.human import waiting
from fastroai.store import MemoryRunStore, RunStore
from fastroai.store.record.headers import read_header

COMES_TO = {"plain": 0, "sleep": 0, "late": 0, "receive": 100, "ask": 10_000, "both": 10_100}
"""By what a node waits for: what it adds to its number."""
MOST_DEATHS, MOST_TURNS = 2, 500

Start = Callable[[RunStore], Awaitable[Any]]


@dataclass
class World:
    """A graph, and what its nodes have done."""

    kinds: tuple[str, ...]
    pauses: bool
    random: Random
    effects: Counter[tuple[str, int]] = field(default_factory=Counter)
    store: MemoryRunStore = field(default_factory=MemoryRunStore)
    deaths: int = 0

    def graph(self) -> Graph[Any, Any, Any]:
        @step
        async def split(ctx: StepContext) -> list[Send]:
            return [Send("work", {"number": at, "kind": kind}) for at, kind in enumerate(self.kinds)]

        @step
        async def work(ctx: StepContext) -> int:
            number, kind = ctx.get_input("number", int), ctx.get_input("kind", str)
            await ctx.once("effect", lambda: self.effects.update([(ctx.run_id, number)]))
            if kind == "sleep":
                await ctx.sleep(0.01)
            if kind == "late":
                return number + await ctx.receive("never", int, timeout=0.01, on_timeout=0)
            if kind in ("receive", "both"):
                number += 100 * await ctx.receive("one", int)
            if kind in ("ask", "both"):
                number += 10_000 * await ctx.ask(f"How many for {number}?", int)
            return number

        @step
        async def total(ctx: StepContext) -> int:
            await ctx.sleep(0.005)
            return sum(ctx.get_input("work", None) or [])

        @step
        async def approve(ctx: StepContext) -> str:
            return "ready?"

        nodes = {"split": split, "work": work, "total": total}
        edges = [Edge("split", "work", "send"), Edge("work", "total")]
        if self.pauses:
            nodes["approve"] = approve
            edges.append(Edge("total", "approve"))
        pause_nodes = ["approve"] if self.pauses else []
        return Graph("g", nodes=nodes, edges=edges, reducers={"work": "append"}, pause_nodes=pause_nodes)

    def mortal(self) -> RunStore:
        """The store, as a process sees it that may die at a write."""
        if self.deaths >= MOST_DEATHS or self.random.random() > 0.3:
            return self.store
        last, after = self.random.randint(1, 14), self.random.random() < 0.5
        store = FaultyStore(self.store)

        def die(write: Write) -> None:
            if write.number >= last:
                self.deaths += write.number == last
                raise gone()

        store.before, store.after = (None, die) if after else (die, None)
        return store

    async def drive(self, run_id: str, start: Start) -> Any:
        """Go on with a run, in one way or another, until it has finished."""
        desk = self.graph()
        for _ in range(MOST_TURNS):
            store = self.mortal()
            try:
                status = (await read_header(self.store, run_id)).header.status
                if status == "finished":
                    return await desk.resume(run_id, store=self.store)
                await self._take_turn(desk, run_id, store)
            except RunNotFound:
                with suppress(RunStoreUnavailable):
                    await start(store)
            except (RunStoreUnavailable, RunTakenOver, RunInProgress):
                pass  # this process has died
            await asyncio.sleep(0.002)
        raise AssertionError(f"run {run_id!r} does not end: {(await read_header(self.store, run_id)).header}")

    async def _take_turn(self, desk: Graph[Any, Any, Any], run_id: str, store: RunStore) -> None:
        match self.random.choice(("wake", "recover", "resume", "pause", "send", "answer")):
            case "wake":
                await desk.wake(store=store)
            case "recover":
                await desk.recover(store=store)
            case "resume" | "pause" as what:
                resuming = asyncio.ensure_future(desk.resume(run_id, store=store))
                for _ in range(self.random.randint(0, 20) if what == "pause" else 0):
                    await asyncio.sleep(0)
                with suppress(ConfigurationError, RunNotFound, RunStatusConflict):
                    if what == "pause":
                        await desk.pause(run_id, store=self.store)
                with suppress(ConfigurationError):  # it waits for the answer that a pause node asks for
                    await resuming
            case "send":
                header = (await read_header(self.store, run_id)).header
                if "one" in (name for _, name in header.receives):
                    await send_message(run_id, "one", 1, store=store)
            case "answer":
                asked = [one for one in await Inbox(self.store).list() if one.run_id == run_id]
                for one in asked[:1]:
                    await Inbox(store).answer(one.id, "yes" if one.question == "ready?" else 1)

    async def check(self, run_id: str, result: Any) -> None:
        output = result.outputs["total"] if self.kinds else 0
        assert output == sum(at + COMES_TO[kind] for at, kind in enumerate(self.kinds))
        assert result.trace.replay(self.graph()) is None
        assert run_id not in [run.run_id for run in await RunHistory(self.store).due("g")]
        taken = [fact.number for fact in result.trace.entries if getattr(fact, "number", 0)]
        assert len(taken) == len(set(taken)), "a message was received twice"
        if not self.deaths:
            assert all(number == 1 for number in self.effects.values())


@settings(max_examples=examples(8))
@given(
    kinds=st.lists(st.sampled_from(sorted(COMES_TO)), min_size=1, max_size=4),
    pauses=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_runs_that_wait_come_to_the_same_end_whatever_happens(
    kinds: list[str], pauses: bool, seed: int
) -> None:
    async def live() -> None:
        world = World(tuple(kinds), pauses, Random(seed))
        result = await world.drive("r", lambda store: world.graph().run(run_id="r", store=store))
        await world.check("r", result)
        node = world.random.choice([node for node, count in result.visits.items() if count])
        at = f"{node}#{world.random.randint(1, result.visits[node])}"
        fork = await world.drive(
            "f", lambda store: world.graph().fork("r", at=at, new_run_id="f", store=store)
        )
        await world.check("f", fork)

    with patch.object(waiting, "SHORT_SLEEP", 0.0):
        asyncio.run(live())
