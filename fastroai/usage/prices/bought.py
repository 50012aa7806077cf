"""The usage that a response reports: tokens, and other units that are billed, such as searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fastroai.usage.bounding.pieces import unknown_in
from fastroai.usage.facts.billing import (
    BILLED_DETAILS,
    BILLED_UNITS,
    COUNTED_SEARCHES,
    FREE_TOOLS,
    HIDES_THINKING,
    IN_THE_TOKENS,
    SEARCHES_UNTOLD,
    UNITS_OF_TOOLS,
    XAI_TOOLS,
)
from fastroai.usage.facts.surface import FREE_DETAILS, MODALITY_DETAILS, USAGE_FIELDS
from fastroai.usage.prices.rate_card import MOST_OF_A_UNIT, UNITS

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


_FREE: Final = frozenset[str]().union(*(details.names for details in FREE_DETAILS))


def used_units(response: ModelResponse) -> dict[str, int | float]:
    """Return how much a response used of each unit, named as by genai-prices, or else by us."""
    details = response.usage.details
    used: dict[str, int | float] = {}
    billed = BILLED_UNITS.get(response.provider_name or "")
    if billed is not None and "input_tokens" in details:
        used = {name: details[name] for name in sorted(billed.names) if details.get(name)}
    else:
        for name, count in vars(response.usage).items():
            if count and name not in USAGE_FIELDS.names:
                used[name] = count if name in UNITS else _amount(count)
        if cached := cached_tokens(response):
            used["cache_read_tokens"] = cached
    for name, count in _billed_details(details or {}):
        used.setdefault(name, count)
    for tool, count in _native_calls(response).items():
        used.setdefault(UNITS_OF_TOOLS.of.get(tool, tool), count)
    for unit in (*_untold(response), *unknown_in([response])):
        used.setdefault(unit, 1)
    return used


def cached_tokens(response: ModelResponse) -> int:
    """Return the input tokens read from a cache, also if PydanticAI leaves them in the details (Mistral)."""
    details = response.usage.details
    return response.usage.cache_read_tokens or (details.get("num_cached_tokens", 0) if details else 0)


def _billed_details(details: dict[str, int]) -> Iterator[tuple[str, int | float]]:
    for name, count in details.items():
        if not count or name in _FREE or MODALITY_DETAILS.names.fullmatch(name):
            continue
        if tool := XAI_TOOLS.names.fullmatch(name):
            if tool[1] not in IN_THE_TOKENS.names:
                yield UNITS_OF_TOOLS.of.get(tool[1], tool[1]), count
        elif name in BILLED_DETAILS.of:
            yield BILLED_DETAILS.of[name], count
        else:
            yield name, _amount(count)


def _amount(count: object) -> int | float:
    """Return the amount of a unit that nothing here knows, which may be no number: then it is one."""
    return count if isinstance(count, int | float) and 0 < count <= MOST_OF_A_UNIT else 1


def _untold(response: ModelResponse) -> Iterator[str]:
    """Yield the billed units that the answer does not report, or that PydanticAI does not pass on."""
    url = response.provider_url
    if response.provider_name == "openai" and SEARCHES_UNTOLD.names.match(response.model_name or ""):
        yield "web_searches"
    if url and HIDES_THINKING.names.match(url) and not response.usage.output_reasoning_tokens:
        yield "thinking tokens"
    if "is_byok" in response.usage.details and "cost" not in (response.provider_details or {}):
        # PydanticAI passes the bill on only from an OpenRouterModel, and leaves out 0 like null.
        yield "bill of OpenRouter"


def _native_calls(response: ModelResponse) -> dict[str, int]:
    """Return the calls of the provider's own tools that are billed one by one, and that the usage omits."""
    provider = response.provider_name or ""
    calls: dict[str, int] = {}
    for part in response.parts:
        if part.part_kind == "builtin-tool-call":
            tool = part.tool_name.partition(":")[0]  # as in mcp_server:label
            is_free = tool in IN_THE_TOKENS.names or (provider, tool) in FREE_TOOLS
            is_counted = tool == "web_search" and provider in COUNTED_SEARCHES.names
            if not (is_free or is_counted):
                calls[tool] = calls.get(tool, 0) + 1
    return calls
