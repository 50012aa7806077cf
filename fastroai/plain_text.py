"""Text from outside, made safe to show to a person: the one place that decides what such text may do.

Text of models, users and files can have characters that move a cursor, set the title of a terminal, hide
text or turn its order around (controls, format and bidirectional characters), and lines that look like ours.
"""

from __future__ import annotations

import json
from typing import Final

BIDIRECTIONAL: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of text, for a set in a regular expression."""
_KEPT: Final = "\n\t"


def plain(text: str) -> str:
    """Return text with printable characters, newlines and tabs alone; others are Python escapes."""
    if text.isprintable():
        return text
    return "".join(char if char in _KEPT else plain_line(char) for char in text)


def plain_line(text: str) -> str:
    """Return text on one line, in which all characters that are not printable are Python escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def plain_json(text: str) -> str:
    """Return the same JSON, in which characters that are not printable are JSON escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else json.dumps(char)[1:-1] for char in text)


def quoted(text: str) -> str:
    """Return text whose lines begin with `> `, so that none can be taken for a line of ours."""
    return "\n".join(f"> {line}" for line in plain(text).split("\n"))
