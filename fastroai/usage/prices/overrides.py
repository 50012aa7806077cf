"""The user's own prices of models, found by model and provider: they come before any list price."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from fastroai.callers import warn_caller
from fastroai.errors import ConfigurationError
from fastroai.usage.near_misses import NearMissWarning, misspelt_provider
from fastroai.usage.prices.model_pricing import ModelPricing, PricingOverride

_DATED: Final = re.compile(r"(.+)-(?:\d{4}-\d{2}-\d{2}|\d{8})")
_YEAR: Final = re.compile(r"-20\d\d")
_WILDCARD: Final = "*"
PROVIDERS_OF_REFERENCES: Final = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure-responses": "azure",
}
"""Prefixes of references that name an API of a provider, and the name of that provider in responses."""


class PricingOverrides:
    """Overrides by model; the most specific key wins.

    The order is `provider:model`, then `model`, then the key with a wildcard `*` that has the most letters
    besides it (`openai:gpt-4o*`, `ollama:*`, `*`). Names match with their case. A key also stands for dated
    snapshots of a model: `gpt-4o` for `gpt-4o-2024-08-06`, `claude-sonnet-4-5` for
    `claude-sonnet-4-5-20250929`. A wildcard is compared with the name without the date.
    """

    __slots__ = ("_exact", "_option", "_wildcards")

    def __init__(
        self, given: Mapping[str, PricingOverride] | None = None, *, option: str = "pricing_overrides"
    ) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise ConfigurationError(option, given, "a mapping from model names to their prices")
        self._option = option
        self._exact: dict[str, ModelPricing] = {}
        self._wildcards: dict[str, ModelPricing] = {}
        for model, prices in (given or {}).items():
            self.add(model, prices)

    def add(self, model: str, prices: Mapping[str, object]) -> None:
        """Add the prices of a model, or replace them."""
        if not isinstance(model, str) or not model.strip():
            expected = "model names as keys: 'model', 'provider:model', or with a wildcard 'provider:*'"
            raise ConfigurationError(self._option, model, expected)
        pricing = ModelPricing.of(f"{self._option}[{model!r}]", prices)
        key = _canonical_key(model)
        if _WILDCARD not in key:
            self._exact[key] = pricing
            return
        if _YEAR.search(key):
            expected = "a key with a wildcard and no date; give the prices of a snapshot under its full name"
            raise ConfigurationError(self._option, model, expected)
        self._wildcards[key] = pricing
        self._wildcards = dict(sorted(self._wildcards.items(), key=_by_letters))

    def warn_of_misspelt(self, models: Iterable[str]) -> None:
        """Warn of keys whose provider is probably misspelt: a `NearMissWarning` for each."""
        for model in models:
            provider, colon, name = _canonical_key(model).partition(":")
            meant = misspelt_provider(provider) if colon and _WILDCARD not in provider else None
            if meant is not None:
                warn_caller(
                    f"{self._option}[{model!r}]: no provider is known as {provider!r}. Did you mean "
                    f"{f'{meant}:{name}'!r}? If it is a provider of your own, ignore this warning.",
                    NearMissWarning,
                )

    def find(self, models: Iterable[str | None], providers: Iterable[str | None]) -> ModelPricing | None:
        """Return the prices of the first name that has an override; all exact keys come before wildcards."""
        found = self._find(models, providers)
        return None if found is None else found[1]

    def without_prices(self, model: str, provider: str | None) -> str | None:
        """Return the name of the override for a model if it has no prices: `pricing_overrides['acme-*']`."""
        found = self._find([model], [provider])
        return f"{self._option}[{found[0]!r}]" if found is not None and found[1].prices is None else None

    def _find(
        self, models: Iterable[str | None], providers: Iterable[str | None]
    ) -> tuple[str, ModelPricing] | None:
        if not self._exact and not self._wildcards:
            return None
        named_providers = [canonical_provider(provider) for provider in providers if provider]
        names = [model for model in models if model]
        for name in names:
            for key in _keys(name, named_providers):
                if (pricing := self._exact.get(key)) is not None:
                    return key, pricing
        for name in names:
            for key, pricing in self._wildcards.items():
                if any(map(_pattern(key).fullmatch, _spellings(_undated(name), named_providers))):
                    return key, pricing
        return None

    @property
    def service_tiers(self) -> frozenset[str]:
        """The service tiers that have prices of their own."""
        every = (*self._exact.values(), *self._wildcards.values())
        return frozenset(tier for pricing in every for tier in pricing.service_tiers)

    def of_snapshots(self, model: str) -> list[ModelPricing]:
        """Return the prices given for dated snapshots of a model, any of which may answer for it."""
        found = []
        for key, pricing in self._exact.items():
            dated = _DATED.fullmatch(key)
            if dated and dated[1] in (model, f"{dated[1].partition(':')[0]}:{model}"):
                found.append(pricing)
        return found


def canonical_provider(provider: str) -> str:
    """Return the name of a reference's provider in responses: `openai` for `gateway/openai-chat`."""
    provider = provider.removeprefix("gateway/")
    return PROVIDERS_OF_REFERENCES.get(provider, provider)


def _canonical_key(model: str) -> str:
    provider, colon, name = model.partition(":")
    return f"{canonical_provider(provider)}:{name}" if colon else provider


def _keys(model: str, providers: Iterable[str]) -> Iterator[str]:
    for name in dict.fromkeys((model, _undated(model))):
        yield from _spellings(name, providers)


def _undated(model: str) -> str:
    dated = _DATED.fullmatch(model)
    return dated[1] if dated else model


def _spellings(model: str, providers: Iterable[str]) -> Iterator[str]:
    yield from (f"{provider}:{model}" for provider in providers)
    yield model


def _by_letters(item: tuple[str, object]) -> int:
    return item[0].count(_WILDCARD) - len(item[0])


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, key.split(_WILDCARD))), re.DOTALL)
