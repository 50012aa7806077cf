"""Parts of a client's setup: how each is added to a file, and taken out again."""

from __future__ import annotations

import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from pydantic import JsonValue

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.install import json_text

Kind: TypeAlias = Literal["server", "instructions", "skills", "hooks"]
"""The purpose of a part: the MCP server, the instructions, a skill, or the hooks."""

KINDS: Final[tuple[Kind, ...]] = ("server", "instructions", "skills", "hooks")

HOOK: Final = re.compile(r" mcp hook (?:session-start|stop|tool-failure) --client ")
"""Matches the commands of our hooks, and no others."""

THIS_MODULE: Final = ("-P", "-m", "fastroai.cli")
"""Arguments with which Python starts FastroAI; `-P` keeps it from importing modules of the folder."""

_T = TypeVar("_T")
Way: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Server:
    """The entry that starts the server, in the configuration of a client.

    An entry of this name that the user has written stays as it is. In JSON, a command that the user names
    takes the place of the command in it; options of the server, the environment and all else stay.
    """

    command: tuple[str, ...]
    """The command that starts `fastroai`, as a list of words."""
    options: tuple[str, ...] = ()
    """Options of `fastroai mcp`."""
    more: Mapping[str, JsonValue] = field(default_factory=dict)
    """Other members that the client needs in an entry."""
    is_named: bool = False
    """Whether the user has named the command."""

    def entry(self) -> dict[str, JsonValue]:
        """Return the entry, in the form that most clients have."""
        return {**self.more, **self._started(self.options)}

    def is_own(self, entry: JsonValue) -> bool:
        """Return whether `mcp install` has written an entry: now, or for another installation of FastroAI."""
        if not isinstance(entry, dict):
            return False
        now, args = self.entry(), entry.get("args")
        if {**entry, "command": now["command"], "args": now["args"]} != now:
            return False
        return entry == now or args == [*THIS_MODULE, "mcp", *self.options]

    def in_place_of(self, entry: JsonValue) -> JsonValue:
        """Return the entry that takes the place of an entry, or of none."""
        if entry is None or self.is_own(entry):
            return self.entry()
        if not (self.is_named and isinstance(entry, dict) and "command" in entry):
            return entry
        args = entry.get("args")
        options = args[args.index("mcp") + 1 :] if isinstance(args, list) and "mcp" in args else self.options
        return {**entry, **self._started(options)}

    def kept(self, entry: JsonValue, original: JsonValue, name: str) -> str:
        """Return why an entry with a name is in the place of this one; empty if this one is there."""
        if original is None or self.is_own(original) or entry != original:
            return ""
        return f"its entry {name} is yours"

    def _started(self, options: Sequence[JsonValue]) -> dict[str, JsonValue]:
        first, *rest = self.command
        return {"command": first, "args": [*rest, "mcp", *options]}


@dataclass(frozen=True, slots=True)
class Part(ABC):
    """An addition to a file."""

    kind: Kind
    """The purpose of the part."""
    path: Path
    """Path of the file."""

    @abstractmethod
    def put(self, text: str | None, original: str | None, is_ours: bool) -> str:
        """Return the text of the file with the addition.

        Args:
            text: The text of the file; `None` if there is no file.
            original: The text without anything of ours; `None` if there was no file.
            is_ours: Whether FastroAI has written the whole file, and nobody has changed it since.

        Raises:
            ConfigurationError: the file is broken, or has something else in the place of the addition.
        """

    @abstractmethod
    def take_out(self, text: str, original: str | None) -> str | None:
        """Return the text without the addition; `None` if nothing is left and the file was not there before.

        Args:
            text: The text, which others may have changed.
            original: The text from before the addition; `None` if there was no file or it is not known.

        Raises:
            ConfigurationError: the file is broken.
        """

    def kept(self, text: str, original: str | None) -> str:
        """Return why the text has something of the user in place of the addition; empty if it does not."""
        return ""


@dataclass(frozen=True, slots=True)
class JsonPart(Part):
    """The entry of the server, and items of arrays, in a JSON file."""

    entry: tuple[Way, Server] | None = None
    items: tuple[tuple[Way, JsonValue], ...] = ()
    defaults: tuple[tuple[Way, JsonValue], ...] = ()
    """Members that the file needs besides these. Existing values stay."""

    def put(self, text: str | None, original: str | None, is_ours: bool) -> str:
        """See `Part`."""
        start: str = "{}\n" if text is None or not text.strip() else text
        return _checked(self.path, lambda: self._put(start, original))

    def _put(self, text: str, original: str | None) -> str:
        value = json_text.parsed(text)
        for way, member in self.defaults:
            if json_text.value_at(value, way) is None:
                text = json_text.with_value(text, way, member)
        if self.entry is not None:
            way, server = self.entry
            text = json_text.with_value(text, way, server.in_place_of(_value_in(original, way)))
        return self._with_items(text)

    def kept(self, text: str, original: str | None) -> str:
        """See `Part`."""
        if self.entry is None:
            return ""
        way, server = self.entry
        return server.kept(_value_in(text, way), _value_in(original, way), ".".join(way))

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
        if self.entry is not None:
            text = self._without_entry(text, before, *self.entry)
        left = json_text.parsed(text)
        added = {way[0]: value for way, value in self.defaults}
        if original is None and isinstance(left, dict) and left.items() <= added.items():
            return None
        return text

    def _without_entry(self, text: str, before: JsonValue, way: Way, server: Server) -> str:
        old, present = json_text.value_at(before, way), json_text.value_at(json_text.parsed(text), way)
        if present != server.in_place_of(old) and not server.is_own(present):
            return text  # somebody has changed it
        if old is not None and not server.is_own(old):
            return json_text.with_value(text, way, old)
        return _pruned(json_text.without(text, way), way[:-1], before)


@dataclass(frozen=True, slots=True)
class BlockPart(Part):
    """Lines between two markers, in a file that people write."""

    begin: str
    end: str
    body: str

    def put(self, text: str | None, original: str | None, is_ours: bool) -> str:
        """See `Part`."""
        text = text or ""
        before, present, after = self._split(text)
        newline = "\r\n" if "\r\n" in text else "\n"
        block = f"{self.begin}\n{self.body.strip()}\n{self.end}\n".replace("\n", newline)
        if present is None:
            if before and not before.endswith("\n"):
                before += newline
            before += newline if before.strip() else ""
        return before + block + after

    def take_out(self, text: str, original: str | None) -> str | None:
        """See `Part`."""
        before, body, after = self._split(text)
        if body is not None and before.endswith(("\n\n", "\n\r\n")):
            before = before[: -2 if before.endswith("\r\n") else -1]
        left = before + after
        return None if original is None and not left.strip() else left

    def _split(self, text: str) -> tuple[str, str | None, str]:
        """Return the text before the block, the block's body if there is one, and the text after it."""
        start, end = text.find(self.begin), text.find(self.end)
        if start < 0 and end < 0:
            return text, None, ""
        once = text.count(self.begin) == text.count(self.end) == 1
        if not once or end < start:
            at = text.count("\n", 0, max(start, end, 0)) + 1
            expected = f"one {self.begin!r} before one {self.end!r}; see line {at}"
            raise ConfigurationError("file", str(self.path), expected)
        line_end = text.find("\n", end)
        body = text[start + len(self.begin) : end]
        return text[:start], body, "" if line_end < 0 else text[line_end + 1 :]


@dataclass(frozen=True, slots=True)
class TomlPart(Part):
    """The entry of the server in a TOML file, between two markers. An entry of the user is not edited."""

    way: Way
    server: Server
    block: BlockPart
    """The markers, and the lines of a new entry."""

    def put(self, text: str | None, original: str | None, is_ours: bool) -> str:
        """See `Part`."""
        mine = self._entry(original or "")
        if mine is not None and not self.server.is_own(mine):
            return text or ""
        self._entry(text or "")
        after = self.block.put(text, original, is_ours)
        self._entry(after)
        return after

    def take_out(self, text: str, original: str | None) -> str | None:
        """See `Part`."""
        present = self._entry(text)
        is_mine = present is not None and not self.server.is_own(present)
        return text if is_mine else self.block.take_out(text, original)

    def kept(self, text: str, original: str | None) -> str:
        """See `Part`."""
        return self.server.kept(self._entry(text), self._entry(original or ""), ".".join(self.way))

    def _entry(self, text: str) -> JsonValue:
        try:
            value: JsonValue = tomllib.loads(text)
        except ValueError as error:
            raise ConfigurationError("file", str(self.path), f"a file that is valid: {error}") from error
        return json_text.value_at(value, self.way)


@dataclass(frozen=True, slots=True)
class FilePart(Part):
    """A file that is ours alone. Changes that people make in it stay."""

    text: str

    def put(self, text: str | None, original: str | None, is_ours: bool) -> str:
        """See `Part`."""
        return self.text if text is None or is_ours else text

    def take_out(self, text: str, original: str | None) -> str | None:
        """See `Part`."""
        return None if text == self.text else text

    def kept(self, text: str, original: str | None) -> str:
        """See `Part`."""
        return "" if text == self.text else "it was edited"


def _is_hook(item: JsonValue) -> bool:
    return HOOK.search(json.dumps(item)) is not None


def _value_in(text: str | None, way: Way) -> JsonValue:
    return json_text.value_at(json_text.parsed(text), way) if text and text.strip() else None


def _pruned(text: str, way: Way, before: JsonValue) -> str:
    """Return the text without objects and arrays on a way that are empty and were not there before."""
    value = json_text.parsed(text)
    while way and json_text.value_at(value, way) in ({}, []) and json_text.value_at(before, way) is None:
        text, way = json_text.without(text, way), way[:-1]
        value = json_text.parsed(text)
    return text


def _checked(path: Path, edit: Callable[[], _T]) -> _T:
    try:
        return edit()
    except json.JSONDecodeError as error:
        expected = f"valid JSON; line {error.lineno}, column {error.colno}: {error.msg}"
        raise ConfigurationError("file", str(path), expected) from error
