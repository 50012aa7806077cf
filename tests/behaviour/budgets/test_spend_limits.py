"""Ceilings that runs share: whoever draws on them, whatever becomes of a request and of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from support.accounting import listed_cost
from support.agents import paid_agent, request_costs, streaming_agent
from support.bounds import bound_of
from support.patience import PATIENCE
from support.spend_stores import Passed

from fastroai import (
    FastroAgent,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    SpendLimitExceeded,
    StepConfig,
    StepContext,
    budget_scope,
    spend,
    step,
)
from fastroai.errors import ConfigurationError, SpendStoreUnavailable
from fastroai.pipelines import BudgetWaiting, BudgetWarning
from fastroai.records import usd_to_microcents
from fastroai.store import MemorySpendStore, SQLiteSpendStore
from fastroai.testing import Fault, ModelServer, Reply
from fastroai.usage import SpendAccount, SpendBalance, SpendBook, SpendClaim, SpendVerdict

MICROCENT = Decimal("0.000001")
NOON = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)
MODEL = "openai-chat:gpt-5-mini"


class Store(Passed):
    """A store in memory that can be down, with a clock that is set, and that says what happens."""

    def __init__(self) -> None:
        self.passed = timedelta(0)
        self.down = False
        self.waited = asyncio.Event()
        """A claim was not granted at once."""
        self.settled = threading.Event()
        self.renewals = 0
        self.on_renewal: Callable[[], None] = lambda: None
        super().__init__(
            MemorySpendStore(
                clock=lambda: NOON + self.passed, steady_clock=lambda: self.passed.total_seconds()
            )
        )

    def pass_time(self, seconds: float) -> None:
        self.passed += timedelta(seconds=seconds)

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        self._check()
        verdict = await super().reserve(claim)
        if not verdict.granted:
            self.waited.set()
        await asyncio.sleep(0)  # others come in between, as with every real store
        return verdict

    async def mark_sent(self, claim: SpendClaim) -> bool:
        self._check()
        return await super().mark_sent(claim)

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        self._check()
        balance = await super().settle(claim, cost_usd)
        self.settled.set()
        return balance

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        self._check()
        await super().renew(claims)
        self.renewals += 1
        self.on_renewal()

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        self._check()
        await super().end_leases(account, holders)

    async def wait_until_settled(self) -> None:
        assert await asyncio.to_thread(self.settled.wait, PATIENCE), "nothing was settled"

    def _check(self) -> None:
        if self.down:
            raise SpendStoreUnavailable("test", "it is down")


@pytest.fixture
def store() -> Store:
    return Store()


@dataclass(frozen=True)
class Deps:
    tenant: str


def tenant_of(deps: Deps) -> str:
    return deps.tenant


async def spent_and_reserved(limit: SpendLimit, deps: Deps | None = None) -> tuple[int, int]:
    """Microcents."""
    status = await limit.status(deps)
    return usd_to_microcents(status.spent_usd), usd_to_microcents(status.reserved_usd)


async def run_or_none(agent: FastroAgent[Any, str], limit: SpendLimit) -> str | None:
    try:
        return (await agent.run("?", budget=limit)).output
    except SpendLimitExceeded:
        return None


# --- who draws on it ---


async def test_runs_share_a_limit_to_the_last_microcent(store: Store) -> None:
    limit = SpendLimit(microcents=550, store=store)
    agent = paid_agent(100)
    answers = await asyncio.gather(*(run_or_none(agent, limit) for _ in range(9)))
    assert sum(answer is not None for answer in answers) == 5
    assert await spent_and_reserved(limit) == (500, 0)


def test_threads_and_their_event_loops_share_a_limit(store: Store) -> None:
    limit = SpendLimit(microcents=1_000, store=store)
    agent = paid_agent(100)
    together = threading.Barrier(6)

    def ask(number: int) -> int:
        together.wait(PATIENCE)
        answers = 0
        for _ in range(3):
            try:
                if number % 2:
                    agent.run_sync("?", budget=limit)
                else:
                    asyncio.run(agent.run("?", budget=limit))
            except SpendLimitExceeded:
                continue
            answers += 1
        return answers

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(ask, range(6))) == 10
    assert asyncio.run(spent_and_reserved(limit)) == (1_000, 0)


async def test_a_stream_is_reserved_while_it_is_open_and_settled_when_it_is_read(store: Store) -> None:
    looked = asyncio.Event()

    async def words(prompt: str) -> AsyncIterator[str]:
        yield "one "
        await looked.wait()
        yield "two"

    limit = SpendLimit(microcents=1_000, store=store)
    agent = streaming_agent(words, cost_calculator=request_costs(100))
    async with agent.run_stream("?", budget=limit) as stream:
        await anext(aiter(stream))
        assert await spent_and_reserved(limit) == (0, 100)
        looked.set()
        async for _ in stream:
            pass
    assert await spent_and_reserved(limit) == (100, 0)


async def test_a_stream_that_is_left_early_is_charged_at_its_bound(store: Store) -> None:
    async def words(prompt: str) -> AsyncIterator[str]:
        yield "one "
        await asyncio.Event().wait()
        yield "two"

    limit = SpendLimit(microcents=1_000, store=store)
    agent = streaming_agent(words, cost_calculator=request_costs(100))
    async with agent.run_stream("?", budget=limit) as stream:
        await anext(aiter(stream))
    await store.wait_until_settled()
    assert await spent_and_reserved(limit) == (100, 0)


async def test_a_limit_that_holds_at_several_levels_counts_a_request_once(store: Store) -> None:
    limit = SpendLimit(microcents=100, store=store)
    agent = paid_agent(100, budget=limit)

    @step(budget=limit)
    async def answer(ctx: StepContext[None]) -> str:
        return (await ctx.run(agent, "?", budget=limit)).output

    pipeline = Pipeline("answer", {"answer": answer}, config=PipelineConfig(budget=limit))
    async with budget_scope([limit]):
        await pipeline.execute({}, None)
    assert await spent_and_reserved(limit) == (100, 0)


async def test_two_limits_are_both_kept(store: Store) -> None:
    everyone = SpendLimit(microcents=250, key="everyone", store=store)
    each = SpendLimit(microcents=100, key=tenant_of, store=store)
    agent = paid_agent(100, budget=[everyone, each])
    stops = []
    for tenant in ("a", "a", "b", "c"):
        try:
            await agent.run("?", deps=Deps(tenant))
        except SpendLimitExceeded as stop:
            stops.append(stop.key)
    assert stops == ["a", "everyone"]
    assert await spent_and_reserved(everyone) == (200, 0)
    assert [await spent_and_reserved(each, Deps(tenant)) for tenant in "abc"] == [(100, 0), (100, 0), (0, 0)]


async def test_the_same_account_in_two_stores_is_asked_for_in_one_order(store: Store) -> None:
    other = Store()
    ours, theirs = (SpendLimit(microcents=100, store=each) for each in (store, other))
    agent = paid_agent(50)
    runs = (agent.run("?", budget=limits) for limits in ([ours, theirs], [theirs, ours]) * 5)
    answers = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), PATIENCE)
    assert sum(not isinstance(answer, BaseException) for answer in answers) == 2
    assert await spent_and_reserved(ours) == await spent_and_reserved(theirs) == (100, 0)


async def test_keys_come_from_the_deps_of_agents_steps_and_pipelines(store: Store) -> None:
    limit = SpendLimit(microcents=1_000, key=tenant_of, store=store)
    plain = paid_agent(1)
    await paid_agent(10, budget=limit).run("?", deps=Deps("acme"))

    @step(budget=limit)
    async def answer(ctx: StepContext[Deps]) -> str:
        return (await ctx.run(plain, "?")).output

    await Pipeline("steps", {"answer": answer}).execute({}, Deps("acme"))
    await Pipeline(
        "pipeline",
        {"answer": answer},
        config=PipelineConfig(budget=limit),
        step_configs={"answer": StepConfig(timeout=PATIENCE)},
    ).execute({}, Deps("other"))
    async with budget_scope(limit, deps=Deps("other")):
        await plain.run("?")
    assert await spent_and_reserved(limit, Deps("acme")) == (11, 0)
    assert await spent_and_reserved(limit, Deps("other")) == (2, 0)


async def test_a_key_function_that_fails_stops_the_run_before_a_request(
    server: ModelServer, store: Store
) -> None:
    limit = SpendLimit(usd=1, key=tenant_of, store=store)
    with pytest.raises(ConfigurationError, match=r"key='tenant_of'.*AttributeError"):
        await FastroAgent(server.model(MODEL), budget=limit).run("?")
    assert server.ledger.entries == ()


# --- what becomes of a request ---


async def test_what_the_provider_refused_is_free_again(server: ModelServer, store: Store) -> None:
    server.rule(None, Reply(fault=Fault.status(500)))
    limit = SpendLimit(usd=1, store=store)
    with pytest.raises(ModelHTTPError):
        await FastroAgent(server.model(MODEL), request_retries=2).run("?", budget=limit)
    assert len(server.ledger.entries) == 3
    assert await spent_and_reserved(limit) == (0, 0)


async def test_a_request_that_is_cancelled_is_charged_at_its_bound(server: ModelServer, store: Store) -> None:
    server.rule(None, Reply(fault=Fault.hang()))
    model = server.model(MODEL)
    limit = SpendLimit(usd=1, store=store)
    task = asyncio.create_task(FastroAgent(model, max_tokens=100).run("?", budget=limit))
    await server.ledger.wait_for(1, timeout=PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.wait_until_settled()
    status = await limit.status()
    assert status.spent_usd == bound_of(model, "?", 100).cost_usd
    assert status.reserved_usd == 0


async def test_a_request_that_is_cancelled_while_it_waits_leaves_the_line(store: Store) -> None:
    limit = SpendLimit(microcents=100, store=store)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def think(prompt: str) -> None:
        asked.set()
        await answer.wait()

    first = asyncio.create_task(paid_agent(80, before=think).run("?", budget=limit))
    await asked.wait()
    second = asyncio.create_task(paid_agent(90).run("?", budget=limit))
    await store.waited.wait()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await paid_agent(20).run("?", budget=limit)).cost_microcents == 20
    answer.set()
    await first
    assert await spent_and_reserved(limit) == (100, 0)


async def test_a_lease_is_renewed_while_a_request_takes_longer_than_it(store: Store) -> None:
    loop, renewed = asyncio.get_running_loop(), asyncio.Event()

    def pass_most_of_the_lease() -> None:
        store.pass_time(0.2)
        if store.renewals == 5:
            loop.call_soon_threadsafe(renewed.set)

    store.on_renewal = pass_most_of_the_lease
    limit = SpendLimit(microcents=150, store=store, lease=0.3)
    balances = []

    async def think(prompt: str) -> None:
        await asyncio.wait_for(renewed.wait(), PATIENCE)
        balances.append(await spent_and_reserved(limit))

    await paid_agent(100, before=think).run("?", budget=limit)
    assert balances == [(0, 100)], "after three leases it is not counted as lost"
    assert await spent_and_reserved(limit) == (100, 0)


# --- a store that is down ---


async def test_without_the_store_nothing_is_sent(server: ModelServer, store: Store) -> None:
    store.down = True
    with pytest.raises(SpendStoreUnavailable, match="it is down"):
        await FastroAgent(server.model(MODEL), budget=SpendLimit(usd=1, store=store)).run("?")
    assert server.ledger.entries == ()


async def test_without_the_store_requests_are_sent_uncounted_where_that_is_allowed(store: Store) -> None:
    store.down = True
    limit = SpendLimit(microcents=100, store=store, on_unavailable="allow")
    responses = [await paid_agent(100).run("?", budget=limit) for _ in range(3)]
    assert [response.cost_microcents for response in responses] == [100] * 3
    assert await spent_and_reserved(limit) == (0, 0)


@pytest.mark.parametrize("on_unavailable", ["refuse", "allow"])
async def test_an_answer_is_not_lost_with_the_store_and_is_settled_when_it_is_back(
    store: Store, on_unavailable: Any
) -> None:
    async def think(prompt: str) -> None:
        store.down = True

    limit = SpendLimit(microcents=1_000, store=store, on_unavailable=on_unavailable)
    response = await paid_agent(100, before=think).run("?", budget=limit)
    assert response.output == "answer to ?"
    assert await spent_and_reserved(limit) == (0, 100)
    store.down = False
    await store.wait_until_settled()
    assert await spent_and_reserved(limit) == (100, 0)


async def test_an_answer_that_cannot_be_settled_counts_at_its_bound_until_it_is(
    server: ModelServer, store: Store
) -> None:
    @server.rule()
    def answer(request: object) -> Reply:
        store.down = True
        return Reply("Yes.")

    model = server.model(MODEL)
    limit = SpendLimit(usd=1, store=store)
    await FastroAgent(model, max_tokens=100).run("?", budget=limit)
    store.pass_time(31)
    status = await limit.status()
    assert status.spent_usd == bound_of(model, "?", 100).cost_usd
    assert status.reserved_usd == 0
    store.down = False
    await store.wait_until_settled()
    [entry] = server.ledger.entries
    assert (await limit.status()).spent_usd == listed_cost(entry)


async def test_a_request_that_went_out_while_the_store_was_down_is_counted_when_it_is_back(
    store: Store,
) -> None:
    limit = SpendLimit(microcents=100, store=store, on_unavailable="allow")
    mark_sent = store.mark_sent

    async def fail(claim: SpendClaim) -> bool:
        store.down = True
        return await mark_sent(claim)

    async def think(prompt: str) -> None:
        store.down = False

    store.mark_sent = fail  # type: ignore[method-assign]
    await paid_agent(100, before=think).run("?", budget=limit)
    assert await spent_and_reserved(limit) == (100, 0)


# --- limits that are changed by hand ---

BY_HAND = {"by": "Mia", "reason": "a test"}


async def test_a_request_that_waits_in_line_goes_on_when_the_limit_is_raised(store: Store) -> None:
    limit = SpendLimit(microcents=150, store=store)
    answered = asyncio.Event()

    async def think(prompt: str) -> None:
        await answered.wait()

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(paid_agent(100, before=think).run("?", budget=limit))
        waiting = tasks.create_task(paid_agent(100).run("?", budget=limit))
        await store.waited.wait()
        await SpendBook(store).set_limit("default", "0.0002", **BY_HAND)
        assert (await waiting).cost_microcents == 100
        assert not first.done()
        answered.set()
    assert (await limit.status()).limit_usd == Decimal("0.0002")
    assert await spent_and_reserved(limit) == (200, 0)


@pytest.mark.parametrize("max_tokens", [200, None])
async def test_a_limit_that_is_lowered_below_what_is_spent_admits_nothing_until_its_next_window(
    server: ModelServer, store: Store, max_tokens: int | None
) -> None:
    limit = SpendLimit(usd=1, window="hour", store=store)
    agent = FastroAgent(server.model(MODEL), max_tokens=max_tokens, budget=limit)
    await agent.run("?")
    spent_usd = (await limit.status()).spent_usd
    await SpendBook(store).set_limit("default", spent_usd / 2, window="hour", **BY_HAND)
    with pytest.raises(SpendLimitExceeded) as caught:
        await agent.run("?")
    assert (caught.value.key, caught.value.resets_at) == ("default", NOON.replace(hour=13, minute=0))
    store.pass_time(1_800)
    assert (await agent.run("?")).output == "echo: ?"


async def test_who_waits_for_what_a_lowered_limit_has_not_is_told_so_and_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastroai.runtime.budgets.at_limits.TOLD_AFTER", -1.0)
    limit, answered, told = SpendLimit(microcents=1_000, store=store), asyncio.Event(), asyncio.Event()
    waits: list[BudgetWaiting] = []

    def listen(event: Any) -> None:
        if isinstance(event, BudgetWaiting):
            waits.append(event)
            told.set()

    async def think(prompt: str) -> None:
        await answered.wait()

    await paid_agent(100).run("?", budget=limit)
    flying = asyncio.create_task(paid_agent(100, before=think).run("?", budget=limit))
    while (await spent_and_reserved(limit)) != (100, 100):
        await asyncio.sleep(0)
    await SpendBook(store).set_limit("default", "0.00005", **BY_HAND)
    async with budget_scope(limit, on_event=listen):
        waiting = asyncio.create_task(paid_agent(100).run("?"))
        await told.wait()
        answered.set()
        with pytest.raises(SpendLimitExceeded):
            await waiting
    await flying
    assert "of $0.00005, of which $0.00 is neither spent nor reserved" in waits[0].waits_for


# --- what is told ---


async def test_a_warning_says_whose_limit_is_nearly_used_up(store: Store) -> None:
    limit = SpendLimit(microcents=400, key=tenant_of, store=store, warn_at=0.5)
    told: list[Any] = []
    async with budget_scope(limit, deps=Deps("acme"), on_event=told.append):
        for _ in range(4):
            await paid_agent(100).run("?")
    [warning] = [event for event in told if isinstance(event, BudgetWarning)]
    assert (warning.key, warning.share, warning.limit_usd) == ("acme", Decimal("0.5"), 400 * MICROCENT)
    assert told.index(warning) == 2, "after the second request"


async def test_a_stop_says_whose_limit_it_is_and_when_it_starts_anew(store: Store) -> None:
    limit = SpendLimit(microcents=150, key=tenant_of, window="hour", store=store)
    agent = paid_agent(100, budget=limit)
    await agent.run("?", deps=Deps("acme"))
    with pytest.raises(SpendLimitExceeded, match="Wait until 2026-03-10 13:00 UTC") as caught:
        await agent.run("?", deps=Deps("acme"))
    stop = caught.value
    assert (stop.key, stop.window, stop.resets_at) == ("acme", "hour", NOON.replace(hour=13, minute=0))
    assert (stop.budget_microcents, stop.actual_microcents, stop.requested_microcents) == (150, 100, 100)
    assert stop.usage.request_count == 0
    store.pass_time(1_800)
    assert (await agent.run("?", deps=Deps("acme"))).cost_microcents == 100
    assert await spent_and_reserved(limit, Deps("acme")) == (100, 0)


async def test_a_limit_of_the_amount_that_a_stop_names_is_enough(store: Store) -> None:
    async def buy(usd: Decimal) -> None:
        async with (
            budget_scope(SpendLimit(usd=usd, key=f"up to {usd}", store=store)),
            spend("0.00001128", model="acme:embed") as purchase,
        ):
            purchase.settle()

    with pytest.raises(SpendLimitExceeded) as caught:
        await buy(MICROCENT)
    assert caught.value.requested_usd == Decimal("0.000012")
    await buy(caught.value.requested_usd)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_limit_that_can_pay_for_less_gets_a_shorter_answer(
    server: ModelServer, store: Store, streamed: bool
) -> None:
    server.rule(lambda request: request.prompt == "long", Reply("word " * 4_000))
    model = server.model(MODEL)
    bound_usd = bound_of(model, "long", 2_000).cost_usd
    assert bound_usd is not None
    limit = SpendLimit(usd=bound_usd * 3 / 4, window="total", store=store)
    agent = FastroAgent(model, max_tokens=2_000, budget=limit)
    assert (await agent.run("tiny")).output == "echo: tiny", "short enough, whatever it could have been"
    with pytest.raises(SpendLimitExceeded) as caught:
        if streamed:
            async for _ in agent.run_stream("long"):
                pass
        else:
            await agent.run("long")
    stop = caught.value
    assert stop.partial_response is not None
    assert stop.partial_response.finish_reason == "length"
    spent_usd = sum(map(listed_cost, server.ledger.entries), Decimal(0))
    assert (await limit.status()).spent_usd == spent_usd <= limit.usd
    assert stop.committed == round(spent_usd * 1_000_000)
    assert stop.resets_at is None


# --- the end of the process ---

SCRIPT = """
import asyncio, sys
from support.agents import paid_agent
from fastroai import SpendLimit
from fastroai.runtime.concurrency import sync
from fastroai.store import SQLiteSpendStore

sync.SECONDS_AT_EXIT = 300  # a busy machine may take longer than the few seconds
limit = SpendLimit(usd=1, window="total", store=SQLiteSpendStore(sys.argv[1], timeout=300))

async def main():
    asked = asyncio.Event()

    async def think(prompt):
        asked.set()
        await asyncio.Event().wait()

    asyncio.create_task(paid_agent(10, before=think).run("?", budget=limit))
    await asked.wait()

paid_agent(100).run_sync("?", budget=limit)
asyncio.run(main())
"""


def test_a_script_that_ends_right_after_its_run_leaves_nothing_reserved(tmp_path: Path) -> None:
    path = tmp_path / "spend.db"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], env=environment, check=True, timeout=PATIENCE)
    limit = SpendLimit(usd=1, window="total", store=SQLiteSpendStore(path))
    assert asyncio.run(spent_and_reserved(limit)) == (110, 0)
