from decimal import Decimal
from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.records import RequestRecord, Tokens
from fastroai.steps.spend_price import price_record
from fastroai.usage import CostCalculator, UnpricedModelWarning

TOKENS = Tokens(input_tokens=1_000, output_tokens=100)
PRICES = CostCalculator(pricing_overrides={"acme:writer": {"input_per_mtok": 2, "output_per_mtok": 8}})


def record(model: str = "acme:writer", provider: str = "", cost_usd: Any = None) -> RequestRecord:
    return price_record(PRICES, model, provider, TOKENS, cost_usd)


def test_spending_is_priced_like_a_request() -> None:
    made = record()
    assert (made.model, made.provider) == ("writer", "acme")
    assert made.cost_usd == Decimal("0.0028")
    assert (made.outcome, made.tokens) == ("settled", TOKENS)
    assert made.started_at is not None


def test_the_provider_can_be_said_by_itself_and_then_the_name_is_not_taken_apart() -> None:
    assert record("writer", "acme").cost_usd == Decimal("0.0028")
    assert record("ft:writer", "acme", cost_usd=1).model == "ft:writer"


@pytest.mark.parametrize(
    ("cost", "exact"), [("0.1", "0.1"), (Decimal("0.00015"), "0.00015"), (0, "0"), (2, "2")]
)
def test_a_cost_that_is_said_is_taken_exactly_and_nothing_is_looked_up(cost: Any, exact: str) -> None:
    assert record("nobody:knows", cost_usd=cost).cost_usd == Decimal(exact)


def test_without_a_price_it_is_unpriced_and_says_so_once() -> None:
    with pytest.warns(UnpricedModelWarning, match="nobody:knows"):
        made = record("nobody:knows")
    assert made.unpriced


@pytest.mark.parametrize("cost", [0.1 + 0.2, True, "a lot", "NaN", "Infinity", "-0.01", -1, [1]])
def test_a_cost_that_is_not_exact_or_not_one_is_refused(cost: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^cost_usd=.*(US dollars|rounding error)"):
        record(cost_usd=cost)
