"""What a response says was used: tokens, and what is bought besides them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fastroai.usage.rate_card import UNITS

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

_UNITS_OF_TOOLS: Final = {
    "advisor": "advisor tokens",
    "code_execution": "code_executions",
    "file_search": "storage_searches",
    "web_search": "web_searches",
    "x_search": "social_searches",
}
"""Tools of providers, and the units that their calls are sold by; those of genai-prices, where it has any."""
_COUNTS_SEARCHES: Final = frozenset({"anthropic", "azure", "google", "google-cloud", "openai"})
"""Providers of which PydanticAI counts the billed web searches, as `web_searches` of the usage."""
_IN_THE_TOKENS: Final = frozenset(
    {"mcp_server", "memory", "tool_search", "url_context", "view_image", "view_x_video", "web_fetch"}
)
"""Tools of providers that cost nothing besides tokens:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-fetch-tool#usage-and-pricing,
https://ai.google.dev/gemini-api/docs/url-context, https://developers.openai.com/api/docs/guides/tools-connectors-mcp
"""
_FREE_TOOLS: Final = frozenset({("google", "code_execution"), ("google-cloud", "code_execution")})
"""https://ai.google.dev/gemini-api/docs/code-execution#billing"""
_BILLED_DETAILS: Final = {
    "advisor_iterations": "advisor tokens",
    "search_units": "search_units",
    "classifications": "classifications",
}
"""Details of usage that are billed and that no first-class count includes: Claude's advisor is another model
at prices of its own, and Cohere bills searches and classifications.
"""
_XAI_TOOL: Final = "server_side_tools_"


_SEARCHES_UNASKED: Final = re.compile(r"gpt-.*-search-")
"""OpenAI's models that search the web for every request, at a fee that no answer tells:
https://developers.openai.com/api/docs/pricing
"""
_HIDES_THINKING: Final = re.compile(r"https://generativelanguage\.googleapis\.com/.*/openai")
"""Google's endpoint in OpenAI's format, whose answers leave what was thought out of the billed output:
https://ai.google.dev/gemini-api/docs/openai
"""


def used_units(response: ModelResponse) -> dict[str, int | float]:
    """What a response used, by the names of genai-prices' units, and by names of ours where it has none."""
    details = response.usage.details
    used: dict[str, int | float] = {}
    if response.provider_name == "cohere" and "input_tokens" in details:
        used = _billed_by_cohere(details)
    else:
        for name, count in vars(response.usage).items():
            if count and name in UNITS:
                used[name] = count
        if cached := cached_tokens(response):
            used["cache_read_tokens"] = cached
    if details:
        used.update(_billed_details(details))
    if calls := _native_calls(response):
        for tool, count in calls.items():
            used.setdefault(_UNITS_OF_TOOLS.get(tool, tool), count)
    for unit in _untold(response):
        used.setdefault(unit, 1)
    return used


def cached_tokens(response: ModelResponse) -> int:
    """Input tokens read from a cache, also where PydanticAI leaves them in the details, as of Mistral."""
    details = response.usage.details
    return response.usage.cache_read_tokens or (details.get("num_cached_tokens", 0) if details else 0)


def _billed_by_cohere(details: dict[str, int]) -> dict[str, int | float]:
    """Count by `billed_units`, by which Cohere bills, and which are fewer than the tokens.

    https://docs.cohere.com/docs/rate-limits, https://docs.cohere.com/v2/reference/chat
    """
    return {name: details[name] for name in ("input_tokens", "output_tokens") if details.get(name)}


def _billed_details(details: dict[str, int]) -> Iterator[tuple[str, int]]:
    for name, count in details.items():
        if count and name in _BILLED_DETAILS:
            yield _BILLED_DETAILS[name], count
        elif count and name.startswith(_XAI_TOOL):
            tool = name.removeprefix(_XAI_TOOL)
            if tool not in _IN_THE_TOKENS:
                yield _UNITS_OF_TOOLS.get(tool, tool), count


def _untold(response: ModelResponse) -> Iterator[str]:
    """What is billed and not said by the answer, or not passed on by PydanticAI."""
    url = response.provider_url
    if response.provider_name == "openai" and _SEARCHES_UNASKED.match(response.model_name or ""):
        yield "web_searches"
    if url and _HIDES_THINKING.match(url) and not response.usage.output_reasoning_tokens:
        yield "thinking tokens"
    if "is_byok" in response.usage.details and "is_byok" not in (response.provider_details or {}):
        yield "bill of OpenRouter"  # PydanticAI passes it on from an OpenRouterModel only


def _native_calls(response: ModelResponse) -> dict[str, int]:
    """Calls of the provider's own tools that are billed one by one, and that the usage does not count."""
    provider = response.provider_name or ""
    calls: dict[str, int] = {}
    for part in response.parts:
        if part.part_kind != "builtin-tool-call":
            continue
        tool = part.tool_name.partition(":")[0]  # as in mcp_server:label
        if tool in _IN_THE_TOKENS or (provider, tool) in _FREE_TOOLS:
            continue
        if tool == "web_search" and provider in _COUNTS_SEARCHES:
            continue
        calls[tool] = calls.get(tool, 0) + 1
    return calls
