"""Accounts of spending as values of a store of runs."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.usage.shared.spend_rows import AccountRow

_FORMAT: Final = 2
_LARGE: Final = 4096
"""Bytes of JSON from which a value is compressed."""
_COMPRESSED: Final = b"zlib "


def encode_account(row: AccountRow) -> bytes:
    """Return an account as it is stored, with its earlier windows packed."""
    row.pack()
    text = _accounts().dump_json((_FORMAT, row), exclude_defaults=True)
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
        return _accounts().validate_json(text)[1]
    except ValidationError as error:
        reason = f"it is damaged, or another version of FastroAI wrote it; this one reads format {_FORMAT}"
        raise ValueError(reason) from error


@cache
def _accounts() -> TypeAdapter[tuple[Literal[2], AccountRow]]:
    return TypeAdapter(tuple[Literal[2], AccountRow])
