"""One evaluation of an expression: its data and variables, the values read, and the steps left."""

from __future__ import annotations

from fastroai.expressions.json_values import type_name
from fastroai.expressions.limits import (
    BYTES_OF_CHARACTERS,
    CHARACTERS_BUILT_PER_STEP,
    CHARACTERS_READ_PER_STEP,
    CHARACTERS_SEARCHED_PER_STEP,
    KEYS_CHECKED_PER_STEP,
    MAX_STEPS,
    STEPS_PER_ITEM,
)


class Stopped(Exception):
    """An evaluation ended without a value."""


class Missing(Stopped):
    """A name, key or index that was looked up does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Problem(Stopped):
    """The expression cannot be evaluated with this data."""


class NoContainer(Problem):
    """A key or index was looked up in a value that has no parts, such as a number."""


class Evaluation:
    """The state of one evaluation. Each evaluation of an expression, in any thread, has its own."""

    __slots__ = ("_known", "_left", "data", "read", "variables")

    def __init__(self, data: dict[str, object], variables: int) -> None:
        self.data = data
        self.variables: list[object] = [None] * variables
        """Values of the variables of comprehensions."""
        self.read: dict[int, object] = {}
        """The values of lookups, by where these end in the text."""
        self._left = MAX_STEPS
        # By `id`. The dicts are kept alive, so that no other dict can get the same id.
        self._known: dict[int, dict[str, object]] = {}

    def spend(self, steps: int) -> None:
        """Count work in steps, and stop the evaluation when it has used too many."""
        self._left -= steps
        if self._left < 0:
            raise Problem(f"it takes more than {MAX_STEPS:,} steps: there is too much data to work through")

    def take_items(self, items: int) -> None:
        """Count items of lists and dicts that are processed."""
        self.spend(items * STEPS_PER_ITEM)

    def read_text(self, characters: int) -> None:
        """Count characters that are compared."""
        self.spend(characters // CHARACTERS_READ_PER_STEP)

    def search_text(self, characters: int) -> None:
        """Count characters that are searched."""
        self.spend(characters // CHARACTERS_SEARCHED_PER_STEP)

    def build_text(self, *parts: str) -> None:
        """Count characters of a text built from parts. Beyond ASCII, a character can take four bytes."""
        width = 1 if all(part.isascii() for part in parts) else BYTES_OF_CHARACTERS
        self.spend(sum(map(len, parts)) * width // CHARACTERS_BUILT_PER_STEP)

    def check_keys(self, table: dict[str, object]) -> None:
        """Check, once, that all keys of a dict are text: lookups call methods of keys of other types."""
        if id(table) in self._known:
            return
        self.spend(len(table) // KEYS_CHECKED_PER_STEP)
        for key in table:
            if type(key) is not str:
                raise Problem(f"a dict has a key of type {type_name(key)}; keys of JSON data are text")
        self._known[id(table)] = table
