"""Dominators of a flow graph, as a tree. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)


class DominatorTree(Generic[V]):
    """The vertices that can be reached from the root of a flow graph, each below its immediate dominator.

    That is the nearest other vertex on every path from the root to the vertex. The root is its own dominator.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
    """

    def __init__(self, successors: Mapping[V, Sequence[V]], root: V) -> None:
        """Find the dominators. Every vertex must be a key of `successors`."""
        self._order = _reverse_postorder(successors, root)
        self._numbers = {vertex: number for number, vertex in enumerate(self._order)}
        self._above = {0: 0}
        """Number of the dominator of each vertex, by the number of the vertex. The root has 0."""
        before: list[list[int]] = [[] for _ in self._order]
        for number, vertex in enumerate(self._order):
            for after in successors[vertex]:
                before[self._numbers[after]].append(number)
        changes = True
        while changes:
            changes = False
            for number in range(1, len(self._order)):
                dominator = self._meeting(one for one in before[number] if one in self._above)
                changes |= self._above.get(number) != dominator
                self._above[number] = dominator

    def __contains__(self, vertex: V) -> bool:
        return vertex in self._numbers

    def above(self, vertex: V) -> V:
        """Return the immediate dominator of a vertex in the tree."""
        return self._order[self._above[self._numbers[vertex]]]

    def common_ancestor(self, vertices: Iterable[V]) -> V:
        """Return the nearest common ancestor of vertices. A vertex counts as its own ancestor."""
        return self._order[self._meeting(self._numbers[vertex] for vertex in vertices)]

    def _meeting(self, numbers: Iterable[int]) -> int:
        """Return the number of the nearest common ancestor of vertices, which are given by their numbers."""
        waiting = [-number for number in numbers]  # the highest number first, as ancestors have lower ones
        heapify(waiting)
        while len(waiting) > 1:
            if (highest := heappop(waiting)) != waiting[0]:
                heappush(waiting, -self._above[-highest])
        return -waiting[0]


def _reverse_postorder(successors: Mapping[V, Sequence[V]], root: V) -> list[V]:
    """Return the vertices that can be reached from the root, each before those that only it leads to."""
    seen, finished = {root}, list[V]()
    path: list[tuple[V, Iterator[V]]] = [(root, iter(successors[root]))]
    while path:
        vertex, untried = path[-1]
        for following in untried:
            if following not in seen:
                seen.add(following)
                path.append((following, iter(successors[following])))
                break
        else:
            finished.append(vertex)
            path.pop()
    return finished[::-1]
