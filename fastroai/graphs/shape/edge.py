"""Edges: which node may come after which, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

When: TypeAlias = Literal["always", "on_success", "on_failure", "conditional", "llm_decide", "send"]
"""When an edge is traversed."""

WHEN: Final[tuple[When, ...]] = get_args(When)


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from a node to another. A graph checks its edges when it is built.

        Edge("classify", "reply", when="conditional", condition="confidence >= 0.8")

    After a node that succeeded: all `on_success` edges, which is what an edge is by default; the first
    `conditional` edge whose condition holds; the target that the decider names among those of the
    `llm_decide` edges; the `send` edges to which its output, a list of `Send`, has any; and, if no condition
    held and nothing was sent, all `always` edges. After one that failed, its retries used up: all
    `on_failure` and all `always` edges. Several edges at once are a fork; to one target they are one. A
    `send` edge is one branch for each `Send`.
    """

    source: str
    target: str
    when: When = "on_success"
    condition: str | None = None
    """An expression (`fastroai.expressions`) over the output's fields, then memory; with
    `when="conditional"`."""
    fallback: bool = False
    """Whether an `llm_decide` edge is taken where the decider gives no answer that can be used; it is so for
    exactly one of a node's."""

    def __str__(self) -> str:
        return f"{self.source!r} -> {self.target!r}"
