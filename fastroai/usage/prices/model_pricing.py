"""The user's own prices for one model: checked once, and exact."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Required, TypedDict

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.records import EXACT
from fastroai.usage.money import Amount, exact_dollars, signed_decimal, whole_number

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

TOKENS_PER_MTOK: Final = 1_000_000
_ZERO: Final = Decimal(0)
_ONE: Final = Decimal(1)


class PricesPerMtok(TypedDict, total=False):
    """Prices of tokens in US dollars per million. A price of 0 means free."""

    input_per_mtok: Amount
    output_per_mtok: Amount
    cache_read_per_mtok: Amount | None
    """Input tokens read from the provider's cache; without it they cost what other input costs."""
    cache_write_per_mtok: Amount | None
    """Input tokens written to the provider's cache; without it they cost what other input costs."""
    cache_write_1h_per_mtok: Amount | None
    """Input tokens written to the cache for one hour; without it they cost what other cache writes cost."""
    input_audio_per_mtok: Amount | None
    output_audio_per_mtok: Amount | None
    cache_audio_read_per_mtok: Amount | None
    """Audio tokens read from the cache; without it they cost what other audio input costs."""


class PriceTier(PricesPerMtok, total=False):
    """Prices for requests with more input. Prices that a tier leaves out are those of the tier below."""

    above: Required[int]
    """Input tokens. A request with more pays the prices of the tier for all of its tokens."""


class PricingOverride(PricesPerMtok, total=False):
    """Prices of one model, as a `dict`, for `CostCalculator(pricing_overrides=...)`.

        {"gpt-4o": {"input_per_mtok": 2.0, "output_per_mtok": "8.0", "discount": "0.2"}}

    Prices of tokens are US dollars per million tokens; 0 means free. They, and `tiers`, need both
    `input_per_mtok` and `output_per_mtok`. Without prices of tokens, list prices apply, with the `discount`
    and the `per_request` fee given here. A field that is `None` counts as left out. The `CostCalculator`
    checks the fields, and raises `ConfigurationError` for an invalid one.
    """

    tiers: Sequence[PriceTier]
    """Prices that depend on the size of the input."""
    discount: Amount | None
    """The share that is taken off the price of tokens: `"0.2"` for 20 % less, `"-0.05"` for 5 % more."""
    per_request: Amount | None
    """Fee for each request besides its tokens, in US dollars. No discount is taken off it."""
    service_tiers: Mapping[str, PricingOverride]
    """Differences for responses of a service tier, such as `{"flex": {"discount": "0.5"}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """Checked `PricesPerMtok`; the fields are documented there."""

    input_per_mtok: Decimal
    output_per_mtok: Decimal
    cache_read_per_mtok: Decimal | None = None
    cache_write_per_mtok: Decimal | None = None
    cache_write_1h_per_mtok: Decimal | None = None
    input_audio_per_mtok: Decimal | None = None
    output_audio_per_mtok: Decimal | None = None
    cache_audio_read_per_mtok: Decimal | None = None

    def cost(self, usage: RequestUsage) -> Decimal:
        """Return what the tokens of one request cost in US dollars, exactly.

        Raises:
            ValueError: if the parts of a token count exceed it.
        """
        total = _ZERO
        for tokens, per_mtok in self._priced_tokens(usage):
            if tokens < 0:
                raise ValueError(
                    f"its token counts contradict each other, because a part is more than the total: {usage}"
                )
            total = EXACT.add(total, EXACT.multiply(tokens, per_mtok))
        return EXACT.divide(total, TOKENS_PER_MTOK)

    def _priced_tokens(self, usage: RequestUsage) -> Iterator[tuple[int, Decimal]]:
        """Yield every token once, with its price. A part without a price belongs to its whole."""
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


_PRICES: Final = tuple(each.name for each in fields(TokenPrices))
_OF_A_MODEL: Final = (*_PRICES, "tiers", "discount", "per_request", "service_tiers")
_OF_A_TIER: Final = (*_PRICES, "above")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPricing:
    """A checked `PricingOverride`; the fields are documented there."""

    prices: TokenPrices | None = None
    """Prices of tokens; `None` for those of the price list."""
    tiers: Sequence[tuple[int, TokenPrices]] = ()
    """Thresholds of input tokens in ascending order, each with the prices that hold above it."""
    discount: Decimal = _ZERO
    per_request: Decimal = _ZERO
    service_tiers: Mapping[str, ModelPricing] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, where: str, given: object) -> ModelPricing:
        """Check the prices that were given for a model; `where` names their place in errors.

        Raises:
            ConfigurationError: naming the model and the field.
        """
        expected = "a mapping such as {'input_per_mtok': 2.0, 'output_per_mtok': 8.0}"
        checked = _checked_mapping(where, given, _OF_A_MODEL, expected)
        service_tiers = checked.pop("service_tiers", None) or {}
        pricing = cls._without_service_tiers(where, checked)
        if not isinstance(service_tiers, Mapping):
            raise ConfigurationError(
                f"{where}['service_tiers']", service_tiers, "a mapping from service tiers to their prices"
            )
        of_tiers = {
            str(tier): cls._of_service_tier(f"{where}['service_tiers'][{tier!r}]", checked, differences)
            for tier, differences in service_tiers.items()
        }
        if not of_tiers and not checked:
            raise ConfigurationError(where, given, "prices, a discount or a fee per request")
        return replace(pricing, service_tiers=MappingProxyType(of_tiers))

    @classmethod
    def _without_service_tiers(cls, where: str, given: Mapping[str, object]) -> ModelPricing:
        prices = {name: given[name] for name in _PRICES if name in given}
        tiers = given.get("tiers", ())
        for name in ("input_per_mtok", "output_per_mtok") if prices or tiers else ():
            if name not in prices:
                raise ConfigurationError(f"{where}[{name!r}]", None, "a price; 0 if it is free")
        return cls(
            prices=_token_prices(where, prices) if prices else None,
            tiers=_tiers(f"{where}['tiers']", tiers, prices),
            discount=_discount(f"{where}['discount']", given.get("discount", _ZERO)),
            per_request=exact_dollars(f"{where}['per_request']", given.get("per_request", _ZERO)),
        )

    @classmethod
    def _of_service_tier(cls, where: str, base: Mapping[str, object], given: object) -> ModelPricing:
        """Return the pricing of a model with the differences of a service tier."""
        known = [name for name in _OF_A_MODEL if name != "service_tiers"]
        own = _checked_mapping(where, given, known, "a mapping such as {'discount': '0.5'}")
        # Tiers belong to the prices that they raise, so they go when other prices replace those.
        kept = {name: value for name, value in base.items() if name != "tiers" or not own.keys() & {*_PRICES}}
        return cls._without_service_tiers(where, {**kept, **own})

    def in_service_tier(self, service_tier: object) -> ModelPricing:
        """Return the pricing for the service tier that a response names; `None` if it names none."""
        of_tier = self.service_tiers.get(service_tier) if isinstance(service_tier, str) else None
        return of_tier or self

    def cost(self, usage: RequestUsage, *, list_usd: Decimal | None = None) -> Decimal | None:
        """Return what one request costs in US dollars, exactly.

        `list_usd` is its list price, which counts where this pricing has no prices. The cost is `None` if
        neither is known.

        Raises:
            ValueError: if the parts of a token count exceed it.
        """
        prices = self.prices
        for above, of_tier in self.tiers:
            if usage.input_tokens > above:
                prices = of_tier
        tokens_usd = list_usd if prices is None else prices.cost(usage)
        if tokens_usd is None:
            return None
        return EXACT.add(EXACT.multiply(tokens_usd, self.share), self.per_request)

    @property
    def share(self) -> Decimal:
        """The share of the price of tokens that is left after the discount."""
        return EXACT.subtract(_ONE, self.discount)

    def variants(self, service_tiers: Collection[str] | None = None) -> Sequence[ModelPricing]:
        """Return this pricing, and those that replace it in the given service tiers, or in all for `None`."""
        others = (
            pricing
            for tier, pricing in self.service_tiers.items()
            if service_tiers is None or tier in service_tiers
        )
        return (self, *others)

    @property
    def uses_list_prices(self) -> bool:
        """Whether this pricing needs the price list, in some service tier at least."""
        return any(variant.prices is None for variant in self.variants())

    def prices_within(self, input_tokens: int | None = None) -> Sequence[TokenPrices]:
        """Return its own prices that can apply up to `input_tokens` of input; `None` is any number."""
        tiers = (prices for above, prices in self.tiers if input_tokens is None or input_tokens > above)
        return () if self.prices is None else (self.prices, *tiers)


def _checked_mapping(where: str, given: object, known: Sequence[str], expected: str) -> dict[str, object]:
    """Return the values given under known names, without those that are `None`."""
    if not isinstance(given, Mapping):
        raise ConfigurationError(where, given, expected)
    for name in given:
        if name not in known:
            hint = nearest_hint(str(name), known)
            raise ConfigurationError(where, name, f"a field named {', '.join(known)}.{hint}")
    return {name: value for name, value in given.items() if value is not None}


def _token_prices(where: str, given: Mapping[str, object]) -> TokenPrices:
    return TokenPrices(**{name: exact_dollars(f"{where}[{name!r}]", value) for name, value in given.items()})


def _discount(where: str, value: object) -> Decimal:
    expected = "a share of the price, at most 1: '0.2' for 20 % less, '-0.05' for 5 % more"
    share = signed_decimal(where, value, expected)
    if share > _ONE:
        raise ConfigurationError(where, value, expected)
    return share


def _tiers(where: str, given: object, base: Mapping[str, object]) -> Sequence[tuple[int, TokenPrices]]:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        expected = "a list such as [{'above': 200_000, 'input_per_mtok': 4.0, 'output_per_mtok': 16.0}]"
        raise ConfigurationError(where, given, expected)
    tiers, prices = [], dict(base)
    for number, each in enumerate(given):
        place = f"{where}[{number}]"
        tier = _checked_mapping(place, each, _OF_A_TIER, "a mapping such as {'above': 200_000, ...}")
        above = whole_number(
            f"{place}['above']", tier.pop("above", None), "a whole number of input tokens, 0 or more"
        )
        prices |= tier
        tiers.append((above, _token_prices(place, prices)))
    for (lower, _), (higher, _) in pairwise(tiers):
        if lower >= higher:
            raise ConfigurationError(where, [lower, higher], "tiers in ascending order of 'above'")
    return tuple(tiers)


def _first(*prices: Decimal | None) -> Decimal | None:
    return next((price for price in prices if price is not None), None)
