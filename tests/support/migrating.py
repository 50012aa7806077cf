"""The functions that try the rows of the page on migrating, by left cell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

Try: TypeAlias = Callable[[], Awaitable[None] | None]


class Tried(dict[str, Try]):
    """`TRIED = Tried()`, and `@TRIED("left cell")` above each function."""

    def __call__(self, left: str) -> Callable[[Try], Try]:
        def keep(function: Try) -> Try:
            assert left not in self, f"{left} is tried twice"
            self[left] = function
            return function

        return keep
