"""How much room text takes, without a font at hand."""

from __future__ import annotations

import textwrap
import unicodedata

_NARROW = frozenset("fijlrtI.,:;'|!()[]{}/\\ `")
_WIDE = frozenset("mwMWQOG@%&—…<>=+~")


def width_of(text: str, size: float) -> float:
    """Estimated width in the units of `size`, rather too much than too little: sans-serif fonts differ."""
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
    """Lines of so many characters, at most so many; the last one ends in … where there is more."""
    lines = textwrap.wrap(" ".join(text.split()), columns, break_on_hyphens=False)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], lines[most - 1][: columns - 1] + "…"]
