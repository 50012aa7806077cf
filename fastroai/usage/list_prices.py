"""What genai-prices knows of the price of a request."""

from __future__ import annotations

from dataclasses import replace
from decimal import localcontext
from typing import TYPE_CHECKING, Final

from fastroai.records import EXACT
from fastroai.usage.references import first_party_provider

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

_LOCAL_PROVIDERS: Final = frozenset({"test", "function"})
_FUNCTION_MODEL: Final = "function:"


def is_local(model: str | None, provider: str | None) -> bool:
    """Whether it is a `TestModel` or a `FunctionModel`, whose responses have no provider but such a name."""
    return provider in _LOCAL_PROVIDERS or (provider is None and (model or "").startswith(_FUNCTION_MODEL))


def list_price(response: ModelResponse) -> PriceCalculation | None:
    """The list price of one request; `None` if genai-prices has none for its model.

    Raises:
        ValueError: if its usage contradicts itself.
    """
    model = response.model_name
    if not model:
        return None
    if response.provider_name == "function":
        response = replace(response, provider_name=None)  # as in what a FunctionModel answers
    if not (response.provider_name or response.provider_url or first_party_provider(model)):
        return None  # genai-prices would guess a provider from the name
    try:
        with localcontext(EXACT):
            price = response.cost()
    except LookupError:
        return None
    return None if _sold_otherwise(price, response.usage) else price


def _sold_otherwise(price: PriceCalculation, usage: RequestUsage) -> bool:
    """Whether the model is sold by the hour, the page or the character, so that its tokens only seem free."""
    if price.total_price or not usage.total_tokens:
        return False
    listed = [key for key, value in vars(price.model_price).items() if value is not None]
    return bool(listed) and not any(key.endswith("_mtok") or key == "requests_kcount" for key in listed)
