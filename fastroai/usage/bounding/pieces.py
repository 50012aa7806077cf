"""The one walk over the parts of messages: texts, files, calls and results, each with its role.

Everything that reads messages by their kind of content reads them here, so a part that nobody knows yet has
one default: it is a piece of the kind `unknown`, of a size that nothing tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    RetryFeedbackPart,
    RetryPromptPart,
    TextContent,
)

from fastroai.usage.bounding.surface import Place, shape_of, unlisted

Role = Literal["system", "user", "assistant", "tool"]
"""The author of a piece."""
Kind = Literal[
    "text", "thinking", "call", "result", "note", "compaction", "file", "speech", "cache-point", "unknown"
]
"""The kind of a piece. A `note` is from PydanticAI, and `unknown` is what `usage.surface` does not list."""

_ROLES: Final[dict[str, tuple[Role, Kind]]] = {
    "system-prompt": ("system", "text"),
    "user-prompt": ("user", "text"),
    "tool-return": ("tool", "result"),
    "text": ("assistant", "text"),
    "thinking": ("assistant", "thinking"),
    "tool-call": ("assistant", "call"),
    "builtin-tool-call": ("assistant", "call"),
    "builtin-tool-return": ("tool", "result"),
    "file": ("assistant", "file"),
    "compaction": ("assistant", "compaction"),
    "speech": ("assistant", "speech"),
}


class Piece(NamedTuple):
    """One text, file, call or result in a message."""

    role: Role
    kind: Kind
    part: object
    """The part of the message that it belongs to."""
    item: object = None
    """The item of a prompt, the file, or the name of what is unknown; `None` if the part is the piece."""

    @property
    def is_file(self) -> bool:
        """Whether it has a size that its text does not tell: a file, speech, or something unknown."""
        return self.kind in ("file", "speech", "unknown")

    @property
    def name(self) -> str:
        """The name of the tool that is called or has returned; empty for other pieces."""
        return str(getattr(self.part, "tool_name", None) or "")

    @property
    def text(self) -> str:
        """The text, the arguments of a call, or a result as the model reads it; empty for files."""
        part, item = self.part, self.item
        match self.kind:
            case "text":
                return item if isinstance(item, str) else _content(part if item is None else item)
            case "call":
                return str(part.args_as_json_str())  # type: ignore[attr-defined]
            case "result":
                return str(part.model_response_str())  # type: ignore[attr-defined]
            case "note":
                return _rendered(part)
            case "thinking" | "compaction":
                return _content(part)
            case _:
                return ""


def pieces(messages: Iterable[ModelMessage]) -> Iterator[Piece]:
    """Yield the pieces of messages, in their order."""
    for message in messages:
        place: Place = message.kind
        if names := unlisted(message, "message"):
            yield from (Piece("system", "unknown", message, name) for name in names)
        for part in message.parts:
            cls: Any = type(part)
            role, kind, is_whole, is_text = _form(cls, place)
            if is_whole or (is_text and isinstance(part.content, str)):  # type: ignore[union-attr]
                yield Piece(role, kind, part)
            else:
                yield from pieces_of(part, place)


def pieces_of(part: object, place: Place) -> Iterator[Piece]:
    """Yield the pieces of one part of a request or a response."""
    for name in unlisted(part, place):
        yield Piece("system", "unknown", part, name)
    cls: Any = type(part)
    shape = shape_of(cls, place)
    if not shape.is_listed:
        return
    role, kind = _ROLES.get(shape.kind, ("system", "note"))
    content: Any = getattr(part, "content", None)
    if shape.kind == "user-prompt" and not isinstance(content, str):
        yield from (_prompted(part, item) for item in content)
    elif kind == "file":
        yield Piece(role, kind, part, content)
    else:
        yield Piece("user" if place == "request" and kind == "speech" else role, kind, part)
        if kind == "result" and not isinstance(content, str):
            yield from (Piece(role, "file", part, file) for file in part.files)  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _form(cls: Any, place: Place) -> tuple[Role, Kind, bool, bool]:
    """Return role and kind of parts of a class, and whether each is one piece: always, or as plain text."""
    shape = shape_of(cls, place)
    role, kind = _ROLES.get(shape.kind, ("system", "note"))
    is_known = shape.is_listed and not shape.unlisted
    may_be_several = role == "user" or kind in ("result", "file", "speech")
    return role, kind, is_known and not may_be_several, is_known and (role == "user" or kind == "result")


def unknown_in(messages: Iterable[ModelMessage]) -> Iterator[str]:
    """Yield the names of everything in messages that the account does not understand."""
    return (str(piece.item) for piece in pieces(messages) if piece.kind == "unknown")


def _prompted(part: object, item: object) -> Piece:
    if isinstance(item, str | TextContent):
        names: Sequence[str] = () if isinstance(item, str) else unlisted(item, "content")
        return Piece("user", "text", part, item) if not names else Piece("user", "unknown", part, names[0])
    if names := unlisted(item, "content"):
        return Piece("user", "unknown", part, names[0])
    return Piece("user", "cache-point" if isinstance(item, CachePoint) else "file", part, item)


def _content(of: object) -> str:
    content: object = getattr(of, "content", None)
    return content if isinstance(content, str) else ""


def _rendered(part: object) -> str:
    """Return a note of PydanticAI about as the model reads it."""
    if isinstance(part, RetryFeedbackPart | RetryPromptPart):
        return part.model_response()
    return _content(part) or ModelMessagesTypeAdapter.dump_json([ModelRequest(parts=[part])]).decode()  # type: ignore[list-item]
