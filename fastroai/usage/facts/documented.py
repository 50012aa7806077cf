"""What providers document, read from the files in `data` when somebody first asks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastroai.usage.facts.provider import ProviderFacts, ServiceTiers


@cache
def all_facts() -> Mapping[str, ProviderFacts]:
    """Return what is documented, by the name that PydanticAI gives the provider."""
    from fastroai.usage.facts.provider import read_facts  # late: models for tests have no facts

    folder = files("fastroai.usage.facts") / "data"
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".toml")}
    return {name.removesuffix(".toml"): read_facts(name, texts[name]) for name in sorted(texts)}


@cache
def providers() -> Mapping[str, ProviderFacts]:
    """Return the providers with hosts where documented rules hold."""
    return {name: facts for name, facts in all_facts().items() if facts.hosts}


@cache
def service_tiers() -> tuple[ServiceTiers, ...]:
    """Return the service tiers of all providers that have any."""
    return tuple(facts.service_tiers for facts in all_facts().values() if facts.service_tiers is not None)
