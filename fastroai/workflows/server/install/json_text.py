"""JSON that people write, edited in its text: comments, order and layout of everything else stay.

Besides JSON, the files of some clients have comments and commas after the last member. Both are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

MAX_DEPTH: Final = 100

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_INDENT: Final = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class _Node:
    """A value, and its place in the text."""

    start: int
    end: int
    value: JsonValue
    children: tuple[_Child, ...] = ()


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
    return _Reader(text).document().value


def with_value(text: str, way: Sequence[str], value: JsonValue) -> str:
    """Return the text with a value put at a way of names. Missing objects on the way are made.

    Raises:
        json.JSONDecodeError: the text is not JSON, or something on the way is not an object.
    """
    node = _Reader(text).document()
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
    node: _Node | None = _Reader(text).document()
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


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = field(default=0)

    def document(self) -> _Node:
        self.skip()
        node = self.node(0)
        self.skip()
        if self.at < len(self.text):
            raise self.error("Extra data")
        return node

    def node(self, depth: int) -> _Node:
        start = self.at
        if depth > MAX_DEPTH:
            raise self.error(f"More than {MAX_DEPTH} levels")
        match self.text[start : start + 1]:
            case "{":
                members = self.children("}", depth)
                return _Node(start, self.at, {str(one.name): one.node.value for one in members}, members)
            case "[":
                items = self.children("]", depth)
                return _Node(start, self.at, [one.node.value for one in items], items)
            case '"':
                value = self.string()
                return _Node(start, self.at, value)
        found = _SCALAR.match(self.text, start)
        if found is None:
            raise self.error("Expecting value")
        self.at = found.end()
        return _Node(start, self.at, json.loads(found[0]))

    def children(self, close: str, depth: int) -> tuple[_Child, ...]:
        found: list[_Child] = []
        names: set[str | int] = set()
        self.at += 1
        while True:
            self.skip()
            if self.took(close):
                return tuple(found)
            start = self.at
            name = self.name() if close == "}" else len(found)
            if name in names:
                self.at = start
                raise self.error(f"The name {name!r} appears twice")
            names.add(name)
            found.append(_Child(start, name, self.node(depth + 1)))
            self.skip()
            if not self.took(",") and not self.text.startswith(close, self.at):
                raise self.error("Expecting ',' delimiter")

    def name(self) -> str:
        if not self.text.startswith('"', self.at):
            raise self.error("Expecting property name enclosed in double quotes")
        name = self.string()
        self.skip()
        if not self.took(":"):
            raise self.error("Expecting ':' delimiter")
        self.skip()
        return name

    def string(self) -> str:
        start = self.at
        found = _STRING.match(self.text, start)
        if found is None:
            raise self.error("Invalid string")
        self.at = found.end()
        try:
            value: str = json.loads(found[0])
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(error.msg, self.text, start + error.pos) from None
        return value

    def took(self, char: str) -> bool:
        if self.text.startswith(char, self.at):
            self.at += 1
            return True
        return False

    def skip(self) -> None:
        self.at = _blank_end(self.text, self.at)

    def error(self, message: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self.text, self.at)
