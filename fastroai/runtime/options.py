"""Checks of option values that every layer has: seconds and counts."""

from __future__ import annotations

import math
from typing import Final

from fastroai.callers import warn_caller
from fastroai.errors import ConfigurationError, FastroAIWarning
from fastroai.records import Duration, in_seconds

_LONG: Final = 3600.0
"""Seconds in an hour. A longer time limit is probably meant in milliseconds: 30,000 ms are 30 s."""

LONGEST_SECONDS: Final = 1000 * 365.25 * 24 * 3600
"""Seconds in 1,000 years. A time that far ahead may have no date in Python, whose dates end with 9999."""


class LongTimeoutWarning(FastroAIWarning):
    """Warning: a `timeout` is a number above 3,600 seconds, so it may be meant in milliseconds.

    The timeout still counts as seconds.

    What to do: Give seconds; if you mean more than an hour, pass a `timedelta`, which does not warn.
    """


def check_seconds(option: str, value: Duration | None, *, zero: bool = False) -> None:
    """Check a number of seconds, or a `timedelta`. With `zero`, as for delays, 0 is valid and `None` is not.

    Raises:
        ConfigurationError: the value is invalid.
    """
    if value is None and not zero:
        return
    expected = "seconds, zero or more, and finite" if zero else "seconds, more than zero and finite, or None"
    seconds = in_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ConfigurationError(option, value, expected)
    if seconds < 0 or (seconds == 0 and not zero):
        raise ConfigurationError(option, value, expected)
    _check_longest(option, value, seconds)


def seconds_above_zero(option: str, value: Duration) -> float:
    """Return a number of seconds, or a `timedelta`, as seconds. Unlike `check_seconds`, it refuses `None`.

    Raises:
        ConfigurationError: the value is invalid.
    """
    seconds: object = in_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ConfigurationError(option, value, "seconds, above 0 and finite")
    _check_longest(option, value, seconds)
    return seconds


def _check_longest(option: str, value: Duration | None, seconds: float) -> None:
    if seconds > LONGEST_SECONDS:
        raise ConfigurationError(option, value, "at most 1,000 years; leave a timeout out to have none")


def check_timeout(option: str, value: Duration | None) -> None:
    """Check a timeout as `check_seconds` does, and issue a `LongTimeoutWarning` above an hour."""
    check_seconds(option, value)
    if isinstance(value, int | float) and value > _LONG:  # a timedelta says its unit
        warn_caller(
            f"{option}={value:g}: these are seconds, {value / 3600:,.3g} hours. "
            f"If milliseconds are meant, write {option}={value / 1000:g}",
            LongTimeoutWarning,
        )


def check_count(option: str, value: int | None, *, least: int = 0, required: bool = False) -> None:
    """Check a whole number of at least `least`. `None` is valid, too, unless the option is `required`.

    Raises:
        ConfigurationError: the value is invalid.
    """
    if value is None and not required:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(option, value, f"a whole number, {least} or more")
