"""Documented facts about the APIs of providers: hosts, service tiers, searches, caches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

from fastroai.usage.facts.allowances import ANTHROPIC, GATEWAY, GOOGLE, OPENAI, Allowances
from fastroai.usage.facts.source import Source

_CHECKED: Final = date(2026, 11, 22)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTiers:
    """Names that a provider gives to its service tiers."""

    listed: frozenset[str]
    """Tiers that are billed at plain list prices."""
    flexible: frozenset[str] = frozenset()
    """Tiers that are billed at list prices at most."""
    dearer: frozenset[str]
    source: Source

    @property
    def standard(self) -> frozenset[str]:
        """Service tiers that the provider never bills above its list prices."""
        return self.listed | self.flexible


_OPENAI_TIERS: Final = ServiceTiers(
    listed=frozenset({"default"}),
    flexible=frozenset({"flex"}),
    dearer=frozenset({"fast", "priority", "scale", "ultrafast"}),
    source=Source(
        "https://developers.openai.com/api/docs/api-reference/responses/create#service_tier", _CHECKED
    ),
)
TIERS_BY_PROVIDER: Final = {
    "anthropic": ServiceTiers(
        listed=frozenset({"standard", "standard_only"}),
        dearer=frozenset({"priority"}),
        source=Source(
            "https://platform.claude.com/docs/api/service-tiers",
            _CHECKED,
            "a request names standard_only, an answer standard or priority",
        ),
    ),
    "bedrock": ServiceTiers(
        listed=frozenset({"default"}),
        flexible=frozenset({"flex"}),
        dearer=frozenset({"priority", "reserved"}),
        source=Source(
            "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ServiceTier.html", _CHECKED
        ),
    ),
    "google": ServiceTiers(
        listed=frozenset({"standard"}),
        flexible=frozenset({"flex"}),
        dearer=frozenset({"priority"}),
        source=Source("https://github.com/googleapis/python-genai/blob/main/google/genai/types.py", _CHECKED),
    ),
    "groq": ServiceTiers(
        listed=frozenset({"on_demand"}),
        flexible=frozenset({"flex"}),
        dearer=frozenset({"performance"}),
        source=Source("https://console.groq.com/docs/service-tiers", _CHECKED),
    ),
    "openai": _OPENAI_TIERS,
}
"""Providers with service tiers, by the name that PydanticAI gives them."""

STANDARD_TIERS: Final = frozenset[str]().union(*(tiers.standard for tiers in TIERS_BY_PROVIDER.values()))
"""Service tiers that no provider prices above its list prices."""

LISTED_TIERS: Final = frozenset[str]().union(*(tiers.listed for tiers in TIERS_BY_PROVIDER.values()))
"""Service tiers that a provider bills at its plain list prices."""

SERVICE_TIERS: Final = STANDARD_TIERS.union(*(tiers.dearer for tiers in TIERS_BY_PROVIDER.values()))
"""Names that providers give to service tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """The documented facts of a provider's own API."""

    hosts: tuple[str, ...]
    """The hosts of the API. One that begins with a point or a hyphen is the end of a host's name."""
    allowances: Allowances = GATEWAY
    """The allowances at the provider's own hosts."""
    tiers: ServiceTiers | None = None
    """Service tiers that a request can name and that are never billed as a faster one; `None` if this is not
    documented. A request that names none has the tier of its project."""
    search_rounds: int | None = None
    """The most rounds in which the model is asked in one request with tools of the provider's own; `None` if
    nothing limits them. In each round it may read a full context window."""
    search_sources: tuple[Source, ...] = ()
    cache_writes: Source | None = None
    """The page that documents that only searches write to the cache unasked, and that an entry lasts 5
    minutes unless the request asks for an hour."""
    same_prefix: Source | None = None
    """The page that documents that the same beginning of a request has the same tokens each time."""


_CACHED_PREFIX: Final = (
    "a cached prefix is read by requests that begin with the same tools, system and messages"
)
PROVIDERS: Final = {
    "anthropic": ProviderFacts(
        hosts=("api.anthropic.com",),
        allowances=ANTHROPIC,
        search_rounds=10,
        search_sources=(
            Source(
                "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons#pause-turn",
                _CHECKED,
                "10 iterations; attempts beyond max_uses are errors that the model reads, not an end",
            ),
            Source(
                "https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool"
                "#usage-and-pricing",
                _CHECKED,
                "in its examples, a search is written to the cache for 5 minutes unasked",
            ),
        ),
        cache_writes=Source(
            "https://platform.claude.com/docs/en/build-with-claude/prompt-caching",
            _CHECKED,
            "caching is asked for with cache_control, whose time to live is 5 minutes or an hour",
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
        allowances=GOOGLE,
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
