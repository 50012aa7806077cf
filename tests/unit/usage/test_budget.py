import dataclasses
import pickle
from decimal import Decimal

import pytest
from pydantic_ai.models.test import TestModel

from fastroai.errors import ConfigurationError, UnknownModelError
from fastroai.usage import Budget, ModelFallback, SpendLimit

limits_of_money = pytest.mark.parametrize("limit", [Budget, SpendLimit])


@limits_of_money
@pytest.mark.parametrize("usd", [Decimal("0.5"), "0.5", 0.5, "0.50"])
def test_a_limit_in_dollars_is_exact_however_it_is_written(
    limit: type[Budget | SpendLimit], usd: Decimal | str | float
) -> None:
    assert (limit(usd=usd).usd, limit(usd=usd).microcents) == (Decimal("0.5"), 500_000)
    assert limit(microcents=500_000) == limit(usd=usd)


@limits_of_money
def test_a_limit_has_more_digits_than_microcents(limit: type[Budget | SpendLimit]) -> None:
    assert (limit(usd=3).microcents, limit(microcents=1).usd) == (3_000_000, Decimal("0.000001"))
    exact = limit(usd=Decimal("0.1234567"))
    assert (exact.usd, exact.microcents) == (Decimal("0.1234567"), 123_457)


@limits_of_money
@pytest.mark.parametrize(
    "usd", [0, 0.0, "0", -1, -0.5, "nan", float("inf"), True, "a lot", Decimal("0.0000001"), [1]]
)
def test_a_limit_that_allows_nothing_or_anything_is_refused(
    limit: type[Budget | SpendLimit], usd: object
) -> None:
    with pytest.raises(ConfigurationError, match=r"usd=.*a positive amount of US dollars"):
        limit(usd=usd)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"usd=0.30000000000000004: .* pass a string or a Decimal"):
        limit(usd=0.1 + 0.2)


@limits_of_money
@pytest.mark.parametrize("microcents", [0, -1, 0.5, 500_000.0, True, "1"])
def test_microcents_are_a_positive_whole_number(limit: type[Budget | SpendLimit], microcents: object) -> None:
    with pytest.raises(ConfigurationError, match=r"microcents=.*at least 1"):
        limit(microcents=microcents)  # type: ignore[arg-type]


def test_a_budget_has_a_limit_and_one_form_of_money_at_most() -> None:
    with pytest.raises(ConfigurationError, match="Budget needs a limit: usd= or microcents="):
        Budget()
    with pytest.raises(ConfigurationError, match="only one of usd= and microcents="):
        Budget(usd=1, microcents=1_000_000)


def test_a_budget_is_of_money_of_tokens_of_requests_of_time_or_of_several() -> None:
    budget = Budget(microcents=5, tokens=1_000, requests=3, ms=60_000)
    assert (budget.microcents, budget.tokens, budget.requests, budget.ms) == (5, 1_000, 3, 60_000)
    budget = Budget(tokens=1)
    assert (budget.usd, budget.microcents, budget.tokens) == (None, None, 1)
    assert (budget.requests, budget.ms, budget.fallback) == (None, None, None)


@pytest.mark.parametrize("option", ["tokens", "requests", "ms"])
@pytest.mark.parametrize("count", [0, -1, 0.5, float("nan"), True, "1"])
def test_a_limit_that_is_counted_is_a_positive_whole_number(option: str, count: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{option}=.* at least 1"):
        Budget(**{option: count})  # type: ignore[arg-type]


def test_a_budget_refuses_the_uncertain_unless_told_otherwise() -> None:
    assert (Budget(usd=1).on_unpriced, Budget(usd=1).on_unbounded) == ("refuse", "refuse")


@limits_of_money
@pytest.mark.parametrize("option", ["on_unpriced", "on_unbounded"])
def test_a_misspelt_choice_is_refused(limit: type[Budget | SpendLimit], option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option}='alow': expected 'refuse' or 'allow'"):
        limit(usd=1, **{option: "alow"})  # type: ignore[arg-type]
    assert getattr(limit(usd=1, **{option: "allow"}), option) == "allow"  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [0, -0.1, 1.1, True, "0.8", float("nan")])
def test_a_fallback_has_a_share_of_the_budget(at: object) -> None:
    with pytest.raises(ConfigurationError, match="at=.*: expected a share of the budget"):
        ModelFallback(at=at, use="openai:gpt-5-nano")  # type: ignore[arg-type]


def test_a_fallback_names_a_model_and_its_provider() -> None:
    with pytest.raises(UnknownModelError):
        ModelFallback(at=0.8, use="no-such-model")
    with pytest.raises(ConfigurationError, match="use=5: expected a model"):
        ModelFallback(at=0.8, use=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="fallback='openai:gpt-5-nano': expected a ModelFallback"):
        Budget(usd=1, fallback="openai:gpt-5-nano")  # type: ignore[arg-type]


def test_a_budget_that_steps_down_to_a_model_can_be_hashed() -> None:
    model = TestModel()
    one, other = (Budget(usd=1, fallback=ModelFallback(at=0.8, use=model)) for _ in range(2))
    assert len({one, other}) == 1


def test_a_budget_cannot_be_changed_and_can_be_pickled_and_hashed() -> None:
    budget = Budget(usd="0.5", on_unpriced="allow")
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.usd = Decimal(9)  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert len({budget, Budget(microcents=500_000, on_unpriced="allow")}) == 1
