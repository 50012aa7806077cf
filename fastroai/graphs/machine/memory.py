"""What a branch of a run knows: values with who wrote them and when, over those of the branch around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, cast

from typing_extensions import TypeVar

from fastroai.runs.decoding import OnRecord, value_of

ValueT = TypeVar("ValueT", default=Any)


@dataclass(slots=True)
class Written(Generic[ValueT]):
    """A value, and where it comes from."""

    held: ValueT | OnRecord
    """The value, perhaps as it is on record."""
    node: str
    """The node that wrote it; empty for inputs of the run."""
    sequence: int
    """When: its number among the events of the run."""

    @property
    def value(self) -> ValueT:
        """The value. Raises `RunCorrupt` if it is on record and cannot be decoded."""
        return cast(ValueT, value_of(self.held))


_CLEARED: Final[Written] = Written(None, "", -1)
"""Hides a value of a branch around."""


class Memory(Mapping[str, ValueT]):
    """Values by name, as one branch sees them: its own over those that were there when it began.

    Nothing writes to what is around while the branch goes on, so reading it is no race. Reading costs a step
    for each fork around; writing costs nothing more than in a dictionary.
    """

    __slots__ = ("_around", "_own")

    def __init__(self, around: Memory[ValueT] | None = None) -> None:
        self._around = around
        self._own: dict[str, Written[ValueT]] = {}

    def written(self, key: str) -> Written[ValueT] | None:
        """The value and where it comes from; `None` if there is none."""
        memory: Memory[ValueT] | None = self
        while memory is not None:
            found = memory._own.get(key)
            if found is not None:
                return None if found is _CLEARED else found
            memory = memory._around
        return None

    def written_here(self, key: str) -> Written[ValueT] | None:
        """The same, if it was written in this branch and not in one around."""
        found = self._own.get(key)
        return None if found is _CLEARED else found

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
        """What was written here, in the order in which it first was; `None` for what was cleared."""
        for key, written in self._own.items():
            yield key, None if written is _CLEARED else written

    def held_now(self) -> dict[str, ValueT | OnRecord]:
        """All values by name, those on record as they are there."""
        values = {} if self._around is None else self._around.held_now()
        for key, written in self._own.items():
            values.pop(key, None)
            if written is not _CLEARED:
                values[key] = written.held
        return values

    def take(self, key: str, written: Written[ValueT]) -> None:
        """Set a value that another branch wrote, as it was written there."""
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
        yield from (key for key, written in self._own.items() if written is not _CLEARED)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
