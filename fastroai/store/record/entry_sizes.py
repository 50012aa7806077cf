"""How large an entry of a log may be, and the error that names the value that is too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

from fastroai.data_kinds import DataKind, changed
from fastroai.errors import ValueNotStorable
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import RunResumed, RunStarted
from fastroai.store.record.entries import entry_to_store
from fastroai.store.record.payloads import PayloadCodec, is_sealed
from fastroai.store.record.unsealing import seal_texts


def entry_for(largest: int | None, entry: Fact, codec: PayloadCodec | None) -> bytes:
    """Return an entry, whose payloads are sealed, as it is stored.

    Raises:
        ValueNotStorable: the entry has more than `largest` bytes, the most that the store takes.
        RunStoreUnavailable: the codec fails on a name, or would decode it to another one.
    """
    stored = entry_to_store(seal_texts(entry, codec))
    if largest is not None and len(stored) > largest:
        raise _too_large(entry, len(stored), largest)
    return stored


def size_reason(size: int, largest: int) -> str:
    """Return the reason why a value of this many bytes is not stored, and what to do."""
    return (
        f"it has {size:,} bytes as it is stored, and the store takes {largest:,} (largest_value). Keep large "
        "data elsewhere and return where it is, or use OffloadingRunStore(store, FilePayloadStore(folder)), "
        "which keeps large values in files"
    )


def _too_large(entry: Fact, size: int, largest: int) -> ValueNotStorable:
    if isinstance(entry, RunStarted | RunResumed):
        named = {**entry.inputs, "": entry.definition}
        name = max(named, key=lambda one: len(_text(named[one])))
        what, value = f"input {name!r}" if name else "the definition", named[name]
    else:
        what, value = entry.holds.format(entry), _largest_value(entry)
    *_, (field, part) = [("", value), *_largest_parts(value)]
    kind = "a value that went through a codec" if is_sealed(part) else type(part).__name__
    return ValueNotStorable(what, field, kind, size_reason(size, largest))


def _largest_value(entry: Fact) -> Any:
    values = list[Any]()

    def note(value: Any) -> Any:
        values.append(value)
        return value

    changed(entry, {DataKind.PAYLOAD: note})
    return max(values, key=lambda one: len(_text(one)), default=None)


def _largest_parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts that hold most of a value, from the outside in, while one has more than half of it."""
    field, size = "", len(_text(value))
    while isinstance(value, dict | list) and not is_sealed(value) and value:
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        key, part = max(parts, key=lambda one: len(_text(one[1])))
        if 2 * len(_text(part)) < size:
            return
        field = f"{field}[{key}]" if isinstance(value, list) else f"{field}.{key}" if field else str(key)
        value, size = part, len(_text(part))
        yield field, value


def _text(value: Any) -> bytes:
    return to_json(value, fallback=repr, inf_nan_mode="constants")
