"""Premiums on list prices that providers bill for keeping a request in a region.

Bedrock has no line here where its model ids name the region (`us.anthropic.claude-…`): genai-prices lists
these ids with their own prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from fastroai.usage.facts.documented import all_facts

if TYPE_CHECKING:
    from fastroai.usage.facts.provider import RegionalPrice


class RegionalFactor(NamedTuple):
    """Prices of tokens at a host, as a multiple of list prices."""

    known: Decimal | None
    """The factor that applies; `None` if a premium may apply, and it is not known whether it does."""
    most: Decimal | None
    """The highest factor that can apply; `None` if nothing bounds it."""


_NO_PREMIUM: Final = RegionalFactor(Decimal(1), Decimal(1))


def regional_factor(
    provider: str, url: str | None, model: str, inference_geo: str | None = None
) -> RegionalFactor:
    """Return the factor by which list prices of tokens are multiplied for a request.

    The factor is for tokens; fees for searches and the like stay as they are. Anthropic's default for
    `inference_geo` counts as `global`, as documented, though a workspace can have another: name it with
    `extra_body={"inference_geo": …}`.
    """
    if inference_geo is not None and _takes_geography(provider, url):
        asked = all_facts()["anthropic"].geographies.get(inference_geo)
        return RegionalFactor(asked, asked)
    price = _regional_price(url, model)
    if price is None:
        return _NO_PREMIUM
    return RegionalFactor(price.factor, price.factor if price.most is None else price.most)


@lru_cache(maxsize=4096)
def _regional_price(url: str | None, model: str) -> RegionalPrice | None:
    host = urlsplit(url).hostname if url else None
    if host is None:
        return None
    prices = (price for facts in all_facts().values() for price in facts.regional_prices)
    return next((one for one in prices if one.hosts.fullmatch(host) and one.models.match(model)), None)


def asked_geography(settings: Mapping[str, object]) -> str | None:
    """Return the `inference_geo` that a request asks Anthropic for, if it does."""
    body = settings.get("extra_body")
    asked = body.get("inference_geo") if isinstance(body, Mapping) else None
    return None if asked is None else str(asked)


def _takes_geography(provider: str, url: str | None) -> bool:
    host = urlsplit(url).hostname if url else None
    return provider == "anthropic" and host == "api.anthropic.com"
