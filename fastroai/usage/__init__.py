"""Prices of requests, and limits on spending: prices, bounds, budgets, quotes, and conversions of money."""

from fastroai.usage.bounds import RequestBound, base_url_of, prepare_bound, request_bound
from fastroai.usage.budget import Admission, Budget, ModelFallback, OnUncertain
from fastroai.usage.endpoints import Endpoint
from fastroai.usage.limits import BudgetLike
from fastroai.usage.model_pricing import PriceTier, PricingOverride
from fastroai.usage.money import dollars_to_microcents, format_cost, microcents_to_dollars
from fastroai.usage.near_misses import NearMissWarning
from fastroai.usage.pricing import CostCalculator, UnpricedModelWarning
from fastroai.usage.quote import Quote
from fastroai.usage.references import ModelReference, model_reference
from fastroai.usage.report import UsageReport
from fastroai.usage.report_rows import UsageRow
from fastroai.usage.request_cost import RequestCost
from fastroai.usage.spend_book import SpendBook
from fastroai.usage.spend_limit import OnLimit, SpendLimit
from fastroai.usage.spend_store import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendPage,
    SpendStatus,
    SpendStore,
    SpendVerdict,
    Window,
)
from fastroai.usage.updates import (
    refresh_prices,
    refresh_prices_async,
    update_prices_in_background,
)

__all__ = [
    "Admission",
    "Budget",
    "BudgetLike",
    "CostCalculator",
    "Endpoint",
    "ModelFallback",
    "ModelReference",
    "NearMissWarning",
    "OnLimit",
    "OnUncertain",
    "PriceTier",
    "PricingOverride",
    "Quote",
    "RequestBound",
    "RequestCost",
    "SpendAccount",
    "SpendAdjustment",
    "SpendBalance",
    "SpendBook",
    "SpendChange",
    "SpendClaim",
    "SpendLimit",
    "SpendPage",
    "SpendStatus",
    "SpendStore",
    "SpendVerdict",
    "UnpricedModelWarning",
    "UsageReport",
    "UsageRow",
    "Window",
    "base_url_of",
    "dollars_to_microcents",
    "format_cost",
    "microcents_to_dollars",
    "model_reference",
    "prepare_bound",
    "refresh_prices",
    "refresh_prices_async",
    "request_bound",
    "update_prices_in_background",
]
