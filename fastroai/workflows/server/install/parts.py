"""Parts of a client's setup: how each is added to a file, and taken out again."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from pydantic import JsonValue

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.install import json_text

Kind: TypeAlias = Literal["server", "instructions", "skills", "hooks"]
"""The purpose of a part: the MCP server, the instructions, a skill, or the hooks."""

KINDS: Final[tuple[Kind, ...]] = ("server", "instructions", "skills", "hooks")

HOOK: Final = re.compile(r" mcp hook (?:session-start|stop|tool-failure) --client ")
"""Matches the commands of our hooks, and no others."""

_T = TypeVar("_T")
Way: TypeAlias = tuple[str, ...]


class Part(Protocol):
    """An addition to a file."""

    @property
    def kind(self) -> Kind:
        """The purpose of the part."""
        ...

    @property
    def path(self) -> Path:
        """Path of the file."""
        ...

    def put(self, text: str | None, is_ours: bool) -> str:
        """Return the text of the file with the addition.

        Args:
            text: The text of the file; `None` if there is no file.
            is_ours: Whether FastroAI has written the whole file, and nobody has changed it since.

        Raises:
            ConfigurationError: the file is broken, or has something else in the place of the addition.
        """
        ...

    def take_out(self, text: str, original: str | None) -> str | None:
        """Return the text without the addition; `None` if nothing is left and the file was not there before.

        Args:
            text: The text, which others may have changed.
            original: The text from before the addition; `None` if there was no file or it is not known.

        Raises:
            ConfigurationError: the file is broken.
        """
        ...


@dataclass(frozen=True, slots=True)
class JsonPart:
    """Members of objects and items of arrays in a JSON file."""

    kind: Kind
    path: Path
    members: tuple[tuple[Way, JsonValue], ...] = ()
    items: tuple[tuple[Way, JsonValue], ...] = ()
    defaults: tuple[tuple[Way, JsonValue], ...] = ()
    """Members that the file needs besides these. Existing values stay."""

    def put(self, text: str | None, is_ours: bool) -> str:
        """See `Part`."""
        start: str = "{}\n" if text is None or not text.strip() else text
        return _checked(self.path, lambda: self._put(start))

    def _put(self, text: str) -> str:
        value = json_text.parsed(text)
        for way, member in self.defaults:
            if json_text.value_at(value, way) is None:
                text = json_text.with_value(text, way, member)
        for way, member in self.members:
            text = json_text.with_value(text, way, member)
        return self._with_items(text)

    def _with_items(self, text: str) -> str:
        for way in dict.fromkeys(way for way, _ in self.items):
            wanted = [item for each, item in self.items if each == way]
            present = json_text.value_at(json_text.parsed(text), way)
            ours = [item for item in present if _is_hook(item)] if isinstance(present, list) else []
            if ours == wanted:
                continue
            text = json_text.without_items(text, way, _is_hook)
            for item in wanted:
                text = json_text.with_item(text, way, item)
        return text

    def take_out(self, text: str, original: str | None) -> str | None:
        """See `Part`."""
        return _checked(self.path, lambda: self._take_out(text, original))

    def _take_out(self, text: str, original: str | None) -> str | None:
        before = json_text.parsed(original) if original and original.strip() else {}
        for way in dict.fromkeys(way for way, _ in self.items):
            text = _pruned(json_text.without_items(text, way, _is_hook), way, before)
        for way, member in self.members:
            if json_text.value_at(json_text.parsed(text), way) != member:
                continue  # somebody has changed it
            old = json_text.value_at(before, way)
            is_new = old in (None, member)
            text = json_text.without(text, way) if is_new else json_text.with_value(text, way, old)
            text = _pruned(text, way[:-1], before)
        left = json_text.parsed(text)
        if original is None and all(_is_default(self.defaults, *one) for one in _members(left)):
            return None
        return text


@dataclass(frozen=True, slots=True)
class BlockPart:
    """Lines between two markers, in a file that people write."""

    kind: Kind
    path: Path
    begin: str
    end: str
    body: str
    check: Callable[[str], None] = lambda text: None
    """Checks a text of the file, with or without the lines. Raises `ValueError` if the text is not valid."""

    def put(self, text: str | None, is_ours: bool) -> str:
        """See `Part`."""
        before, had, after = self._split(text or "")
        newline = "\r\n" if "\r\n" in (text or "") else "\n"
        block = f"{self.begin}\n{self.body.strip()}\n{self.end}\n".replace("\n", newline)
        if not had:
            if before and not before.endswith("\n"):
                before += newline
            before += newline if before.strip() else ""
        self._check(before + after)
        self._check(before + block + after)
        return before + block + after

    def take_out(self, text: str, original: str | None) -> str | None:
        """See `Part`."""
        before, had, after = self._split(text)
        if had and before.endswith(("\n\n", "\n\r\n")):
            before = before[: -2 if before.endswith("\r\n") else -1]
        left = before + after
        return None if original is None and not left.strip() else left

    def _split(self, text: str) -> tuple[str, bool, str]:
        start, end = text.find(self.begin), text.find(self.end)
        if start < 0 and end < 0:
            return text, False, ""
        once = text.count(self.begin) == text.count(self.end) == 1
        if not once or end < start:
            at = text.count("\n", 0, max(start, end, 0)) + 1
            expected = f"one {self.begin!r} before one {self.end!r}; see line {at}"
            raise ConfigurationError("file", str(self.path), expected)
        line_end = text.find("\n", end)
        return text[:start], True, "" if line_end < 0 else text[line_end + 1 :]

    def _check(self, text: str) -> None:
        try:
            self.check(text)
        except ValueError as error:
            raise ConfigurationError("file", str(self.path), f"a file that is valid: {error}") from error


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file that is ours alone. Changes that people make in it stay."""

    kind: Kind
    path: Path
    text: str

    def put(self, text: str | None, is_ours: bool) -> str:
        """See `Part`."""
        return self.text if text is None or is_ours else text

    def take_out(self, text: str, original: str | None) -> str | None:
        """See `Part`."""
        return None if text == self.text else text


def check_codex_toml(text: str) -> None:
    """Raise `ValueError`, with line and column, if a text is not TOML."""
    tomllib.loads(text)


def _is_hook(item: JsonValue) -> bool:
    return HOOK.search(json.dumps(item)) is not None


def _pruned(text: str, way: Way, before: JsonValue) -> str:
    """Return the text without objects and arrays on a way that are empty and were not there before."""
    value = json_text.parsed(text)
    while way and json_text.value_at(value, way) in ({}, []) and json_text.value_at(before, way) is None:
        text, way = json_text.without(text, way), way[:-1]
        value = json_text.parsed(text)
    return text


def _members(value: JsonValue) -> Sequence[tuple[str, JsonValue]]:
    return list(value.items()) if isinstance(value, dict) else [("", value)]


def _is_default(defaults: tuple[tuple[Way, JsonValue], ...], name: str, value: JsonValue) -> bool:
    return ((name,), value) in defaults


def _checked(path: Path, edit: Callable[[], _T]) -> _T:
    try:
        return edit()
    except json.JSONDecodeError as error:
        expected = f"valid JSON; line {error.lineno}, column {error.colno}: {error.msg}"
        raise ConfigurationError("file", str(path), expected) from error
