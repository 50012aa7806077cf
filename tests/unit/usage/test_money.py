from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai.errors import ConfigurationError
from fastroai.usage import dollars_to_microcents, format_cost, microcents_to_dollars


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


@pytest.mark.parametrize("microcents", [-1, 1.0, True, "1", None])
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
