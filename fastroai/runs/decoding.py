"""Values on record, which are decoded by their codec and declared type when they are first read.

When a run is taken up, the values that it is sure to read are decoded at once. So an error about a changed
type is raised before the run begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

from pydantic import JsonValue

from fastroai.places import quoted
from fastroai.runtime.facts import StepFinished
from fastroai.steps.durability import stored_output
from fastroai.store.record.definitions import needs_of, steps_in
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec

T = TypeVar("T")


class OnRecord:
    """A stand-in for a value on record, which is decoded when it is first read."""

    __slots__ = ("_read", "_stored", "_value")

    def __init__(self, read: Callable[..., object], *stored: object) -> None:
        """Hold `read`, which decodes what is stored. Its errors are raised where the value is read."""
        self._read: Callable[..., object] | None = read
        self._stored = stored
        self._value: Any = None

    def __deepcopy__(self, memo: object) -> OnRecord:
        """Return the same reference: the state of a machine is copied without the values in it."""
        return self

    @property
    def is_decoded(self) -> bool:
        """Whether the value was decoded already."""
        return self._read is None

    @property
    def value(self) -> Any:
        """The decoded value. Raises `RunCorrupt` if it cannot be decoded, or is not of the declared type."""
        if (read := self._read) is not None:  # another thread may read the value at the same time
            self._value = read(*self._stored)
            self._read = None
        return self._value


def value_of(held: T | OnRecord) -> T:
    """Return a value, decoded if it is on record. Raises `RunCorrupt`."""
    if isinstance(held, OnRecord):
        return held.value  # type: ignore[no-any-return]
    return held


def values_of(held: dict[str, object]) -> Mapping[str, object]:
    """Return values by name. Those that are on record are decoded when they are first read."""
    return ValuesOnRecord(held) if OnRecord in map(type, held.values()) else held


class ValuesOnRecord(MutableMapping[str, object]):
    """Values by name. Those that are on record are decoded when they are first read."""

    def __init__(self, held: dict[str, object]) -> None:
        self._held = held

    @property
    def decoded(self) -> Mapping[str, object]:
        """The values that are decoded already, by name."""
        return {
            name: value_of(held)
            for name, held in self._held.items()
            if type(held) is not OnRecord or held.is_decoded
        }

    def __getitem__(self, name: str) -> object:
        """Return a value. Raises `RunCorrupt` if it is not of the declared type."""
        return value_of(self._held[name])

    def __setitem__(self, name: str, value: object) -> None:
        self._held[name] = value

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return dict, (dict(self),)


def output_on_record(
    recorded: Memo, entry: StepFinished, declared: Any, codec: PayloadCodec | None
) -> object:
    """Return an output, which is decoded only once. Raises `RunCorrupt`."""
    last, output = recorded.outputs_made.get(entry.place, (None, None))
    if last is not entry:
        output = stored_output(recorded, entry, declared, codec)
        recorded.outputs_made[entry.place] = entry, output
    return output


def needed_by_pipeline(recorded: Memo, definition: JsonValue) -> Iterable[StepFinished]:
    """Return the outputs that steps need which have not finished."""
    outputs = recorded.outputs
    left = [step_id for step_id in steps_in(definition) if quoted(step_id) not in outputs]
    needed = {quoted(before) for step_id in left for before in needs_of(definition, step_id)}
    return [entry for place, entry in outputs.items() if place in needed]
