"""A YAML text as plain data, with the place of everything in it.

Parts of YAML that a definition does not need are refused: anchors and aliases, which can blow a text up,
tags, several documents. Plain scalars follow YAML 1.2: `on`, `yes` and `no` are texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    import yaml

MAX_CHARACTERS: Final = 1_000_000
MOST_PROBLEMS: Final = 100
"""Maximum number of problems that are reported at once. Hints for thousands would take minutes."""
MORE_PROBLEMS: Final = "there can be more problems; mend these first"
MAX_DEPTH: Final = 10
"""Maximum depth of mappings and lists, in levels, unless the document has a limit of its own."""
MAX_VALUES: Final = 1_000_000
"""Maximum number of keys, texts, numbers, mappings and lists, unless the document has its own limit."""

Way: TypeAlias = tuple[str | int, ...]
"""A place in the data: keys and indices."""
Place: TypeAlias = tuple[int, int]
"""A place in the text: line and column, both from 1."""


class DocumentProblem(NamedTuple):
    """One problem of a document."""

    message: str
    way: Way = ()
    """The place of the problem in the data."""
    line: int | None = None
    """The line of the problem, from 1; `None` for a problem of the text as a whole."""
    column: int | None = None


_INTEGER: Final = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MOST_DIGITS: Final = 30


@dataclass(slots=True)
class YamlText:
    """The data of a text, with the place of each key and value."""

    text: str = ""
    data: JsonValue = None
    keys: dict[Way, Place] = field(default_factory=dict)
    """The places of keys of mappings."""
    values: dict[Way, Place] = field(default_factory=dict)
    """The places of values. A mapping, a list or nothing under a key has the place of the key."""
    problems: list[DocumentProblem] = field(default_factory=list)
    is_whole: bool = False
    """Whether the text was read to its end, in spite of its problems."""

    def place(self, way: Way, *, of_key: bool = False) -> Place:
        """Return the place of a key or value, or of the nearest one around it."""
        places = self.keys if of_key else self.values
        while way and way not in places:
            way = way[:-1]
        return places.get(way, (1, 1))


def read_yaml(
    source: object, feature: str, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES
) -> YamlText:
    """Read a text, or the file of a `Path`, as far as possible, and note its problems in `problems`.

    Raises:
        ConfigurationError: The source is neither a text nor a `Path`.
        MissingExtraError: PyYAML, which `feature` needs, is not installed (the extra `yaml`).
    """
    try:
        text = _text_of(source)
    except UnicodeDecodeError as error:
        return YamlText(problems=[DocumentProblem(f"it is not UTF-8: {error.reason}")])
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(feature, "yaml", "pyyaml") from error
    reader = _Reader(max_depth, max_values)
    read = reader.read
    read.text = text
    if len(text) > MAX_CHARACTERS:
        read.problems.append(DocumentProblem(f"it has more than {MAX_CHARACTERS:,} characters"))
        return read
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
            reader.take(event)
        read.is_whole = True
    except _Stop:
        pass
    except yaml.MarkedYAMLError as error:
        told = " ".join(filter(None, (error.problem, error.context)))
        mark = error.problem_mark
        assert mark is not None
        # Newer versions of libyaml have a limit of their own, which they find before we see the levels.
        message = _too_deep(max_depth) if "nesting depth" in told else f"it is not YAML: {told}"
        read.problems.append(DocumentProblem(message, (), mark.line + 1, mark.column + 1))
    except yaml.reader.ReaderError as error:
        read.problems.append(DocumentProblem(f"it is not YAML: {error.reason}", (), *_place_of(text, error)))
    except UnicodeEncodeError as error:
        read.problems.append(DocumentProblem(f"it is not valid text: {error.reason}"))
    return read


def _too_deep(most: int) -> str:
    return f"it is nested too deeply; at most {most} levels are allowed"


def _text_of(source: object) -> str:
    if isinstance(source, str):
        return source
    if not isinstance(source, Path):
        raise ConfigurationError("source", source, "the text of a document, or the pathlib.Path of a file")
    with source.open(encoding="utf-8") as file:
        return file.read(MAX_CHARACTERS + 1)


def scalar(text: str) -> str | int | float | bool | None:
    """Return the value of a plain scalar: null, a truth value, a number, or else a text."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _MOST_DIGITS:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
    return text


def _place_of(text: str, error: yaml.reader.ReaderError) -> Place:
    before = text.encode()[: error.position].decode(errors="ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


class _Stop(Exception):
    """A problem was found after which the text cannot be read further."""


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end was not read yet."""

    way: Way
    data: dict[str, JsonValue] | list[JsonValue]
    key: str | None = None
    """The key that waits for its value."""


class _Reader:
    """Builds the data from the events of the parser."""

    def __init__(self, max_depth: int, max_values: int) -> None:
        self.read = YamlText()
        self._max_depth, self._max_values = max_depth, max_values
        self._values = 0
        self._open: list[_Open] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Take in the next event."""
        import yaml

        mark = event.start_mark
        assert mark is not None
        place = (mark.line + 1, mark.column + 1)
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop("a second document begins here; give each a text of its own", place)
            case yaml.AliasEvent():
                self._stop(f"the alias *{event.anchor} is not supported; write out what it stands for", place)
            case yaml.ScalarEvent():
                self._check(event.anchor, event.tag, place)
                self._scalar(event.value, plain=event.implicit[0], place=place)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check(event.anchor, event.tag, place)
                self._begin({} if isinstance(event, yaml.MappingStartEvent) else [], place)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()

    def _check(self, anchor: str | None, tag: str | None, place: Place) -> None:
        self._values += 1
        if self._values > self._max_values:
            self._stop(f"it has more than {self._max_values:,} keys and values", place)
        if anchor is not None:
            self._stop(f"the anchor &{anchor} is not supported; leave it out", place)
        if tag is not None:
            self._stop(f"the tag {tag} is not supported; leave it out", place)

    def _tell(self, problem: DocumentProblem) -> None:
        self.read.problems.append(problem)
        if len(self.read.problems) == MOST_PROBLEMS:
            self.read.problems.append(DocumentProblem(MORE_PROBLEMS))
            raise _Stop

    def _stop(self, message: str, place: Place) -> None:
        self.read.problems.append(DocumentProblem(message, (), *place))
        raise _Stop

    def _begin(self, data: dict[str, JsonValue] | list[JsonValue], place: Place) -> None:
        if len(self._open) == self._max_depth:
            self._stop(_too_deep(self._max_depth), place)
        if self._awaits_key():
            self._stop("a key is a mapping or a list; expected a text", place)
        way = self._put(data, place)
        self._open.append(_Open(way, data))

    def _scalar(self, text: str, *, plain: bool, place: Place) -> None:
        value = scalar(text) if plain else text
        if self._awaits_key():
            self._key(text, value, place)
        else:
            self._put(value, place)

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].data, dict) and self._open[-1].key is None

    def _key(self, text: str, value: JsonValue, place: Place) -> None:
        around = self._open[-1]
        way = (*around.way, text)
        if not isinstance(value, str):
            message = f"the key {text} is {kind(value)}; put it in quotes if it is meant as a text"
            self._tell(DocumentProblem(message, way, *place))
        elif isinstance(around.data, dict) and text in around.data:
            first = self.read.keys[way][0]
            message = f"the key {text!r} exists already, in line {first}; keep one of them"
            self._tell(DocumentProblem(message, way, *place))
        self.read.keys.setdefault(way, place)
        around.key = text

    def _put(self, value: JsonValue, place: Place) -> Way:
        """Put a value in the next place of the data, and return that place."""
        way: Way = ()
        if not self._open:
            self.read.data = value
        elif isinstance(data := (around := self._open[-1]).data, list):
            way = (*around.way, len(data))
            data.append(value)
        else:
            assert around.key is not None
            way = (*around.way, around.key)
            data[around.key] = value
            around.key = None
            if value is None or isinstance(value, dict | list):
                place = self.read.keys[way]
        self.read.values[way] = place
        return way


def kind(value: object) -> str:
    """Return the kind of a value in a document, in words for people who write YAML."""
    return _KINDS[type(value)]


_KINDS: Final[dict[type, str]] = {
    type(None): "empty",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping",
}
