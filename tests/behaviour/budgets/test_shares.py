"""Requests that set no `max_tokens` share a budget: they run side by side, and it still holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelResponse
from support.accounting import assert_account_matches, listed_cost
from support.examples import examples
from support.patience import PATIENCE
from support.scripted import Answer, ScriptedModel
from support.spend_stores import KINDS, Kept, kept_in
from support.virtual_time import in_virtual_time, now

from fastroai import Budget, CostBudgetExceeded, FastroAgent, budget_scope
from fastroai.pipelines import BudgetWaiting
from fastroai.runtime.fact_base import RunEvent
from fastroai.testing import ModelServer, Reply, ServedRequest
from fastroai.usage import (
    CostCalculator,
    SpendAccount,
    SpendBalance,
    SpendClaim,
    SpendLimit,
    SpendVerdict,
)
from fastroai.usage.shared.memory_spend_store import MemorySpendStore

MICROCENT = Decimal("0.000001")
LONGEST = 10_000
"""Tokens that an answer can have. A token of output costs a microcent, input is free."""
BOTH = ("openai:gpt-5-mini", "anthropic:claude-haiku-4-5")


class Desk:
    """An agent whose answers have the lengths that are asked for by their prompts."""

    def __init__(self, seconds: float = 1.0, **options: Any) -> None:
        self.seconds = seconds
        prices = {"scripted:paid": {"input_per_mtok": 0, "output_per_mtok": 1}}
        self.limits: list[int | None] = []
        """The `max_tokens` of each request that was sent."""
        self.tokens = 0
        """Of all answers."""
        self.agent: FastroAgent[Any, str] = FastroAgent(
            ScriptedModel(self._answer, longest_answer=LONGEST),
            cost_calculator=CostCalculator(pricing_overrides=prices),
            **options,
        )

    def _answer(self, name: str, messages: list[ModelMessage], max_tokens: int | None) -> Answer:
        wants = int(str(messages[0].parts[-1].content))  # type: ignore[union-attr]
        self.limits.append(max_tokens)
        cut = max_tokens is not None and wants > max_tokens
        tokens = max_tokens if cut and max_tokens else wants
        self.tokens += tokens
        return Answer(tokens, seconds=self.seconds, cut=cut)

    async def ask(self, *wants: int, **options: Any) -> list[str | BaseException]:
        """So many requests at once, for answers of these lengths."""
        asked = (self.agent.run(str(tokens), **options) for tokens in wants)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [answer if isinstance(answer, BaseException) else answer.output for answer in answers]


def total(**amount: Any) -> SpendLimit:
    """A spend limit of its own."""
    return SpendLimit(**amount, window="total", store=MemorySpendStore())


either = pytest.mark.parametrize("limiting", [Budget, total])
"""Budgets and spend limits follow one rule."""
Limiting = Callable[..., Budget | SpendLimit]


def stops(answers: list[str | BaseException]) -> list[CostBudgetExceeded]:
    return [answer for answer in answers if isinstance(answer, CostBudgetExceeded)]


@either
@in_virtual_time
async def test_agents_that_set_no_max_tokens_run_side_by_side(limiting: Limiting) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=50 * 300)) as scope:
        answers = await desk.ask(*[100] * 50)
    assert answers == ["answer"] * 50
    assert now() == 1.0, "they took as long as one"
    assert scope.usage.cost_usd == MICROCENT * 50 * 100
    assert desk.limits == [300] * 50


@in_virtual_time
async def test_a_limit_around_a_budget_that_has_more_is_shared_too() -> None:
    desk = Desk()
    async with budget_scope([Budget(microcents=10 * 500), total(microcents=10 * 300)]):
        assert await desk.ask(*[100] * 10) == ["answer"] * 10
    assert now() == 1.0
    assert desk.limits == [300] * 10


@either
@in_virtual_time
async def test_one_that_comes_alone_may_use_all_there_is(limiting: Limiting) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=5_000)):
        assert await desk.ask(4_900) == ["answer"]
    assert desk.limits == [5_000]


@either
@in_virtual_time
async def test_nothing_is_lowered_where_all_fit_with_their_longest_answers(limiting: Limiting) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=10 * LONGEST)):
        await desk.ask(*[100] * 10)
    assert desk.limits == [None] * 10


@in_virtual_time
async def test_what_one_turn_asks_for_in_nested_budgets_is_shared_in_each() -> None:
    desk = Desk()
    async with budget_scope(Budget(microcents=10 * 400)) as outer:

        async def within() -> None:
            async with budget_scope(Budget(microcents=5 * 300)):
                await desk.ask(*[100] * 5)

        await asyncio.gather(within(), desk.ask(*[100] * 5))
    assert now() == 1.0
    assert sorted(limit or 0 for limit in desk.limits) == [300] * 5 + [400] * 5
    assert outer.usage.request_count == 10


@in_virtual_time
async def test_a_max_tokens_that_was_set_is_kept_until_answers_tell_that_less_will_do() -> None:
    desk = Desk(max_tokens=2_000)
    async with budget_scope(Budget(microcents=4_000)) as scope:
        assert await desk.ask(*[100] * 10) == ["answer"] * 10
    assert desk.limits[:2] == [2_000, 2_000]
    assert all(limit is not None and 100 <= limit < 2_000 for limit in desk.limits[2:])
    assert now() == 2.0, "the first two, and then all others"
    assert scope.usage.cost_usd == MICROCENT * 1_000


@in_virtual_time
async def test_fewer_go_at_once_where_shares_would_be_shorter_than_answers_are() -> None:
    desk = Desk()
    async with budget_scope(Budget(usd=1)):
        for _ in range(20):
            await desk.ask(1_000)
    desk.limits.clear()
    started = now()
    async with budget_scope(Budget(microcents=9_000)):
        await desk.ask(*[800] * 10)
    assert desk.limits[:8] == [1_050] * 8, "the longest answer of 20, and a twentieth more"
    assert now() - started < 5


@either
@in_virtual_time
async def test_an_answer_that_was_cut_is_asked_for_again_and_both_requests_are_charged(
    limiting: Limiting,
) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=4 * 500)) as scope:
        assert await desk.ask(20, 20, 20, 900) == ["answer"] * 4
    cut, again = (record for record in scope.records if record.tokens.output_tokens >= 500)
    assert (cut.use, cut.lowered_to, cut.finish_reason) == ("retried", 500, "length")
    assert cut.tokens.output_tokens == 500
    assert (again.use, again.finish_reason, again.tokens.output_tokens) == ("kept", "stop", 900)
    assert scope.usage.cost_usd == MICROCENT * (60 + 500 + 900)
    assert desk.limits[-1] == again.lowered_to == 2_000 - 60 - 500


@either
@in_virtual_time
async def test_what_the_budget_cannot_pay_for_the_second_time_either_is_a_stop_with_the_beginning(
    limiting: Limiting,
) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=4 * 500)) as scope:
        *short, stop = await desk.ask(20, 20, 20, 3_000)
    assert short == ["answer"] * 3
    assert isinstance(stop, CostBudgetExceeded)
    assert stop.partial_response is not None
    assert stop.partial_response.usage.output_tokens == 2_000 - 60 - 500
    assert scope.usage.cost_usd == MICROCENT * 2_000
    assert [record.use for record in scope.records if record.was_cut_short] == ["retried", "failed"]


@either
@in_virtual_time
async def test_it_is_not_asked_for_again_if_there_is_no_more_than_it_had(limiting: Limiting) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=1_000)) as scope:
        (stop,) = await desk.ask(3_000)
    assert isinstance(stop, CostBudgetExceeded)
    assert stop.partial_response is not None
    assert stop.partial_response.usage.output_tokens == 1_000
    assert desk.limits == [1_000]
    assert scope.usage.request_count == 1


async def read(chunks: Any) -> str:
    return "".join([str(chunk) async for chunk in chunks])


@either
@in_virtual_time
async def test_a_stream_is_not_cut_for_others_as_nobody_can_unread_it(limiting: Limiting) -> None:
    desk = Desk()
    async with budget_scope(limiting(microcents=2_000)) as scope:
        streams = (read(desk.agent.run_stream(str(tokens))) for tokens in (500, 400, 400))
        await asyncio.gather(*streams)
    assert [record.use for record in scope.records] == ["kept"] * 3
    assert desk.limits[0] == 2_000, "the first has nothing to go by"
    assert len(desk.limits) == 3


# --- under spend limits ---


@in_virtual_time
async def test_a_budget_and_the_limits_around_it_each_share_what_they_have() -> None:
    desk = Desk()
    customer, everyone = total(microcents=10 * 400), total(microcents=20 * 500)
    async with budget_scope([customer, everyone, Budget(microcents=10 * 300)]) as scope:
        assert await desk.ask(*[100] * 10) == ["answer"] * 10
    assert now() == 1.0
    assert desk.limits == [300] * 10
    assert scope.usage.cost_usd == MICROCENT * 1_000
    for limit in (customer, everyone):
        status = await limit.status()
        assert (status.spent_usd, status.reserved_usd) == (MICROCENT * 1_000, 0)


@pytest.mark.parametrize(("first", "second"), [(500, 300), (300, 500)])
@in_virtual_time
async def test_the_smaller_of_two_limits_decides_whichever_is_asked_first(first: int, second: int) -> None:
    desk = Desk()
    limits = [total(microcents=10 * first, key="a"), total(microcents=10 * second, key="b")]
    async with budget_scope(limits):
        assert await desk.ask(*[100] * 10) == ["answer"] * 10
    assert now() == 1.0
    assert desk.limits == [300] * 10


@in_virtual_time
async def test_who_comes_later_finds_a_part_of_what_is_left() -> None:
    desk = Desk()
    async with budget_scope(total(microcents=6_000)):
        await desk.ask(*[100] * 3)
        await asyncio.gather(desk.ask(*[100] * 2), later(0.5, lambda: desk.ask(*[100] * 8)))
    assert desk.limits[:3] == [2_000] * 3
    assert now() == 2.5, "nobody has waited"


@in_virtual_time
async def test_whoever_has_left_the_line_takes_no_part_any_more() -> None:
    desk = Desk()
    limit = total(microcents=1_000)
    async with budget_scope(limit):
        asked = [asyncio.create_task(desk.agent.run("100")) for _ in range(4)]
        await asyncio.sleep(0.5)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    assert desk.limits == [250] * 4
    async with budget_scope(SpendLimit(microcents=1_600, window="total", store=limit.store)):
        await desk.ask(100)
    assert desk.limits[-1] == 600


class Watched(MemorySpendStore):
    """A store that many processes use; each has its own of these, for one set of books."""

    def __init__(self, books: MemorySpendStore) -> None:
        super().__init__()
        self.books, self.most_usd = books, Decimal(0)

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        verdict = await self.books.reserve(claim)
        self.most_usd = max(self.most_usd, verdict.balance.spent_usd + verdict.balance.reserved_usd)
        return verdict

    async def mark_sent(self, claim: SpendClaim) -> bool:
        return await self.books.mark_sent(claim)

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        return await self.books.settle(claim, cost_usd)


@settings(max_examples=examples(30))
@given(
    processes=st.lists(st.lists(st.integers(1, 2_500), min_size=1, max_size=8), min_size=1, max_size=3),
    microcents=st.integers(1, 20_000),
    longest=st.none() | st.integers(1, 1_000),
)
def test_a_limit_that_processes_share_is_never_crossed_and_nobody_waits_for_ever(
    processes: list[list[int]], microcents: int, longest: int | None
) -> None:
    books = MemorySpendStore()
    stores = [Watched(books) for _ in processes]
    desks = [Desk(max_tokens=longest) for _ in processes]

    @in_virtual_time
    async def ask() -> None:
        asked = [
            desk.ask(*wants, budget=SpendLimit(microcents=microcents, window="total", store=store))
            for desk, wants, store in zip(desks, processes, stores, strict=True)
        ]
        for answers in await asyncio.gather(*asked):
            errors = [answer for answer in answers if isinstance(answer, BaseException)]
            assert errors == stops(answers)

    ask()
    balance = asyncio.run(books.balance(SpendAccount(key="default", window="total")))
    assert balance.reserved_usd == 0
    assert balance.spent_usd == MICROCENT * sum(desk.tokens for desk in desks)
    assert max(store.most_usd for store in stores) <= MICROCENT * microcents


@settings(max_examples=examples(15))
@given(st.lists(st.integers(1, 200), min_size=1, max_size=30), st.integers(0, 5_000))
def test_nobody_waits_for_a_limit_that_has_enough_for_all(wants: list[int], more: int) -> None:
    @in_virtual_time
    async def ask() -> None:
        limit = total(microcents=201 * len(wants) + more)
        assert await Desk().ask(*wants, budget=limit) == ["answer"] * len(wants)
        assert now() == 1.0

    ask()


class Meeting(ScriptedModel):
    """Answers when so many have asked."""

    def __init__(self, count: int) -> None:
        super().__init__(lambda *_: Answer(100), longest_answer=LONGEST)
        self.barrier = asyncio.Barrier(count)

    async def request(self, *asked: Any) -> ModelResponse:
        await asyncio.wait_for(self.barrier.wait(), PATIENCE)
        return await super().request(*asked)


@pytest.fixture
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    async with kept_in(request.param, request, tmp_path) as new:
        yield new


@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_agents_run_side_by_side_whatever_the_store(kept: Kept) -> None:
    prices = {"scripted:paid": {"input_per_mtok": 0, "output_per_mtok": 1}}
    limit = SpendLimit(microcents=20 * 300, window="total", store=kept.store)
    agent: FastroAgent[Any, str] = FastroAgent(
        Meeting(20), cost_calculator=CostCalculator(pricing_overrides=prices), budget=limit
    )
    await asyncio.gather(*(agent.run("?") for _ in range(20)))
    status = await limit.status()
    assert (status.spent_usd, status.reserved_usd) == (MICROCENT * 2_000, 0)


# --- by hand, and by expectation ---


@in_virtual_time
async def test_a_budget_says_by_hand_how_long_answers_may_be() -> None:
    desk = Desk()
    async with budget_scope(Budget(microcents=50 * 200, max_tokens_per_request=200)) as scope:
        await desk.ask(*[100] * 49, 900)
    assert desk.limits == [200] * 50
    assert now() == 1.0
    assert [record.finish_reason for record in scope.records].count("length") == 1
    assert {record.lowered_to for record in scope.records} == {None}, "no budget was short of anything"


@in_virtual_time
async def test_of_what_agents_and_budgets_say_the_shortest_counts() -> None:
    desk = Desk(max_tokens=150)
    async with budget_scope(Budget(usd=1, max_tokens_per_request=200)):
        await desk.ask(10)
        async with budget_scope(Budget(requests=5, max_tokens_per_request=120)):
            await desk.ask(10)
    assert desk.limits == [150, 120]


@in_virtual_time
async def test_a_budget_that_goes_by_expectations_lets_requests_ask_for_their_longest_answers() -> None:
    desk = Desk()
    async with budget_scope(Budget(usd=1)):
        for _ in range(20):
            await desk.ask(100)
    desk.limits.clear()
    started = now()
    async with budget_scope(Budget(microcents=50 * 125, admission="expected")) as scope:
        await desk.ask(*[100] * 50)
    assert desk.limits == [None] * 50
    assert now() - started == 1.0
    assert scope.usage.cost_usd == MICROCENT * 5_000


@in_virtual_time
async def test_it_is_exceeded_by_no_more_than_requests_in_flight_use_beyond_expectations() -> None:
    desk = Desk()
    async with budget_scope(Budget(usd=1)):
        for _ in range(20):
            await desk.ask(100)
    async with budget_scope(Budget(microcents=1_000, admission="expected")) as scope:
        answers = await desk.ask(*[9_000] * 20)
    answered = 20 - len(stops(answers))
    assert answered == 8, "of which 125 each were expected"
    assert scope.usage.cost_usd == MICROCENT * 72_000
    assert scope.usage.cost_usd <= MICROCENT * (1_000 + 8 * (LONGEST - 125))


@in_virtual_time
async def test_before_anything_is_known_an_answer_of_200_tokens_is_expected() -> None:
    desk = Desk()
    async with budget_scope(Budget(microcents=400, admission="expected")):
        await desk.ask(*[20] * 10)
    assert now() == 2.0, "two, and all others, once it is known how long answers are"


@in_virtual_time
async def test_a_budget_around_one_that_goes_by_expectations_holds() -> None:
    desk = Desk()
    expecting = Budget(microcents=10_000, admission="expected")
    async with budget_scope(Budget(microcents=20_000)) as outer, budget_scope(expecting):
        await desk.ask(*[4_000] * 10)
    assert outer.usage.cost_usd <= MICROCENT * 20_000


# --- waiting is told ---


@in_virtual_time
async def test_who_waits_for_a_budget_is_told_what_for_who_has_it_and_what_to_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(seconds=3.0, max_tokens=800, name="clerk")
    events: list[RunEvent] = []
    with caplog.at_level(logging.WARNING):
        async with budget_scope(Budget(microcents=1_000), on_event=events.append):
            await desk.ask(600, 100, 100)
    waiting = [event for event in events if isinstance(event, BudgetWaiting)]
    assert len(waiting) >= 1
    assert waiting[0].scope_path == ("budget_scope",)
    needs, _, left = waiting[0].waits_for.partition(" of a budget of ")
    assert (needs, left) == ("$0.0008", "$0.001, of which $0.0002 is neither spent nor reserved")
    assert waiting[0].held_by == ("budget_scope / clerk (paid): $0.0008",)
    assert "max_tokens" in waiting[0].advice
    (line,) = [record.getMessage() for record in caplog.records if "requests wait" in record.getMessage()]
    assert "budget_scope / clerk (paid): $0.0008" in line


@in_virtual_time
async def test_requests_with_own_budgets_are_told_once_of_the_budget_that_others_hold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(seconds=3.0, max_tokens=5_000)
    events: list[RunEvent] = []

    async def alone() -> None:
        async with budget_scope(Budget(microcents=900)):
            await desk.ask(100)

    with caplog.at_level(logging.WARNING):
        async with budget_scope(Budget(microcents=1_000), on_event=events.append):
            await asyncio.gather(*(alone() for _ in range(5)))
    lines = [one.getMessage() for one in caplog.records if "requests wait" in one.getMessage()]
    assert [line.partition("; held by")[0] for line in lines] == [
        "requests wait for a part of a budget of $0.001, of which $0.0001 is neither spent nor reserved, "
        "because a request can use up to $0.005"
    ]
    assert {one.scope_path for one in events if isinstance(one, BudgetWaiting)} == {("budget_scope",)}


@in_virtual_time
async def test_who_waits_for_less_than_a_second_is_not_told_of() -> None:
    desk = Desk(max_tokens=800)
    events: list[RunEvent] = []
    async with budget_scope(Budget(microcents=1_000), on_event=events.append) as scope:
        await asyncio.gather(desk.ask(500), later(0.5, lambda: desk.ask(100)))
    assert scope.usage.request_count == 2
    assert not [event for event in events if isinstance(event, BudgetWaiting)]


async def later(seconds: float, work: Callable[[], Any]) -> Any:
    await asyncio.sleep(seconds)
    return await work()


@in_virtual_time
async def test_who_waits_for_a_spend_limit_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fastroai.runtime.budgets.at_limits.TOLD_AFTER", -1.0
    )  # it goes by the clock on the wall
    desk = Desk(max_tokens=800)
    limit = SpendLimit(microcents=1_000, window="total", store=MemorySpendStore(), key="acme")
    events: list[RunEvent] = []
    async with budget_scope(limit, on_event=events.append):
        await desk.ask(600, 100)
    (waiting,) = [event for event in events if isinstance(event, BudgetWaiting)]
    assert "'acme' of $0.001, of which $0.0002 is neither spent nor reserved" in waiting.waits_for
    assert len(waiting.held_by) == 1


# --- at providers ---


def short_or_long(request: ServedRequest) -> Reply:
    return Reply("word " * (800 if "at length" in request.prompt else 4))


@pytest.mark.parametrize("reference", BOTH)
async def test_the_account_agrees_with_the_provider_where_an_answer_is_asked_for_again(
    server: ModelServer, reference: str
) -> None:
    server.rule(None, short_or_long)
    agent: FastroAgent[Any, str] = FastroAgent(server.model(reference))
    usd = "0.03" if "anthropic" in reference else "0.015"
    async with budget_scope(Budget(usd=usd)) as scope:
        prompts = [*[f"question {number}" for number in range(9)], "answer at length"]
        answers = await asyncio.gather(*map(agent.run, prompts))
    assert len(answers[-1].output.split()) == 800
    assert len(server.ledger.billed) == 11
    assert_account_matches(server.ledger, scope.records, scope.usage)
    assert [record.use for record in scope.records].count("retried") == 1
    billed = sum(map(listed_cost, server.ledger.billed), Decimal(0))
    assert billed == scope.usage.cost_usd
    assert billed <= Decimal(usd)


@in_virtual_time
async def test_requests_that_hold_the_same_are_named_whatever_budgets_they_are_in() -> None:
    desk = Desk(seconds=3.0, max_tokens=400, name="clerk")
    events: list[RunEvent] = []
    async with budget_scope(Budget(microcents=1_000), on_event=events.append):

        async def expected() -> Any:
            async with budget_scope(Budget(microcents=1_000, admission="expected")):
                return await desk.ask(100)

        answers = await asyncio.gather(desk.ask(400), expected(), later(0.5, lambda: desk.ask(400)))
    assert answers == [["answer"]] * 3
    (waiting,) = [event for event in events if isinstance(event, BudgetWaiting)]
    assert waiting.held_by == (
        "budget_scope / clerk (paid): $0.0004",
        "budget_scope / budget_scope / clerk (paid): $0.0004",
    )
