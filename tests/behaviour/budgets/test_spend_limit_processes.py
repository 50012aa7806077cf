"""The proof of a spend limit: four processes, one model server, and one of them is killed.

Judged by the server's own ledger and the published prices, not by what FastroAI says that it has spent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from support.accounting import listed_cost
from support.bounds import bound_of
from support.budget_worker import (
    LEASE,
    LINES,
    MAX_TOKENS,
    MODEL,
    SHARED,
    TAKEN,
    Outcome,
    Work,
    work,
)
from support.patience import PATIENCE
from support.spend_stores import OURS, SHARED_KINDS, Kept, Passed, account, claim, kept_in
from support.spend_worker import Place, Workers

from fastroai import FastroAgent, SpendLimit
from fastroai.testing import Fault, LedgerEntry, ModelServer, Reply
from fastroai.usage import SpendBalance, SpendClaim, SpendStore, SpendVerdict

PROCESSES = 4
REQUESTS_EACH = 3
HELD = 2
"""Requests that the killed process had sent, and as many that it had not."""
LONGEST = 128_000
"""Tokens of the longest answer of the model."""
TEXT = "word " * 152
"""190 tokens, as the server counts them: a request costs a third of what it can cost."""


@pytest.fixture
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    async with kept_in(request.param, request, tmp_path) as new:
        yield new


@pytest.fixture
def workers() -> Iterator[Workers]:
    some = Workers(PROCESSES, work)
    yield some
    some.end()


def most_usd(server: ModelServer, prompt: str, max_tokens: int) -> Decimal:
    cost_usd = bound_of(server.model(MODEL), prompt, max_tokens).cost_usd
    assert cost_usd is not None
    return cost_usd


def is_asked(entry: LedgerEntry, *first_words: str) -> bool:
    return entry.body["messages"][-1]["content"].split()[0] in first_words


@dataclass
class Books:
    """What the model server billed, against what the store says."""

    server: ModelServer
    store: SpendStore

    def entries(self, *first_words: str) -> list[LedgerEntry]:
        return [entry for entry in self.server.ledger.billed if is_asked(entry, *first_words)]

    @property
    def answered_usd(self) -> Decimal:
        """What all answers cost by the published prices."""
        return sum(map(listed_cost, self.entries("work", "patience")), Decimal(0))

    async def balance(self) -> SpendBalance:
        return await self.store.balance(account(key=SHARED))

    async def wait_for(self, condition: Callable[[SpendBalance], bool]) -> None:
        """A store tells nobody of what changes in it, so it is asked."""
        end = time.monotonic() + PATIENCE
        while not condition(balance := await self.balance()):
            assert time.monotonic() < end, f"still {balance}"
            await asyncio.sleep(0.01)


class Witness(Passed):
    """A store, with a note of whether a claim had to wait."""

    def __init__(self, store: SpendStore) -> None:
        super().__init__(store)
        self.waited = asyncio.Event()

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        verdict = await super().reserve(claim)
        if not verdict.granted:
            self.waited.set()
        return verdict


def answered(workers: Workers, count: int) -> list[Outcome]:
    """The outcomes of the first so many processes."""
    return [workers.answer(pipe) for pipe in workers.pipes[:count]]


@pytest.mark.parametrize("kept", SHARED_KINDS, indirect=True)
async def test_processes_never_cross_their_limit_and_use_it_up_though_one_is_killed(
    kept: Kept, workers: Workers, server: ModelServer
) -> None:
    server.rule(lambda request: request.prompt.startswith("hang"), Reply(fault=Fault.hang()))
    server.rule(None, Reply(TEXT))
    books = Books(server, kept.store)
    survivors = PROCESSES - 1
    bound_usd = most_usd(server, "work 0", MAX_TOKENS)
    least_usd = most_usd(server, "work 0", 1)
    request_usd = Decimal("0.0003805")  # 2 tokens in for $0.25, and 190 out for $2.00, by the million
    room_usd = 3 * bound_usd
    limit_usd = survivors * REQUESTS_EACH * request_usd + 2 * HELD * bound_usd + room_usd
    holder = claim("holder", str(limit_usd), limit=str(limit_usd), of=account(key=TAKEN), lease=2 * LEASE)
    assert (await kept.store.reserve(holder)).granted

    # All at once: there is room for the answers of all, but for the bounds of only a few at a time.
    common = {"place": Place.of(kept), "environment": server.environment(), "limit_usd": limit_usd}
    for pipe in workers.pipes[:survivors]:
        pipe.send(Work("ask", count=REQUESTS_EACH, **common))  # type: ignore[arg-type]
    workers.pipes[-1].send(Work("hold", count=HELD, **common))  # type: ignore[arg-type]
    outcomes = await asyncio.to_thread(answered, workers, survivors)
    assert [outcome.answers for outcome in outcomes] == [REQUESTS_EACH] * survivors
    assert [listed_cost(entry) for entry in books.entries("work")] == [
        request_usd
    ] * survivors * REQUESTS_EACH

    # The last one holds its own still, sent and unsent. It is killed.
    await server.ledger.wait_for(survivors * REQUESTS_EACH + HELD, timeout=PATIENCE)
    await books.wait_for(lambda balance: balance.reserved_usd == 2 * HELD * bound_usd)
    assert (
        (await books.balance()).spent_usd == books.answered_usd == limit_usd - 2 * HELD * bound_usd - room_usd
    )
    assert len(books.entries("hang")) == HELD
    assert not books.entries("wait")
    workers.processes[-1].kill()
    workers.processes[-1].join(PATIENCE)

    # Who needs what the dead one has not sent gets it long before its leases are over.
    witness = Witness(kept.store)
    limit = SpendLimit(usd=limit_usd, window="total", key=SHARED, store=witness, lease=LEASE)
    agent = FastroAgent(server.model(MODEL), max_tokens=6 * MAX_TOKENS)
    assert room_usd < most_usd(server, "patience", 6 * MAX_TOKENS) <= room_usd + HELD * bound_usd
    patient = asyncio.create_task(agent.run("patience", budget=limit))
    response = await asyncio.wait_for(patient, PATIENCE)
    assert witness.waited.is_set()
    assert response.output == TEXT
    sent_usd = HELD * bound_usd
    await books.wait_for(lambda balance: balance.reserved_usd == 0)
    assert (await books.balance()).spent_usd == books.answered_usd + sent_usd
    assert all(listed_cost(entry) <= bound_usd for entry in books.entries("hang"))

    # The others use up what is left, all at once again.
    for pipe in workers.pipes[:survivors]:
        pipe.send(Work("exhaust", **common))  # type: ignore[arg-type]
    await asyncio.to_thread(workers.barrier.wait, PATIENCE)
    outcomes = await asyncio.to_thread(answered, workers, survivors)
    balance = await books.balance()
    assert balance.spent_usd == books.answered_usd + sent_usd
    assert balance.reserved_usd == 0
    assert balance.spent_usd <= limit_usd, "crossed"
    paid = sum(outcome.answers + outcome.cuts for outcome in outcomes)
    assert len(books.entries("work")) == survivors * REQUESTS_EACH + paid
    refusals = [committed for outcome in outcomes for committed in outcome.refusals]
    assert len(refusals) == survivors * LINES
    for committed in refusals:
        left_usd = limit_usd - Decimal(committed) / 1_000_000
        assert left_usd < least_usd + Decimal("0.000001"), "refused what could have been paid"
    await kept.store.settle(holder, Decimal(0))
    taken = await kept.store.balance(account(key=TAKEN))
    assert (taken.spent_usd, taken.reserved_usd) == (0, 0)


@pytest.mark.parametrize("kept", OURS, indirect=True)
async def test_processes_whose_agents_set_no_max_tokens_share_what_is_far_less_than_one_bound(
    kept: Kept, workers: Workers, server: ModelServer
) -> None:
    """Parts are cut, asked for again, and wait for those of other processes; nothing is refused."""
    server.rule(None, lambda request: Reply(TEXT if request.prompt.endswith("2") else "word " * 8))
    books = Books(server, kept.store)
    limit_usd = Decimal("0.05")
    assert most_usd(server, "work 0", LONGEST) > 4 * limit_usd
    common = {"place": Place.of(kept), "environment": server.environment(), "limit_usd": limit_usd}
    for pipe in workers.pipes:
        pipe.send(Work("share", count=5, **common))  # type: ignore[arg-type]
    outcomes = await asyncio.to_thread(answered, workers, PROCESSES)
    assert [outcome.answers for outcome in outcomes] == [5] * PROCESSES
    balance = await books.balance()
    assert balance.reserved_usd == 0
    assert balance.spent_usd == books.answered_usd <= limit_usd
    lowered = [entry.body.get("max_completion_tokens") for entry in books.entries("work")]
    assert None not in lowered


@pytest.mark.parametrize("kept", OURS, indirect=True)
async def test_one_of_all_processes_is_told_of_each_share(
    kept: Kept, workers: Workers, server: ModelServer
) -> None:
    server.rule(None, Reply(TEXT))
    shares = (0.1, 0.2, 0.3, 0.4, 0.5)
    limit_usd = most_usd(server, "work 0", MAX_TOKENS) * PROCESSES * REQUESTS_EACH
    for pipe in workers.pipes:
        pipe.send(Work("ask", Place.of(kept), server.environment(), limit_usd, REQUESTS_EACH, warn_at=shares))
    outcomes = await asyncio.to_thread(answered, workers, PROCESSES)
    spent_usd = (await kept.store.balance(account(key=SHARED))).spent_usd
    told = sorted(share for outcome in outcomes for share in outcome.told)
    assert told == [share for share in shares if spent_usd >= limit_usd * Decimal(str(share))]
    assert len(told) >= 3
