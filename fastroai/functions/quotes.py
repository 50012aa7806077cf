"""Texts without quotes of opaque values, which a model may have repeated where nothing is opaque."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from fastroai.functions.opacity import ELIDED

_SHORTEST: Final = 12
"""Characters of a quote that is no coincidence. A whole value can be shorter."""
_SHORTEST_VALUE: Final = 4


class Quotes:
    """Opaque values, to be left out of instructions to a model."""

    def __init__(self, values: Sequence[JsonValue]) -> None:
        """Take the values."""
        self._values = values

    def left_out(self, texts: Iterable[str]) -> list[str]:
        """Return the texts with `<opaque>` in the place of everything that they quote."""
        values = [text for value in self._values for text in _texts_in(value)]
        return [_without(text, values) for text in texts]


def values_in(data: str | None) -> list[JsonValue]:
    """Return what a data part of a prompt holds, whose last line is JSON; `None` is no data part."""
    return [] if data is None else [from_json(data.rpartition("\n")[2])]


def _texts_in(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for part in value.values():
            yield from _texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts_in(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _without(text: str, values: Sequence[str]) -> str:
    quoted = [False] * len(text)
    read = _folded(text)
    for value in map(_folded, values):
        length = min(len(value), _SHORTEST)
        if length >= _SHORTEST_VALUE:
            for start in range(len(text) - length + 1):
                if read[start : start + length] in value:
                    quoted[start : start + length] = [True] * length
    kept: list[str] = []
    for index, char in enumerate(text):
        if not quoted[index]:
            kept.append(char)
        elif index == 0 or not quoted[index - 1]:
            kept.append(ELIDED)
    return "".join(kept)


def _folded(text: str) -> str:
    """The text in lower case, character by character: quotes may have another."""
    folded = text.lower()
    return folded if len(folded) == len(text) else text
