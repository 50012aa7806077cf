"""Values that the state machine of a graph and its work exchange, besides the facts of its log.

They are never changed. They are not frozen, because a frozen one takes longer to make: a tenth of the time of
a node that does nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Ending: TypeAlias = Literal["finished", "failed", "paused", "cancelled", "budget_exceeded"]
"""How a run of a graph ends; a paused one can be resumed."""


class Visit(NamedTuple):
    """One visit of a run to a node."""

    node: str
    number: int
    """Number of the visit among those to this node, from 1, over the whole run."""


def decision_name(node: str) -> str:
    """Return the step id of the decision that a model makes after a node."""
    return f"llm_decide({node})"
