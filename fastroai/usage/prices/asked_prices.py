"""Prices that a request asks for and its response may not name: dearer service tiers, longer caching."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.usage.facts.documented import all_facts


def asked_tier(provider: str, settings: Mapping[str, object]) -> str | None:
    """Return the service tier above OpenAI's list prices that a request asks for; `None` if it asks for none.

    `service_tier` has that meaning only at OpenAI: elsewhere PydanticAI translates it.
    """
    asked = settings.get("openai_service_tier") or (
        settings.get("service_tier") if provider == "openai" else None
    )
    if not isinstance(asked, str):
        return None
    tiers = all_facts()["openai"].service_tiers
    return asked if tiers is not None and asked in tiers.dearer else None


def caches_half_a_day(settings: Mapping[str, object]) -> bool:
    """Return whether a request asks OpenAI to keep its input for 12 hours (see `HALF_DAY_WRITE`).

    Takes the settings that `Model.prepare_request` returns, which has translated `cache`.
    """
    options = settings.get("openai_prompt_cache_options")
    return isinstance(options, Mapping) and options.get("ttl") == "12h"
