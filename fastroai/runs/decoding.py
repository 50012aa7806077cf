"""Values that are on record: they go through codec and type when somebody first reads them.

What a run that is taken up is sure to read is decoded at once, so that a type that has changed is told before
the run has begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

from fastroai.places import quoted
from fastroai.runtime.facts import EdgesResolved, ResolvedEdge, StepFinished, StepStarted
from fastroai.steps.durability import stored_output
from fastroai.store.definitions import needs_of, steps_in
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import RecordedRun

_BY_OUTPUT: Final = ("conditional", "send")
"""Edges that are taken or not by what their node gave."""


class OnRecord:
    """A value that is on record, in the place of the value itself until somebody reads it."""

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], object]) -> None:
        """`read` decodes it. What it raises is for whoever reads."""
        self._read: Callable[[], object] | None = read
        self._value: object = None

    @property
    def is_decoded(self) -> bool:
        """Whether somebody has read it."""
        return self._read is None

    @property
    def value(self) -> object:
        """The value. Raises `RunCorrupt` if it cannot be decoded, or is not what is declared now."""
        if (read := self._read) is not None:  # a thread may read it as well
            self._value = read()
            self._read = None
        return self._value


def value_of(held: object) -> object:
    """Return a value, decoded if it is on record. Raises `RunCorrupt`."""
    return held.value if type(held) is OnRecord else held


def values_of(held: dict[str, object]) -> Mapping[str, object]:
    """Return values by name, of which those on record are decoded when they are first read."""
    return ValuesOnRecord(held) if OnRecord in map(type, held.values()) else held


class ValuesOnRecord(MutableMapping[str, object]):
    """Values by name. Those that are on record are decoded when they are first read."""

    def __init__(self, held: dict[str, object]) -> None:
        self._held = held

    @property
    def decoded(self) -> Mapping[str, object]:
        """Those that need not be decoded any more."""
        return {
            name: value_of(held)
            for name, held in self._held.items()
            if type(held) is not OnRecord or held.is_decoded
        }

    def __getitem__(self, name: str) -> object:
        """Raises `RunCorrupt` if the value is of another type than is declared."""
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
    recorded: RecordedRun, entry: StepFinished, declared: Any, codec: PayloadCodec | None
) -> object:
    """Return an output, decoded once however often the log is told. Raises `RunCorrupt`."""
    if recorded.outputs.get(entry.place) is not entry:  # the step has run again
        return stored_output(recorded, entry, declared, codec)
    if entry.place not in recorded.values:
        recorded.values[entry.place] = stored_output(recorded, entry, declared, codec)
    return recorded.values[entry.place]


def needed_by_pipeline(recorded: RecordedRun, definition: JsonValue) -> Iterable[StepFinished]:
    """Return the outputs on which steps depend that have not finished."""
    left = [step_id for step_id in steps_in(definition) if quoted(step_id) not in recorded.outputs]
    needed = {quoted(before) for step_id in left for before in needs_of(definition, step_id)}
    return [entry for place, entry in recorded.outputs.items() if place in needed]


def needed_by_graph(recorded: RecordedRun) -> Iterable[StepFinished]:
    """Return the latest outputs of terminals, of nodes that lead to others that are left, and those by which
    edges are chosen.
    """
    latest: dict[str, StepFinished] = {}
    edges: dict[str, Sequence[ResolvedEdge]] = {}
    left: set[str] = set()
    for entry in (entry for stretch in recorded.stretches("") for _, entry in stretch):
        if isinstance(entry, StepStarted):
            left.add(entry.step_id)
            edges.pop(entry.step_id, None)
        elif isinstance(entry, StepFinished):
            latest[entry.step_id] = entry
            left.discard(entry.step_id)
        elif isinstance(entry, EdgesResolved):
            edges[entry.step_id] = entry.edges
            if any(edge.taken for edge in entry.edges):  # also after a failure, which is handled then
                left.discard(entry.step_id)
    return [
        entry
        for node, entry in latest.items()
        if node not in edges
        or any(
            edge.when in _BY_OUTPUT or (edge.taken and (edge.target in left or edge.target not in latest))
            for edge in edges[node]
        )
    ]
