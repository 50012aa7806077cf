"""Spending by time: every request counts once, at its time, and only the runs of the period are read."""

from __future__ import annotations

import asyncio
import decimal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.counting_store import Counting
from support.faulty_store import FaultyStore, Write, gone
from support.run_logs import START, Log, definition, record
from support.run_stores import run_stores
from support.stored_runs import begin, header_of, replace_log, take_up

from fastroai import Pipeline, StepContext, step
from fastroai.errors import ConfigurationError, RunCorrupt, RunStoreUnavailable
from fastroai.records import Usage, exact_sum
from fastroai.runtime.facts import RunFinished, RunResumed, SpendingRecorded
from fastroai.store import MemoryRunStore, RunHistory, SpendingRow
from fastroai.store.reading.index import index_keys
from fastroai.store.record.headers import read_log

SHAPE = definition({"a": []})
DAY = timedelta(days=1)


@pytest.fixture(params=("memory", "sqlite"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


def log(run_id: str, start: datetime = START, **options: Any) -> Log:
    return Log(SHAPE, run_id=run_id, start=start, **options).start("a")


def later(run: Log, days: float) -> Log:
    """The run is resumed so many days later."""
    return run.add(RunResumed(), days * 86_400)


def shown(row: SpendingRow) -> tuple[object, ...]:
    fields = (row.day, row.pipeline, row.model, row.tenant, row.tag)
    return *(field for field in fields if field is not None), str(row.usage.cost_usd)


async def rows(store: Any, **options: Any) -> list[tuple[object, ...]]:
    return [shown(row) for row in await RunHistory(store).spending(**options)]


async def test_requests_and_other_spending_count_on_the_day_on_which_they_happened(store: Any) -> None:
    resumed = later(log("r1").request("a@1", "0.001"), 20).request("a@1", "0.002").spend("a@1", "0.5").end()
    await resumed.write(store, tags=("eu", "vip"), tenant="acme")
    await log("r2", START + DAY, pipeline="mail").request("a@1", None).end().write(store)

    march_1, march_2, march_21 = date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 21)
    assert await rows(store) == [(march_1, "0.001"), (march_2, "0"), (march_21, "0.502")]
    assert await rows(store, by=()) == [("0.503",)]
    assert await rows(store, by=("pipeline", "model")) == [
        ("desk", "openai:gpt-5-mini", "0.003"),
        ("desk", "openai:search-engine", "0.5"),
        ("mail", "openai:gpt-5-mini", "0"),
    ]
    assert await rows(store, by=("tenant",)) == [("0",), ("acme", "0.503")]
    assert await rows(store, by=("tag", "day"), since=START + 2 * DAY) == [
        (march_21, "eu", "0.502"),
        (march_21, "vip", "0.502"),
    ]
    one, two, three = await RunHistory(store).spending()
    assert (one.usage.request_count, one.usage.input_tokens, one.usage.output_tokens) == (1, 10, 2)
    assert [row.usage.cost_complete for row in (one, two, three)] == [True, False, True]
    assert two.usage.uncertain_usd == Decimal("0.05")


async def test_a_period_begins_with_its_first_moment_and_ends_before_its_last(store: Any) -> None:
    await log("r").request("a@1", "1").request("a@1", "2").end().write(store)
    first, second = START + timedelta(seconds=0.1), START + timedelta(seconds=0.6)
    assert await rows(store, since=first, until=second) == [(date(2026, 3, 1), "1")]
    assert await rows(store, since=second) == [(date(2026, 3, 1), "2")]
    assert await rows(store, until=first) == await rows(store, since=first, until=first) == []
    elsewhere = second.astimezone(timezone(timedelta(hours=14)))
    assert await rows(store, since=elsewhere) == [(date(2026, 3, 1), "2")]
    longest = {"since": datetime.min.replace(tzinfo=UTC), "until": datetime.max.replace(tzinfo=UTC)}
    assert await rows(store, **longest) == [(date(2026, 3, 1), "3")]


async def test_a_deleted_run_does_not_count(store: Any) -> None:
    await later(log("r").request("a@1", "1"), 3).request("a@1", "2").end().write(store)
    await RunHistory(store).delete("r")
    assert await rows(store) == []
    assert await store.list("") == []


async def test_the_index_by_day_is_rebuilt_from_the_runs() -> None:
    store = MemoryRunStore()
    header = await later(log("r"), 30).request("a@1", "2").end().write(store)
    for key in index_keys(header):
        await store.delete(key)
    assert await rows(store, since=START + DAY) == []
    await RunHistory(store).rebuild_indexes()
    assert await rows(store, since=START + DAY) == [(date(2026, 3, 31), "2")]


async def test_only_the_runs_that_a_process_had_in_the_period_are_read() -> None:
    store = Counting()
    for number in range(300):
        run = log(f"r{number}", START + number * DAY).request("a@1", "1")
        await (later(run, 250) if number == 3 else run).request("a@1", "10").end().write(store)
    store.reads.clear()
    since = START.replace(hour=0) + 253 * DAY
    assert await rows(store, since=since, until=since + DAY, by=()) == [("21",)]
    # The time is asked for; and a run is read that ended a day earlier, because clocks may differ.
    assert store.reads["run"] == 4
    assert store.reads["log"] == 2


async def test_sums_are_exact_whatever_the_decimal_context_of_the_caller_is(store: Any) -> None:
    cost = "0.1234567890123456789012345678901234567"
    await log("r").request("a@1", cost).request("a@1", "1000000").end().write(store)
    with decimal.localcontext(decimal.Context(prec=3)):
        (row,) = await RunHistory(store).spending()
    assert row.usage.cost_usd == Decimal("1000000.1234567890123456789012345678901234567")


async def test_a_run_that_cannot_be_read_is_not_left_out_of_a_sum(store: Any) -> None:
    await log("r").request("a@1", "1").end().write(store)
    await replace_log(store, "r", [b"damaged"])
    with pytest.raises(RunCorrupt, match="'r'"):
        await RunHistory(store).spending()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"since": datetime(2026, 3, 1)}, "since=.*time zone"),
        ({"until": "yesterday"}, "until=.*time zone"),
        ({"since": datetime.max.replace(tzinfo=timezone(-DAY / 24))}, "since=.*time zone"),
        ({"since": START, "until": START - DAY}, "until=.*after since"),
        ({"by": "day"}, "by=.*day, pipeline, step, model, tenant, tag"),
        ({"by": ("month",)}, "by=.*month"),
        ({"by": ("day", "day")}, "by=.*once"),
    ],
)
async def test_a_period_or_a_breakdown_that_is_none_is_refused(options: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        await RunHistory(MemoryRunStore()).spending(**options)


# --- what a run takes over ---


async def test_a_resumed_run_and_a_fork_do_not_count_again_what_they_take_over(store: Any) -> None:
    fail = [True]

    @step
    async def first(ctx: StepContext[None]) -> str:
        ctx.record_usage(model="search", cost_usd="0.25")
        return "found"

    @step(retries=0)
    async def second(ctx: StepContext[None]) -> str:
        ctx.record_usage(model="search", cost_usd="0.5")
        if fail:
            raise ValueError("no paper")
        return "done"

    desk = Pipeline("desk", {"first": first, "second": second}, {"second": ["first"]})
    with pytest.raises(Exception, match="no paper"):
        await desk.execute(run_id="r", store=store)
    fail.clear()
    await desk.resume("r", store=store)
    await desk.fork("r", at="second", new_run_id="f", store=store)

    (total,) = await RunHistory(store).spending(by=())
    assert total.usage.cost_usd == Decimal("1.75")
    sums = [(await store.trace(run_id)).usage.cost_usd for run_id in ("r", "f")]
    assert sums == [Decimal("1.25"), Decimal("0.5")]


# --- days on record ---


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


async def test_a_run_within_one_day_writes_nothing_more_for_it() -> None:
    store = FaultyStore(MemoryRunStore(clock=Clock(START)))
    run = await begin(store)
    await run.end(RunFinished(status="finished"), Usage())
    kinds = Counter(write.key.rpartition(":r")[0].partition(":")[0] or write.key for write in store.writes)
    # Its log twice, and its header twice; three entries of the index at the start, one is removed at the end.
    assert kinds == {"log": 2, "run": 2, "index": 4}
    assert not [write.key for write in store.writes if write.key.startswith("index:day")]


async def test_a_run_that_goes_on_past_midnight_is_found_before_the_day_begins() -> None:
    clock = Clock(datetime(2026, 3, 1, 23, 59, 0, tzinfo=UTC))
    store = MemoryRunStore(clock=clock)
    run = await begin(store)
    assert (await header_of(store, "r")).later_days == ()
    clock.now += timedelta(seconds=35)
    await run.lease.renew()
    header = await header_of(store, "r")
    assert header.later_days == (date(2026, 3, 2),)
    assert set(index_keys(header)) <= {found.key for found in await store.list("index:")}
    await run.release()


@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("after", [False, True])
async def test_a_process_that_dies_at_any_write_leaves_no_spending_that_is_not_found(
    number: int, after: bool
) -> None:
    clock = Clock(datetime.now(UTC) - 30 * DAY)
    inner = MemoryRunStore(clock=clock)
    await (await begin(inner)).end(RunFinished(status="failed"), Usage())
    clock.now = today = datetime.now(UTC)
    dying = FaultyStore(inner)

    def gone_from(write: Write) -> None:
        if write.number >= number:
            raise gone()

    dying.before, dying.after = (None, gone_from) if after else (gone_from, None)
    run = None
    try:
        run = await take_up(dying)
        for cost in ("1", "2"):
            spent = SpendingRecorded(place="a@1", record=record(cost), timestamp=today.timestamp())
            run.journal.note(spent)
            await asyncio.wait_for(run.journal.flush(), 0.05)
        await asyncio.wait_for(run.end(RunFinished(status="finished"), Usage()), 0.05)
    except (RunStoreUnavailable, TimeoutError):
        pass
    if run is not None:
        await run.release()
    on_record = [
        fact.record.cost_usd or Decimal(0)
        for fact in await read_log(inner, await header_of(inner, "r"))
        if isinstance(fact, SpendingRecorded)
    ]
    found = await RunHistory(inner).spending(since=today - DAY, by=())
    assert exact_sum(row.usage.cost_usd for row in found) == exact_sum(on_record)


# --- laws ---

Spent = tuple[float, int]
RUNS = st.lists(
    st.tuples(
        st.floats(0, 20),  # days until it begins
        st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10**9)), max_size=5),  # days to the next, cost
        st.sampled_from([None, "acme", "umbrella"]),
    ),
    max_size=6,
)


@given(RUNS, st.lists(st.floats(-5, 80), max_size=6), st.permutations(["day", "pipeline", "model", "tenant"]))
def test_spending_of_any_partition_of_the_time_adds_up_to_the_sum_of_the_logs(
    runs: list[tuple[float, list[Spent], str | None]], cuts: list[float], order: list[Any]
) -> None:
    async def check() -> None:
        store, on_record = MemoryRunStore(), list[Decimal]()
        for number, (begins, spent, tenant) in enumerate(runs):
            run = log(f"r{number}", START + begins * DAY, pipeline=f"p{number % 2}")
            for days, cost in spent:
                later(run, days).spend("a@1", f"{cost}e-7")
            await run.write(store, tenant=tenant)
            on_record.append(run.trace.usage.cost_usd)
        history = RunHistory(store)
        times = [None, *sorted(START + cut * DAY for cut in cuts), None]
        parts = [
            row
            for since, until in pairwise(times)
            for row in await history.spending(since=since, until=until, by=order)
        ]
        by = order[: len(cuts) % 5]
        whole = await history.spending(by=by)
        assert len({replace(row, usage=None) for row in whole}) == len(whole)
        assert exact_sum(row.usage.cost_usd for row in parts) == exact_sum(on_record)
        assert exact_sum(row.usage.cost_usd for row in whole) == exact_sum(on_record)
        for row in await history.spending():
            assert row.day is not None
            begins_at = datetime(row.day.year, row.day.month, row.day.day, tzinfo=UTC)
            assert await history.spending(since=begins_at, until=begins_at + DAY) == (row,)

    asyncio.run(check())
