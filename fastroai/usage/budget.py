"""How much a scope may spend."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, get_args

from fastroai.errors import ConfigurationError
from fastroai.records import MICROCENTS_PER_DOLLAR, usd_to_microcents
from fastroai.usage.money import Amount, exact_decimal, whole_number

OnUncertain = Literal["refuse", "allow"]
"""What a budget does with a request that it cannot reckon with."""

_POSITIVE: Final = "a positive amount of US dollars, at least one microcent ($0.000001)"


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """What a scope, and everything below it, may spend.

        Budget(usd="0.50")
        Budget(microcents=500_000)  # the same: $1 is 1,000,000 microcents

    Every request in the scope is checked against it before it is sent.
    """

    usd: Decimal
    """The limit, in US dollars."""
    on_unpriced: OnUncertain
    """What to do with a model without a known price: `refuse` its requests, or `allow` them uncounted."""
    on_unbounded: OnUncertain
    """What to do with a request whose cost nothing bounds: `refuse` it, or `allow` it."""

    def __init__(
        self,
        *,
        usd: Amount | None = None,
        microcents: int | None = None,
        on_unpriced: OnUncertain = "refuse",
        on_unbounded: OnUncertain = "refuse",
    ) -> None:
        """Exactly one of `usd` and `microcents`.

        Raises:
            ConfigurationError: if neither or both are given, for amounts that are not positive and finite,
                and for floats with more than six decimals, such as `0.1 + 0.2`: those are rounding errors.
        """
        if (usd is None) == (microcents is None):
            given = "nothing" if usd is None else {"usd": usd, "microcents": microcents}
            raise ConfigurationError("Budget", given, "exactly one of usd= and microcents=")
        for option, value in (("on_unpriced", on_unpriced), ("on_unbounded", on_unbounded)):
            if value not in get_args(OnUncertain):
                raise ConfigurationError(option, value, "'refuse' or 'allow'")
        object.__setattr__(self, "usd", _dollars(usd) if usd is not None else _from_microcents(microcents))
        object.__setattr__(self, "on_unpriced", on_unpriced)
        object.__setattr__(self, "on_unbounded", on_unbounded)

    @property
    def microcents(self) -> int:
        """The limit in microcents, rounded once, half to even."""
        return usd_to_microcents(self.usd)


def _dollars(value: Amount) -> Decimal:
    usd = exact_decimal("usd", value, _POSITIVE)
    if isinstance(value, float) and usd * MICROCENTS_PER_DOLLAR % 1:
        raise ConfigurationError(
            "usd", value, "at most six decimals in a float; pass a string or a Decimal instead"
        )
    if usd * MICROCENTS_PER_DOLLAR < 1:
        raise ConfigurationError("usd", value, _POSITIVE)
    return usd


def _from_microcents(value: object) -> Decimal:
    expected = "a whole number of microcents, at least 1 ($1 is 1,000,000)"
    if (microcents := whole_number("microcents", value, expected)) < 1:
        raise ConfigurationError("microcents", value, expected)
    return Decimal(microcents) / MICROCENTS_PER_DOLLAR
