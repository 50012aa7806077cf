"""Several processes that spend, and change the limit meanwhile: what is admitted stays within the limit in
force, and the account agrees with all that they did."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.spend_stores import KINDS, make_kept
from support.spend_worker import SHARES, Deed, Mixed, Place, Task, Workers

from fastroai.usage import SpendAccount, SpendStatus, SpendStore

pytestmark = pytest.mark.slow

PROCESSES = 3
LIMIT = Decimal(4)

Do = Callable[[Task], list[Mixed]]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    some = Workers(PROCESSES)
    yield some
    some.end()


def in_threads(store: SpendStore) -> Do:
    """Threads with event loops of their own, for the store that processes cannot share."""

    def do(task: Task) -> list[Mixed]:
        with ThreadPoolExecutor(PROCESSES) as pool:
            deeds = [Deed(f"worker {number}", task, store) for number in range(PROCESSES)]
            return list(pool.map(lambda deed: asyncio.run(deed.mix()), deeds))

    return do


@pytest.mark.parametrize("kind", KINDS)
def test_processes_never_cross_the_limit_in_force_and_the_account_agrees_with_them(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, workers: Workers
) -> None:
    kept = make_kept(kind, request, tmp_path)
    do: Do = in_threads(kept.store) if kind == "memory" else workers.do
    place = Place("memory", "") if kind == "memory" else Place.of(kept)
    task = Task("mix", place, Decimal("0.7"), LIMIT)

    @settings(max_examples=examples(5))
    @given(seed=st.integers(0, 2**32), count=st.integers(1, 12), by_hand=st.booleans())
    def check(seed: int, count: int, by_hand: bool) -> None:
        key = uuid.uuid4().hex
        mixed = do(replace(task, key=key, seed=seed, count=count, by_hand=by_hand))
        of = SpendAccount(key=key, window="total")
        (status,) = asyncio.run(kept.store.windows(of))
        assert_agreed(mixed, status, by_hand)

    try:
        check()
    finally:
        kept.end()


def assert_agreed(mixed: list[Mixed], status: SpendStatus, by_hand: bool) -> None:
    assert not any(each.crossed for each in mixed)
    assert by_hand or any(each.granted for each in mixed)
    made = status.adjustments
    assert Counter(made) == Counter(one for each in mixed for one in each.adjustments)
    assert bool(made) <= by_hand

    costs = sum((each.costs for each in mixed), Decimal(0))
    forgiven = sum((one.from_usd for one in made if one.changes == "spent"), Decimal(0))
    assert (status.spent_usd, status.reserved_usd) == (costs - forgiven, 0)

    limits = [LIMIT]
    for one in made:
        if one.changes == "limit":
            assert one.from_usd == limits[-1]
            limits.append(one.to_usd)
    assert status.limit_usd == limits[-1]

    told = Counter(share for each in mixed for share in each.told)
    assert all(times <= 1 + len(made) for times in told.values())
    if not made:
        assert sorted(told.elements()) == [
            share for share in SHARES if status.spent_usd >= LIMIT * Decimal(str(share))
        ]
