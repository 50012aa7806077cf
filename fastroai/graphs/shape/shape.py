"""The shape of a graph: its entry, its terminals, and whether every node is on a path between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from fastroai.graphs.errors import GraphProblem
from fastroai.graphs.shape.edge import Edge, When
from fastroai.graphs.shape.plan import OnBranchFailure

_TOGETHER: Final[Mapping[When, frozenset[When]]] = {
    "always": frozenset({"always", "on_success", "on_failure", "llm_decide"}),
    "on_success": frozenset({"always", "on_success", "conditional", "llm_decide", "send"}),
    "on_failure": frozenset({"always", "on_failure"}),
    "conditional": frozenset({"on_success", "llm_decide", "send"}),
    "llm_decide": frozenset({"always", "on_success", "conditional", "send"}),
    "send": frozenset({"on_success", "conditional", "llm_decide", "send"}),
}
"""For each kind of edge, the kinds that can be traversed with it after the same visit."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The nodes, the edges between them, the entry and the terminals. Every name in it is a node."""

    edges: Mapping[str, tuple[Edge, ...]]
    """Outgoing edges by source; every node is a key."""
    entry: str | None
    terminals: tuple[str, ...]

    @classmethod
    def of(
        cls, nodes: Iterable[str], edges: Iterable[Edge], entry: str | None, terminals: Iterable[str] | None
    ) -> Shape:
        """Make a shape. If the entry or the terminals are not given, find them from the edges."""
        found: dict[str, tuple[Edge, ...]] = dict.fromkeys(nodes, ())
        for edge in edges:
            found[edge.source] += (edge,)
        if entry is None:
            beginnings = _beginnings(found)
            entry = beginnings[0] if len(beginnings) == 1 else None
        if terminals is None:
            terminals = [node for node, outgoing in found.items() if not outgoing]
        return cls(found, entry, tuple(dict.fromkeys(terminals)))

    def problems(self, on_branch_failure: OnBranchFailure) -> Iterator[GraphProblem]:
        """Yield every problem that keeps runs from getting from the entry to a terminal."""
        yield from self._entry_problems()
        yield from self._terminal_problems()
        if not self.terminals:
            return
        back: dict[str, list[str]] = {node: [] for node in self.edges}
        sure: dict[str, list[str]] = {node: [] for node in self.edges}
        for edge in chain.from_iterable(self.edges.values()):
            back[edge.target].append(edge.source)
            if edge.when != "on_failure":
                sure[edge.target].append(edge.source)
        ending = _reached(self.terminals, back)
        if lost := [node for node in self.edges if node not in ending]:
            message = f"no terminal can be reached from {_listed(lost)}; add edges, or say terminals=[...]"
            yield GraphProblem(message, ("nodes", lost[0]))
        if on_branch_failure == "fail_all":
            yield from self._branch_problems(ending, _reached(self.terminals, sure))

    def _entry_problems(self) -> Iterator[GraphProblem]:
        if self.entry is None:
            beginnings = _beginnings(self.edges)
            among = f"{_listed(beginnings)} have" if beginnings else "every node has"
            which = "no incoming edge" if beginnings else "an incoming edge"
            yield GraphProblem(f"{among} {which}; say where it begins: entry='...'", ("entry",))
            return
        reached = _reached([self.entry], {node: _targets(outgoing) for node, outgoing in self.edges.items()})
        if lost := [node for node in self.edges if node not in reached]:
            message = f"{_listed(lost)} cannot be reached from the entry {self.entry!r}; add an edge to it"
            yield GraphProblem(message, ("nodes", lost[0]))

    def _terminal_problems(self) -> Iterator[GraphProblem]:
        if not self.terminals:
            message = "it has no terminal; a run ends in a node without outgoing edges: add one"
            yield GraphProblem(message, ("terminals",))
        for terminal in self.terminals:
            if outgoing := self.edges[terminal]:
                targets = _listed(list(dict.fromkeys(_targets(outgoing))))
                message = f"terminal {terminal!r} has edges to {targets}; a terminal has no outgoing edges"
                yield GraphProblem(message, ("terminals",))

    def _branch_problems(self, ending: set[str], surely: set[str]) -> Iterator[GraphProblem]:
        """Yield a problem for branches that end only by a failure, so that other branches wait in vain."""
        for node, outgoing in self.edges.items():
            lost = [target for target in _forked(outgoing) if target in ending and target not in surely]
            if lost:
                yield GraphProblem(
                    f"a branch from {node!r} can go to {_listed(lost)}, from where only on_failure edges "
                    "lead to a terminal: as long as no node fails, the branch never ends, and the others "
                    "wait for it. Add an edge that is taken on success and leads to a terminal, or set "
                    "on_branch_failure='continue_others'",
                    ("nodes", node),
                )


def _beginnings(edges: Mapping[str, tuple[Edge, ...]]) -> list[str]:
    targets = {edge.target for outgoing in edges.values() for edge in outgoing}
    return [node for node in edges if node not in targets]


def _targets(outgoing: Iterable[Edge]) -> list[str]:
    return [edge.target for edge in outgoing]


def _forked(outgoing: Sequence[Edge]) -> list[str]:
    """Return the targets that a node can go to together with another target, or several times at once."""
    by_when: dict[When, set[str]] = {}
    for edge in outgoing:
        by_when.setdefault(edge.when, set()).add(edge.target)
    forked = {
        edge.target: None
        for edge in outgoing
        for when in _TOGETHER[edge.when]
        if edge.when == "send" or len(by_when.get(when, ())) > (edge.target in by_when.get(when, ()))
    }
    return list(forked)


def _reached(beginnings: Iterable[str], onward: Mapping[str, Sequence[str]]) -> set[str]:
    waiting = list(beginnings)
    reached = set(waiting)
    while waiting:
        for node in onward[waiting.pop()]:
            if node not in reached:
                reached.add(node)
                waiting.append(node)
    return reached


def _listed(nodes: Sequence[str], most: int = 10) -> str:
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(map(repr, nodes[:most])) + more
