"""The outcome of a condition, with the reason for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a condition. It is true or false as a whole: `if condition.test(data): ...`.

    A condition that met a missing key, or could not be evaluated, does not hold; then `missing` or `problem`
    says so.
    """

    text: str
    """The text of the condition."""
    holds: bool
    missing: str | None = None
    """The lookup that found nothing, as the condition writes it: `order.total`, or `items[3]`."""
    problem: str | None = None
    """Why the condition could not be evaluated, such as a comparison of a number with text."""
    read: Mapping[int, str] = field(default_factory=dict)
    """The values of lookups, shortened, by where these lookups end in the text."""

    def __bool__(self) -> bool:
        return self.holds

    def explain(self) -> str:
        """Return the outcome in one line, with the values read: `confidence (0.72) >= 0.8 is false`.

        If a key was missing, or the condition could not be evaluated, the line says so. Long values are
        shortened.
        """
        shown, end = "", 0
        for position, value in sorted(self.read.items()):
            shown += f"{self.text[end:position]} ({value})"
            end = position
        shown = " ".join((shown + self.text[end:]).split())
        if self.missing is not None:
            return f"{shown} is false: {self.missing} is missing"
        if self.problem is not None:
            return f"{shown} is false: {self.problem}"
        return f"{shown} is {'true' if self.holds else 'false'}"
