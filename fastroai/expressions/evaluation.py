"""One evaluation of an expression: its data and variables, what it has read, the steps that it has left."""

from __future__ import annotations

from fastroai.expressions.limits import (
    BYTES_OF_CHARACTERS,
    CHARACTERS_BUILT_PER_STEP,
    CHARACTERS_READ_PER_STEP,
    CHARACTERS_SEARCHED_PER_STEP,
    KEYS_CHECKED_PER_STEP,
    MAX_STEPS,
    STEPS_PER_ITEM,
)
from fastroai.expressions.values import type_name


class Stopped(Exception):
    """An evaluation ended without a value."""


class Missing(Stopped):
    """What it looked up is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Problem(Stopped):
    """It cannot be evaluated with this data."""


class NoContainer(Problem):
    """It looked something up in a value that has no parts, such as a number."""


class Evaluation:
    """What one evaluation knows. Another of the same expression has its own, in whatever thread."""

    __slots__ = ("_known", "_left", "data", "read", "variables")

    def __init__(self, data: dict[str, object], variables: int) -> None:
        self.data = data
        self.variables: list[object] = [None] * variables
        """Of comprehensions."""
        self.read: dict[int, object] = {}
        """The values of lookups, by where they end in the text."""
        self._left = MAX_STEPS
        # By identity. They are kept, so that no other dict comes to have the same.
        self._known: dict[int, dict[str, object]] = {}

    def spend(self, steps: int) -> None:
        """Count work; it stops the evaluation when there was too much of it."""
        self._left -= steps
        if self._left < 0:
            raise Problem(f"it takes more than {MAX_STEPS:,} steps: there is too much data to work through")

    def take_items(self, items: int) -> None:
        """Count items of lists and dicts that are worked on."""
        self.spend(items * STEPS_PER_ITEM)

    def read_text(self, characters: int) -> None:
        """Count text that is compared."""
        self.spend(characters // CHARACTERS_READ_PER_STEP)

    def search_text(self, characters: int) -> None:
        """Count text that is searched."""
        self.spend(characters // CHARACTERS_SEARCHED_PER_STEP)

    def build_text(self, *parts: str) -> None:
        """Count text that is made of these. Beyond ASCII, a character can take four bytes."""
        width = 1 if all(part.isascii() for part in parts) else BYTES_OF_CHARACTERS
        self.spend(sum(map(len, parts)) * width // CHARACTERS_BUILT_PER_STEP)

    def check_keys(self, table: dict[str, object]) -> None:
        """See, once, that a dict has no keys but text: looking it up calls methods of keys of other types."""
        if id(table) in self._known:
            return
        self.spend(len(table) // KEYS_CHECKED_PER_STEP)
        for key in table:
            if type(key) is not str:
                raise Problem(f"a dict has a key of type {type_name(key)}; keys of JSON data are text")
        self._known[id(table)] = table
