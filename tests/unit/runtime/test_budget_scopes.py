"""A budget around any code, and what is left of those around it."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from support.agents import paid_agent
from support.leftovers import assert_no_task_is_left
from support.virtual_time import in_virtual_time, now

from fastroai.errors import ConfigurationError, CostBudgetExceeded, TimeBudgetExceeded
from fastroai.runtime import BudgetView, Clock, Scope, budget_scope, current_scope
from fastroai.runtime.events import BudgetRefused, BudgetWarning, SpendRecorded
from fastroai.runtime.fact_base import Part, RunEvent
from fastroai.usage import Budget


async def test_every_call_inside_draws_on_it_in_whatever_task() -> None:
    agent = paid_agent(100)

    async def ask() -> None:
        await agent.run("in a task")

    async with budget_scope(Budget(microcents=350)) as scope:
        await agent.run("first")
        await asyncio.gather(*(asyncio.create_task(ask()) for _ in range(2)))
        with pytest.raises(CostBudgetExceeded) as caught:
            await agent.run("too much")
    assert caught.value.scope_path == ("budget_scope",)
    assert scope.usage.cost_microcents == 300
    assert [record.cost_usd for record in scope.records] == [Decimal("0.0001")] * 3
    assert scope.report().total.cost_usd == Decimal("0.0003")
    await agent.run("outside")
    assert scope.usage.cost_microcents == 300


async def test_it_lies_within_the_budgets_around_it() -> None:
    agent = paid_agent(100)
    async with budget_scope(Budget(microcents=250), name="all") as everything:
        async with budget_scope(Budget(microcents=150), name="part") as part:
            await agent.run("first")
            with pytest.raises(CostBudgetExceeded) as caught:
                await agent.run("second")
        assert caught.value.scope_path == ("all", "part")
        assert part.remaining.microcents == 50
        assert everything.remaining.microcents == 150
        async with budget_scope(Budget(microcents=500), name="wide") as wide:
            assert wide.remaining.microcents == 150, "the least of all"
            await agent.run("second")
            with pytest.raises(CostBudgetExceeded) as caught:
                await agent.run("third")
        assert caught.value.scope_path == ("all",)


async def test_what_is_left_is_the_least_of_all_budgets_and_never_negative() -> None:
    nothing = BudgetView(Scope("pipeline", "p", parent=None)).remaining
    assert (nothing.usd, nothing.microcents, nothing.tokens, nothing.requests, nothing.ms) == (None,) * 5
    budget = Budget(microcents=1_000, tokens=5_000, requests=3)
    async with budget_scope(budget) as outer, budget_scope(Budget(requests=9)) as scope:
        await paid_agent(100).run("first")
        remaining = scope.remaining
        assert (remaining.usd, remaining.microcents) == (Decimal("0.0009"), 900)
        assert (remaining.tokens, remaining.requests, remaining.ms) == (4_900, 2, None)
        assert outer.share == Decimal(1) / 3
        assert scope.share == Decimal(1) / 3, "of the one that is nearest to its end"
        for _ in range(10):
            scope._scope.charge(scope.records[0])
        remaining = scope.remaining
        assert (remaining.microcents, remaining.requests) == (0, 0)
    assert BudgetView(Scope("pipeline", "p", parent=None)).share == 0


@in_virtual_time
async def test_time_that_is_left_is_that_until_the_nearest_deadline() -> None:
    async with budget_scope(Budget(ms=10_000)) as scope:
        assert scope.remaining.ms == 10_000
        async with scope._scope.time.bounded(Clock(4, "it")):
            await asyncio.sleep(1)
            assert scope.remaining.ms == 3_000
        assert scope.remaining.ms == 9_000


@in_virtual_time
async def test_a_budget_of_time_cancels_what_is_inside() -> None:
    async def wait_for_ever() -> None:
        async with budget_scope(Budget(ms=2_500), name="hurry"):
            await asyncio.Event().wait()

    with pytest.raises(TimeBudgetExceeded) as caught:
        await wait_for_ever()
    assert (caught.value.limit, caught.value.scope_path, now()) == (2_500, ("hurry",), 2.5)
    assert "running work was cancelled" in str(caught.value)


@in_virtual_time
async def test_time_stands_still_while_a_person_is_waited_for() -> None:
    async with (
        budget_scope(Budget(ms=3_000)),
        budget_scope(Budget(ms=2_000)),
        budget_scope(Budget(usd=1)) as scope,
    ):
        await asyncio.sleep(1)
        with scope.paused():
            await asyncio.sleep(100)
            assert scope.remaining.ms is None
        await asyncio.sleep(0.5)
        assert scope.remaining.ms == 500


# --- what is told ---


async def test_it_tells_what_happens_inside() -> None:
    told: list[RunEvent] = []
    async with budget_scope(Budget(microcents=110), on_event=told.append) as scope:
        await paid_agent(100).run("first")
        assert [type(event) for event in told] == [SpendRecorded, BudgetWarning]
        with pytest.raises(CostBudgetExceeded):
            await paid_agent(100).run("second")
        assert [type(event) for event in told] == [SpendRecorded, BudgetWarning, BudgetRefused]
    assert {event.run_id for event in told} == {scope._scope.run_id}


async def test_those_outside_hear_of_it_too() -> None:
    outside: list[RunEvent] = []
    inside: list[RunEvent] = []

    async def hear(event: RunEvent) -> None:
        inside.append(event)

    async with budget_scope(Budget(usd=1), on_event=outside.append):
        async with budget_scope(Budget(usd=1), on_event=hear):
            await paid_agent(100).run("inside")
        await paid_agent(100).run("outside")
    assert len(outside) == 2
    assert inside == outside[:1]


async def test_the_end_of_what_was_cancelled_is_told_on_leaving() -> None:
    told: list[RunEvent] = []
    begun = asyncio.Event()

    async def hang(prompt: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with budget_scope(Budget(usd=1), on_event=told.append):
        task = asyncio.create_task(paid_agent(100, before=hang).run("?"))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert told == [], "whoever is cancelled has no time to tell"
    [event] = told
    assert isinstance(event, SpendRecorded)
    assert event.record.bound_usd == Decimal("0.0001")
    assert_no_task_is_left()


async def test_a_listener_that_fails_is_reported_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: RunEvent) -> None:
        raise ValueError("broken listener")

    async def work() -> None:
        async with budget_scope(Budget(usd=1), on_event=fail) as scope:
            assert current_scope() is scope._scope
            scope._scope.note(RunEvent(part=Part("r")))

    await work()
    assert current_scope() is None
    assert "on_event failed on RunEvent; the run is not affected" in caplog.text
    assert "broken listener" in caplog.text


async def test_what_is_left_open_inside_ends_with_it_and_is_told() -> None:
    told: list[RunEvent] = []
    ended = asyncio.Event()

    async def close() -> None:
        ended.set()
        scope._scope.note(RunEvent(part=Part("r")))

    async with budget_scope(Budget(usd=1), on_event=told.append) as scope:
        scope._scope.on_close(close)
    assert ended.is_set()
    assert len(told) == 1


# --- code that is not async ---


def test_it_goes_around_code_that_is_not_async() -> None:
    told: list[RunEvent] = []
    agent = paid_agent(100)
    with budget_scope(Budget(microcents=150), on_event=told.append) as scope:
        agent.run_sync("first")
        with pytest.raises(CostBudgetExceeded):
            agent.run_sync("second")
    assert scope.usage.cost_microcents == 100
    assert [type(event) for event in told] == [SpendRecorded, BudgetRefused]
    assert current_scope() is None


def test_code_that_is_not_async_cannot_be_stopped_in_time() -> None:
    with pytest.raises(ConfigurationError, match="ms=5: expected `async with`"), budget_scope(Budget(ms=5)):
        pass
    assert current_scope() is None


async def test_what_is_no_budget_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a Budget, a SpendLimit, or a list of these"):
        budget_scope(5)  # type: ignore[arg-type]


async def test_a_scope_that_was_left_with_an_error_has_said_what_was_spent() -> None:
    async def work() -> None:
        async with budget_scope(Budget(microcents=100)):
            for _ in range(2):
                await paid_agent(100).run("?")

    with pytest.raises(CostBudgetExceeded) as caught:
        await work()
    assert caught.value.usage.cost_microcents == 100
