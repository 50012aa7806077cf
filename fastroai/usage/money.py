"""Money as it is written: conversions between dollars and microcents, and costs for people to read."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT, MICROCENTS_PER_DOLLAR, usd_to_microcents

Amount = Decimal | int | float | str
"""How an amount of money can be written. A float means the decimal number that Python prints for it."""

_CENT: Final = Decimal("0.01")
_SIGNIFICANT_DIGITS: Final = 3


def exact_decimal(option: str, value: object, expected: str) -> Decimal:
    """The finite, non-negative number that was written, exactly: the float `0.1` is one tenth.

    Raises:
        ConfigurationError: naming `option`, for anything else.
    """
    number = signed_decimal(option, value, expected)
    if number < 0:
        raise ConfigurationError(option, value, expected)
    return number


def signed_decimal(option: str, value: object, expected: str) -> Decimal:
    """Return the finite number that was written, exactly; it may be negative.

    Raises:
        ConfigurationError: naming `option`, for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float | str):
        raise ConfigurationError(option, value, expected)
    try:
        # float.__repr__: subclasses of float (numpy's) print themselves differently.
        number = Decimal(float.__repr__(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ConfigurationError(option, value, expected) from None
    if not number.is_finite():
        raise ConfigurationError(option, value, expected)
    return number


def dollars_to_microcents(dollars: Amount) -> int:
    """US dollars as whole microcents ($1 = 1,000,000), rounded once, half to even.

    Raises:
        ConfigurationError: if `dollars` is negative or not a finite number.
    """
    return usd_to_microcents(exact_decimal("dollars", dollars, "a finite number of US dollars, 0 or more"))


def microcents_to_dollars(microcents: int) -> Decimal:
    """Whole microcents as exact US dollars.

    Raises:
        ConfigurationError: if `microcents` is negative or not a whole number.
    """
    return EXACT.divide(whole_number("microcents", microcents), MICROCENTS_PER_DOLLAR)


def format_cost(cost: int | Decimal) -> str:
    """A cost for people to read: an `int` is microcents, a `Decimal` is US dollars.

    From one dollar up, cents; below, three significant digits, so that a cost which is not zero never
    shows as zero. Rounded once, half to even.

        format_cost(123)                 # '$0.000123'
        format_cost(Decimal("12.3456"))  # '$12.35'

    Raises:
        ConfigurationError: for a negative cost, and for a float, which could mean either unit.
    """
    if isinstance(cost, Decimal):
        usd = exact_decimal("cost", cost, "a finite number of US dollars, 0 or more")
    else:
        usd = Decimal(
            whole_number("cost", cost, "an int of microcents or a Decimal of US dollars, 0 or more")
        )
        usd = EXACT.divide(usd, MICROCENTS_PER_DOLLAR)
    if usd == 0 or usd >= 1:
        return f"${usd.quantize(_CENT, ROUND_HALF_EVEN, EXACT):,f}"
    last_digit = min(_CENT, Decimal(1).scaleb(usd.adjusted() - _SIGNIFICANT_DIGITS + 1, EXACT))
    whole, _, decimals = f"{usd.quantize(last_digit, ROUND_HALF_EVEN, EXACT):f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def whole_number(option: str, value: object, expected: str = "a whole number, 0 or more") -> int:
    """An `int` of 0 or more.

    Raises:
        ConfigurationError: naming `option`, for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(option, value, expected)
    return value
