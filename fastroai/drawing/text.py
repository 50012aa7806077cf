"""Estimates of the room that text takes, made without a font."""

from __future__ import annotations

import textwrap
import unicodedata

_NARROW = frozenset("fijlrtI.,:;'|!()[]{}/\\ `")
_WIDE = frozenset("mwMWQOG@%&—…<>=+~")


def width_of(text: str, size: float) -> float:
    """Return an estimated width in the units of `size`, rather too large, as sans-serif fonts differ."""
    return size * sum(map(_width, text))


def _width(char: str) -> float:
    if unicodedata.combining(char):
        return 0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.4
    return 0.92 if char in _WIDE else 0.72 if char.isupper() else 0.62


def lines_of(text: str, columns: int, most: int) -> list[str]:
    """Return at most `most` lines of at most `columns` characters, with … at the end if text is left."""
    lines = textwrap.wrap(" ".join(text.split()), columns, break_on_hyphens=False)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], lines[most - 1][: columns - 1] + "…"]
