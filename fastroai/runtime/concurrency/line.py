"""A waiting line, in which requests made inside of a request in flight go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """First come, first served; but members inside of a request in flight go first, as it ends after them."""

    __slots__ = ("_inner", "_outer")

    def __init__(self) -> None:
        self._inner: OrderedDict[T, None] = OrderedDict()
        self._outer: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._inner) + len(self._outer)

    def __iter__(self) -> Iterator[T]:
        """Iterate the members in order. Nobody may join or leave meanwhile."""
        return chain(self._inner, self._outer)

    @property
    def first(self) -> T | None:
        """The member whose turn it is; `None` if the line is empty."""
        return next(iter(self), None)

    def is_behind_others(self, *, inside: bool) -> bool:
        """Return whether a member that joins now has others before it."""
        return bool(self._inner or (self._outer and not inside))

    def join(self, one: T, *, inside: bool) -> None:
        """Add a member at the end; with `inside`, behind the other inside members and before the rest."""
        (self._inner if inside else self._outer)[one] = None

    def leave(self, one: T) -> None:
        """Remove a member."""
        if one in self._inner:
            del self._inner[one]
        else:
            del self._outer[one]
