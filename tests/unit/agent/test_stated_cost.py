"""Which bills are believed that a provider or a gateway states."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from fastroai.agent.requests.stated_cost import stated_cost, usd_amount


def response(
    provider: str, details: dict[str, Any] | None = None, cost: Decimal | None = None
) -> ModelResponse:
    return ModelResponse(
        parts=[], usage=RequestUsage(cost=cost), provider_name=provider, provider_details=details
    )


@pytest.mark.parametrize("details", [{"cost": 0.01, "is_byok": False}, {"cost": "0.01", "is_byok": False}])
def test_openrouter_states_its_bill(details: dict[str, Any]) -> None:
    assert stated_cost(response("openrouter", details)) == Decimal("0.01")


def test_a_cost_of_zero_is_a_bill_and_a_cost_that_is_left_out_is_none() -> None:
    assert stated_cost(response("openrouter", {"is_byok": False}), {"usage": {"cost": 0}}) == 0
    assert stated_cost(response("openrouter", {"is_byok": False}), {"usage": {"cost": None}}) is None
    assert stated_cost(response("openrouter", {"is_byok": False})) is None


NO_BILL = [-1, float("nan"), float("inf"), "1e999999", 1e30, True, "free", []]


@pytest.mark.parametrize("cost", NO_BILL, ids=repr)
def test_what_cannot_be_a_bill_is_none(cost: object) -> None:
    assert usd_amount(cost) is None
    assert stated_cost(response("openrouter", {"cost": cost, "is_byok": False})) is None
    own_key = {"cost": 0.01, "is_byok": True, "upstream_inference_cost": cost}
    assert stated_cost(response("openrouter", own_key)) is None
    assert stated_cost(response("xai", {"cost_in_usd_ticks": cost})) is None


@pytest.mark.parametrize("cost", [Decimal(-1), Decimal("NaN"), Decimal("1e30")])
def test_a_cost_in_the_usage_that_cannot_be_is_none(cost: Decimal) -> None:
    assert stated_cost(response("gateway", cost=cost)) is None


def test_a_tick_is_a_ten_billionth_of_a_dollar() -> None:
    assert stated_cost(response("xai", {"cost_in_usd_ticks": 37_756_000})) == Decimal("0.0037756")
    assert stated_cost(response("xai", {"cost_in_usd_ticks": 10**17})) is None, "ten million dollars"
