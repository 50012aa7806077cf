"""Dominators of a flow graph, and nearest common ancestors in their tree. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)


def immediate_dominators(successors: Mapping[V, Sequence[V]], root: V) -> dict[V, V]:
    """Return the immediate dominator of each vertex that can be reached from the root.

    That is the nearest other vertex on every path from the root to the vertex. The root comes first, as its
    own dominator; each vertex comes after its dominator. Every vertex must be a key of `successors`.

    Lengauer and Tarjan, "A fast algorithm for finding dominators in a flowgraph" (1979), with simple path
    compression: O(m log n).
    """
    order, parent = _depth_first(successors, root)
    dominator = _Dominators(_numbered_predecessors(successors, order), parent).found()
    return {vertex: order[dominator[number]] for number, vertex in enumerate(order)}


def _depth_first(successors: Mapping[V, Sequence[V]], root: V) -> tuple[list[V], list[int]]:
    """Return the vertices in depth-first order, and the number of each vertex's parent in the search tree."""
    order, parent = [root], [0]
    seen = {root}
    path: list[tuple[int, Iterator[V]]] = [(0, iter(successors[root]))]
    while path:
        number, untried = path[-1]
        vertex = next((vertex for vertex in untried if vertex not in seen), None)
        if vertex is None:
            path.pop()
            continue
        seen.add(vertex)
        path.append((len(order), iter(successors[vertex])))
        order.append(vertex)
        parent.append(number)
    return order, parent


def _numbered_predecessors(successors: Mapping[V, Sequence[V]], order: Sequence[V]) -> list[list[int]]:
    numbers = {vertex: number for number, vertex in enumerate(order)}
    predecessors: list[list[int]] = [[] for _ in order]
    for number, vertex in enumerate(order):
        for after in successors[vertex]:
            predecessors[numbers[after]].append(number)
    return predecessors


class _Dominators:
    """The algorithm of Lengauer and Tarjan. A vertex is its number in a depth-first search."""

    def __init__(self, predecessors: list[list[int]], parent: list[int]) -> None:
        count = len(parent)
        self._predecessors, self._parent = predecessors, parent
        self._semi = list(range(count))
        """Semidominator of each vertex: the least number with a path to it through higher numbers."""
        self._ancestor: list[int | None] = [None] * count
        """Ancestor of each vertex in the forest of processed vertices, whose paths are compressed."""
        self._least = list(range(count))
        """For each vertex, the one with the least semidominator on the compressed path to its ancestor."""

    def found(self) -> list[int]:
        semi, parent = self._semi, self._parent
        dominator = [0] * len(parent)
        waiting: list[list[int]] = [[] for _ in parent]
        for vertex in range(len(parent) - 1, 0, -1):
            for before in self._predecessors[vertex]:
                semi[vertex] = min(semi[vertex], semi[self._evaluate(before)])
            waiting[semi[vertex]].append(vertex)
            above = self._ancestor[vertex] = parent[vertex]
            for other in waiting[above]:
                least = self._evaluate(other)
                dominator[other] = least if semi[least] < semi[other] else above
            waiting[above].clear()
        for vertex in range(1, len(parent)):
            if dominator[vertex] != semi[vertex]:
                dominator[vertex] = dominator[dominator[vertex]]
        return dominator

    def _evaluate(self, vertex: int) -> int:
        """Return the vertex with the least semidominator on the path from `vertex` to its root."""
        ancestor, least, semi = self._ancestor, self._least, self._semi
        path: list[tuple[int, int]] = []
        below, above = vertex, ancestor[vertex]
        while above is not None and ancestor[above] is not None:
            path.append((below, above))
            below, above = above, ancestor[above]
        for below, above in reversed(path):
            if semi[least[above]] < semi[least[below]]:
                least[below] = least[above]
            ancestor[below] = ancestor[above]
        return least[vertex]


class AncestorTree(Generic[V]):
    """Finds nearest common ancestors, in a number of steps that is logarithmic in the depth.

    Each vertex knows its parent, and one ancestor farther up to jump to. All vertices of one depth jump
    equally far (Myers, "An applicative random-access stack", 1983).
    """

    def __init__(self, parents: Mapping[V, V], root: V) -> None:
        """`parents` lists each vertex after its own parent. The root may be its own parent."""
        self._parent: dict[V, V] = {root: root}
        self._jump: dict[V, V] = {root: root}
        self._depth: dict[V, int] = {root: 0}
        for vertex, parent in parents.items():
            if vertex != root:
                self._add(vertex, parent)

    def __contains__(self, vertex: V) -> bool:
        return vertex in self._parent

    def common_ancestor(self, one: V, other: V) -> V:
        """Return the nearest common ancestor of two vertices. A vertex counts as its own ancestor."""
        depth, jump, parent = self._depth, self._jump, self._parent
        level = min(depth[one], depth[other])
        one, other = self._up(one, level), self._up(other, level)
        while one != other:
            farther = jump[one] != jump[other]
            one, other = (jump[one], jump[other]) if farther else (parent[one], parent[other])
        return one

    def _add(self, vertex: V, parent: V) -> None:
        depth, far = self._depth, self._jump[parent]
        farther = self._jump[far]
        equal = depth[parent] - depth[far] == depth[far] - depth[farther]
        self._parent[vertex] = parent
        self._jump[vertex] = farther if equal else parent
        depth[vertex] = depth[parent] + 1

    def _up(self, vertex: V, level: int) -> V:
        depth, jump = self._depth, self._jump
        while depth[vertex] > level:
            far = jump[vertex]
            vertex = far if depth[far] >= level else self._parent[vertex]
        return vertex
