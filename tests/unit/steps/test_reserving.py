"""Money that is set aside before it is spent on something other than a model request."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext, suppress
from contextvars import copy_context
from decimal import Decimal
from typing import Any

import pytest
from support.agents import paid_agent
from support.patience import PATIENCE
from support.steps import failure_of, run_alone
from support.stored_runs import raw_log

from fastroai import budget_scope, spend
from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    CostBudgetExceeded,
    SpendLimitExceeded,
    StepExecutionError,
    UnpricedModelError,
    usage_of,
)
from fastroai.pipelines import BudgetRefused, Pipeline, PipelineConfig, SpendRecorded, StepContext, step
from fastroai.records import RequestRecord
from fastroai.runtime.budgets.budget_scopes import BudgetScope
from fastroai.steps import Spend
from fastroai.store import MemoryRunStore, MemorySpendStore, RunHistory
from fastroai.tracing.attributes import error_summary
from fastroai.usage import (
    Budget,
    CostCalculator,
    SpendBalance,
    SpendBook,
    SpendClaim,
    SpendLimit,
    UnpricedModelWarning,
    UsageReport,
)

DOLLAR = Budget(usd=1)


def left(scope: BudgetScope) -> Decimal | None:
    return scope.remaining.usd


async def test_it_is_reserved_settled_and_in_the_account() -> None:
    async with budget_scope(DOLLAR) as scope:
        async with spend("0.60", model="acme:search", units={"queries": 3}) as purchase:
            assert left(scope) == Decimal("0.40")
            assert purchase.bound_usd == Decimal("0.60")
            record = purchase.settle("0.25")
        assert left(scope) == Decimal("0.75")
        assert scope.records == (record,) == (purchase.record,)
    assert (record.kind, record.outcome, record.provider, record.model) == (
        "spend",
        "settled",
        "acme",
        "search",
    )
    assert (record.cost_usd, record.cost_source, record.units) == (Decimal("0.25"), "stated", {"queries": 3})
    assert record.started_at is not None
    assert (scope.usage.request_count, scope.usage.cost_usd, scope.usage.cost_complete) == (
        0,
        Decimal("0.25"),
        True,
    )
    assert UsageReport.of([record]).by_model["acme:search"].cost_usd == Decimal("0.25")


async def test_without_another_word_it_cost_what_was_reserved() -> None:
    async with budget_scope(DOLLAR) as scope, spend("0.60") as purchase:
        purchase.settle()
    assert (scope.usage.cost_usd, scope.usage.cost_complete) == (Decimal("0.60"), True)


async def test_what_was_not_bought_is_not_charged() -> None:
    async with budget_scope(DOLLAR) as scope, spend("0.60") as purchase:
        assert purchase.release().outcome == "released"
    assert (scope.usage.committed_usd, scope.usage.failed_requests, scope.usage.cost_complete) == (0, 1, True)


@pytest.mark.parametrize("error", [None, ValueError("no"), asyncio.CancelledError()])
async def test_where_nobody_says_what_it_cost_it_counts_at_the_most(error: BaseException | None) -> None:
    scope = budget_scope(DOLLAR)
    with nullcontext() if error is None else pytest.raises(type(error)):
        async with scope, spend("0.60", model="acme:search"):
            if error is not None:
                raise error
    [record] = scope.records
    assert (record.outcome, record.bound_usd, record.cost_usd) == ("unmeasured", Decimal("0.60"), None)
    unsaid = "it was neither settled nor released"
    assert record.error == (unsaid if error is None else error_summary(error))
    assert (scope.usage.committed_usd, scope.usage.cost_complete) == (Decimal("0.60"), False)


async def test_what_the_budget_cannot_pay_for_is_refused_before_it_is_bought() -> None:
    heard: list[Any] = []
    with pytest.raises(CostBudgetExceeded) as caught:
        async with budget_scope(DOLLAR, on_event=heard.append), spend("1.01"):
            raise AssertionError("bought all the same")
    error = caught.value
    assert (error.limit, error.committed, error.requested) == (1_000_000, 0, 1_010_000)
    assert (error.stopped, error.scope_path) == ("spend", ("budget_scope",))
    assert "the purchase could cost $1.01, so it was not made. Raise the budget" in str(error)
    assert [type(event) for event in heard] == [BudgetRefused]


async def test_it_waits_for_others_and_for_no_shorter_answer() -> None:
    async with budget_scope(DOLLAR) as scope:
        order: list[str] = []

        async def buy(name: str, least: str) -> None:
            async with spend(least) as purchase:
                order.append(name)
                await asyncio.sleep(0)
                purchase.settle("0.1")

        await asyncio.gather(*(buy(str(number), "0.6") for number in range(5)))
    assert order == ["0", "1", "2", "3", "4"]
    assert scope.usage.cost_usd == Decimal("0.5")


async def test_what_is_asked_of_a_model_inside_does_not_wait_for_it() -> None:
    agent = paid_agent()
    with pytest.raises(BudgetExceeded):
        async with budget_scope(Budget(microcents=1_000)), spend("0.001"):
            await agent.run("?")


async def test_a_budget_of_requests_does_not_count_it_and_one_of_tokens_does() -> None:
    async with budget_scope(Budget(requests=1, tokens=1_000)) as scope:
        for _ in range(2):
            async with spend(model="openai:text-embedding-3-small", units={"input_tokens": 400}) as purchase:
                purchase.settle(units={"input_tokens": 300})
        assert (scope.remaining.requests, scope.remaining.tokens) == (1, 400)
        with pytest.raises(BudgetExceeded):
            async with spend(model="openai:text-embedding-3-small", units={"input_tokens": 401}):
                pass


async def test_list_prices_are_those_of_the_units_of_genai_prices() -> None:
    """https://platform.openai.com/docs/pricing: $0.02 per million tokens; $15 per million characters."""
    async with budget_scope(DOLLAR) as scope:
        async with spend(model="openai:text-embedding-3-small", units={"input_tokens": 8_000}) as embedding:
            assert embedding.bound_usd == Decimal("0.00016")
            record = embedding.settle(units={"input_tokens": 6_000})
        assert (record.cost_usd, record.cost_source) == (Decimal("0.00012"), "priced")
        assert record.tokens.input_tokens == 6_000
        async with spend(model="openai:tts-1", units={"input_characters": 2_000}) as speech:
            speech.settle()
    assert scope.usage.cost_usd == Decimal("0.03012")
    assert scope.usage.cost_complete


async def test_overrides_and_own_prices_come_first() -> None:
    prices = CostCalculator(pricing_overrides={"acme:embed": {"input_per_mtok": 3, "output_per_mtok": 0}})
    async with budget_scope(DOLLAR) as scope:
        units = {"input_tokens": 1_000}
        async with spend(model="acme:embed", units=units, cost_calculator=prices) as purchase:
            assert purchase.settle().cost_usd == Decimal("0.003")
        async with spend(model="acme:search", units={"queries": 4}, price_usd="0.005") as purchase:
            assert purchase.bound_usd == Decimal("0.020")
            record = purchase.settle(units={"queries": 3})
    assert (record.cost_usd, record.cost_source) == (Decimal("0.015"), "override")
    assert record.units == {"queries": 3}
    assert scope.usage.cost_usd == Decimal("0.018")


async def test_only_units_that_were_reserved_can_be_settled() -> None:
    async with spend(model="acme:ocr", units={"pages": 3}, price_usd="0.01") as purchase:
        with pytest.raises(
            ConfigurationError, match=r"units that were reserved: 'pages'\. Did you mean 'pages'"
        ):
            purchase.settle(units={"page": 2})
        assert purchase.settle(units={"pages": 2}).cost_usd == Decimal("0.02")


async def test_recorded_usage_of_nothing_is_refused() -> None:
    async def search(ctx: StepContext) -> None:
        with pytest.raises(ConfigurationError, match=r"record_usage needs cost_usd= or tokens"):
            ctx.record_usage(model="a")
        ctx.record_usage(model="a", cost_usd=0)

    await Pipeline("p", {"search": step(search)}).execute()


async def test_without_a_price_a_budget_of_money_refuses_it() -> None:
    units = {"input_tokens": 10}
    with pytest.raises(UnpricedModelError, match=r"give the price of a unit: spend\(units=") as caught:
        async with budget_scope(DOLLAR), spend(model="acme:embed", units=units):
            pass
    assert "agent" not in str(caught.value)
    async with budget_scope(Budget(tokens=100)) as scope, spend(model="acme:embed", units=units) as purchase:
        assert purchase.bound_usd is None
        purchase.settle()
    assert (scope.usage.unpriced_requests, scope.usage.cost_complete) == (1, False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "usd"),
        ({"model": "acme:search"}, "usd"),
        ({"usd": -1}, "usd"),
        ({"usd": "much"}, "usd"),
        ({"usd": 1, "price_usd": 1}, "price_usd"),
        ({"units": {"input_tokens": 1}}, "model"),
        ({"model": "openai:tts-1", "units": {"input_letters": 1}}, "units"),
        ({"model": "openai:tts-1", "units": {"input_characters": -1}}, "units"),
        ({"model": "openai:tts-1", "units": {"input_characters": True}}, "units"),
        ({"model": "openai:tts-1", "units": {"input_characters": float("inf")}}, "units"),
        ({"units": 3, "price_usd": 1}, "units"),
        ({"units": {"a": 1, "b": 1}, "price_usd": 1}, "units"),
        ({"units": {"a": 1}, "price_usd": -1}, "price_usd"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_at_once(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{named}"):
        spend(**arguments)


async def test_it_ends_once_and_is_used_once() -> None:
    purchase = spend("0.1")
    with pytest.raises(ConfigurationError, match="inside of its `with` block"):
        purchase.settle()
    async with purchase:
        purchase.settle()
        with pytest.raises(ConfigurationError, match="one call of settle"):
            purchase.release()
    with pytest.raises(ConfigurationError, match=r"a new spend\(\) for each"):
        async with purchase:
            pass
    with pytest.raises(ConfigurationError, match="`async with`"), spend("0.1"):
        pass


async def test_a_bill_counts_before_the_price_of_its_units() -> None:
    async with spend(model="openai:text-embedding-3-small", units={"input_tokens": 8_000}) as embedding:
        record = embedding.settle("0.0001", units={"input_tokens": 6_000})
    assert (record.cost_usd, record.cost_source) == (Decimal("0.0001"), "stated")
    assert (record.tokens.input_tokens, record.priced_usd) == (6_000, Decimal("0.00012"))


async def test_a_bill_above_the_most_is_charged_and_stops_the_next_purchase() -> None:
    async with budget_scope(DOLLAR) as scope:
        async with spend("0.5") as purchase:
            purchase.settle("1.5")
        with pytest.raises(CostBudgetExceeded) as caught:
            async with spend("0.01"):
                pytest.fail("the budget is crossed")
    assert caught.value.stopped == "spend"
    assert scope.usage.cost_usd == Decimal("1.5")


def test_code_that_is_not_async_spends_too() -> None:
    with budget_scope(DOLLAR) as scope:
        with spend("0.3") as purchase:
            assert left(scope) == Decimal("0.7")
            purchase.settle("0.2")
        with pytest.raises(CostBudgetExceeded), spend("0.9"):
            pass
    assert scope.usage.cost_usd == Decimal("0.2")


def test_outside_of_any_run_it_is_only_counted_for_itself() -> None:
    with spend("0.3", model="acme:search") as purchase:
        purchase.settle("0.2")
    assert purchase.record is not None
    assert purchase.record.cost_usd == Decimal("0.2")


def test_threads_spend_from_one_budget() -> None:
    with budget_scope(DOLLAR) as scope:
        ended = threading.Barrier(4, timeout=PATIENCE)

        def buy() -> None:
            with spend("0.3") as purchase:
                purchase.settle("0.3")
            ended.wait()

        threads = [threading.Thread(target=copy_context().run, args=(buy,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        ended.wait()
    assert scope.usage.cost_usd == Decimal("0.9")


# --- in steps ---


async def test_a_step_spends_in_its_own_name() -> None:
    async def search(ctx: StepContext) -> None:
        async with ctx.spend("0.02", model="acme:search") as purchase:
            assert isinstance(purchase, Spend)
            purchase.settle("0.01")

    result = await run_alone(search)
    [record] = result.usage.records
    assert (record.step_id, record.cost_usd) == ("alone", Decimal("0.01"))


async def test_a_sync_step_spends_with_with() -> None:
    def search(ctx: StepContext) -> None:
        with ctx.spend("0.02") as purchase:
            purchase.settle()

    assert (await run_alone(search)).usage.cost_usd == Decimal("0.02")


async def test_a_step_s_own_budget_is_its_own_failure_and_one_around_it_stops_the_run() -> None:
    async def search(ctx: StepContext) -> None:
        async with ctx.spend("0.02"):
            pass

    own = await failure_of(step(cost_budget=1_000)(search))
    assert isinstance(own, CostBudgetExceeded)
    with pytest.raises(CostBudgetExceeded) as caught:
        await Pipeline("p", {"s": step(search)}, config=PipelineConfig(cost_budget=1_000)).execute()
    assert caught.value.scope_path == ("p",)


async def test_listeners_are_told_of_it() -> None:
    heard: list[Any] = []
    async with budget_scope(DOLLAR, on_event=heard.append), spend("0.02", model="acme:x") as purchase:
        purchase.settle()
    [event] = heard
    assert isinstance(event, SpendRecorded)
    assert event.record == purchase.record


# --- spend limits ---


async def test_spend_limits_hold_for_it_and_are_charged() -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore())
    async with budget_scope(limit):
        async with spend("0.6") as purchase:
            assert (await limit.status()).reserved_usd == Decimal("0.6")
            purchase.settle("0.5")
        status = await limit.status()
        assert (status.reserved_usd, status.spent_usd) == (0, Decimal("0.5"))
        with pytest.raises(SpendLimitExceeded) as caught:
            async with spend("0.6"):
                pass
    assert caught.value.stopped == "spend"
    assert "max_tokens" not in str(caught.value)


async def test_recorded_usage_that_crosses_a_spend_limit_stops_the_step_after_it() -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore())

    @step
    async def search(ctx: StepContext) -> str:
        ctx.record_usage(model="search", cost_usd="0.4")
        return "found"

    pipeline = Pipeline(
        "p",
        {"first": search, "second": search},
        dependencies={"second": ["first"]},
        config=PipelineConfig(budget=limit),
    )
    assert (await pipeline.execute()).output == "found"
    store = MemoryRunStore()
    with pytest.raises(SpendLimitExceeded) as caught:
        await pipeline.execute(run_id="r", store=store)
    for stop in (caught.value, await failure_of_resume(pipeline, store)):
        assert isinstance(stop, SpendLimitExceeded)
        assert (stop.stopped, stop.step_id, stop.actual_microcents) == ("step", "second", 1_200_000)
        assert stop.usage.cost_usd == Decimal("0.4"), "the first step keeps what it bought"
    assert (await limit.status()).spent_usd == Decimal("1.2")
    await SpendBook(limit.store).set_limit("default", 2, by="Mia", reason="it is worth it")
    assert (await pipeline.resume("r", store=store)).output == "found"


async def failure_of_resume(pipeline: Pipeline[Any, Any], store: MemoryRunStore) -> Exception:
    with pytest.raises(BudgetExceeded) as caught:
        await pipeline.resume("r", store=store)
    return caught.value


async def test_of_recorded_usage_that_is_priced_in_part_spend_limits_count_that_part() -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore())

    @step
    async def search(ctx: StepContext) -> None:
        # $2.50 for a million input tokens; the fee of the search is in no price list.
        ctx.record_usage(model="openai:gpt-4o-search-preview", input_tokens=600_000)

    with pytest.raises(StepExecutionError) as caught, pytest.warns(UnpricedModelWarning):
        await Pipeline("p", {"search": search}, config=PipelineConfig(budget=limit)).execute()
    assert isinstance(caught.value.original_error, UnpricedModelError)
    assert (await limit.status()).spent_usd == Decimal("1.5")


async def test_of_a_purchase_that_is_priced_in_part_spend_limits_count_that_part() -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore(), on_unpriced="allow", on_unbounded="allow")
    units = {"input_tokens": 600_000}
    with pytest.raises(SpendLimitExceeded, match=r"\$1\.50 of \$1\.00"):
        async with budget_scope(limit):
            for _ in range(2):
                async with spend(model="openai:gpt-4o-search-preview", units=units) as purchase:
                    purchase.settle()
    assert (await limit.status()).spent_usd == Decimal("1.5")


async def test_recorded_usage_of_a_loop_stops_it_as_soon_as_the_limit_says_so() -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore())

    @step
    async def search(ctx: StepContext) -> None:
        for number in range(1, 100):
            ctx.record_usage(model="search", cost_usd="0.4")
            while (await limit.status()).spent_usd < number * Decimal("0.4"):
                await asyncio.sleep(0.001)

    with pytest.raises(SpendLimitExceeded) as caught:
        await Pipeline("p", {"s": search}, config=PipelineConfig(budget=limit)).execute()
    assert Decimal("1.2") <= caught.value.usage.cost_usd <= Decimal("1.6")
    assert (await limit.status()).spent_usd == caught.value.usage.cost_usd


async def test_recorded_usage_that_alone_crosses_a_spend_limit_stops_a_loop_that_never_waits() -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore())

    @step
    async def search(ctx: StepContext) -> None:
        for _ in range(100):
            ctx.record_usage(model="search", cost_usd="0.4")

    with pytest.raises(SpendLimitExceeded) as caught:
        await Pipeline("p", {"s": search}, config=PipelineConfig(budget=limit)).execute()
    # The store may have one in its books by then, which counts at the next call.
    assert Decimal("1.2") <= caught.value.usage.cost_usd <= Decimal("2.4")
    assert caught.value.stopped == "recorded"
    assert (await limit.status()).spent_usd == caught.value.usage.cost_usd


async def test_what_steps_record_side_by_side_counts_together_before_the_store_has_it() -> None:
    did: list[str] = []

    class Slow(MemorySpendStore):
        async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
            await asyncio.sleep(0.1)
            return await super().settle(claim, cost_usd)

    @step
    async def search(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.4")
        did.append(ctx.step_id)

    limit = SpendLimit(usd=1, store=Slow())
    steps = {f"s{number}": search for number in range(10)}
    with pytest.raises(SpendLimitExceeded):
        await Pipeline("p", steps, output_step="s0", config=PipelineConfig(budget=limit)).execute()
    assert len(did) == 3, "the third has crossed it, so the fourth is refused"


# --- what is recorded after it has happened ---


async def test_recorded_usage_after_the_crossing_of_a_budget_stops_its_step_and_is_charged() -> None:
    did: list[int] = []

    async def search(ctx: StepContext) -> None:
        for number in range(5):
            did.append(number)
            ctx.record_usage(model="search", cost_usd="0.4")

    error = await failure_of(step(budget=DOLLAR)(search))
    assert isinstance(error, CostBudgetExceeded)
    assert (error.stopped, error.committed, error.requested) == ("recorded", 1_600_000, None)
    assert did == [0, 1, 2, 3], "the third crosses it, and the fourth is refused"
    assert error.usage.cost_usd == Decimal("1.6")
    assert str(error).endswith("Raise the budget, or reserve before you spend: ctx.spend(...)")


async def test_of_several_budgets_that_are_crossed_the_outermost_stops() -> None:
    async def search(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd=2)
        ctx.record_usage(model="search", cost_usd=2)

    pipeline = Pipeline("p", {"s": step(budget=DOLLAR)(search)}, config=PipelineConfig(budget=DOLLAR))
    with pytest.raises(CostBudgetExceeded) as caught:
        await pipeline.execute()
    assert caught.value.scope_path == ("p",)
    assert caught.value.usage.cost_usd == 4


async def test_a_last_step_that_crosses_a_budget_has_finished_and_so_has_its_run() -> None:
    warned: list[Decimal] = []
    budget = Budget(usd=1, on_warning=lambda warning: warned.append(warning.share))

    async def search(ctx: StepContext) -> str:
        ctx.record_usage(model="search", cost_usd=2)
        return "found"

    result = await Pipeline("p", {"s": step(search)}, config=PipelineConfig(budget=budget)).execute()
    assert (result.output, result.usage.cost_usd) == ("found", 2)
    assert warned == [2], "the warning tells that the budget is crossed"


@pytest.mark.parametrize("buys", ["record", "spend"])
async def test_a_resumed_run_whose_budget_is_crossed_starts_nothing(buys: str) -> None:
    did: list[str] = []

    @step
    async def buy(ctx: StepContext) -> str:
        did.append(ctx.step_id)
        if buys == "record":
            ctx.record_usage(model="search", cost_usd="1.5")
        else:
            async with ctx.spend("0.5") as purchase:
                purchase.settle("1.5")
        return "bought"

    steps = {"buy": buy, "again": buy}
    order = {"again": ["buy"]}
    small = Pipeline("p", steps, dependencies=order, config=PipelineConfig(budget=DOLLAR))
    store = MemoryRunStore()
    with pytest.raises(CostBudgetExceeded, match=r"\$1\.50 of \$1\.00 is spent, so the step was not started"):
        await small.execute(run_id="r", store=store)
    for _ in range(3):
        stop = await failure_of_resume(small, store)
        assert isinstance(stop, CostBudgetExceeded)
        assert (stop.stopped, stop.usage.cost_usd) == ("step", Decimal("1.5"))
    assert did == ["buy"]
    large = Pipeline("p", steps, dependencies=order, config=PipelineConfig(budget=Budget(usd=5)))
    assert (await large.resume("r", store=store)).output == "bought"
    assert did == ["buy", "again"]


async def test_an_item_of_a_map_and_another_attempt_are_not_begun_under_a_crossed_budget() -> None:
    attempts: list[int] = []

    @step
    async def each(ctx: StepContext) -> str:
        return "done"

    @step(budget=DOLLAR)
    async def maps(ctx: StepContext) -> list[str]:
        ctx.record_usage(model="search", cost_usd=2)
        return list(await ctx.map(each, [1, 2]))

    @step(budget=DOLLAR, retries=2)
    async def fails(ctx: StepContext) -> None:
        attempts.append(ctx.attempt)
        ctx.record_usage(model="search", cost_usd=2)
        raise ConnectionError

    for failing in (maps, fails):
        error = await failure_of(failing)
        assert isinstance(error, CostBudgetExceeded)
        assert (error.stopped, error.usage.cost_usd) == ("step", 2)
    assert attempts == [1]


@pytest.mark.parametrize("limit", [DOLLAR, SpendLimit(usd=1, store=MemorySpendStore())])
async def test_recorded_usage_of_unknown_cost_stops_the_step_under_a_limit_of_money(
    limit: Budget | SpendLimit,
) -> None:
    runs = 0

    async def reads(ctx: StepContext) -> None:
        nonlocal runs
        runs += 1
        ctx.record_usage(model="acme:unheard-of", input_tokens=10, cost_calculator=CostCalculator())

    with pytest.warns(UnpricedModelWarning):
        error = await failure_of(step(budget=limit, retries=2)(reads))
    assert isinstance(error, UnpricedModelError)
    assert "Pass cost_usd= to record_usage" in str(error)
    assert runs == 1
    spent = usage_of(error)
    assert spent is not None
    assert (spent.input_tokens, spent.cost_usd, spent.cost_complete) == (10, 0, False)


@pytest.mark.parametrize(
    "limit",
    [
        Budget(tokens=1_000),
        Budget(usd=1, on_unpriced="allow"),
        SpendLimit(usd=1, store=MemorySpendStore(), on_unpriced="allow"),
    ],
)
async def test_recorded_usage_of_unknown_cost_passes_where_no_limit_of_money_has_to_hold(
    limit: Budget | SpendLimit,
) -> None:
    async def reads(ctx: StepContext) -> str:
        ctx.record_usage(model="acme:unheard-of", input_tokens=10, cost_calculator=CostCalculator())
        return "read"

    with pytest.warns(UnpricedModelWarning):
        assert (await run_alone(step(budget=limit)(reads))).output == "read"


async def test_a_step_that_catches_the_stop_of_recorded_usage_ends_with_it() -> None:
    async def shops(ctx: StepContext) -> str:
        ctx.record_usage(model="search", cost_usd="1.5")
        with suppress(BudgetExceeded):
            ctx.record_usage(model="search", cost_usd="0.5")
        return "bought"

    error = await failure_of(step(budget=DOLLAR)(shops))
    assert isinstance(error, CostBudgetExceeded)
    assert error.usage.cost_usd == 2


async def test_what_just_fits_stops_nothing() -> None:
    async def search(ctx: StepContext) -> str:
        ctx.record_usage(model="search", cost_usd=1)
        return "found"

    pipeline = Pipeline("p", {"s": step(search)}, config=PipelineConfig(budget=DOLLAR))
    assert (await pipeline.execute()).output == "found"


# --- on record ---


async def test_a_purchase_that_is_cancelled_while_it_is_put_on_record_costs_nothing() -> None:
    writes, may_write = asyncio.Event(), asyncio.Event()
    may_write.set()

    class Slow(MemoryRunStore):
        async def append(self, *args: Any, **options: Any) -> Any:
            writes.set()
            await may_write.wait()
            return await super().append(*args, **options)

    @step
    async def search(ctx: StepContext) -> str:
        writes.clear()
        may_write.clear()
        purchase = asyncio.create_task(ctx.spend("0.02").__aenter__())
        await writes.wait()
        purchase.cancel()
        await asyncio.wait([purchase])
        may_write.set()
        return "nothing"

    result = await Pipeline("p", {"search": search}).execute(run_id="r", store=(store := Slow()))
    trace = await RunHistory(store).trace("r")
    for usage in (result.usage.total, trace.usage):
        assert (usage.committed_usd, usage.cost_complete, usage.failed_requests) == (0, True, 1)


async def test_what_is_bought_while_the_process_dies_counts_at_its_most() -> None:
    store, entered = MemoryRunStore(), asyncio.Event()
    bought: list[RequestRecord] = []
    dies = True

    @step
    async def search(ctx: StepContext) -> str:
        async with ctx.spend("0.02", model="acme:search") as purchase:
            if dies:
                log = [entry async for entry in _log_of(store, "r")]
                assert sum("spending_recorded" in entry for entry in log) == 1
                entered.set()
                raise KeyboardInterrupt
            bought.append(purchase.settle("0.01"))
        return "found"

    pipeline = Pipeline("p", {"search": search})
    with pytest.raises(KeyboardInterrupt):
        await pipeline.execute(run_id="r", store=store)
    dies = False
    result = await pipeline.resume("r", store=store)
    assert result.usage.total.committed_usd == Decimal("0.03")
    assert (result.usage.total.unmeasured_requests, result.usage.cost_usd) == (1, Decimal("0.01"))
    trace = result.trace
    assert trace is not None
    assert len([record for one in trace.attempts for record in one.records]) == 2


async def _log_of(store: MemoryRunStore, run_id: str) -> Any:
    for value in await raw_log(store, run_id):
        yield value.decode()


@pytest.mark.parametrize("is_on_record", [False, True])
@pytest.mark.parametrize(("how", "spent"), [("spend", "0.6"), ("spend_sync", "0.6"), ("record_usage", "1.8")])
async def test_a_budget_scope_inside_of_a_step_counts_what_the_context_spends(
    how: str, spent: str, is_on_record: bool
) -> None:
    async def buy(ctx: StepContext[None]) -> None:
        if how == "record_usage":  # it is charged in any case, and refused when the budget was crossed
            ctx.record_usage(model="acme:search", cost_usd="0.6")
        elif how == "spend":
            async with ctx.spend("0.6") as purchase:
                purchase.settle()
        else:
            await asyncio.to_thread(buy_sync, ctx)

    def buy_sync(ctx: StepContext[None]) -> None:
        with ctx.spend("0.6") as purchase:
            purchase.settle()

    @step
    async def work(ctx: StepContext[None]) -> str:
        with pytest.raises(CostBudgetExceeded, match="budget_scope"):
            async with budget_scope(Budget(usd=1)) as scope:
                for _ in range(3):
                    await buy(ctx)
        assert scope.usage.cost_usd == Decimal(spent)
        ctx.record_usage(model="acme:search", cost_usd="0.1")  # the step itself has no budget
        return "done"

    store = MemoryRunStore() if is_on_record else None
    result = await Pipeline("p", {"work": work}).execute(store=store)
    assert (result.output, result.usage.cost_usd) == ("done", Decimal(spent) + Decimal("0.1"))


async def test_a_step_that_has_crossed_its_own_budget_ends_although_a_budget_scope_told_it() -> None:
    @step
    async def work(ctx: StepContext[None]) -> str:
        with suppress(CostBudgetExceeded):
            async with budget_scope(Budget(usd=9)):
                for _ in range(3):
                    ctx.record_usage(model="acme:search", cost_usd="0.6")
        return "done"

    with pytest.raises(CostBudgetExceeded, match="budget of 'p' reached in step 'work': .1.80 of"):
        await Pipeline("p", {"work": work}, config=PipelineConfig(budget=Budget(usd=1))).execute()
