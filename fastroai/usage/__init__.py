"""Prices of requests, and limits on spending: prices, bounds, budgets, quotes, and conversions of money.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.usage.bounding.bounds import AskedRequest as AskedRequest
    from fastroai.usage.bounding.bounds import prepare_bound as prepare_bound
    from fastroai.usage.bounding.bounds import request_bound as request_bound
    from fastroai.usage.bounding.input_parts import InputPart as InputPart
    from fastroai.usage.bounding.request_bounds import RequestBound as RequestBound
    from fastroai.usage.budget import Admission as Admission
    from fastroai.usage.budget import Budget as Budget
    from fastroai.usage.budget import ModelFallback as ModelFallback
    from fastroai.usage.budget import OnUncertain as OnUncertain
    from fastroai.usage.limits import BudgetLike as BudgetLike
    from fastroai.usage.money import dollars_to_microcents as dollars_to_microcents
    from fastroai.usage.money import format_cost as format_cost
    from fastroai.usage.money import microcents_to_dollars as microcents_to_dollars
    from fastroai.usage.near_misses import NearMissWarning as NearMissWarning
    from fastroai.usage.prices.endpoints import Endpoint as Endpoint
    from fastroai.usage.prices.hosts import base_url_of as base_url_of
    from fastroai.usage.prices.model_pricing import PriceTier as PriceTier
    from fastroai.usage.prices.model_pricing import PricingOverride as PricingOverride
    from fastroai.usage.prices.pricing import CostCalculator as CostCalculator
    from fastroai.usage.prices.pricing import UnpricedModelWarning as UnpricedModelWarning
    from fastroai.usage.prices.references import ModelReference as ModelReference
    from fastroai.usage.prices.references import model_reference as model_reference
    from fastroai.usage.prices.request_cost import RequestCost as RequestCost
    from fastroai.usage.prices.updates import refresh_prices as refresh_prices
    from fastroai.usage.prices.updates import refresh_prices_async as refresh_prices_async
    from fastroai.usage.prices.updates import update_prices_in_background as update_prices_in_background
    from fastroai.usage.quote import Quote as Quote
    from fastroai.usage.reports.report import UsageReport as UsageReport
    from fastroai.usage.reports.report_rows import UsageRow as UsageRow
    from fastroai.usage.shared.spend_amounts import Window as Window
    from fastroai.usage.shared.spend_book import SpendBook as SpendBook
    from fastroai.usage.shared.spend_limit import OnLimit as OnLimit
    from fastroai.usage.shared.spend_limit import SpendLimit as SpendLimit
    from fastroai.usage.shared.spend_store import SpendAccount as SpendAccount
    from fastroai.usage.shared.spend_store import SpendAdjustment as SpendAdjustment
    from fastroai.usage.shared.spend_store import SpendBalance as SpendBalance
    from fastroai.usage.shared.spend_store import SpendChange as SpendChange
    from fastroai.usage.shared.spend_store import SpendClaim as SpendClaim
    from fastroai.usage.shared.spend_store import SpendPage as SpendPage
    from fastroai.usage.shared.spend_store import SpendStatus as SpendStatus
    from fastroai.usage.shared.spend_store import SpendStore as SpendStore
    from fastroai.usage.shared.spend_store import SpendVerdict as SpendVerdict
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[
            "Admission",
            "AskedRequest",
            "BudgetLike",
            "InputPart",
            "ModelReference",
            "OnLimit",
            "OnUncertain",
            "PriceTier",
            "RequestCost",
            "SpendAdjustment",
            "SpendPage",
            "Window",
            "base_url_of",
            "model_reference",
        ],
    )
