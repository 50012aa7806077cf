import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai import Pipeline, StepContext, safe_tool, spend, step
from fastroai.errors import ConfigurationError
from fastroai.records import RequestRecord, Usage
from fastroai.usage import (
    Budget,
    CostCalculator,
    Quote,
    SpendLimit,
    dollars_to_microcents,
    format_cost,
    microcents_to_dollars,
)
from fastroai.usage.money import exact_dollars


@pytest.mark.parametrize(
    ("dollars", "microcents"),
    [
        (Decimal("0.5"), 500_000),
        ("0.5", 500_000),
        (0.1, 100_000),
        (0.0000015, 2),
        (Decimal("0.0000025"), 2),
        (3, 3_000_000),
        (0, 0),
    ],
)
def test_dollars_become_microcents_rounded_half_to_even(
    dollars: Decimal | str | float, microcents: int
) -> None:
    assert dollars_to_microcents(dollars) == microcents


def test_a_subclass_of_float_is_the_number_that_it_prints() -> None:
    class Odd(float):
        def __repr__(self) -> str:
            return "Odd()"

    assert dollars_to_microcents(Odd(0.1)) == 100_000


@pytest.mark.parametrize(
    "dollars",
    [-1, -0.1, "-1", float("nan"), float("inf"), "nan", Decimal("sNaN"), "ten", "", True, None, [1]],
)
def test_what_is_no_amount_of_money_is_refused(dollars: object) -> None:
    with pytest.raises(ConfigurationError, match=r"dollars=.*a finite number of US dollars, 0 or more"):
        dollars_to_microcents(dollars)  # type: ignore[arg-type]


@pytest.mark.parametrize("microcents", [-1, 1.0, True, "1", None, 10**4_000])
def test_microcents_are_whole_numbers(microcents: object) -> None:
    with pytest.raises(ConfigurationError, match=r"microcents=.*a whole number, 0 or more"):
        microcents_to_dollars(microcents)  # type: ignore[arg-type]


@given(st.integers(0, 10**15))
def test_microcents_come_back_from_dollars(microcents: int) -> None:
    assert dollars_to_microcents(microcents_to_dollars(microcents)) == microcents


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000001"),
        (123, "$0.000123"),
        (1_234, "$0.00123"),
        (1_200, "$0.0012"),
        (100_000, "$0.10"),
        (500_000, "$0.50"),
        (999_999, "$1.00"),
        (1_234_567_890, "$1,234.57"),
        (Decimal("0.00000000012345"), "$0.000000000123"),
        (Decimal("12.345"), "$12.34"),
        (Decimal("12.355"), "$12.36"),
        (Decimal("1E-7"), "$0.0000001"),
        (Decimal("1E+3"), "$1,000.00"),
    ],
)
def test_costs_are_shown_in_digits_that_say_something(cost: int | Decimal, text: str) -> None:
    assert format_cost(cost) == text


@given(st.decimals(0, 10**6, allow_nan=False))
def test_only_a_cost_of_nothing_is_shown_as_nothing(cost: Decimal) -> None:
    shown = Decimal(format_cost(cost).removeprefix("$").replace(",", ""))
    assert (shown == 0) == (cost == 0)
    assert abs(shown - cost) <= max(cost, Decimal(1)) * Decimal("0.005")


@pytest.mark.parametrize("cost", [0.5, -1, Decimal(-1), Decimal("nan"), True, "1"])
def test_a_cost_of_unknown_unit_or_sense_is_not_shown(cost: object) -> None:
    with pytest.raises(ConfigurationError, match="cost="):
        format_cost(cost)  # type: ignore[arg-type]


def record(**options: Any) -> RequestRecord:
    return RequestRecord(model="m", provider="p", **options)


@pytest.mark.parametrize(
    ("account", "text"),
    [
        (None, "unknown"),
        (record(outcome="settled", cost_usd=Decimal("0.5")), "$0.50"),
        (record(outcome="settled", cost_usd=Decimal(0)), "$0.00"),
        (record(outcome="settled"), "unknown"),
        (record(outcome="unmeasured", bound_usd=Decimal(1)), "unknown"),
        (record(outcome="released"), "$0.00"),
        (
            record(outcome="settled", cost_usd=Decimal("0.5"), unpriced_units=("web_searches",)),
            "at least $0.50",
        ),
        (Usage.of([record(outcome="settled")]), "unknown"),
        (
            Usage.of([record(outcome="settled"), record(outcome="settled", cost_usd=Decimal(2))]),
            "at least $2.00",
        ),
        (Usage(), "$0.00"),
    ],
)
def test_a_cost_that_nobody_knows_is_not_shown_as_nothing(account: RequestRecord | None, text: str) -> None:
    assert format_cost(account) == text


# --- amounts that come in ---

NOISE = 0.1 + 0.2


async def recorded(amount: Any) -> None:
    refused: list[ConfigurationError] = []

    @step
    async def pay(ctx: StepContext) -> None:
        try:
            ctx.record_usage(model="acme:search", cost_usd=amount)
        except ConfigurationError as error:
            refused.append(error)

    await Pipeline("pay", steps={"pay": pay}).execute({})
    if refused:
        raise refused[0]


async def settled(amount: Any) -> None:
    async with spend("1", model="acme:search") as purchase:
        purchase.settle(amount)


async def used(amount: Any) -> None:
    @safe_tool(cost=lambda: amount)
    async def search() -> str:
        return "found"

    assert await search() == "found"


DOORS: dict[str, Callable[[Any], Any]] = {
    "Budget": lambda amount: Budget(usd=amount),
    "SpendLimit": lambda amount: SpendLimit(usd=amount, window="day"),
    "Quote": lambda amount: Quote.exactly(amount, "a fee"),
    "a price per token": lambda amount: CostCalculator(
        {"m": {"input_per_mtok": amount, "output_per_mtok": 1}}
    ),
    "a price per request": lambda amount: CostCalculator({"m": {"per_request": amount}}),
    "spend": lambda amount: spend(amount, model="acme:search"),
    "a price per unit": lambda amount: spend(units={"pages": 1}, price_usd=amount),
    "settle": settled,
    "record_usage": recorded,
    "safe_tool": lambda amount: safe_tool(cost=amount),
    "a cost function": used,
}


def give(door: str, amount: object) -> None:
    result = DOORS[door](amount)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


UNUSABLE: Final = ["1e1000000", Decimal("1e-1000000"), 10**4_000, 1e300]
"""Exact arithmetic with these would take hours, or all memory."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("amount", [Decimal("0.1"), "0.1", 1, 0.1, 0.00012345])
def test_an_amount_of_money_is_written_alike_everywhere(door: str, amount: object) -> None:
    give(door, amount)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("amount", [NOISE, float("nan"), "ten", True, b"1", -0.1, *UNUSABLE])
def test_what_is_no_amount_of_money_is_refused_everywhere(door: str, amount: object) -> None:
    with pytest.raises(ConfigurationError) as refused:
        give(door, amount)
    assert ("rounding error" in str(refused.value)) == (amount == NOISE)


@given(st.decimals(0, 10**9, allow_nan=False, places=6))
def test_a_float_that_can_be_written_down_is_taken_as_it_is_written(amount: Decimal) -> None:
    assert exact_dollars("usd", float(amount)) == amount


@pytest.mark.parametrize("amount", [1e15, 1e-7, 123456789012345.0, 0.0])
def test_the_size_of_a_float_does_not_matter(amount: float) -> None:
    assert exact_dollars("usd", amount) == Decimal(repr(amount))
