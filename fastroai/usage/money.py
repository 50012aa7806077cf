"""Read amounts of money, convert them to microcents, and write costs for people.

Every amount of money from outside goes through `exact_dollars`, so one rule says how it can be written: a
`Decimal`, an `int`, a text such as `"0.10"`, or a `float` with at most 15 significant digits. The float
`0.1` is one tenth of a dollar; `0.1 + 0.2` is refused, because it is not three tenths.
"""

from __future__ import annotations

import sys
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final, Protocol, runtime_checkable

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT, microcents_to_usd, usd_to_microcents

Amount = Decimal | int | float | str
"""An amount of money. A float means the decimal number that Python prints for it; `exact_dollars` says which
floats are refused.
"""

_CENT: Final = Decimal("0.01")
_SIGNIFICANT_DIGITS: Final = 3
_DIGITS_OF_FLOATS: Final = sys.float_info.dig
"""Significant digits (15) that a float preserves for every number. More digits come from arithmetic with
floats."""
_MOST_DIGITS: Final = 18
"""Digits before the decimal point. Exact arithmetic with numbers of a million digits takes hours."""
_MOST_PLACES: Final = 100
_DOLLARS: Final = "a finite number of US dollars, 0 or more"


class ExactUsd(Decimal):
    """US dollars that others add up: sums with them are exact in every decimal context.

    PydanticAI sums the costs of a run with `+`, in the context of the application, which may round or raise.
    """

    __slots__ = ()

    def __add__(self, other: Decimal | int) -> ExactUsd:
        return ExactUsd(EXACT.add(self, other))

    __radd__ = __add__

    def __sub__(self, other: Decimal | int) -> ExactUsd:
        return ExactUsd(EXACT.subtract(self, other))

    def __rsub__(self, other: Decimal | int) -> ExactUsd:
        return ExactUsd(EXACT.subtract(other, self))


@runtime_checkable
class Costed(Protocol):
    """An account of costs: a `ChatResponse`, a `Usage`, a `RequestRecord`, the usage of a step, ..."""

    @property
    def cost_usd(self) -> Decimal | None:
        """The known cost, in US dollars."""
        ...

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost."""
        ...


def exact_dollars(option: str, value: object, expected: str = _DOLLARS) -> Decimal:
    """Return the exact amount of money, in US dollars.

    Raises:
        ConfigurationError: naming `option`, for anything but a finite number of 0 or more, and for a float
            with more than 15 significant digits, such as `0.1 + 0.2`: that is a rounding error.
    """
    amount = exact_decimal(option, value, expected)
    if isinstance(value, float) and len(EXACT.normalize(amount).as_tuple().digits) > _DIGITS_OF_FLOATS:
        raise ConfigurationError(
            option,
            value,
            "at most 15 significant digits in a float (more are rounding errors); pass a string or a Decimal",
        )
    return amount


def exact_decimal(option: str, value: object, expected: str) -> Decimal:
    """Return the finite, non-negative number that was written, exactly: the float `0.1` is one tenth.

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
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # as it is for every finite number
    if number.adjusted() >= _MOST_DIGITS or exponent < -_MOST_PLACES:
        limits = f"below 10 to the power of {_MOST_DIGITS}, with at most {_MOST_PLACES} decimal places"
        raise ConfigurationError(option, value, f"{expected}, {limits}")
    return number


def dollars_to_microcents(dollars: Amount) -> int:
    """Return US dollars as whole microcents ($1 = 1,000,000), rounded once, half to even.

    Because it rounds, it takes any float: `0.1 + 0.2` is 300,000 microcents.

    Raises:
        ConfigurationError: `dollars` is negative, not a finite number, or 10 to the power of 18 or more.
    """
    return usd_to_microcents(exact_decimal("dollars", dollars, _DOLLARS))


def microcents_to_dollars(microcents: int) -> Decimal:
    """Return whole microcents ($1 = 1,000,000) as exact US dollars, without rounding.

    Raises:
        ConfigurationError: `microcents` is negative, not an `int`, or 10 to the power of 18 or more.
    """
    return microcents_to_usd(whole_number("microcents", microcents))


def format_cost(cost: int | Decimal | Costed | None) -> str:
    """Write a cost for people to read. An `int` is microcents ($1 = 1,000,000), a `Decimal` is US dollars.

    From one dollar up, it has cents, and commas between thousands. Below one dollar, it has three significant
    digits, but at least cents, so that a cost which is not zero never shows as zero; zero is `$0.00`. It is
    rounded once, half to even. `None` is an unknown cost.

        format_cost(123)                 # '$0.000123'
        format_cost(Decimal("12.3456"))  # '$12.35'
        format_cost(None)                # 'unknown'

    An account (a `ChatResponse`, a `Usage`, a `RequestRecord`, ...) says whether it knows all of its cost.
    If not, it is written as `at least $0.000123`, or as `unknown` if no part of it is known. A sum of known
    costs (`cost_usd`) cannot tell a request without a price from a free one: give the account instead.

    Raises:
        ConfigurationError: `cost` is negative, or is none of these: a float, for example, could mean either
            unit.
    """
    if cost is None:
        return "unknown"
    if isinstance(cost, Decimal):
        return _format_usd(exact_decimal("cost", cost, _DOLLARS))
    if isinstance(cost, Costed):
        known = cost.cost_usd or Decimal(0)
        if cost.cost_complete:
            return format_cost(known)
        return f"at least {format_cost(known)}" if known else format_cost(None)
    expected = "an account, an int of microcents, a Decimal of US dollars (0 or more), or None"
    return _format_usd(microcents_to_usd(whole_number("cost", cost, expected)))


def _format_usd(usd: Decimal) -> str:
    if usd == 0 or usd >= 1:
        return f"${usd.quantize(_CENT, ROUND_HALF_EVEN, EXACT):,f}"
    last_digit = min(_CENT, Decimal(1).scaleb(usd.adjusted() - _SIGNIFICANT_DIGITS + 1, EXACT))
    whole, _, decimals = f"{usd.quantize(last_digit, ROUND_HALF_EVEN, EXACT):f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def whole_number(option: str, value: object, expected: str = "a whole number, 0 or more") -> int:
    """Check that a value is an `int` of 0 or more, and return it.

    Raises:
        ConfigurationError: naming `option`, for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(option, value, expected)
    if value >= 10**_MOST_DIGITS:
        raise ConfigurationError(option, value, f"{expected}, below 10 to the power of {_MOST_DIGITS}")
    return value
