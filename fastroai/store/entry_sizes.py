"""How large an entry of a log may be, and the error that names the value that is too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import to_json

from fastroai.errors import ValueNotStorable
from fastroai.runtime import facts
from fastroai.store.entries import entry_to_store
from fastroai.store.payloads import PayloadCodec, is_sealed
from fastroai.store.unsealing import seal_texts

_WHAT: Final = {
    "step_finished": "the output of {place!r}",
    "question_asked": "the question of {place!r}",
    "answer_given": "the answer to {place!r}",
    "wait_ended": "the message that {place!r} received",
    "value_written": "{key!r}, which {place!r} wrote,",
    "messages_added": "the conversation of {place!r}",
    "call_ended": "the output of {place!r}",
    "request_ended": "a response of model {model!r}",
    "tool_ended": "the result of tool {tool!r} in {place!r}",
    "iteration_reported": "the report of an iteration of {place!r}",
    "once_done": "the result of once({name!r}) in {place!r}",
}
_VALUES: Final = ("output", "question", "answer", "value", "messages", "response", "result", "call")


def entry_for(largest: int | None, entry: facts.AnyFact, codec: PayloadCodec | None) -> bytes:
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


def _too_large(entry: facts.AnyFact, size: int, largest: int) -> ValueNotStorable:
    if isinstance(entry, facts.RunStarted | facts.RunResumed):
        named = {**entry.inputs, "": entry.definition}
        name = max(named, key=lambda one: len(_text(named[one])))
        what, value = f"input {name!r}" if name else "the definition", named[name]
    else:
        what, value = _name_of(entry), _value_of(entry)
    *_, (field, part) = [("", value), *_largest_parts(value)]
    kind = "a value that went through a codec" if is_sealed(part) else type(part).__name__
    return ValueNotStorable(what, field, kind, size_reason(size, largest))


def _name_of(entry: facts.AnyFact) -> str:
    about = {"place": getattr(entry, "place", ""), "model": "", **_fields(entry)}
    if isinstance(entry, facts.RequestEnded):
        about["model"] = entry.record.model
    return _WHAT.get(entry.kind, f"the fact {entry.kind!r}").format_map(about)


def _fields(entry: facts.AnyFact) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("key", "tool", "name") if hasattr(entry, name)}


def _value_of(entry: facts.AnyFact) -> Any:
    values = [getattr(entry, name) for name in _VALUES if hasattr(entry, name)]
    return max(values, key=lambda value: len(_text(value)), default=None)


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
