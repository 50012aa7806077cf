"""List prices of one model, prepared for exact arithmetic on the usage that a response reports.

The arithmetic is that of genai-prices (https://github.com/pydantic/genai-prices): each unit that was used is
billed once, at the price of the most specific unit that has one, and a tier that the input reaches applies
to all of it. It is done here because `genai_prices.calc_price` computes in the decimal context of the
application, and spends most of its time on work that is the same for every response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final

from genai_prices.data_units import unit_data
from genai_prices.types import ModelPrice, TieredPrices

from fastroai.records import EXACT

Used = Mapping[str, int | float]
"""Amounts that were used, by the name of the unit in genai-prices: `input_tokens`, `web_searches`, ..."""

_DIMENSIONS: Final = {name: frozenset(unit["dimensions"].items()) for name, unit in unit_data.items()}
UNIT_OF_PRICE: Final = {unit["price_key"]: name for name, unit in unit_data.items()}
"""Units by the name that their price has in genai-prices."""
PER: Final = {name: Decimal(unit["per"]) for name, unit in unit_data.items()}
"""The number of units that the price of a unit is for."""

UNITS: Final = frozenset(_DIMENSIONS)
"""The names of all units that genai-prices knows."""

_FLOAT_DIGITS: Final = Context(prec=12)
"""Precision for list prices: more digits than any price has, and few enough to drop the noise of floats."""
_DIVISION: Final = Context(prec=60)
"""Precision for divisions: exact by powers of ten, and exact enough by the seconds of an hour."""

_SPOKEN: Final = ("modality", "audio")
_DRAWN: Final = frozenset({("modality", "image"), ("direction", "output")})


class ContradictoryUsage(ValueError):
    """Usage whose counts cannot all be true, such as more cached than input tokens."""


@dataclass(frozen=True, slots=True)
class _Rate:
    """The price of one unit."""

    unit: str
    price: Decimal | TieredPrices
    per: Decimal
    within: tuple[int, ...]
    """The positions of more specific rates. Units that are billed there are not billed here as well."""

    def at(self, input_tokens: int | float) -> Decimal:
        """Return the price for a request with so many input tokens."""
        price = self.price
        if isinstance(price, TieredPrices):
            reached = (tier.price for tier in reversed(price.tiers) if input_tokens > tier.start)
            price = next(reached, price.base)
        return without_noise(price)


class RateCard:
    """Every price of a model that applies to one request."""

    def __init__(self, prices: ModelPrice) -> None:
        given = {
            UNIT_OF_PRICE[key]: value
            for key, value in vars(prices).items()
            if value is not None and key in UNIT_OF_PRICE
        }
        self.unknown: tuple[str, ...] = tuple(
            key for key, value in vars(prices).items() if value is not None and key not in UNIT_OF_PRICE
        )
        """Names of prices whose units this version of genai-prices does not define."""
        self.units: frozenset[str] = frozenset(given)
        """The units that have a price."""
        self._covers = frozenset(name for name in UNITS if _covered(name, self.units))
        self._rates = _rates(given)
        self._flat = [None if isinstance(rate.price, TieredPrices) else rate.at(0) for rate in self._rates]

    def cost(self, used: Used) -> Decimal:
        """Return the cost of the used units that have a price, in exact US dollars.

        Raises:
            ContradictoryUsage: parts of a count exceed it.
        """
        total = _ZERO
        counts: list[int | float | Decimal] = []
        for rate, flat in zip(self._rates, self._flat, strict=True):
            count: int | float | Decimal = 1 if rate.unit == "requests" else used.get(rate.unit, 0)
            for position in rate.within:
                count = _less(count, counts[position])
            if count < 0:
                raise ContradictoryUsage(f"the parts of {rate.unit} exceed it ({_listed(used)})")
            counts.append(count)
            if count:
                price = rate.at(used.get("input_tokens", 0)) if flat is None else flat
                total = EXACT.add(total, _DIVISION.divide(EXACT.multiply(price, _exact(count)), rate.per))
        return total

    def price_of(self, unit: str, used: Used) -> Decimal:
        """Return the price of one of a unit, in US dollars, in a request of this usage; 0 if it has none."""
        rate = next((rate for rate in self._rates if rate.unit == unit), None)
        return _ZERO if rate is None else _DIVISION.divide(rate.at(used.get("input_tokens", 0)), rate.per)

    def uncovered(self, used: Used) -> tuple[str, ...]:
        """Return the names of used units that no price covers.

        Tokens of a kind without a price are billed as ordinary tokens. Exceptions are tokens of audio, and of
        images that a model makes, which no provider sells at the price of text. If a model is sold by the
        hour, the page or the character, that price covers its tokens.
        """
        if used.keys() <= self._covers:
            return ()
        names = tuple(name for name, count in used.items() if count and name not in self._covers)
        if names and self._is_sold_otherwise and not self.units.isdisjoint(used):
            return tuple(name for name in names if _family(name) != "tokens")
        return names

    @property
    def _is_sold_otherwise(self) -> bool:
        return bool(self.units) and all(_family(unit) not in ("tokens", "requests") for unit in self.units)


def _covered(name: str, priced: frozenset[str]) -> bool:
    dimensions = _DIMENSIONS[name]
    if not priced:
        return _family(name) == "tokens"  # a model that is listed without prices is free
    around = [_DIMENSIONS[unit] for unit in priced if _DIMENSIONS[unit] <= dimensions]
    if _SPOKEN in dimensions:
        return any(_SPOKEN in each for each in around)
    if dimensions >= _DRAWN:
        return any(each >= _DRAWN for each in around)
    return bool(around)


def _family(name: str) -> str | None:
    unit = unit_data.get(name)
    return None if unit is None else unit["dimensions"]["family"]


def kind_of(unit: str) -> str:
    """Return `input` or `output` for tokens; for anything else that is billed, its family in genai-prices."""
    dimensions = unit_data[unit]["dimensions"]
    kind: str = dimensions["direction"] if dimensions["family"] == "tokens" else dimensions["family"]
    return kind


def _rates(given: Mapping[str, Decimal | TieredPrices]) -> Sequence[_Rate]:
    """Return the rates, the most specific first, so that each knows the rates within it."""
    names = sorted(given, key=lambda name: (-len(_DIMENSIONS[name]), name))
    return [
        _Rate(
            name,
            given[name],
            PER[name],
            tuple(at for at, other in enumerate(names[:position]) if _DIMENSIONS[name] < _DIMENSIONS[other]),
        )
        for position, name in enumerate(names)
    ]


def add_up(used: Used) -> bool:
    """Return whether the tokens read from a cache and those written to one fit into the input together.

    `check_parts` checks that each of the two is part of the input.
    """
    if "cache_read_tokens" not in used or "cache_write_tokens" not in used:
        return True
    return used["cache_read_tokens"] + used["cache_write_tokens"] <= used.get("input_tokens", 0)


def without_noise(price: Decimal) -> Decimal:
    """Return the intended price: some list prices went through floats, such as 0.18000000000000002."""
    return _FLOAT_DIGITS.plus(price)


def check_parts(used: Used) -> None:
    """Check the rules that hold for all usage, whether it has a price or not.

    Raises:
        ContradictoryUsage: a count is negative, not a number, or absurd, or parts of it exceed it.
    """
    for name, count in used.items():
        number = type(count) is int or (isinstance(count, int | float) and not isinstance(count, bool))
        if not number or not 0 <= count <= MOST_OF_A_UNIT:  # false for NaN, too
            raise ContradictoryUsage(f"{name} is {count!r:.40}")
    for part, wholes in PARTS:
        if part in used:
            for whole in wholes:
                if used[part] > used.get(whole, 0):
                    raise ContradictoryUsage(f"{part} exceeds {whole} ({_listed(used)})")


MOST_OF_A_UNIT: Final = 10**9
"""The most of any unit that a request can use: the largest context windows are a hundredth of it."""
PARTS: Final = (
    ("cache_read_tokens", ("input_tokens",)),
    ("cache_write_tokens", ("input_tokens",)),
    ("cache_write_1h_tokens", ("cache_write_tokens",)),
    ("cache_write_5m_tokens", ("cache_write_tokens",)),
    ("input_audio_tokens", ("input_tokens",)),
    ("cache_audio_read_tokens", ("cache_read_tokens", "input_audio_tokens")),
    ("output_audio_tokens", ("output_tokens",)),
    ("output_reasoning_tokens", ("output_tokens",)),
)
"""Counts that are part of other counts, with the names of these."""
TOKEN_UNITS: Final = frozenset(name for name in UNITS if _family(name) == "tokens")
"""The names of all units that are tokens."""
_ZERO: Final = Decimal(0)


def _less(count: int | float | Decimal, part: int | float | Decimal) -> int | float | Decimal:
    if isinstance(count, int) and isinstance(part, int):
        return count - part
    return EXACT.subtract(_exact(count), _exact(part))


def _exact(count: int | float | Decimal) -> Decimal:
    # A float means the number that Python prints: 0.1 is one tenth of a second of audio.
    return Decimal(repr(count)) if isinstance(count, float) else Decimal(count)


def _listed(used: Used) -> str:
    return ", ".join(f"{name} {count}" for name, count in used.items())
