"""Prices of requests, and limits on spending: prices, bounds, budgets, quotes, and conversions of money."""

from fastroai.usage.bounds import RequestBound, prepare_bound, request_bound
from fastroai.usage.bounds import base_url_of as base_url_of
from fastroai.usage.budget import Admission as Admission
from fastroai.usage.budget import Budget, ModelFallback
from fastroai.usage.budget import OnUncertain as OnUncertain
from fastroai.usage.endpoints import Endpoint
from fastroai.usage.limits import BudgetLike as BudgetLike
from fastroai.usage.model_pricing import PriceTier as PriceTier
from fastroai.usage.model_pricing import PricingOverride
from fastroai.usage.money import dollars_to_microcents, format_cost, microcents_to_dollars
from fastroai.usage.near_misses import NearMissWarning
from fastroai.usage.pricing import CostCalculator, UnpricedModelWarning
from fastroai.usage.quote import Quote
from fastroai.usage.references import ModelReference as ModelReference
from fastroai.usage.references import model_reference as model_reference
from fastroai.usage.report import UsageReport
from fastroai.usage.report_rows import UsageRow
from fastroai.usage.request_cost import RequestCost as RequestCost
from fastroai.usage.spend_book import SpendBook
from fastroai.usage.spend_limit import OnLimit as OnLimit
from fastroai.usage.spend_limit import SpendLimit
from fastroai.usage.spend_store import (
    SpendAccount,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendStatus,
    SpendStore,
    SpendVerdict,
)
from fastroai.usage.spend_store import (
    SpendAdjustment as SpendAdjustment,
)
from fastroai.usage.spend_store import (
    SpendPage as SpendPage,
)
from fastroai.usage.spend_store import (
    Window as Window,
)
from fastroai.usage.updates import (
    refresh_prices,
    refresh_prices_async,
    update_prices_in_background,
)

__all__ = [
    "Budget",
    "CostCalculator",
    "Endpoint",
    "ModelFallback",
    "NearMissWarning",
    "PricingOverride",
    "Quote",
    "RequestBound",
    "SpendAccount",
    "SpendBalance",
    "SpendBook",
    "SpendChange",
    "SpendClaim",
    "SpendLimit",
    "SpendStatus",
    "SpendStore",
    "SpendVerdict",
    "UnpricedModelWarning",
    "UsageReport",
    "UsageRow",
    "dollars_to_microcents",
    "format_cost",
    "microcents_to_dollars",
    "prepare_bound",
    "refresh_prices",
    "refresh_prices_async",
    "request_bound",
    "update_prices_in_background",
]
