"""Texts of messages: invalid values shown and cut, lists of problems, names that are near."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

LONGEST_PART: Final = 1_000
"""The most characters that a message shows of an invalid value, or of one problem of several."""


NEAR: Final = 0.6
"""The likeness, from 0 to 1, from which on a name may be meant."""


MOST_LISTED: Final = 101
"""The most problems that a message lists."""


def nearest(name: str, known: Iterable[str], likeness: float = NEAR) -> str | None:
    """Return the known name that is most like a name; `None` where none is so much like it, from 0 to 1."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return near[0] if near else None


def nearest_hint(name: str, known: Iterable[str], likeness: float = NEAR) -> str:
    """Return ` Did you mean 'x'?`, or an empty text if no known name is near."""
    near = nearest(name, known, likeness)
    return "" if near is None else f" Did you mean {near!r}?"


def shown(value: object) -> str:
    """Return a value as text for a message, not longer than a few lines."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"<{type(value).__name__} too long to show>"
    return cut(text)


def cut(text: str) -> str:
    """Return a text, cut after `LONGEST_PART` characters."""
    if len(text) <= LONGEST_PART:
        return text
    return f"{text[:LONGEST_PART]}... ({len(text):,} characters in all)"


def listed(what: str, problems: tuple[object, ...]) -> str:
    """Return a sentence about one problem, or a list of several."""
    what = cut(what)
    if len(problems) == 1:
        return f"{what}: {cut(str(problems[0]))}"
    lines = "".join(f"\n  - {cut(str(problem))}" for problem in problems[:MOST_LISTED])
    left = len(problems) - MOST_LISTED
    return f"{what} has {len(problems)} problems:{lines}" + (f"\n  ... and {left} more" if left > 0 else "")
