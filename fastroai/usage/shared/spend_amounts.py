"""Amounts of shared spending, whole numbers of 18 decimals of a dollar, which add exactly; and windows."""

from __future__ import annotations

from datetime import timedelta
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Final, Literal

from fastroai.errors import ConfigurationError

MILLION: Final = 10**6

TOO_MUCH_USD: Final = Decimal(10) ** 9
"""The smallest amount, in US dollars, that stores refuse as too large."""

KEEP: Final = timedelta(days=90)
"""The time for which a window is kept after its end, unless a claim sets another one."""

Window = Literal["hour", "day", "month", "total"]
"""The period for which a limit holds: each calendar hour, day or month, in UTC, or all time."""

_DECIMALS: Final = 18
_UNIT: Final = Decimal(1).scaleb(-_DECIMALS)
_EXACT: Final = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
_ROUNDING: Final = {"reservation": ROUND_CEILING, "cost": ROUND_HALF_EVEN, "limit": ROUND_FLOOR}


def spend_units(usd: Decimal, what: Literal["reservation", "cost", "limit"]) -> int:
    """Return an amount in units, exact to 18 decimals of a dollar.

    Beyond these, reservations are rounded up, limits down, and costs half to even.

    Raises:
        ConfigurationError: for an amount that is not finite, negative, or a billion dollars and more.
    """
    if not usd.is_finite() or not 0 <= usd < TOO_MUCH_USD:
        raise ConfigurationError(what, usd, "a finite number of US dollars, 0 or more and below a billion")
    return exact_units(usd.quantize(_UNIT, _ROUNDING[what], _EXACT))


def exact_units(usd: Decimal) -> int:
    """Return in units an amount that `spend_usd` returned, or a sum of these amounts."""
    return int(usd.scaleb(_DECIMALS, _EXACT))


def spend_usd(units: int) -> Decimal:
    """Return units as exact US dollars, without trailing zeros."""
    usd = Decimal(units).scaleb(-_DECIMALS, _EXACT)
    whole = usd.to_integral_value()
    return whole if usd == whole else usd.normalize(_EXACT)


def millionths(share: float) -> int:
    """Return a share of a limit in millionths, rounded up: the whole of it is 1,000,000."""
    return int(_EXACT.multiply(Decimal(str(share)), MILLION).to_integral_value(ROUND_CEILING, _EXACT))
