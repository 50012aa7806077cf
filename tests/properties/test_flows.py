"""Random flows that are killed at any write and resumed: the same result and cost, and nothing paid twice."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import paid_agent
from support.examples import examples
from support.flow_functions import asking, computing, function_of
from support.interruptions import RUN, DyingStore
from support.stored_runs import entries_of
from support.virtual_time import VirtualTimeLoop

from fastroai import StepContext, flow
from fastroai.errors import RunNotFound, RunStoreUnavailable
from fastroai.functions import parallel, race
from fastroai.functions.errors import FlowDiverged
from fastroai.runtime.facts import AnyFact, CallEnded, RequestEnded, RequestSent, StepFinished
from fastroai.store import MemoryRunStore, RunHistory

Body = list[list[Any]]
"""What a body does: a list of operations, each with its name first."""

WORDS = st.sampled_from(["a", "b", "c"])
CALLS = st.tuples(st.sampled_from(["ask", "compute", "fail"]), WORDS, st.booleans()).map(list)


def bodies(depth: int = 2) -> st.SearchStrategy[Body]:
    if not depth:
        return st.lists(CALLS, max_size=3)
    inner = bodies(depth - 1)
    together = st.lists(inner, min_size=2, max_size=3).map(lambda branches: ["together", branches])
    nested = inner.map(lambda body: ["flow", body])
    return st.lists(CALLS | together | nested, max_size=4)


@dataclass
class World:
    """One process after the other makes the same flow, each with delays of its own."""

    asked: Counter[str]
    delays: random.Random

    def __init__(self) -> None:
        self.asked = Counter()
        self.delays = random.Random(0)
        ask = asking("ask", paid_agent(7, before=self._before))
        compute = computing("compute", lambda text: f"<{text}>")
        agent = paid_agent(3, answer=lambda prompt: f"no {prompt}", before=self._before)

        async def refuse(context: StepContext[Any], text: str) -> str:
            raise LookupError((await context.run(agent, text, name="attempt 1")).output)

        fail = function_of("fail", "infer", refuse)

        async def failing(text: str) -> str:
            try:
                return await fail(text)
            except LookupError as error:
                return str(error)

        self.functions = {"ask": ask, "compute": compute, "fail": failing}

    async def _before(self, prompt: str) -> None:
        self.asked[prompt] += 1
        await asyncio.sleep(self.delays.random())

    async def play(self, body: Body, text: str) -> str:
        for operation, *rest in body:
            if operation == "together":
                branches = [self._later(one, f"{text}{number}") for number, one in enumerate(rest[0])]
                text = "+".join(await asyncio.gather(*branches))
            elif operation == "flow":
                text = await inner(json.dumps(rest[0]), text)
            else:
                word, depends = rest
                given = f"{word}({text})" if depends else word
                text = f"{text[:20]}{await self.functions[operation](given)}"[-60:]
        return text

    async def _later(self, body: Body, text: str) -> str:
        await asyncio.sleep(self.delays.random())
        return await self.play(body, text)


world: World


@flow
async def inner(body: str, text: str) -> str:
    return await world.play(json.loads(body), text)


@flow
async def outer(body: str) -> str:
    return await world.play(json.loads(body), "x")


def at_write(number: int) -> Any:
    """At the write of this number, from 1, to the log."""
    count = 0

    def when(entries: Any) -> bool:
        nonlocal count
        count += 1
        return count >= number

    return when


async def finish(one: World, body: Body, kills: list[tuple[int, bool]], store: MemoryRunStore) -> str:
    """Run a flow to its end, in a process for each kill and one more."""
    global world
    world = one
    text = json.dumps(body)
    for number, (write, written) in enumerate(kills):
        world.delays = random.Random(number)
        dying = DyingStore(store, at_write(write), written=written)
        with suppress(RunStoreUnavailable, OSError):
            return await begin_or_resume(text, dying)
    world.delays = random.Random(99)
    return await begin_or_resume(text, store)


async def begin_or_resume(text: str, store: Any) -> str:
    try:
        return await outer.resume(RUN, store=store)
    except RunNotFound:
        return await outer.run(text, run_id=RUN, store=store)


def lost(entries: list[AnyFact]) -> int:
    """Requests that were sent and whose end is not on record."""
    ended = {one.id for one in entries if isinstance(one, RequestEnded)}
    return sum(isinstance(one, RequestSent) and one.id not in ended for one in entries)


def run(test: Any) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test)


@settings(max_examples=examples(17))
@given(bodies(), st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4))
def test_flows_that_are_killed_and_resumed_give_the_same_at_the_same_cost(
    body: Body, kills: list[tuple[int, bool]]
) -> None:
    async def check() -> None:
        calm, killed = World(), World()
        calm_store, store = MemoryRunStore(), MemoryRunStore()
        expected = await finish(calm, body, [], calm_store)
        assert await finish(killed, body, kills, store) == expected
        entries = await entries_of(store, RUN)
        assert killed.asked.total() <= calm.asked.total() + lost(entries)
        before, after = await RunHistory(calm_store).trace(RUN), await RunHistory(store).trace(RUN)
        assert after.usage.cost_usd == before.usage.cost_usd
        made = Counter((one.function, str(one.inputs), one.output) for one in after.calls)
        assert made == Counter((one.function, str(one.inputs), one.output) for one in before.calls)
        assert sum((one.cost_usd for one in after.calls), Decimal(0)) == before.usage.cost_usd

    run(check())


@settings(max_examples=examples(17))
@given(st.lists(CALLS, min_size=1, max_size=5), st.data())
def test_a_flow_with_changed_inputs_diverges_before_anything_is_sent(body: Body, data: st.DataObject) -> None:
    async def check() -> None:
        global world
        world, store = World(), MemoryRunStore()
        write = at_write(data.draw(st.integers(1, 20)))
        with suppress(RunStoreUnavailable, OSError):
            await outer.run(json.dumps(body), run_id=RUN, store=DyingStore(store, write))
        entries = await entries_of(store, RUN)
        ended = sum(isinstance(one, CallEnded) for one in entries)
        if not ended or any(isinstance(one, StepFinished) for one in entries):
            return
        body[data.draw(st.integers(0, ended - 1))][1] += "!"
        world.asked.clear()
        with pytest.raises(FlowDiverged):
            await outer.resume(RUN, inputs={"body": json.dumps(body)}, store=store)
        assert world.asked.total() == 0

    run(check())


CALLS_OF_BRANCH = st.lists(st.sampled_from(["ask", "compute"]), min_size=1, max_size=3)
BRANCHES = st.lists(CALLS_OF_BRANCH, min_size=2, max_size=3)
RACES = st.lists(st.tuples(st.sampled_from(["race", "two", "together"]), BRANCHES), min_size=1, max_size=3)


@flow
async def racing(body: str) -> str:
    text = ""

    async def branch(name: str, functions: list[str]) -> str:
        for number, function in enumerate(functions):
            await world.functions[function](f"{name}.{number}")
        return name

    for number, (operation, branches) in enumerate(json.loads(body)):
        members = [branch(f"{number}.{index}", one) for index, one in enumerate(branches)]
        if operation == "race":
            come = [await race(*members)]
        else:
            come = await parallel(*members, require="all" if operation == "together" else 2)
        text += await world.functions["ask"](f"{number} {'+'.join(come)}")
    return text


def answered(entries: list[AnyFact]) -> set[str]:
    """What models were asked whose answers are on record."""
    responses = [one.response for one in entries if isinstance(one, RequestEnded)]
    parts = [part for one in responses if one is not None for part in one["parts"]]
    return {part["content"].removeprefix("answer to ") for part in parts}


@settings(max_examples=examples(17))
@given(RACES, st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4))
def test_what_came_first_comes_first_again_and_no_answer_is_paid_twice(
    body: list[tuple[str, list[list[str]]]], kills: list[tuple[int, bool]]
) -> None:
    async def check() -> None:
        global world
        world, store = World(), MemoryRunStore()
        for number, (write, written) in enumerate([*kills, (10_000, False)]):
            world.delays, is_over = random.Random(number), False
            known = answered(await entries_of(store, RUN))
            world.asked.clear()
            dying = DyingStore(store, at_write(write), written=written)
            with suppress(RunStoreUnavailable, OSError):
                try:
                    await racing.resume(RUN, store=dying)
                except RunNotFound:
                    await racing.run(json.dumps(body), run_id=RUN, store=dying)
                is_over = True
            assert not known & world.asked.keys(), "an answer on record was asked for again"
            if is_over:
                break
        state = await RunHistory(store).state(RUN)
        assert state.status == "finished"

    run(check())
