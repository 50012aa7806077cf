import dataclasses
import pickle
from decimal import Decimal

import pytest

from fastroai.errors import ConfigurationError
from fastroai.usage import Budget


@pytest.mark.parametrize("usd", [Decimal("0.5"), "0.5", 0.5, "0.50"])
def test_a_budget_in_dollars_is_exact_however_it_is_written(usd: Decimal | str | float) -> None:
    budget = Budget(usd=usd)
    assert (budget.usd, budget.microcents) == (Decimal("0.5"), 500_000)


def test_a_budget_in_microcents_is_millionths_of_a_dollar() -> None:
    assert Budget(microcents=500_000) == Budget(usd="0.5")
    assert Budget(microcents=1).usd == Decimal("0.000001")


def test_a_budget_in_whole_dollars_is_accepted() -> None:
    assert Budget(usd=3).microcents == 3_000_000


def test_a_decimal_budget_keeps_more_digits_than_microcents() -> None:
    budget = Budget(usd=Decimal("0.1234567"))
    assert (budget.usd, budget.microcents) == (Decimal("0.1234567"), 123_457)


def test_a_float_with_a_rounding_error_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"usd=0.30000000000000004: .* pass a string or a Decimal"):
        Budget(usd=0.1 + 0.2)


@pytest.mark.parametrize(
    "usd", [0, 0.0, "0", -1, -0.5, "nan", float("inf"), True, "a lot", Decimal("0.0000001"), [1]]
)
def test_a_budget_that_allows_nothing_or_anything_is_refused(usd: object) -> None:
    with pytest.raises(ConfigurationError, match=r"usd=.*a positive amount of US dollars"):
        Budget(usd=usd)  # type: ignore[arg-type]


@pytest.mark.parametrize("microcents", [0, -1, 0.5, 500_000.0, True, "1"])
def test_microcents_are_a_positive_whole_number(microcents: object) -> None:
    with pytest.raises(ConfigurationError, match=r"microcents=.*at least 1"):
        Budget(microcents=microcents)  # type: ignore[arg-type]


def test_a_budget_has_exactly_one_amount() -> None:
    with pytest.raises(
        ConfigurationError, match=r"Budget='nothing': expected exactly one of usd= and microcents="
    ):
        Budget()
    with pytest.raises(ConfigurationError, match="exactly one of usd= and microcents="):
        Budget(usd=1, microcents=1_000_000)


def test_a_budget_refuses_the_uncertain_unless_told_otherwise() -> None:
    assert (Budget(usd=1).on_unpriced, Budget(usd=1).on_unbounded) == ("refuse", "refuse")
    budget = Budget(usd=1, on_unpriced="allow", on_unbounded="allow")
    assert (budget.on_unpriced, budget.on_unbounded) == ("allow", "allow")


@pytest.mark.parametrize("option", ["on_unpriced", "on_unbounded"])
def test_a_misspelt_choice_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option}='alow': expected 'refuse' or 'allow'"):
        Budget(usd=1, **{option: "alow"})  # type: ignore[arg-type]


def test_a_budget_cannot_be_changed_and_can_be_pickled_and_hashed() -> None:
    budget = Budget(usd="0.5", on_unpriced="allow")
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.usd = Decimal(9)  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert len({budget, Budget(microcents=500_000, on_unpriced="allow")}) == 1
