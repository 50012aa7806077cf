"""Plain data of dataclasses as values of a store: JSON with a checksum, compressed if it is large."""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from fastroai.store.record.checksums import with_checksum, without_checksum

RowT = TypeVar("RowT")

_LARGE: Final = 4096
"""Bytes of JSON from which a value is compressed."""
_COMPRESSED: Final = b"zlib "


class RowCodec(Generic[RowT]):
    """Encodes rows of one class in one format, whose number is stored with them."""

    def __init__(self, row: type[RowT], format_number: int) -> None:
        self._row, self._format = row, format_number

    def encode(self, row: RowT) -> bytes:
        """Return a row as it is stored."""
        text = self._adapter.dump_json((self._format, row), exclude_defaults=True)
        if len(text) >= _LARGE:
            text = _COMPRESSED + zlib.compress(text, zlib.Z_BEST_SPEED)
        return with_checksum(text)

    def decode(self, value: bytes) -> RowT:
        """Return the row that was stored.

        Raises:
            ValueError: the value is damaged, or was not written by this version of FastroAI.
        """
        text = without_checksum(value)
        if text.startswith(_COMPRESSED):
            text = zlib.decompress(text.removeprefix(_COMPRESSED))
        reason = (
            f"it is damaged, or another version of FastroAI wrote it; this one reads format {self._format}"
        )
        try:
            number, row = self._adapter.validate_json(text)
        except ValidationError as error:
            raise ValueError(reason) from error
        if number != self._format:
            raise ValueError(reason)
        return row

    @cached_property
    def _adapter(self) -> TypeAdapter[tuple[int, RowT]]:
        return TypeAdapter(tuple[int, self._row])  # type: ignore[name-defined]
