"""Accounts of spending as values of a store of runs."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from fastroai.store.checksums import with_checksum, without_checksum
from fastroai.usage.spend_rows import AccountRow, ClaimRow, ClaimRows, WindowRow, WindowRows
from fastroai.usage.spend_rules import WINDOWS_KEPT

_FORMAT: Final = 1
_LARGE: Final = 4096
"""Bytes of JSON from which a value is compressed."""
_COMPRESSED: Final = b"zlib "


@dataclass(slots=True)
class _Stored:
    format: Literal[1]
    steady: float
    closes_at: datetime | None
    charged: int
    keep: timedelta
    claims: list[ClaimRow]
    windows: list[WindowRow]
    earlier: str
    """The windows before, compressed: there can be thousands, and nearly always they are as they were."""


def encode_account(row: AccountRow) -> bytes:
    """Return an account as it is stored."""
    windows, earlier = row.windows.read, row.windows.unread
    if not isinstance(earlier, _Earlier):
        first = min(row.charged, windows[-1].number - WINDOWS_KEPT + 1)
        earlier = _Earlier.of([window for window in windows if window.number < first])
        windows = [window for window in windows if window.number >= first]
    stored = _Stored(
        _FORMAT,
        row.steady,
        row.closes_at,
        row.charged,
        row.keep,
        list(row.claims.all),
        windows,
        earlier.packed,
    )
    text = _accounts().dump_json(stored, exclude_defaults=True)
    if len(text) >= _LARGE:
        text = _COMPRESSED + zlib.compress(text, zlib.Z_BEST_SPEED)
    return with_checksum(text)


def decode_account(value: bytes) -> AccountRow:
    """Return the account that was stored.

    Raises:
        ValueError: the value is damaged, or was not written by this version of FastroAI.
    """
    text = without_checksum(value)
    if text.startswith(_COMPRESSED):
        text = zlib.decompress(text.removeprefix(_COMPRESSED))
    try:
        stored = _accounts().validate_json(text)
    except ValidationError as error:
        raise ValueError(f"this version of FastroAI, with format {_FORMAT}, cannot read it") from error
    windows = WindowRows(stored.windows, _Earlier(stored.earlier) if stored.earlier else None)
    claims = ClaimRows(stored.claims)
    return AccountRow(stored.steady, stored.closes_at, stored.charged, windows, claims, stored.keep)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The windows of an account before the last ones."""

    packed: str

    @classmethod
    def of(cls, windows: list[WindowRow]) -> _Earlier:
        """Pack windows."""
        text = _windows().dump_json(windows, exclude_defaults=True)
        return cls(base64.b85encode(zlib.compress(text, zlib.Z_BEST_SPEED)).decode() if windows else "")

    def __call__(self) -> Iterable[WindowRow]:
        """Unpack them."""
        return _windows().validate_json(zlib.decompress(base64.b85decode(self.packed)))


@cache
def _accounts() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


@cache
def _windows() -> TypeAdapter[list[WindowRow]]:
    return TypeAdapter(list[WindowRow])
