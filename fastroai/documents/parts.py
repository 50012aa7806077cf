"""Mappings that a document may have, as pydantic models, and the problems of mappings that do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from fastroai.documents.yaml_text import (
    MORE_PROBLEMS,
    MOST_PROBLEMS,
    DocumentProblem,
    Way,
    YamlText,
    kind,
)


class Part(BaseModel):
    """A mapping in a document, with the keys that it may have."""

    model_config = ConfigDict(extra="forbid", strict=True)


PartsAt: TypeAlias = Mapping[tuple[str, ...], type[Part]]
"""The parts of a document by their places; `*` is any key or index."""

PartT = TypeVar("PartT", bound=Part)


class Misfit(NamedTuple):
    """A place in a document that does not have the form of its part."""

    problem: DocumentProblem
    unknown: str | None = None
    """The key, if the part has no key of this name."""
    allowed: tuple[str, ...] = ()
    """The keys that the part has."""
    is_text: bool = False
    """Whether the value is a number or truth value that is meant as text and lacks quotes."""


class Misshapen(Exception):
    """A document does not have the form of its parts. `misfits` are the first places without it."""

    def __init__(self, misfits: Sequence[Misfit]) -> None:
        super().__init__(misfits)
        self.misfits = misfits


def shaped(part: type[PartT], data: JsonValue, text: YamlText, parts_at: PartsAt) -> PartT:
    """Return data as an instance of a part.

    Raises:
        Misshapen: The data has another form; the error has all places.
    """
    try:
        return part.model_validate(data)
    except ValidationError as error:
        raise Misshapen(list(_misfits(error, text, parts_at))) from None


def _misfits(error: ValidationError, text: YamlText, parts_at: PartsAt) -> Iterator[Misfit]:
    for details in error.errors(include_url=False)[:MOST_PROBLEMS]:
        yield _misfit(details, text, parts_at)
    if error.error_count() > MOST_PROBLEMS:
        yield Misfit(DocumentProblem(MORE_PROBLEMS))


_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def _misfit(details: ErrorDetails, text: YamlText, parts_at: PartsAt) -> Misfit:
    """Return an error of pydantic in the words of people who write YAML."""
    way: Way = details["loc"]
    where = shown(way)
    match details["type"]:
        case "extra_forbidden":
            known = tuple(_part_at(way[:-1], parts_at).model_fields)
            message = f"unknown key {where}; expected {', '.join(known)}."
            problem = DocumentProblem(message, way, *text.place(way, of_key=True))
            return Misfit(problem, str(way[-1]), known)
        case "missing":
            return Misfit(DocumentProblem(f"{where} is missing", way, *text.place(way[:-1])))
        case other:
            expected = _EXPECTED.get(other, details["msg"])
            value = details["input"]
            message = f"{where} is {told(value)}; expected {expected}{_remedy(other, value, way)}"
            is_text = other == "string_type" and isinstance(value, int | float)
            return Misfit(DocumentProblem(message, way, *text.place(way)), is_text=is_text)


def mended(data: JsonValue, misfits: Sequence[Misfit]) -> JsonValue:
    """Return data without the misfits that can be corrected: unknown keys, and texts without quotes.

    The rest of a document can then be checked in spite of its misfits.
    """
    mended = deepcopy(data)
    for misfit in misfits:
        *way, last = misfit.problem.way or ("",)
        around: Any = mended
        for key in way:
            around = around[key]
        if misfit.unknown is not None:
            del around[last]
        elif misfit.is_text:
            around[last] = str(around[last])
    return mended


def _part_at(way: Way, parts_at: PartsAt) -> type[Part]:
    return next(
        part
        for pattern, part in parts_at.items()
        if len(pattern) == len(way)
        and all(expected in ("*", key) for expected, key in zip(pattern, way, strict=True))
    )


def shown(way: Way) -> str:
    """Return a place in a document as text, as in `edges[3].when`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in way)
    return text.removeprefix(".") or "the document"


def told(value: object) -> str:
    """Return the kind of a value as text, with the value itself if it is short."""
    is_scalar = isinstance(value, str | int | float) and len(str(value)) <= 80
    return f"{kind(value)}, {value!r}" if is_scalar else kind(value)


def _remedy(error_type: str, value: object, way: Way) -> str:
    if error_type == "string_type" and isinstance(value, int | float):
        return "; put it in quotes if it is meant as one"
    if not way and isinstance(value, str):
        return "; for a file, give its pathlib.Path"
    return ""
