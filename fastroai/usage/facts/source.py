"""Where a fact about a provider was read, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Source:
    """A page that documents a fact."""

    url: str
    checked: date
    """The day on which the page, or a copy of it, was last read."""
    note: str = ""
    """What the page says, where the fact is not a plain copy of it."""
