"""Texts without quotes of opaque values, which a model may have repeated where nothing is opaque."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from fastroai.functions.opacity import ELIDED, one_line_json

_SHORTEST: Final = 12
"""Letters and digits of a quote that is no coincidence. A whole value can be shorter."""
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
    """Return what a data part of a prompt holds, whose last line is JSON; `None` is no data part.

    Its keys are not among it: they are the names of parameters, and the paths in these.
    """
    return [] if data is None else [*from_json(data.rpartition("\n")[2]).values()]


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


def _without(text: str, values: Iterable[str]) -> str:
    """Compare letters and digits only, as quotes are escaped in one way or another."""
    letters, places = _letters_of(text)
    quoted = [False] * len(text)
    for value in values:
        for form in _forms_of(value):
            length = min(len(form), _SHORTEST)
            if length < _SHORTEST_VALUE:
                continue
            for start in range(len(letters) - length + 1):
                if letters[start : start + length] in form:
                    first, last = places[start], places[start + length - 1]
                    quoted[first : last + 1] = [True] * (last + 1 - first)
    kept = [
        char if not is_quoted else "" if index and quoted[index - 1] else ELIDED
        for index, (char, is_quoted) in enumerate(zip(text, quoted, strict=True))
    ]
    return "".join(kept)


def _letters_of(text: str) -> tuple[str, list[int]]:
    """Return the letters and digits of a text, in lower case, and where they are."""
    folded = text.lower()
    read = folded if len(folded) == len(text) else text
    places = [index for index, char in enumerate(text) if char.isalnum()]
    return "".join(read[index] for index in places), places


def _forms_of(value: str) -> set[str]:
    """Return the letters and digits of a text as it may be quoted: as it is, or escaped once or twice."""
    once = {value, repr(value), one_line_json(value)}
    twice = {again(form) for form in once for again in (repr, one_line_json)}
    return {_letters_of(form)[0] for form in once | twice}
