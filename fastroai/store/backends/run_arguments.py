"""Checks of arguments that all stores of runs share, and keys as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fastroai.errors import ConfigurationError
from fastroai.runtime.options import check_count
from fastroai.store.run_store import LAST_POSITION, LONGEST_KEY

LEAST_LIMIT: Final = 100_000
"""Lowest limit, in bytes, on one value that a store may have."""


def key_bytes(key: str) -> bytes:
    """Return a key as it is stored: as UTF-8, in which bytes have the order of code points.

    Raises:
        ConfigurationError: the text cannot be a key.
    """
    if not key:
        raise ConfigurationError("key", key, f"1 to {LONGEST_KEY} characters")
    return _text_bytes("key", key)


def check_values(values: Sequence[bytes], revision: int) -> None:
    """Refuse values that cannot be stored after a position.

    Raises:
        ConfigurationError: a value is not bytes, or the position is out of range.
    """
    check_position("revision", revision)
    check_position("revision", revision + len(values))
    for value in values:
        if not isinstance(value, bytes):
            raise ConfigurationError("value", value, "bytes")


def check_largest_value(largest: int | None) -> None:
    """Refuse an invalid limit of a store.

    Raises:
        ConfigurationError: the limit is no whole number, or so small that facts without values of users may
            not fit.
    """
    check_count("largest_value", largest, least=LEAST_LIMIT)


def check_position(option: str, position: int, what: str = "a position") -> None:
    """Refuse an invalid position. `what` says in the error what is expected.

    Raises:
        ConfigurationError: the position is no int, below 0, or above what any store can count.
    """
    is_int = isinstance(position, int) and not isinstance(position, bool)
    if not is_int or not 0 <= position <= LAST_POSITION:
        raise ConfigurationError(option, position, f"{what}, an int from 0 to {LAST_POSITION}")


class KeyRange(NamedTuple):
    """A range of keys as they are stored, from `first` on and before `end`."""

    first: bytes
    end: bytes

    @classmethod
    def of(cls, prefix: str, after: str, limit: int) -> KeyRange:
        """Return the range of the keys that begin with `prefix` and come after `after`.

        Raises:
            ConfigurationError: `limit` is not at least 1, or no key can have `prefix` or `after` in it.
        """
        if limit < 1:
            raise ConfigurationError("limit", limit, "at least 1")
        begins = _text_bytes("prefix", prefix)
        # A key has no NUL, and UTF-8 has no 0xff.
        first = max(begins, _text_bytes("after", after) + b"\0") if after else begins
        return cls(first, begins + b"\xff")


def _text_bytes(option: str, text: str) -> bytes:
    if len(text) > LONGEST_KEY:
        raise ConfigurationError(option, text, f"at most {LONGEST_KEY} characters, not {len(text)}")
    if "\0" in text:
        raise ConfigurationError(option, text, "text without NUL")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(option, text, "valid Unicode text") from None
