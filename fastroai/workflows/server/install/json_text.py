"""JSON that people write, edited in its text: comments, order and layout of everything else stay.

Besides JSON, the files of some clients have comments and commas after the last member. Both are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Matches a string, in which nothing is a comment, or a comment."""
_LAST_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{,:]\s*,|,(?=\s*[\]}])', re.DOTALL)
"""Matches a string, a comma that follows no value, or a comma after the last member."""
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Node:
    """A value, and its place in the text."""

    plain: str
    """The text as plain JSON, of the same length."""
    start: int
    end: int
    value: JsonValue

    @property
    def children(self) -> Sequence[_Child]:
        """The members of an object, or the items of an array."""
        found: list[_Child] = []
        at = _blank_end(self.plain, self.start + 1)
        while isinstance(self.value, dict | list) and self.plain[at] not in "]}":
            start, name = at, len(found)
            if isinstance(self.value, dict):
                name, at = _DECODER.raw_decode(self.plain, at)
                at = _blank_end(self.plain, _blank_end(self.plain, at) + 1)  # after the colon
            value, end = _DECODER.raw_decode(self.plain, at)
            found.append(_Child(start, name, _Node(self.plain, at, end, value)))
            at = _blank_end(self.plain, end)
            if self.plain[at] == ",":
                at = _blank_end(self.plain, at + 1)
        return found


@dataclass(frozen=True, slots=True)
class _Child:
    """A member of an object, or an item of an array."""

    start: int
    """Where the member or item begins; a member begins with its name."""
    name: str | int
    node: _Node


def parsed(text: str) -> JsonValue:
    """Parse a text, and return its value.

    Raises:
        json.JSONDecodeError: the text is not JSON, or an object has a name twice; with line and column.
    """
    return _document(text).value


def with_value(text: str, way: Sequence[str], value: JsonValue) -> str:
    """Return the text with a value put at a way of names. Missing objects on the way are made.

    Raises:
        json.JSONDecodeError: the text is not JSON, or something on the way is not an object.
    """
    node = _document(text)
    for depth, name in enumerate(way):
        _expect(text, node, dict)
        child = _child(node, name)
        if child is None:
            for outer in reversed(way[depth + 1 :]):
                value = {outer: value}
            return _inserted(text, node, name, value)
        node = child.node
    return text if node.value == value else _replaced(text, node, value)


def with_item(text: str, way: Sequence[str], item: JsonValue) -> str:
    """Return the text with one more item at the end of the array at a way, which is made if it is missing.

    Raises:
        json.JSONDecodeError: the text is not JSON, or the value at the way is not an array.
    """
    node = _at(text, way)
    if node is None:
        return with_value(text, way, [item])
    _expect(text, node, list)
    return _inserted(text, node, None, item)


def without_items(text: str, way: Sequence[str], unwanted: Callable[[JsonValue], bool]) -> str:
    """Return the text without the unwanted items of the array at a way.

    Raises:
        json.JSONDecodeError: the text is not JSON.
    """
    while True:
        node = _at(text, way)
        if node is None or not isinstance(node.value, list):
            return text
        found = next((one for one in node.children if unwanted(one.node.value)), None)
        if found is None:
            return text
        text = _removed(text, node, found)


def without(text: str, way: Sequence[str]) -> str:
    """Return the text without the member at a way of names, if it is there.

    Raises:
        json.JSONDecodeError: the text is not JSON.
    """
    parent = _at(text, way[:-1])
    child = None if parent is None else _child(parent, way[-1])
    return text if parent is None or child is None else _removed(text, parent, child)


def value_at(value: JsonValue, way: Sequence[str]) -> JsonValue:
    """Return the value at a way of names; `None` if there is none."""
    for name in way:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# --- finding values ---


def _at(text: str, way: Sequence[str]) -> _Node | None:
    node: _Node | None = _document(text)
    for name in way:
        child = None if node is None else _child(node, name)
        node = None if child is None else child.node
    return node


def _child(node: _Node, name: str) -> _Child | None:
    return next((one for one in node.children if one.name == name), None)


def _expect(text: str, node: _Node, kind: type[dict[str, JsonValue]] | type[list[JsonValue]]) -> None:
    if not isinstance(node.value, kind):
        raise json.JSONDecodeError(
            f"Expecting an {'object' if kind is dict else 'array'} here", text, node.start
        )


# --- edits ---


def _written(text: str, value: JsonValue, indent: str) -> str:
    written = json.dumps(value, indent=_unit(text), ensure_ascii=False)
    return written.replace("\n", _newline(text) + indent)


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _inserted(text: str, node: _Node, name: str | None, value: JsonValue) -> str:
    last = node.children[-1] if node.children else None
    outer = _indent_of(text, node.start)
    starts_line = last is not None and not text[text.rfind("\n", 0, last.start) + 1 : last.start].strip()
    indent = _indent_of(text, last.start) if last is not None and starts_line else outer + _unit(text)
    head = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
    new = _newline(text) + indent + head + _written(text, value, indent)
    end = len(text[: node.end - 1].rstrip())
    after = text[end : node.end - 1]
    if "\n" not in after:
        after = _newline(text) + outer
    if last is None:
        return text[:end] + new + after + text[node.end - 1 :]
    has_comma = text.startswith(",", _blank_end(text, last.node.end))
    comma = "" if has_comma else ","
    return text[: last.node.end] + comma + text[last.node.end : end] + new + after + text[node.end - 1 :]


def _replaced(text: str, node: _Node, value: JsonValue) -> str:
    return text[: node.start] + _written(text, value, _indent_of(text, node.start)) + text[node.end :]


def _removed(text: str, parent: _Node, child: _Child) -> str:
    start = len(text[: child.start].rstrip())
    end = child.node.end
    comma = _blank_end(text, end)
    if text.startswith(",", comma):
        return text[:start] + text[end:comma] + text[comma + 1 :]
    index = parent.children.index(child)
    if index:
        before = _blank_end(text, parent.children[index - 1].node.end)
        text, start, end = text[:before] + text[before + 1 :], start - 1, end - 1
    rest = text[end:]
    if not index and not text[end : parent.end - 1].strip():
        rest = rest.lstrip()
    return text[:start] + rest


def _blank_end(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


# --- reading ---


def _document(text: str) -> _Node:
    plain = _COMMENT.sub(_blanked, text)
    plain = _LAST_COMMA.sub(lambda found: " " if found[0] == "," else found[0], plain)
    try:
        value: JsonValue = _DECODER.decode(plain)
        document = _Node(plain, _blank_end(plain, 0), len(plain.rstrip()), value)
        repeated = _repeated(document)
    except RecursionError:
        raise json.JSONDecodeError("It is nested too deeply", text, 0) from None
    if repeated is not None:
        raise json.JSONDecodeError(f"The name {repeated.name!r} appears twice", text, repeated.start)
    return document


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])


def _repeated(node: _Node) -> _Child | None:
    """Return a member whose name an earlier member of its object has."""
    names: set[str | int] = set()
    for child in node.children:
        if child.name in names:
            return child
        names.add(child.name)
        if (found := _repeated(child.node)) is not None:
            return found
    return None
