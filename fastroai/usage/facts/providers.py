"""What providers document of their APIs: hosts, tokens around messages, service tiers, searches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from fastroai.usage.facts.source import Source

_CHECKED: Final = date(2026, 11, 22)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """Input tokens that are billed besides the texts themselves: what delimits them, and hidden prompts.

    Every number covers what is documented or was measured, with a margin; it is part of bounds.
    """

    request: int
    """Once."""
    tools: int
    """Once, if there are any tools."""
    output_format: int
    """Once, if the answer has a schema."""
    message: int
    """For each text that is sent as a message, or as a part of one."""
    call: int
    """For each tool call of the history, besides its name and arguments."""
    result: int
    """For each result of a tool, besides the name of the tool."""
    tool: int
    """For each tool, besides its definition as JSON."""
    names_calls: bool = True
    """Whether the ids of tool calls may be part of what the model reads."""
    tells_reasoning: bool = False
    """Whether responses tell how much of their output was reasoning."""
    sources: tuple[Source, ...] = ()


OPENAI: Final = Allowances(
    request=16,
    message=8,
    call=24,
    result=12,
    tool=16,
    tools=256,
    output_format=64,
    names_calls=False,
    tells_reasoning=True,
    sources=(
        Source(
            "https://github.com/openai/openai-cookbook/blob/main/examples/"
            "How_to_count_tokens_with_tiktoken.ipynb",
            _CHECKED,
            "3 tokens for each message, 1 for its role, 3 that prime the answer; 10 and 12 for the first and "
            "the last of some functions",
        ),
        Source(
            "https://github.com/pydantic/pydantic-ai/tree/main/tests/models/cassettes",
            _CHECKED,
            "requests on record, gpt-4o to gpt-5.6, Chat and Responses: 6 or 7 tokens besides the text of a "
            "message; 14 to 16 for a call and its result, 25 for each pair where calls are parallel; with "
            "tools, instructions on parallel calls of 194 tokens, in March 2025",
        ),
    ),
)
ANTHROPIC: Final = Allowances(
    request=64,
    message=16,
    call=64,
    result=64,
    tool=32,
    tools=1_024,
    output_format=1_024,
    sources=(
        Source(
            "https://platform.claude.com/docs/en/build-with-claude/token-counting",
            _CHECKED,
            "prompts that Anthropic adds are not billed, but for those of tools; 8 tokens were measured for "
            "a message of one word",
        ),
        Source(
            "https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing",
            _CHECKED,
            "the largest prompt for tools is 804 tokens, of Claude Opus 4.7 with a forced tool",
        ),
        Source(
            "https://platform.claude.com/docs/en/build-with-claude/structured-outputs",
            _CHECKED,
            "a system prompt explains the output format; its size is not documented",
        ),
    ),
)
GATEWAY: Final = Allowances(
    # OpenAI's, Anthropic's or Google's models under their name, but not at their address, or not documented;
    # or an open model behind their API, whose template tells it of tools in some hundred tokens. With tools,
    # both together are twice the largest prompt that is documented, see above.
    request=1_024,
    message=32,
    call=64,
    result=64,
    tool=64,
    tools=512,
    output_format=512,
)
OTHER: Final = Allowances(
    # A chat template can hold a default system prompt: that of gpt-oss has 70 tokens, others have hundreds.
    request=4_096,
    message=32,
    call=64,
    result=64,
    tool=64,
    tools=1_024,
    output_format=1_024,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTiers:
    """Names that a provider gives to its service tiers."""

    standard: frozenset[str]
    """Service tiers that the provider never bills above its list prices."""
    others: frozenset[str]
    source: Source


_OPENAI_TIERS: Final = ServiceTiers(
    standard=frozenset({"default", "flex"}),
    others=frozenset({"fast", "priority", "scale", "ultrafast"}),
    source=Source(
        "https://developers.openai.com/api/docs/api-reference/responses/create#service_tier", _CHECKED
    ),
)
TIERS_BY_PROVIDER: Final = {
    "anthropic": ServiceTiers(
        standard=frozenset({"standard", "standard_only"}),
        others=frozenset({"priority"}),
        source=Source(
            "https://platform.claude.com/docs/api/service-tiers",
            _CHECKED,
            "a request names standard_only, an answer standard or priority",
        ),
    ),
    "bedrock": ServiceTiers(
        standard=frozenset({"default", "flex"}),
        others=frozenset({"priority", "reserved"}),
        source=Source(
            "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ServiceTier.html", _CHECKED
        ),
    ),
    "google": ServiceTiers(
        standard=frozenset({"flex", "standard"}),
        others=frozenset({"priority"}),
        source=Source("https://github.com/googleapis/python-genai/blob/main/google/genai/types.py", _CHECKED),
    ),
    "groq": ServiceTiers(
        standard=frozenset({"flex", "on_demand"}),
        others=frozenset({"performance"}),
        source=Source("https://console.groq.com/docs/service-tiers", _CHECKED),
    ),
    "openai": _OPENAI_TIERS,
}
"""Providers with service tiers, by the name that PydanticAI gives them."""

STANDARD_TIERS: Final = frozenset[str]().union(*(tiers.standard for tiers in TIERS_BY_PROVIDER.values()))
"""Service tiers that no provider prices above its list prices."""

SERVICE_TIERS: Final = STANDARD_TIERS.union(*(tiers.others for tiers in TIERS_BY_PROVIDER.values()))
"""Names that providers give to service tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """What is documented of a provider's own API."""

    hosts: tuple[str, ...]
    """Its hosts; one that begins with a point or a hyphen is the end of a host's name."""
    allowances: Allowances = GATEWAY
    """At its own hosts."""
    tiers: ServiceTiers | None = None
    """Service tiers that a request can name, where it is never billed as a faster one; `None` if this is not
    documented. Without any, the tier is that of the project."""
    search_rounds: int | None = None
    """How often, at most, the model is asked in one request that has tools of the provider's own; `None` if
    nothing limits it. Each time it may read a full context window."""
    search_source: Source | None = None
    same_prefix: Source | None = None
    """Where it is documented that the tokens of what a request begins with are the same in each request."""


_CACHED_PREFIX: Final = (
    "a cached prefix is read by requests that begin with the same tools, system and messages"
)
PROVIDERS: Final = {
    "anthropic": ProviderFacts(
        hosts=("api.anthropic.com",),
        allowances=ANTHROPIC,
        search_rounds=10,
        search_source=Source(
            "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons#pause-turn",
            _CHECKED,
            "10 iterations; attempts beyond max_uses are errors that the model reads, not an end",
        ),
        same_prefix=Source(
            "https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance",
            _CHECKED,
            _CACHED_PREFIX,
        ),
    ),
    "azure": ProviderFacts(
        hosts=(".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
        allowances=OPENAI,
        same_prefix=Source(
            "https://learn.microsoft.com/azure/ai-foundry/openai/how-to/prompt-caching",
            _CHECKED,
            _CACHED_PREFIX,
        ),
    ),
    "google": ProviderFacts(
        hosts=("generativelanguage.googleapis.com",),
        same_prefix=Source("https://ai.google.dev/gemini-api/docs/caching", _CHECKED, _CACHED_PREFIX),
    ),
    "google-cloud": ProviderFacts(
        hosts=("aiplatform.googleapis.com", "-aiplatform.googleapis.com", ".rep.googleapis.com"),
        same_prefix=Source("https://ai.google.dev/gemini-api/docs/caching", _CHECKED, _CACHED_PREFIX),
    ),
    "openai": ProviderFacts(
        hosts=("api.openai.com", ".api.openai.com"),  # with regions: eu.api.openai.com
        allowances=OPENAI,
        tiers=_OPENAI_TIERS,
        same_prefix=Source(
            "https://developers.openai.com/api/docs/guides/prompt-caching", _CHECKED, _CACHED_PREFIX
        ),
    ),
}
"""Providers with documented rules, by the name that PydanticAI gives them."""


@dataclass(frozen=True, slots=True)
class NamedModels:
    """Models that share a property, identified by their names."""

    names: re.Pattern[str]
    sources: tuple[Source, ...]


SEARCHES_UNASKED: Final = NamedModels(
    re.compile(r".*(search|sonar|:online)"),
    (
        Source("https://openrouter.ai/openai/gpt-4o-search-preview/api", _CHECKED, "gpt-…-search-…"),
        Source(
            "https://github.com/pydantic/genai-prices/blob/main/prices/providers/perplexity.yml",
            _CHECKED,
            "sonar…",
        ),
        Source("https://openrouter.ai/docs/features/web-search", _CHECKED, "…:online"),
    ),
)
"""Models that search the web without being given a tool for it, for fees that no token count bounds."""

THINKS_BESIDES: Final = NamedModels(
    re.compile(r"(?:.*/)?grok-"),
    (
        Source(
            "https://docs.x.ai/developers/rest-api-reference/inference/chat",
            _CHECKED,
            "max_completion_tokens only applies to visible output tokens; max_output_tokens of Responses "
            "includes reasoning; there is no limit on the length of an answer",
        ),
    ),
)
"""Models whose thinking may exceed `max_tokens`, which limits only the visible answer."""
