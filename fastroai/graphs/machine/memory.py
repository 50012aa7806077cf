"""The memory of a branch: values, each with its writer and its time, over the memory of the branch around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from fastroai.runs.decoding import OnRecord, value_of

ValueT = TypeVar("ValueT", default=Any)


@dataclass(slots=True)
class Written(Generic[ValueT]):
    """A value, and its origin: the node that wrote it, and when."""

    held: ValueT | OnRecord
    """The value, or the value on record that is yet to be decoded."""
    node: str
    """The node that wrote it; empty for inputs of the run."""
    sequence: int
    """When it was written: the number of the event among those of the run; -1 marks a value that a branch
    hides from itself."""

    @property
    def value(self) -> ValueT:
        """The value. Raises `RunCorrupt` if it is on record and cannot be decoded."""
        return value_of(self.held)


_CLEARED: Final[Written] = Written(None, "", -1)


class Memory(Mapping[str, ValueT]):
    """Values by name, as one branch sees them: its own, over the memory that it found when it began.

    The memory around does not change while the branch goes on, so reading it is no race. Reading takes a
    look-up for each fork around. Writing costs no more than in a dictionary.
    """

    __slots__ = ("_around", "_own")

    def __init__(self, around: Memory[ValueT] | None = None) -> None:
        self._around = around
        self._own: dict[str, Written[ValueT]] = {}

    def written(self, key: str) -> Written[ValueT] | None:
        """Return a value with its origin; `None` if there is no value."""
        memory: Memory[ValueT] | None = self
        while memory is not None:
            found = memory._own.get(key)
            if found is not None:
                return None if found.sequence < 0 else found
            memory = memory._around
        return None

    def written_here(self, key: str) -> Written[ValueT] | None:
        """Return a value with its origin, if this branch wrote it, and no branch around."""
        found = self._own.get(key)
        return None if found is None or found.sequence < 0 else found

    def write(self, key: str, value: ValueT | OnRecord, node: str, sequence: int) -> None:
        """Set a value, for this branch and those that it forks into."""
        self._own[key] = Written(value, node, sequence)

    def write_all(self, values: Mapping[str, ValueT | OnRecord], node: str, sequence: int) -> None:
        """Set several values that one node wrote at one time."""
        for key, value in values.items():
            self._own[key] = Written(value, node, sequence)

    def clear(self, key: str) -> None:
        """Hide a value from this branch."""
        if self._around is None:
            self._own.pop(key, None)
        elif self.written(key) is not None:
            self._own[key] = _CLEARED

    def own(self) -> Iterator[tuple[str, Written[ValueT] | None]]:
        """Yield the values of this branch, in the order of their first writes; `None` for cleared ones."""
        for key, written in self._own.items():
            yield key, None if written.sequence < 0 else written

    def held_now(self) -> dict[str, ValueT | OnRecord]:
        """Return all values by name. Values on record are not decoded."""
        values = {} if self._around is None else self._around.held_now()
        for key, written in self._own.items():
            values.pop(key, None)
            if written.sequence >= 0:
                values[key] = written.held
        return values

    def take(self, key: str, written: Written[ValueT]) -> None:
        """Set a value that another branch wrote, with its origin."""
        self._own[key] = written

    def __getitem__(self, key: str) -> ValueT:
        found = self.written(key)
        if found is None:
            raise KeyError(key)
        return found.value

    def __iter__(self) -> Iterator[str]:
        if self._around is None:
            yield from self._own
            return
        yield from (key for key in self._around if key not in self._own)
        yield from (key for key, written in self._own.items() if written.sequence >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
