"""Runs of a pipeline and of a graph that do all that reaches a store, and a user who does not give up.

The user repeats each call that fails because the store is unavailable, and counts what the run
does meanwhile.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from support.agents import paid_agent
from support.stored_runs import entries_of

from fastroai import Inbox, Pipeline, RunHistory, StepContext, step
from fastroai.errors import QuestionClosed, RunExists, RunNotFound, RunStoreUnavailable
from fastroai.graphs import Edge, Graph
from fastroai.places import without_attempts
from fastroai.runtime.facts import AnyFact, OnceDone, StepFinished, WaitEnded
from fastroai.steps.context import scope_of
from fastroai.steps.durability import step_place

RUN_ID: Final = "order"
MOST_ROUNDS: Final = 12
"""How often a user goes on with a run that takes three rounds undisturbed."""


@dataclass
class World:
    """Counts what runs do outside of their record."""

    ran: Counter[str] = field(default_factory=Counter)
    """Executions of steps, by place; a step that halts for a person runs again."""
    asked: Counter[str] = field(default_factory=Counter)
    """Requests to models, by prompt."""
    effects: Counter[str] = field(default_factory=Counter)

    def step(self, does: Callable[[StepContext[Any]], Awaitable[object]]) -> Any:
        @step(retries=0)
        async def counted(ctx: StepContext[Any]) -> Any:
            self.ran[without_attempts(step_place(scope_of(ctx)))] += 1
            return await does(ctx)

        return counted

    def ask_model(self, prompt: str) -> Any:
        async def before(prompt: str) -> None:
            self.asked[prompt] += 1

        agent = paid_agent(before=before)

        async def ask(ctx: StepContext[Any]) -> object:
            return (await ctx.run(agent, f"{prompt} {ctx.visit}")).output

        return self.step(ask)

    def once(self, name: str) -> Any:
        async def effect() -> str:
            self.effects[name] += 1
            return f"{name} done"

        async def act(ctx: StepContext[Any]) -> object:
            return await ctx.once(name, effect)

        return self.step(act)

    def pipeline(self) -> Pipeline[Any, Any]:
        """Side by side a request, a side effect and a pipeline; then a person, a message and a sleep."""
        inner = Pipeline(
            "inner", {"ask": self.ask_model("inside"), "act": self.once("act")}, {"act": ["ask"]}
        )

        async def approve(ctx: StepContext[Any]) -> object:
            return await ctx.ask("Send it?", bool)

        async def wait(ctx: StepContext[Any]) -> object:
            return await ctx.receive("paid", int)

        async def close(ctx: StepContext[Any]) -> object:
            await ctx.sleep(0)
            return [ctx.get_dependency(name) for name in ("draft", "pay", "inner", "approve", "wait")]

        steps = {
            "draft": self.ask_model("draft"),
            "pay": self.once("pay"),
            "inner": inner.as_step(),
            "approve": self.step(approve),
            "wait": self.step(wait),
            "close": self.step(close),
        }
        needs = {"approve": ["draft", "pay"], "wait": ["approve"], "close": ["wait", "inner"]}
        return Pipeline("order", steps, needs, output_step="close")

    def graph(self) -> Graph[Any, Any]:
        """A loop, a fork with a side effect in each branch, a pause node, and a message behind it."""

        async def count(ctx: StepContext[Any]) -> object:
            ctx.write("more", ctx.visit < 2)
            return ctx.visit

        async def boss(ctx: StepContext[Any]) -> object:
            return "is that fine?"

        async def wait(ctx: StepContext[Any]) -> object:
            return await ctx.receive("paid", int)

        async def mend(ctx: StepContext[Any]) -> object:
            raise AssertionError("a store that fails is no failure of a node")

        nodes = {
            "count": self.step(count),
            "left": self.once("left"),
            "right": self.ask_model("right"),
            "more": self.once("more"),
            "boss": self.step(boss),
            "wait": self.step(wait),
            "mend": self.step(mend),
            "end": self.ask_model("end"),
        }
        edges = [Edge("count", "count", "conditional", "more")]
        edges += [Edge("count", "left", "always"), Edge("count", "right", "always")]
        edges += [Edge("right", "more"), Edge("left", "boss"), Edge("more", "boss"), Edge("boss", "wait")]
        edges += [Edge(name, "mend", "on_failure") for name in ("left", "right", "more", "wait")]
        edges += [Edge("wait", "end"), Edge("mend", "end")]
        return Graph("order", nodes=nodes, edges=edges, entry="count", pause_nodes=["boss"])


@dataclass(frozen=True)
class _Paused:
    """A run that a user finds, and that waits for answers."""

    questions: Sequence[Any]
    status: str = "paused"


class User:
    """Brings one run to its end, over a store that may be unavailable for a while."""

    def __init__(self, world: World, door: Any, store: Any) -> None:
        self.world = world
        self.door, self.store = door, store
        self.failures: list[RunStoreUnavailable] = []
        self.on_failure: Callable[[int], None] = lambda ran: None
        """Told after each failure how many steps had run in the call that failed."""
        self._next: Callable[[], Awaitable[Any]] = self._begin
        self._has_sent = False

    async def bring_to_an_end(self) -> Any:
        """Begin the run, answer and send what it waits for, and return its result.

        Called again after it was cancelled, it goes on with what it was about to do.
        """
        for _ in range(MOST_ROUNDS):
            if (result := await self._patiently(self._next)) is None:
                self._next = self._go_on
            elif result.status != "paused":
                return result
            elif result.questions:
                self._next = functools.partial(self._answer, result.questions[0])
            else:
                self._next = self._go_on if self._has_sent else self._send
        raise AssertionError("the run does not end")

    async def _patiently(self, act: Callable[[], Awaitable[Any]]) -> Any:
        for _ in range(MOST_ROUNDS):
            before = self.world.ran.total()
            try:
                return await act()
            except RunStoreUnavailable as error:
                self.failures.append(error)
                self.on_failure(self.world.ran.total() - before)
        raise AssertionError("the store never works again")

    async def _begin(self) -> Any:
        try:
            return await self.door.run(run_id=RUN_ID, store=self.store)
        except RunExists:
            if questions := await Inbox(self.store).list(run_id=RUN_ID):
                return _Paused(questions)
            return await self._go_on()

    async def _go_on(self) -> Any:
        try:
            return await self.door.resume(RUN_ID, store=self.store)
        except RunNotFound:
            return await self.door.run(run_id=RUN_ID, store=self.store)

    async def _answer(self, question: Any) -> None:
        """An answer that was given although the store did not say so is on record."""
        answer = True if question.answer_schema == {"type": "boolean"} else "yes"
        with suppress(QuestionClosed):
            await Inbox(self.store).answer(question.id, answer)

    async def _send(self) -> None:
        self._has_sent = True
        await self.door.send(RUN_ID, "paid", 120, store=self.store)


@dataclass
class Told:
    """What a run came to, and what it did on its way."""

    output: object
    status: str
    ran: Counter[str]
    asked: Counter[str]
    effects: Counter[str]
    facts: Counter[str]
    """How many entries of each kind are on record that no mishap may add to or take from."""
    listed: list[tuple[str, str]]


ONCE_ON_RECORD: Final = (StepFinished, OnceDone, WaitEnded)


async def told(world: World, door: Any, result: Any, store: Any) -> Told:
    """What is on record at the end, read over a store that works."""
    assert result.trace.replay(door) is None
    did = world.ran.total(), world.asked.total(), world.effects.total()
    again = await door.resume(RUN_ID, store=store)  # its header may not have known of its end
    assert (again.output, again.status) == (result.output, result.status)
    assert did == (world.ran.total(), world.asked.total(), world.effects.total())
    entries: list[AnyFact] = await entries_of(store, RUN_ID)
    assert [*(await RunHistory(store).trace(RUN_ID)).entries] == entries
    assert not await Inbox(store).list()
    facts = Counter(f"{entry.kind} {entry.place}" for entry in entries if isinstance(entry, ONCE_ON_RECORD))
    runs = await RunHistory(store).list()
    return Told(
        result.output,
        result.status,
        world.ran,
        world.asked,
        world.effects,
        facts,
        [(run.run_id, run.status) for run in runs],
    )
