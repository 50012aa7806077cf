"""Rows on record: written before their run begins, so that any process can carry it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from time import time
from typing import Any, Final, cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from fastroai.errors import ConfigurationError, RunCorrupt, ValueNotStorable
from fastroai.rows.machine import number_of_key
from fastroai.rows.source import Rows
from fastroai.store.paging import pages
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.record.entries import RowCounts, RunHeader
from fastroai.store.record.headers import rows_key
from fastroai.store.record.payloads import PayloadCodec, seal, unseal
from fastroai.store.record.runs import append_own
from fastroai.store.run_store import RunStore, largest_value

_MOST: Final = 500
"""Most rows of a value in the store."""
_LARGE: Final = 2**18
"""Bytes of JSON after which a value is full."""
_AT_ONCE: Final = 4
"""Values that are read at once."""


async def keep_rows(store: RunStore, rows: Rows, codec: PayloadCodec | None, header: RunHeader) -> RunHeader:
    """Put rows on record, which are read as JSON, before their run begins. Return its header.

    Nothing is left on record if this raises: `ConfigurationError` if a row cannot be asked or two have one
    key, and `ValueNotStorable` if a row is larger than the store takes.
    """
    writer = _Writer(store, rows_key(header), codec)
    keys: dict[int, int] = {}
    number = 0
    try:
        while (row := await rows.read()) is not None:
            if row.error is not None:
                raise ConfigurationError("rows", ..., f"rows that can be asked: {row.error}") from row.error
            if row.is_keyed and (same := keys.setdefault(number_of_key(row.key), row.number)) != row.number:
                expected = f"a key for each row: row {row.number} has the key {row.key!r} of row {same}"
                raise ConfigurationError("key", ..., expected)
            await writer.add(row.number, [row.key if row.is_keyed else None, dict(row.shown)])
            number += 1
        await writer.end()
    except BaseException:
        await store.delete(writer.key)
        raise
    finally:
        await rows.aclose()
    return replace(header, rows=RowCounts(total=number))


class _Writer:
    """Writes rows, some hundreds at a time."""

    def __init__(self, store: RunStore, key: str, codec: PayloadCodec | None) -> None:
        self._store, self.key, self._codec = store, key, codec
        self._rows: list[JsonValue] = []
        self._bytes = self._revision = 0

    async def add(self, number: int, row: list[JsonValue]) -> None:
        """Add a row, and write those that were added if they are many."""
        size, largest = len(to_json(row, inf_nan_mode="constants")), largest_value(self._store)
        if largest is not None and size * 2 > largest:  # a codec makes it longer
            raise ValueNotStorable(f"row {number}", "", "dict", f"it has {size:,} bytes")
        if self._rows and self._bytes + size > _LARGE:
            await self.flush()
        self._rows.append(cast("JsonValue", row))
        self._bytes += size
        if len(self._rows) >= _MOST:
            await self.flush()

    async def flush(self) -> None:
        """Write the rows that were added."""
        value = {"at": time(), "rows": seal(self._rows, self._codec)}
        stored = with_checksum(to_json(value, inf_nan_mode="constants"))
        await append_own(self._store, self.key, [stored], self._revision)
        self._rows, self._bytes, self._revision = [], 0, self._revision + 1

    async def end(self) -> None:
        """Write the rows that were added, and a short last value, which lists of keys have."""
        if self._rows:
            await self.flush()
        await self.flush()


def total_of(header: RunHeader) -> int | None:
    """Return the number of rows of a run; `None` if it is not known."""
    return None if header.rows is None else header.rows.total


async def kept_rows(
    store: RunStore, header: RunHeader, codec: PayloadCodec | None
) -> AsyncIterator[Sequence[Any]]:
    """Yield the key and the inputs of each row of a run whose rows are on record. Raises `RunCorrupt`."""
    number = 0
    async for _, values, _ in pages(store, rows_key(header), limit=_AT_ONCE):
        for value in values:
            try:
                rows: Any = unseal(from_json(without_checksum(value))["rows"], codec)
            except ValueError as error:
                raise RunCorrupt(header.run_id, 0, f"its rows cannot be read: {error}") from error
            for row in rows:
                number += 1
                yield row
    if number != (total := total_of(header)):
        raise RunCorrupt(header.run_id, 0, f"the store has {number:,} of its {total or 0:,} rows")
