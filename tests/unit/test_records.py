import pickle
from datetime import UTC, datetime
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai.records import (
    NOT_GIVEN,
    UNBOUNDED,
    RequestOutcome,
    RequestRecord,
    Tokens,
    Usage,
    exact_sum,
    first_given,
    usd_to_microcents,
)

TOKEN_NAMES = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "input_audio_tokens",
    "cache_audio_read_tokens",
    "output_audio_tokens",
    "reasoning_tokens",
)
counts = st.integers(0, 10**9)
dollars = st.decimals(0, 10**4, places=9)
records = st.builds(
    RequestRecord,
    model=st.just("gpt-5-mini"),
    provider=st.just("openai"),
    outcome=st.sampled_from(["settled", "unmeasured", "released"]),
    tokens=st.builds(Tokens, **dict.fromkeys(TOKEN_NAMES, counts)),
    cost_usd=st.none() | dollars,
    bound_usd=st.none() | dollars,
)


def record(outcome: RequestOutcome = "settled", **values: object) -> RequestRecord:
    return RequestRecord(model="gpt-5-mini", provider="openai", outcome=outcome, **values)  # type: ignore[arg-type]


def test_not_given_is_falsy_and_one_of_its_kind() -> None:
    assert not NOT_GIVEN
    assert repr(NOT_GIVEN) == "NOT_GIVEN"
    assert pickle.loads(pickle.dumps(NOT_GIVEN)) is NOT_GIVEN


def test_the_first_value_that_was_given_counts_even_if_it_is_zero_or_none() -> None:
    assert first_given(NOT_GIVEN, 0, 3, default=7) == 0
    assert first_given(NOT_GIVEN, None, default=7) is None
    assert first_given(NOT_GIVEN, NOT_GIVEN, default=7) == 7


@pytest.mark.parametrize(
    ("usd", "microcents"),
    [
        ("0.5", 500_000),
        ("0.0000005", 0),
        ("0.0000015", 2),
        ("0.0000025", 2),
        ("0.00000250000000000001", 3),
        ("0", 0),
    ],
)
def test_dollars_become_microcents_rounded_half_to_even(usd: str, microcents: int) -> None:
    assert usd_to_microcents(Decimal(usd)) == microcents


def test_a_request_is_unpriced_when_its_usage_is_known_and_its_cost_is_not() -> None:
    assert record().unpriced
    assert not record(cost_usd=Decimal(0)).unpriced
    assert not record("unmeasured").unpriced
    assert not record("released").unpriced


def test_a_partly_priced_request_commits_its_bound_and_names_what_it_leaves_out() -> None:
    partly = record(cost_usd=Decimal("0.2"), unpriced_units=("web_searches",), bound_usd=Decimal("0.5"))
    usage = Usage.of([partly, partly])
    assert not partly.cost_complete
    assert partly.unpriced
    assert (usage.cost_usd, usage.uncertain_usd, usage.committed_usd) == (
        Decimal("0.4"),
        Decimal("0.6"),
        Decimal("1.0"),
    )
    assert (usage.unpriced_requests, usage.unpriced_units) == (2, ("web_searches",))


def test_a_known_part_above_the_bound_is_committed() -> None:
    assert record("unmeasured", cost_usd=Decimal(3), bound_usd=Decimal(2)).committed_usd == 3


def test_an_amount_without_a_bound_cannot_be_taken_for_zero() -> None:
    unknown = record().committed_usd
    assert unknown is UNBOUNDED
    with pytest.raises(TypeError, match="amount is UNBOUNDED"):
        _ = unknown or Decimal(0)


def test_sums_of_money_do_not_depend_on_the_decimal_context_of_the_application() -> None:
    with localcontext(prec=6):
        usage = Usage.of([record(cost_usd=Decimal("100000.1"))] * 3 + [record(cost_usd=Decimal("1e-15"))])
        assert str(usage.cost_usd) == "300000.300000000000001"
        assert usage.cost_microcents == 300_000_300_000
        assert str(usage.committed_usd) == "300000.300000000000001"


def test_an_unmeasured_request_adds_its_bound_to_what_is_committed_only() -> None:
    usage = Usage.of([record(cost_usd=Decimal(1)), record("unmeasured", bound_usd=Decimal("0.5"))])
    assert (usage.request_count, usage.unmeasured_requests, usage.unbounded_requests) == (2, 1, 0)
    assert (usage.cost_usd, usage.committed_usd) == (Decimal(1), Decimal("1.5"))
    assert not usage.cost_complete


def test_a_released_request_is_a_failed_one_and_nothing_else() -> None:
    assert Usage.of([record("released", tokens=Tokens(input_tokens=9))]) == Usage(failed_requests=1)


def test_small_costs_are_summed_exactly_and_rounded_once() -> None:
    per_call = Decimal("0.15") * 6 / 1_000_000  # truncated to microcents, each of these calls is free
    usage = Usage.of([record(cost_usd=per_call)] * 1000)
    assert usage.cost_usd == Decimal("0.0009")
    assert usage.cost_microcents == 900
    assert usage.cost_dollars == 0.0009


def test_a_copy_is_not_changed_by_later_requests() -> None:
    usage = Usage.of([record(cost_usd=Decimal(1))])
    snapshot = usage.copy()
    usage.add(record(cost_usd=Decimal(1)))
    assert snapshot == Usage.of([record(cost_usd=Decimal(1))])


@given(st.lists(records, max_size=20))
def test_usage_is_the_sum_of_its_records(given_records: list[RequestRecord]) -> None:
    usage = Usage.of(given_records)
    sent = [r for r in given_records if r.outcome != "released"]
    unmeasured = [r for r in sent if r.outcome == "unmeasured"]
    assert usage.request_count + usage.failed_requests == len(given_records)
    assert usage.request_count == len(sent)
    assert usage.unpriced_requests == sum(r.unpriced for r in given_records)
    assert usage.unmeasured_requests == len(unmeasured)
    uncertain = [r for r in sent if not r.cost_complete]
    assert usage.unbounded_requests == sum(r.bound_usd is None for r in uncertain)
    assert usage.cost_complete == (not uncertain)
    assert usage.cost_usd == exact_sum(r.cost_usd for r in sent if r.cost_usd is not None)
    committed = [r.committed_usd for r in sent]
    assert usage.committed_usd >= exact_sum(each for each in committed if each is not UNBOUNDED)
    assert usage.total_tokens == sum(r.tokens.total_tokens for r in sent)
    for name in TOKEN_NAMES:
        assert getattr(usage, name) == sum(getattr(r.tokens, name) for r in sent)


@given(st.lists(records, max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(given_records: list[RequestRecord], random: object) -> None:
    shuffled = list(given_records)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Usage.of(shuffled) == Usage.of(given_records)


def test_records_and_usage_pickle() -> None:
    one = record(
        cost_usd=Decimal("0.1"), started_at=datetime(2026, 1, 1, tzinfo=UTC), tokens=Tokens(input_tokens=1)
    )
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(Usage.of([one]))) == Usage.of([one])
