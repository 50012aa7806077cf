"""Expressions: conditions as text, checked when built, bounded when evaluated, confined to their data."""

from fastroai.expressions.expression import Expression
from fastroai.expressions.outcome import Outcome

__all__ = ["Expression", "Outcome"]
