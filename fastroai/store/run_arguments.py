"""What every store of runs refuses, and how it writes keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fastroai.errors import ConfigurationError
from fastroai.runtime.options import check_count
from fastroai.store.run_store import LAST_POSITION, LONGEST_KEY

LEAST_LIMIT: Final = 100_000
"""Bytes that every store takes in one value."""


def key_bytes(key: str) -> bytes:
    """A key as it is stored: UTF-8, whose bytes have the order of its code points.

    Raises:
        ConfigurationError: it cannot be a key.
    """
    if not key:
        raise ConfigurationError("key", key, f"1 to {LONGEST_KEY} characters")
    return _text_bytes("key", key)


def check_values(values: Sequence[bytes], revision: int) -> None:
    """Refuse what cannot be stored after a position.

    Raises:
        ConfigurationError: a value is not bytes, or there is no such position.
    """
    check_position("revision", revision)
    check_position("revision", revision + len(values))
    for value in values:
        if not isinstance(value, bytes):
            raise ConfigurationError("value", value, "bytes")


def check_largest_value(largest: int | None) -> None:
    """Refuse an invalid limit of a store.

    Raises:
        ConfigurationError: it is no whole number, or so small that facts without values of users may not fit.
    """
    check_count("largest_value", largest, least=LEAST_LIMIT)


def check_position(option: str, position: int, what: str = "a position") -> None:
    """Refuse what is no position; `what` it should be, in the error.

    Raises:
        ConfigurationError: it is no int, below 0, or above what any store can count.
    """
    is_int = isinstance(position, int) and not isinstance(position, bool)
    if not is_int or not 0 <= position <= LAST_POSITION:
        raise ConfigurationError(option, position, f"{what}, an int from 0 to {LAST_POSITION}")


class KeyRange(NamedTuple):
    """Keys as they are stored, from `first` on and before `end`."""

    first: bytes
    end: bytes

    @classmethod
    def of(cls, prefix: str, after: str, limit: int) -> KeyRange:
        """Those that begin with `prefix` and come after `after`.

        Raises:
            ConfigurationError: `limit` is not at least 1, or one of the others is not like a key.
        """
        if limit < 1:
            raise ConfigurationError("limit", limit, "at least 1")
        begins = _text_bytes("prefix", prefix)
        # A key has no NUL, and UTF-8 no 0xff.
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
        raise ConfigurationError(option, text, "text without halves of surrogate pairs") from None
