"""Units that providers bill besides tokens, or do not bill, and the places where they state their bill.

Units have the names of genai-prices where it has any.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from fastroai.usage.facts.source import Factor, NamePattern, Names, Source, TokenCount, Units

_CHECKED: Final = date(2026, 11, 22)
_GENAI_PRICES: Final = "https://github.com/pydantic/genai-prices/blob/main/prices/providers"
_PYDANTIC_AI: Final = "https://github.com/pydantic/pydantic-ai/blob/main/pydantic_ai_slim/pydantic_ai/models"
_OPENAI_PRICES: Final = "https://developers.openai.com/api/docs/pricing"
_COHERE: Final = (
    Source("https://docs.cohere.com/docs/rate-limits", _CHECKED),
    Source(
        "https://docs.cohere.com/v2/reference/chat", _CHECKED, "billed_units, which are fewer than the tokens"
    ),
)

HALF_DAY_WRITE: Final = Factor(
    Decimal(2),
    Source(
        "https://ai.pydantic.dev/api/settings/",
        _CHECKED,
        "2.5 times the input, where the listed write is 1.25 times",
    ),
)
"""How many times the listed price of a write to OpenAI's cache one costs that is kept for 12 hours."""

# --- Tools of providers ---

_UNITS: Final = Source(
    "https://github.com/pydantic/genai-prices",
    _CHECKED,
    "the names of units; advisor tokens are not among them",
)
UNITS_OF_TOOLS: Final = Units(
    {
        "advisor": "advisor tokens",
        "code_execution": "code_executions",
        "file_search": "storage_searches",
        "web_search": "web_searches",
        "x_search": "social_searches",
    },
    (_UNITS,),
)
"""Units by PydanticAI's name of the tool. A tool that is not here is sold by the call, under its own name."""

ADVISOR_PRICE_IS_FLAT_TO: Final = TokenCount(
    200_000,
    Source(
        "https://platform.claude.com/docs/en/about-claude/pricing#long-context-pricing",
        _CHECKED,
        "no model of Anthropic costs more below this size of a request",
    ),
)
"""Input tokens of several consultations up to which their sum costs what they cost one by one."""

IN_THE_TOKENS: Final = Names.of(
    "mcp_server memory tool_search url_context view_image view_x_video web_fetch",
    Source(
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-fetch-tool#usage-and-pricing",
        _CHECKED,
    ),
    Source("https://ai.google.dev/gemini-api/docs/url-context", _CHECKED),
    Source("https://developers.openai.com/api/docs/guides/tools-connectors-mcp", _CHECKED),
    Source(
        "https://docs.x.ai/developers/pricing", _CHECKED, "visual content analysis is billed as image tokens"
    ),
)
"""Tools that cost nothing besides tokens."""

FREE_TOOLS: Final = dict.fromkeys(
    (("google", "code_execution"), ("google-cloud", "code_execution")),
    Source("https://ai.google.dev/gemini-api/docs/code-execution#billing", _CHECKED),
)
"""Tools that cost nothing besides tokens at these providers, and are sold by others."""

COUNTED_SEARCHES: Final = Names.of(
    "anthropic azure google google-cloud openai",
    Source(_PYDANTIC_AI, _CHECKED, "billed searches are web_searches of the usage"),
)
"""Providers whose billed web searches PydanticAI counts."""

SEARCHES_UNASKED: Final = NamePattern.of(
    r".*(search|sonar|:online)",
    Source("https://openrouter.ai/openai/gpt-4o-search-preview/api", _CHECKED, "gpt-…-search-…"),
    Source(f"{_GENAI_PRICES}/perplexity.yml", _CHECKED, "sonar…"),
    Source("https://openrouter.ai/docs/features/web-search", _CHECKED, "…:online"),
)
"""Models that search the web without a tool for it, for fees that no token count bounds."""

SEARCHES_UNTOLD: Final = NamePattern.of(r"gpt-.*-search-", Source(_OPENAI_PRICES, _CHECKED))
"""OpenAI's models that search the web for every request, at a fee that answers do not report."""

# --- Usage ---

BILLED_DETAILS: Final = Units(
    {
        "advisor_iterations": "advisor tokens",
        "search_units": "search_units",
        "classifications": "classifications",
        "audio_tokens": "output_audio_tokens",
        "image_tokens": "output_image_tokens",
    },
    (_UNITS, *_COHERE),
)
"""Details of usage that are billed, where no first-class count includes them: Claude's advisor is another
model at prices of its own, Cohere bills searches and classifications, and chat completions say how much of
their output is sound or images.
"""

XAI_TOOLS: Final = NamePattern.of(
    "server_side_tools_(.+)", Source(f"{_PYDANTIC_AI}/xai.py", _CHECKED, "_extract_usage")
)
"""Details of xAI's usage that count calls of its tools, and the names of these tools."""

BILLED_UNITS: Final = {"cohere": Names.of("input_tokens output_tokens", *_COHERE)}
"""Providers that bill by these details of the usage, and not by its token counts."""

HIDES_THINKING: Final = NamePattern.of(
    r"https://generativelanguage\.googleapis\.com/.*/openai",
    Source("https://ai.google.dev/gemini-api/docs/openai", _CHECKED),
)
"""Google's endpoint in OpenAI's format, whose answers leave thoughts out of the output that is billed."""

IMAGES_AT_ONE_PRICE: Final = Names.of("azure openai", Source(f"{_OPENAI_PRICES}#image-generation", _CHECKED))
"""Providers whose models with a single output price sell images at that price: they make only images."""

FREE_MODELS: Final = {
    "*": NamePattern.of(r".*:free$", Source(f"{_GENAI_PRICES}/openrouter.yml", _CHECKED)),
    "github-copilot": NamePattern.of(
        "", Source(f"{_GENAI_PRICES}/github_copilot.yml", _CHECKED, "included in the plan")
    ),
    "google": NamePattern.of("gemma", Source(f"{_GENAI_PRICES}/google.yml", _CHECKED)),
}
"""Models that genai-prices lists without prices because they are free, by provider; `*` is any. Others
without prices were taken off the market.
"""

# --- Batches ---

UNBILLED_IN_BATCHES: Final = Names.of(
    "canceled expired",
    Source("https://platform.claude.com/docs/en/build-with-claude/batch-processing", _CHECKED),
    Source("https://developers.openai.com/api/docs/guides/batch#batch-expiration", _CHECKED),
    Source(
        "https://ai.google.dev/gemini-api/docs/batch-api",
        _CHECKED,
        "of a batch as a whole that failed, expired or was cancelled, whose results name no request",
    ),
)
"""Results of requests that the provider did not run, and does not bill."""

# Batches have limits of their own, besides the limits for a minute:
# https://developers.openai.com/api/docs/guides/batch, https://platform.claude.com/docs/en/api/rate-limits

# --- Where the bill is stated ---


@dataclass(frozen=True, slots=True)
class StatedBill:
    """The place where a provider or a gateway states the cost of a request."""

    name: str
    """The header of the response, or the field of its usage."""
    source: Source
    usd: Decimal = Decimal(1)
    """US dollars for one unit of the stated number."""


XAI_BILL: Final = StatedBill(
    "cost_in_usd_ticks",
    Source("https://docs.x.ai/developers/cost-tracking", _CHECKED, "1 USD = 10,000,000,000 ticks"),
    Decimal("1e-10"),
)
OPENROUTER_BILL: Final = StatedBill(
    "cost",
    Source(
        "https://openrouter.ai/docs/use-cases/usage-accounting",
        _CHECKED,
        "what is charged to the account; with is_byok, the provider whose key the user has brought bills "
        "upstream_inference_cost to the user besides",
    ),
)
BILLING_HEADERS: Final = (
    StatedBill(
        "x-litellm-response-cost", Source("https://docs.litellm.ai/docs/proxy/response_headers", _CHECKED)
    ),
    StatedBill(
        "x-aimlapi-usd-spent",
        Source("https://docs.aimlapi.com/capabilities/request-tracing-and-cost", _CHECKED),
    ),
)
"""Response headers in which gateways state their bill."""
