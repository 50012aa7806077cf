"""A line of those who wait, in which those go first whom others in flight wait for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """First come, first served. Those inside of something in flight go before others: it ends after them."""

    __slots__ = ("_inner", "_outer")

    def __init__(self) -> None:
        self._inner: OrderedDict[T, None] = OrderedDict()
        self._outer: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._inner) + len(self._outer)

    def __iter__(self) -> Iterator[T]:
        """In order. Nobody may come or leave meanwhile."""
        return chain(self._inner, self._outer)

    @property
    def first(self) -> T | None:
        """Whose turn it is; `None` if nobody waits."""
        return next(iter(self), None)

    def is_behind_others(self, *, inside: bool) -> bool:
        """Whether one who comes now finds others before it."""
        return bool(self._inner or (self._outer and not inside))

    def join(self, one: T, *, inside: bool) -> None:
        """Stand behind the others; if it is inside of something in flight, behind those who are, too."""
        (self._inner if inside else self._outer)[one] = None

    def leave(self, one: T) -> None:
        """Wait no more."""
        if one in self._inner:
            del self._inner[one]
        else:
            del self._outer[one]
