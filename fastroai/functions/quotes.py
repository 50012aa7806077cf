"""Texts without quotes of opaque values, because a model may repeat these where nothing is opaque."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from fastroai.contracts.brief import brief
from fastroai.functions.declaring.opacity import ELIDED, Opacity, elided, one_line_json, opaque_parts

_SHORTEST: Final = 12
"""Letters and digits of a quote that cannot be a coincidence. A whole value can be shorter."""
_SHORTEST_VALUE: Final = 4


def without_quotes(texts: Iterable[str], values: Iterable[JsonValue]) -> list[str]:
    """Return the texts with `<opaque>` in place of each quote of one of these opaque values."""
    quoted = [text for value in values for text in _texts_in(value)]
    return [_without(text, quoted) for text in texts]


def values_in(data: str | None) -> list[JsonValue]:
    """Return the values in the data part of a prompt, whose last line is JSON. `None` has no values.

    The keys of that JSON are not opaque: they are the names of parameters, and paths in these.
    """
    return [] if data is None else [*from_json(data.rpartition("\n")[2]).values()]


def brief_without_opaque(value: object, opacity: Opacity | None) -> str:
    """Return a value in short, with `<opaque>` in place of its opaque parts."""
    if opacity is None:
        return brief(value)
    if opacity.is_whole:
        return ELIDED
    try:
        return brief(elided(_json_of(value), opacity))
    except (PydanticSerializationError, ValueError, RecursionError):
        return ELIDED


def message_without_opaque(
    text: str, values: Mapping[str, object], opacities: Mapping[str, Opacity | None]
) -> str:
    """Return a text that code of the user made of `values`, without quotes of their opaque parts."""
    hidden: list[JsonValue] = []
    for name, value in values.items():
        if (opacity := opacities.get(name)) is not None:
            try:
                hidden += opaque_parts(_json_of(value), opacity)
            except (PydanticSerializationError, ValueError, RecursionError):
                return ELIDED
    return without_quotes([text], hidden)[0]


def _json_of(value: object) -> JsonValue:
    made: JsonValue = to_jsonable_python(value, by_alias=False, bytes_mode="base64")
    return made


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
    """Replace quotes of the values. Only letters and digits are compared, because quotes may be escaped."""
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
    """Return the letters and digits of a text, in lower case, with their positions."""
    folded = text.lower()
    read = folded if len(folded) == len(text) else text
    places = [index for index, char in enumerate(text) if char.isalnum()]
    return "".join(read[index] for index in places), places


def _forms_of(value: str) -> set[str]:
    """Return the letters and digits of a text in forms in which it may be quoted: unchanged, or escaped."""
    once = {value, repr(value), one_line_json(value)}
    twice = {again(form) for form in once for again in (repr, one_line_json)}
    return {_letters_of(form)[0] for form in once | twice}
