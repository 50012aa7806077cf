"""What happens in a graph besides facts of its log: values between the state machine and its work.

Nobody changes them; they are not frozen because making a frozen one costs a node that does nothing a tenth of
its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from fastroai.places import quoted

Ending: TypeAlias = Literal["finished", "failed", "paused", "cancelled", "budget_exceeded"]
"""How a run of a graph ends; a paused one can be resumed."""


class Visit(NamedTuple):
    """A time that a run comes to a node."""

    node: str
    number: int
    """From 1, over the whole run."""


def visit_place(visit: Visit) -> str:
    """Where a visit is, in its graph: `review` for the first, `review#2` for the second."""
    return quoted(visit.node) if visit.number == 1 else f"{quoted(visit.node)}#{visit.number}"


def decision_name(node: str) -> str:
    """What a model's decision after a node is called, where steps have ids."""
    return f"llm_decide({node})"


@dataclass(slots=True)
class Interrupted:
    """The process of a run ended while a visit went on, which had written these values."""

    visit: Visit
    written: Mapping[str, object]
