"""The order of names that need each other, and circles of names that have no order."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def ordered(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Put names after the names that they need. Names that do not need each other keep their order.

    Returns:
        The names that have an order; and the circles of names that need each other. Each name of a circle
        needs the next one.
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
    """Return one circle for each set of names that all need each other, directly or through others."""
    group = _groups(names, needs)
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(group[name], []).append(name)
    return [
        _circle(inside[0], needs, group)
        for inside in members.values()
        if len(inside) > 1 or inside[0] in needs[inside[0]]
    ]


def _circle(start: str, needs: Mapping[str, Sequence[str]], group: Mapping[str, str]) -> list[str]:
    """Return a shortest way from a name back to itself, inside of its group."""
    before: dict[str, str] = {}
    reached = [start]
    for name in reached:
        for need in needs[name]:
            if need == start:
                way = [name]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return way[::-1]
            if group[need] == group[start] and need not in before:
                before[need] = name
                reached.append(need)
    raise AssertionError(f"{start!r} is in no circle")


def _groups(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return for each name the one that stands for its group, in which all need each other (Kosaraju)."""
    finished: list[str] = []
    seen: set[str] = set()
    for name in names:
        if name in seen:
            continue
        seen.add(name)
        stack = [(name, iter(needs[name]))]
        while stack:
            at, rest = stack[-1]
            need = next((one for one in rest if one not in seen), None)
            if need is None:
                finished.append(at)
                stack.pop()
            else:
                seen.add(need)
                stack.append((need, iter(needs[need])))
    needed_by: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for need in needs[name]:
            needed_by[need].append(name)
    group: dict[str, str] = {}
    for name in reversed(finished):
        if name in group:
            continue
        group[name] = name
        reached = [name]
        for at in reached:
            for one in needed_by[at]:
                if one not in group:
                    group[one] = name
                    reached.append(one)
    return group
