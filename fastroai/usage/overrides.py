"""Prices that the user gives: checked once, exact, and looked up before any list price."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Required, TypedDict

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.usage.money import Amount, exact_decimal

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

_TOKENS_PER_MTOK: Final = 1_000_000
_DATED: Final = re.compile(r"(.+)-(?:\d{4}-\d{2}-\d{2}|\d{8})")
_PROVIDERS_OF_REFERENCES: Final = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure-responses": "azure",
}
"""Prefixes of references that name an API of a provider, and what responses call that provider."""


class PricingOverride(TypedDict, total=False):
    """Prices of one model in US dollars per million tokens. A price of 0 means free."""

    input_per_mtok: Required[Amount]
    output_per_mtok: Required[Amount]
    cache_read_per_mtok: Amount | None
    """Input tokens read from the provider's cache; without it they cost what other input costs."""
    cache_write_per_mtok: Amount | None
    """Input tokens written to the provider's cache; without it they cost what other input costs."""
    cache_write_1h_per_mtok: Amount | None
    """... for one hour; without it they cost what other cache writes cost."""
    input_audio_per_mtok: Amount | None
    output_audio_per_mtok: Amount | None
    cache_audio_read_per_mtok: Amount | None
    """Audio tokens read from the cache; without it they cost what other audio input costs."""
    per_request: Amount | None
    """What each request costs besides its tokens, in US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPricing:
    """A checked `PricingOverride`; the fields are documented there."""

    input_per_mtok: Decimal
    output_per_mtok: Decimal
    cache_read_per_mtok: Decimal | None = None
    cache_write_per_mtok: Decimal | None = None
    cache_write_1h_per_mtok: Decimal | None = None
    input_audio_per_mtok: Decimal | None = None
    output_audio_per_mtok: Decimal | None = None
    cache_audio_read_per_mtok: Decimal | None = None
    per_request: Decimal | None = None

    @classmethod
    def of(cls, model: object, given: object) -> ModelPricing:
        """Check what was given for a model.

        Raises:
            ConfigurationError: naming the model and the field.
        """
        if not isinstance(model, str) or not model.strip():
            raise ConfigurationError(
                "pricing_overrides", model, "model names as keys: 'model' or 'provider:model'"
            )
        where = f"pricing_overrides[{model!r}]"
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                where, given, "a mapping such as {'input_per_mtok': 2.0, 'output_per_mtok': 8.0}"
            )
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                expected = f"a field named {', '.join(known)}.{nearest_hint(str(name), known)}"
                raise ConfigurationError(where, name, expected)
        for name in ("input_per_mtok", "output_per_mtok"):
            if given.get(name) is None:
                raise ConfigurationError(f"{where}[{name!r}]", None, "a price; 0 if it is free")
        prices = {
            name: exact_decimal(f"{where}[{name!r}]", value, "a finite number of US dollars, 0 or more")
            for name, value in given.items()
            if value is not None
        }
        return cls(**prices)

    def cost(self, usage: RequestUsage) -> Decimal:
        """What one request costs in US dollars, exactly.

        Raises:
            ValueError: if the parts of a token count exceed it.
        """
        total = Decimal(0)
        for tokens, per_mtok in self._priced_tokens(usage):
            if tokens < 0:
                raise ValueError(f"parts of its token counts exceed their totals: {usage}")
            total += tokens * per_mtok
        return total / _TOKENS_PER_MTOK + (self.per_request or 0)

    def _priced_tokens(self, usage: RequestUsage) -> Iterator[tuple[int, Decimal]]:
        """Every token of a request once, with its price. A part without a price belongs to its whole."""
        input_left, output_left = usage.input_tokens, usage.output_tokens
        audio_read_price = _first(
            self.cache_audio_read_per_mtok, self.input_audio_per_mtok, self.cache_read_per_mtok
        )
        audio_read = 0 if audio_read_price is None else usage.cache_audio_read_tokens
        write_1h = 0 if self.cache_write_1h_per_mtok is None else usage.cache_write_1h_tokens
        for tokens, per_mtok in (
            (audio_read, audio_read_price),
            (usage.cache_read_tokens - audio_read, self.cache_read_per_mtok),
            (usage.input_audio_tokens - audio_read, self.input_audio_per_mtok),
            (write_1h, self.cache_write_1h_per_mtok),
            (usage.cache_write_tokens - write_1h, self.cache_write_per_mtok),
        ):
            if per_mtok is not None:
                input_left -= tokens
                yield tokens, per_mtok
        yield input_left, self.input_per_mtok
        if self.output_audio_per_mtok is not None:
            output_left -= usage.output_audio_tokens
            yield usage.output_audio_tokens, self.output_audio_per_mtok
        yield output_left, self.output_per_mtok


def _first(*prices: Decimal | None) -> Decimal | None:
    return next((price for price in prices if price is not None), None)


class PricingOverrides:
    """Overrides by model, with or without its provider; the more specific key wins.

    Names match exactly, case included. A name also stands for its dated snapshots: `gpt-4o` for
    `gpt-4o-2024-08-06`, `claude-sonnet-4-5` for `claude-sonnet-4-5-20250929`.
    """

    def __init__(self, given: Mapping[str, PricingOverride] | None = None) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise ConfigurationError("pricing_overrides", given, "a mapping from model names to their prices")
        self._by_key = {
            _canonical_key(model): ModelPricing.of(model, prices) for model, prices in (given or {}).items()
        }

    def add(self, model: str, prices: Mapping[str, object]) -> None:
        """Add the prices of a model, or replace them."""
        self._by_key[_canonical_key(model)] = ModelPricing.of(model, prices)

    def find(self, models: Iterable[str | None], providers: Iterable[str | None]) -> ModelPricing | None:
        """The prices for the first of some names of a model that has any."""
        if not self._by_key:
            return None
        named_providers = [canonical_provider(provider) for provider in providers if provider]
        for model in models:
            if not model:
                continue
            dated = _DATED.fullmatch(model)
            for name in (model, dated[1]) if dated else (model,):
                for key in (*(f"{provider}:{name}" for provider in named_providers), name):
                    if (pricing := self._by_key.get(key)) is not None:
                        return pricing
        return None

    def of_snapshots(self, model: str) -> list[ModelPricing]:
        """The prices given for dated snapshots of a model, any of which may answer for it."""
        found = []
        for key, pricing in self._by_key.items():
            dated = _DATED.fullmatch(key)
            if dated and dated[1] in (model, f"{dated[1].partition(':')[0]}:{model}"):
                found.append(pricing)
        return found


def canonical_provider(provider: str) -> str:
    """The name that responses give for the provider of a reference: `openai` for `gateway/openai-chat`."""
    provider = provider.removeprefix("gateway/")
    return _PROVIDERS_OF_REFERENCES.get(provider, provider)


def _canonical_key(model: object) -> str:
    provider, colon, name = str(model).partition(":")
    return f"{canonical_provider(provider)}:{name}" if colon else provider
