"""Texts without quotes of opaque inputs, which a model may have repeated where nothing is opaque."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from fastroai.functions.opaque import ELIDED

_SHORTEST: Final = 12
"""Characters of a quote that is no coincidence. A whole value can be shorter."""
_SHORTEST_VALUE: Final = 4


class Quotes:
    """What a data part says, to be left out of instructions to a model."""

    def __init__(self, data: str | None) -> None:
        """Take the data part of a prompt, whose last line is JSON; `None` if it has none."""
        self._data = data

    def left_out(self, texts: Sequence[str]) -> list[str]:
        """Return the texts with `<opaque>` in the place of everything that they quote."""
        if self._data is None or not texts:
            return list(texts)
        values = list(_texts_in(from_json(self._data.rpartition("\n")[2])))
        return [_without(text, values) for text in texts]


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


def _without(text: str, values: Sequence[str]) -> str:
    quoted = [False] * len(text)
    for value in values:
        length = min(len(value), _SHORTEST)
        if length >= _SHORTEST_VALUE:
            for start in range(len(text) - length + 1):
                if text[start : start + length] in value:
                    quoted[start : start + length] = [True] * length
    kept: list[str] = []
    for index, char in enumerate(text):
        if not quoted[index]:
            kept.append(char)
        elif index == 0 or not quoted[index - 1]:
            kept.append(ELIDED)
    return "".join(kept)
