"""The order of names that need each other, and circles of names that have no order."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def ordered(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Put names after the names that they need. Names that do not need each other keep their order.

    Returns:
        The names that have an order; and circles of names that need each other, at least one if some names
        have no order. Each name of a circle needs the next one.
    """
    rank = {name: number for number, name in enumerate(names)}
    waiting = {name: len(set(needs[name])) for name in names}
    followers: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for need in set(needs[name]):
            followers[need].append(name)
    ready = [rank[name] for name in names if not waiting[name]]
    order: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for follower in followers[name]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, rank[follower])
    left = [name for name in names if waiting[name]]
    return order, _circles(left, {name: [one for one in needs[name] if waiting[one]] for name in left})


def _circles(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return circles without a name in common. Each name needs one of the names, so all lead to circles."""
    circles: list[list[str]] = []
    seen: set[str] = set()
    for name in names:
        way: dict[str, None] = {}
        while name not in seen:
            seen.add(name)
            way[name] = None
            name = needs[name][0]
        if name in way:
            passed = [*way]
            circles.append(passed[passed.index(name) :])
    return circles
