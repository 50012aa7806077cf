"""Runs on record against a reference that knows nothing of FastroAI, and values through every store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.examples import examples
from support.faulty_store import FaultyStore, Write, gone
from support.leftovers import assert_no_task_is_left
from support.reference import Plan, interpret, interpret_once, output_of, parts_needed
from support.run_stores import KINDS, run_stores
from support.virtual_time import VirtualTimeLoop

from fastroai.errors import FastroAIError, RunNotFound
from fastroai.pipelines import Pipeline, PipelineConfig, PipelineResult, StepConfig, StepContext, step
from fastroai.runtime.facts import StepFinished
from fastroai.store.record.entries import (
    entry_in_store,
    entry_to_store,
)
from fastroai.store.record.values import value_from_json, value_to_json

# --- runs ---


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    names = [f"s{number}" for number in range(draw(st.integers(1, 8)))]
    needs = {
        name: tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=3)))
        if number
        else ()
        for number, name in enumerate(names)
    }
    few = st.sampled_from([0, 0, 0, 1, 2])
    return Plan(
        needs=needs,
        failures={name: draw(few) for name in names},
        retries={name: draw(few) for name in names},
        exempt=frozenset(draw(st.sets(st.sampled_from(names)))),
    )


@dataclass
class Interruptions:
    """At which writes of each part the store is gone, before or after; and when the run is cancelled."""

    gone_at: list[int | None]
    after: bool
    cancelled_at: list[int | None]


def interruptions() -> st.SearchStrategy[Interruptions]:
    moments = st.lists(st.none() | st.integers(1, 12), max_size=3)
    return st.builds(Interruptions, gone_at=moments, after=st.booleans(), cancelled_at=moments)


class World:
    """The steps of a plan, which keep count over all parts of a run."""

    def __init__(self, plan: Plan, durability: str, concurrency: int | None) -> None:
        self.plan, self.left = plan, dict(plan.failures)
        self.succeeded: Counter[str] = Counter()
        self.store = FaultyStore()
        self.pipeline: Pipeline[Any, Any] = Pipeline(
            "p",
            {name: self._step(name) for name in plan.needs},
            plan.needs,
            output_step=list(plan.needs)[-1],
            config=PipelineConfig(durability=durability, max_concurrency=concurrency, retry_delay=0),  # type: ignore[arg-type]
            step_configs={
                name: StepConfig(
                    retries=plan.retries[name], on_error="continue" if name in plan.exempt else "fail"
                )
                for name in plan.needs
            },
        )

    def _step(self, name: str) -> Any:
        async def work(ctx: StepContext[Any]) -> Any:
            await asyncio.sleep(1)
            if self.left[name]:
                self.left[name] -= 1
                raise ValueError(name)
            self.succeeded[name] += 1
            return output_of(name, [ctx.get_dependency(need) for need in self.plan.needs[name]])

        return step(work)

    async def part(
        self, gone_at: int | None, after: bool, cancelled_at: int | None
    ) -> PipelineResult[Any] | None:
        """Begin the run or take it up, with the store gone or the run cancelled at some write."""
        running: asyncio.Task[PipelineResult[Any]] | None = None
        first = len(self.store.writes)

        def interrupt(write: Write) -> None:
            number = write.number - first
            if gone_at is not None and number >= gone_at:
                raise gone()
            if cancelled_at is not None and number == cancelled_at and running is not None:
                running.cancel()

        self.store.before, self.store.after = (None, interrupt) if after else (interrupt, None)
        running = asyncio.create_task(self._go())
        with suppress(FastroAIError, asyncio.CancelledError):
            return await running
        return None

    async def _go(self) -> PipelineResult[Any]:
        try:
            return await self.pipeline.resume("r", store=self.store)
        except RunNotFound:
            return await self.pipeline.execute(run_id="r", store=self.store)


@given(
    plan=plans(),
    stops=interruptions(),
    durability=st.sampled_from(["sync", "async"]),
    concurrency=st.none() | st.integers(1, 3),
)
@settings(max_examples=examples(15))
def test_a_run_that_is_interrupted_comes_to_what_it_would_have_come_to(
    plan: Plan, stops: Interruptions, durability: str, concurrency: int | None
) -> None:
    async def check() -> None:
        world = World(plan, durability, concurrency)
        result: PipelineResult[Any] | None = None
        for index in range(3):
            gone_at, cancelled_at = (
                moments[index] if index < len(moments) else None
                for moments in (stops.gone_at, stops.cancelled_at)
            )
            await world.part(gone_at, stops.after, cancelled_at)
            assert_no_task_is_left()
        for _ in range(parts_needed(plan) + 3):
            result = await world.part(None, False, None)
            if result is not None and result.ok:
                break
        final = interpret(plan)
        assert result is not None
        assert (dict(result.step_outputs), set(result.errors), set(result.skipped)) == (
            final.outputs,
            final.failed,
            final.skipped,
        )
        assert result.trace.replay(world.pipeline) is None
        kept = [entry.place for entry in result.trace.entries if isinstance(entry, StepFinished)]
        assert sorted(kept) == sorted(plan.needs), "each step has succeeded once, as far as anybody was told"
        if not any(stops.gone_at) and not any(stops.cancelled_at):
            assert world.succeeded == Counter(list(plan.needs))

    _run(check())


@given(plan=plans(), concurrency=st.none() | st.integers(1, 3))
@settings(max_examples=examples(15))
def test_a_run_that_is_not_interrupted_does_what_the_reference_does(
    plan: Plan, concurrency: int | None
) -> None:
    plan = Plan(plan.needs, plan.failures, plan.retries, frozenset(plan.needs))

    async def check() -> None:
        world = World(plan, "sync", concurrency)
        result = await world.part(None, False, None)
        assert result is not None
        final = interpret_once(plan)
        assert (dict(result.step_outputs), set(result.errors), set(result.skipped)) == (
            final.outputs,
            final.failed,
            final.skipped,
        )
        assert world.succeeded == Counter(list(final.outputs))
        entries = [entry for entry in result.trace.entries if isinstance(entry, StepFinished)]
        assert {entry.place: entry.output for entry in entries} == final.outputs

    _run(check())


def _run(check: Any) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(check)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stores that fail are what this is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# --- values ---


class Colour(Enum):
    RED = "red"
    NONE = 0


class Item(BaseModel):
    name: str
    price: Decimal
    colour: Colour | None = None


@dataclass
class Cart:
    items: list[Item]
    at: datetime
    notes: dict[str, tuple[int, ...]]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PRICES = st.decimals(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes()
ITEMS = st.builds(Item, name=TEXT, price=PRICES, colour=st.none() | st.sampled_from(Colour))
TYPED: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    JSON.map(lambda value: (value, None)),
    ITEMS.map(lambda value: (value, Item)),
    st.builds(
        Cart,
        items=st.lists(ITEMS, max_size=2),
        at=MOMENTS,
        notes=st.dictionaries(TEXT, st.lists(st.integers(), max_size=2).map(tuple), max_size=2),
    ).map(lambda value: (value, Cart)),
    PRICES.map(lambda value: (value, Decimal)),
    MOMENTS.map(lambda value: (value, datetime)),
    st.dates().map(lambda value: (value, date)),
    st.times().map(lambda value: (value, time)),
    st.timedeltas().map(lambda value: (value, timedelta)),
    st.uuids().map(lambda value: (value, UUID)),
    st.floats().map(lambda value: (value, float)),
    TEXT.map(lambda value: (value.encode(), bytes)),
    st.tuples(st.integers(), TEXT).map(lambda value: (value, tuple[int, str])),
    st.sets(st.integers()).map(lambda value: (value, set[int])),
    st.dictionaries(st.integers(), st.booleans(), max_size=3).map(lambda value: (value, dict[int, bool])),
    (st.integers() | TEXT).map(lambda value: (value, int | str)),
)


@pytest.mark.parametrize("kind", KINDS)
def test_any_value_comes_back_from_every_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as open_store, asyncio.Runner() as runner:
        store, keys = open_store(), iter(range(10**9))

        @given(values=st.lists(TYPED, min_size=1, max_size=4))
        @settings(max_examples=examples(30 if kind in ("memory", "sqlite") else 8))
        def check(values: list[tuple[Any, Any]]) -> None:
            runner.run(_round_trip(store, f"k{next(keys)}", values))

        check()
        if kind != "memory":
            runner.run(store.aclose())


async def _round_trip(store: Any, key: str, values: list[tuple[Any, Any]]) -> None:
    entries = [StepFinished("s", value_to_json(value, declared, "it")) for value, declared in values]
    await store.append(key, [entry_to_store(entry) for entry in entries], revision=0)
    found = await store.read(key)
    for (value, declared), stored in zip(values, found.values, strict=True):
        entry = entry_in_store("r", 1, stored)
        assert isinstance(entry, StepFinished)
        back = value_from_json(entry.output, declared)
        assert type(back) is type(value)
        assert back == value or repr(back) == repr(value)  # NaN is not equal to itself
