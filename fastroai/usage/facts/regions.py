"""Premiums on list prices that providers bill for keeping a request in a region.

Bedrock has no line here where its model ids name the region (`us.anthropic.claude-…`): genai-prices lists
these ids with their own prices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from fastroai.usage.facts.source import Source

_CHECKED: Final = date(2026, 11, 22)
_ONE: Final = Decimal(1)
_OPENAI: Final = Source(
    "https://developers.openai.com/api/docs/guides/data-residency",
    _CHECKED,
    "10 % for models released on or after March 5, 2026, at the hosts with a region's prefix",
)
_ANTHROPIC: Final = Source(
    "https://platform.claude.com/docs/en/manage-claude/data-residency",
    _CHECKED,
    "1.1 x for inference_geo=us, for Claude Opus 4.6 and later; a workspace can have it as its default",
)
_VERTEX_CLAUDE: Final = Source(
    "https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai#global-vs-regional-endpoints",
    _CHECKED,
    "10 % at regional and multi-region endpoints, from Claude Sonnet 4.5 on",
)
_VERTEX_GEMINI: Final = Source(
    "https://cloud.google.com/vertex-ai/generative-ai/pricing",
    _CHECKED,
    "10 % at endpoints that are not global, for Gemini 3 and later, since July 1, 2026",
)
_AZURE: Final = Source(
    "https://pypi.org/project/azure-genai-prices/",
    _CHECKED,
    "by Azure's price list, data zones cost 10 to 20 % more; a request does not tell which kind it goes to",
)
_BEDROCK: Final = Source(
    "https://aws.amazon.com/bedrock/pricing/",
    _CHECKED,
    "prices by region; those of genai-prices are those of us-east-1 and us-west-2",
)
_XAI: Final = Source(
    "https://docs.x.ai/developers/advanced-api-usage/regions", _CHECKED, "10 % at the US endpoint"
)
_TOGETHER: Final = Source(
    "https://docs.together.ai/docs/serverless/geo-specific-inference",
    _CHECKED,
    "25 % at the US and CA endpoints",
)


@dataclass(frozen=True, slots=True)
class RegionalPrice:
    """The price of some models' tokens at some hosts, as a multiple of their list prices."""

    hosts: re.Pattern[str]
    """A pattern of the whole host name."""
    models: re.Pattern[str]
    """A pattern of the beginning of the model's name."""
    factor: Decimal | None
    """The factor that applies; `None` if a premium may apply, and the request does not tell."""
    most: Decimal | None
    """The highest factor that can apply; `None` if that is not documented."""
    source: Source


def _price(
    hosts: str, models: str, factor: str | None, source: Source, most: str | None = None
) -> RegionalPrice:
    highest = most or factor
    return RegionalPrice(
        re.compile(hosts),
        re.compile(models),
        None if factor is None else Decimal(factor),
        None if highest is None else Decimal(highest),
        source,
    )


_VERTEX_GLOBAL: Final = r"aiplatform\.googleapis\.com"
_VERTEX_REGIONS: Final = r"[a-z0-9-]+-aiplatform\.googleapis\.com|aiplatform\.[a-z]+\.rep\.googleapis\.com"
_CLAUDE_WITHOUT_REGIONS: Final = (
    r"claude-(2|3|v1|instant|opus-4-[015](?!\d)|opus-4@|opus-4-2025|sonnet-4-[05](?!\d)|sonnet-4@|sonnet-4-2025"
    r"|haiku-4-5)"
)
"""Models of Anthropic before Claude Opus 4.6, which take no `inference_geo`."""

REGIONAL_PRICES: Final = (
    _price(r"api\.openai\.com", "", "1", _OPENAI),
    _price(r"[a-z]{2}\.api\.openai\.com", r"gpt-(5\.[4-9]|[6-9])", "1.1", _OPENAI),
    _price(
        r"[a-z]{2}\.api\.openai\.com",
        r"gpt-(3\.5|4|4o|4\.1|4\.5|5|5\.[123])(-|$)|o[134](-|$)|chatgpt-4o|codex-mini|computer-use-preview",
        "1",
        _OPENAI,
    ),
    _price(r"[a-z]{2}\.api\.openai\.com", "", None, _OPENAI, most="1.1"),
    _price(r"api\.anthropic\.com", _CLAUDE_WITHOUT_REGIONS, "1", _ANTHROPIC),
    _price(r"api\.anthropic\.com", "", "1", _ANTHROPIC, most="1.1"),
    _price(_VERTEX_GLOBAL, "", "1", _VERTEX_CLAUDE),
    _price(
        _VERTEX_REGIONS, r"claude-(3|opus-4(@|-0|-1|-2025|$)|sonnet-4(@|-0|-2025|$))", "1", _VERTEX_CLAUDE
    ),
    _price(_VERTEX_REGIONS, r"claude-", "1.1", _VERTEX_CLAUDE),
    _price(_VERTEX_REGIONS, r"gemini-(1|2)\.", "1", _VERTEX_GEMINI),
    _price(_VERTEX_REGIONS, r"gemini-[3-9]", "1.1", _VERTEX_GEMINI),
    _price(_VERTEX_REGIONS, "", None, _VERTEX_GEMINI),
    _price(
        r".*\.(openai\.azure|cognitiveservices\.azure|services\.ai\.azure)\.com", "", None, _AZURE, most="1.2"
    ),
    _price(
        r"bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com",
        r"([a-z-]+\.)?(anthropic\.claude|openai\.gpt-[5-9]|amazon\.nova-2|moonshotai\.kimi-k3|zai\.glm-5)",
        "1",
        _BEDROCK,
    ),
    _price(r"bedrock-runtime\.us-(east-1|west-2)\.amazonaws\.com", "", "1", _BEDROCK),
    _price(r"bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com", "", None, _BEDROCK),
    _price(r"us\.api\.x\.ai", "", "1.1", _XAI),
    _price(r"(us|ca)-api\.together\.(ai|xyz)", "", "1.25", _TOGETHER),
)
"""Prices by host and model; the first line that fits counts. Other hosts are not known to have premiums."""

_GEOGRAPHIES: Final = {"global": _ONE, "us": Decimal("1.1")}
"""The factor for each value of `inference_geo`."""


def regional_factor(
    provider: str, url: str | None, model: str, inference_geo: str | None = None
) -> Decimal | None:
    """Return the factor by which list prices of tokens are multiplied for a request; 1 without a premium.

    The result is `None` if a premium may apply and the request does not tell. The factor is for tokens; fees
    for searches and the like stay as they are. Anthropic's default for `inference_geo` counts as `global`, as
    documented, though a workspace can have another: name it with `extra_body={"inference_geo": …}`.
    """
    if inference_geo is not None and _takes_geography(provider, url):
        return _GEOGRAPHIES.get(inference_geo)
    price = _regional_price(url, model)
    return _ONE if price is None else price.factor


def most_regional_factor(
    provider: str, url: str | None, model: str, inference_geo: str | None = None
) -> Decimal | None:
    """Return the highest value that `regional_factor` can turn out to have; `None` if nothing bounds it."""
    if inference_geo is not None and _takes_geography(provider, url):
        return _GEOGRAPHIES.get(inference_geo)
    price = _regional_price(url, model)
    return _ONE if price is None else price.most


@lru_cache(maxsize=4096)
def _regional_price(url: str | None, model: str) -> RegionalPrice | None:
    host = urlsplit(url).hostname if url else None
    if host is None:
        return None
    return next(
        (price for price in REGIONAL_PRICES if price.hosts.fullmatch(host) and price.models.match(model)),
        None,
    )


def asked_geography(settings: Mapping[str, object]) -> str | None:
    """Return the `inference_geo` that a request asks Anthropic for, if it does."""
    body = settings.get("extra_body")
    asked = body.get("inference_geo") if isinstance(body, Mapping) else None
    return None if asked is None else str(asked)


def _takes_geography(provider: str, url: str | None) -> bool:
    host = urlsplit(url).hostname if url else None
    return provider == "anthropic" and host == "api.anthropic.com"
