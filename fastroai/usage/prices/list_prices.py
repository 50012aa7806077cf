"""The search for the list prices of genai-prices that apply to a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Generic, NamedTuple, TypeVar

from genai_prices.data_snapshot import DataSnapshot, get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, PriceVariant

from fastroai.usage.facts.billing import FREE_MODELS
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS
from fastroai.usage.prices.rate_card import RateCard
from fastroai.usage.prices.references import first_party_provider

KeyT = TypeVar("KeyT")
FoundT = TypeVar("FoundT")

_FUNCTION_MODEL: Final = "function:"
_SHARES_A_URL: Final = "openai-decisions"
"""A provider whose URL belongs to another provider in the price list."""


def is_local(model: str | None, provider: str | None) -> bool:
    """Return whether a model is a `TestModel` or a `FunctionModel`, by its provider, or else by its name."""
    return provider in LOCAL_PROVIDERS or (provider is None and (model or "").startswith(_FUNCTION_MODEL))


class ListedModel(NamedTuple):
    """A model that genai-prices lists."""

    info: ModelInfo
    has_variants: bool
    """Whether its prices for service tiers and the like hold: not where another provider resells it."""

    def lasting_card(self, conditions: Mapping[str, str]) -> RateCard | None:
        """Return the prices under some conditions; `None` if they depend on the time."""
        variants = self.variants(conditions)
        dated = not isinstance(self.info.prices, ModelPrice)
        if dated or any(variant.constraint is not None for _, variant in variants):
            return None
        return self.card(datetime.now(UTC), conditions)

    def card(self, at: datetime, conditions: Mapping[str, str]) -> RateCard:
        """Return the prices at a time and under conditions, such as `{"service_tier": "flex"}`."""
        standard = self.info.get_prices(at)
        chosen = tuple(
            number
            for number, variant in self.variants(conditions)
            if variant.constraint is None or variant.constraint.active(at)
        )
        key = (id(self.info), id(standard), chosen)
        made = _cards.get(key)
        if made is None:  # objects whose ids are in the key are kept, so that no others get these ids
            if len(_cards) > _MOST_KEPT:
                _cards.clear()
            card = RateCard(self.info.get_prices(at, conditions) if chosen else standard)
            made = _cards[key] = self.info, standard, card
        return made[2]

    def knows(self, condition: str, value: str) -> bool:
        """Return whether the model has separate prices for a condition, such as a service tier."""
        return any(variant.when.get(condition) == value for variant in self._all_variants)

    def variants(self, conditions: Mapping[str, str]) -> Sequence[tuple[int, PriceVariant]]:
        """Return the separate prices, with their numbers, that the model lists for conditions at any time."""
        return [
            (number, variant)
            for number, variant in enumerate(self._all_variants)
            if variant.when.items() <= conditions.items()
        ]

    @property
    def _all_variants(self) -> Sequence[PriceVariant]:
        return self.info.price_variants or () if self.has_variants else ()


def listed_model(model: str | None, provider: str | None, provider_url: str | None) -> ListedModel | None:
    """Find a model in genai-prices, by the URL of its API, else by the name of its provider.

    Return `None` if it is not listed, or listed without prices and not free. A bare name is looked up only at
    its maker: genai-prices would guess a provider from the name.
    """
    if not model:
        return None
    if provider == "function":
        provider = None  # the answer of a FunctionModel says so
    if not (provider or provider_url or first_party_provider(model)):
        return None
    return _models.of((model, provider, provider_url))


class KeptWhileListed(Generic[KeyT, FoundT]):
    """Results that are found once for each key, and forgotten when the list prices change."""

    def __init__(self, find: Callable[[KeyT], FoundT]) -> None:
        self._find = find
        self._snapshot: DataSnapshot | None = None
        self._found: dict[KeyT, FoundT] = {}

    def of(self, key: KeyT) -> FoundT:
        """Return the result for a key."""
        snapshot = get_snapshot()
        if snapshot is not self._snapshot or len(self._found) > _MOST_KEPT:
            self._snapshot, self._found = snapshot, {}
        found = self._found
        if key not in found:
            found[key] = self._find(key)
        return found[key]


def _find(key: tuple[str, str | None, str | None]) -> ListedModel | None:
    model, provider, url = key
    name = model.removeprefix("models/")  # Google's answers name their models so
    by_url = (None, url) if url and provider != _SHARES_A_URL else None
    for provider_id, provider_url in filter(None, (by_url, (provider, None))):
        try:
            found, info = get_snapshot().find_provider_model(name, None, provider_id, provider_url)
        except LookupError:
            continue
        if not _has_prices(info) and not _is_free(found.id, info.id):
            return None
        return ListedModel(info, any(info is own for own in found.models))
    return None


def _has_prices(info: ModelInfo) -> bool:
    prices = [info.prices] if isinstance(info.prices, ModelPrice) else [each.prices for each in info.prices]
    return any(price is not None for each in prices for price in vars(each).values())


def _is_free(provider: str, model: str) -> bool:
    """Return whether a model that is listed without prices is free; others were taken off the market."""
    free = (FREE_MODELS.get(provider), FREE_MODELS["*"])
    return any(each is not None and each.names.match(model) for each in free)


_MOST_KEPT: Final = 4_096
_models: Final = KeptWhileListed(_find)
_cards: Final[dict[tuple[object, ...], tuple[ModelInfo, ModelPrice, RateCard]]] = {}
"""Rate cards, made once for the same prices."""
