"""Ports: the places where lines leave nodes and meet them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fastroai.drawing.rows import Chain

Ports: TypeAlias = dict[tuple[int, bool], float]
"""Ports by the number of a chain: the x where it leaves its upper node (`True`) or meets its lower one."""

_APART = 18.0


def ports_of(chains: Sequence[Chain], at: Sequence[float], reach: Callable[[int], float]) -> Ports:
    """Return ports side by side, in the order of their lines, at most `reach` from a node's middle."""
    sides: defaultdict[tuple[int, bool], list[tuple[float, int]]] = defaultdict(list)
    for index, chain in enumerate(chains):
        upper, first, *_ = chain.items
        *_, last, lower = chain.items
        sides[upper, True].append((at[first], index))
        sides[lower, False].append((at[last], index))
    ports: Ports = {}
    for (node, leaves), ends in sides.items():
        apart = min(_APART, 2 * reach(node) / len(ends))
        for turn, (_, index) in enumerate(sorted(ends)):
            ports[index, leaves] = at[node] + (turn - (len(ends) - 1) / 2) * apart
    return ports


def move_lonely(
    ports: Ports, chains: Sequence[Chain], at: Sequence[float], reach: Callable[[int], float]
) -> None:
    """Let a line leave or meet a node straight, if it can and no other line does so on this side."""
    alone = Counter((chain.items[0], True) for chain in chains)
    alone.update((chain.items[-1], False) for chain in chains)
    for index, chain in enumerate(chains):
        direct = len(chain.items) == 2
        sides = (True, chain.items[0], chain.items[1]), (False, chain.items[-1], chain.items[-2])
        for leaves, node, next_ in sides:
            place = ports[index, not leaves] if direct else at[next_]
            if alone[node, leaves] == 1 and abs(place - at[node]) <= reach(node):
                ports[index, leaves] = place
