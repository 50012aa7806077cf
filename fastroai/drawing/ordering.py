"""The order of the items of each layer, chosen so that few lines cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import pairwise

Layers = list[list[int]]
_SWEEPS = 12


def ordered(layers: Layers, above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> Layers:
    """Return the layers with each item near the mean place of its neighbours: the best of a dozen sweeps.

    `above` and `below` have the neighbours of each item in the layers next to its own. The barycentre
    heuristic of Sugiyama, Tagawa and Toda (1981): down with the neighbours above, then up with those below.
    """
    best, fewest = layers, crossings(layers, below)
    current = [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        _sweep(current if down else current[::-1], above if down else below)
        count = crossings(current, below)
        if count < fewest:
            best, fewest = [list(layer) for layer in current], count
    return best


def crossings(layers: Layers, below: Sequence[Sequence[int]]) -> int:
    """Return how many pairs of lines between adjacent layers cross."""
    count = 0
    for upper, lower in pairwise(layers):
        place = {item: index for index, item in enumerate(lower)}
        passed: list[int] = []
        for item in upper:
            ends = [place[end] for end in below[item]]
            count += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return count


def _sweep(layers: Iterable[list[int]], neighbours: Sequence[Sequence[int]]) -> None:
    place: dict[int, int] = {}
    for layer in layers:
        wanted = {
            item: sum(place[other] for other in neighbours[item]) / len(neighbours[item])
            if neighbours[item]
            else index
            for index, item in enumerate(layer)
        }
        layer.sort(key=wanted.__getitem__)
        place = {item: index for index, item in enumerate(layer)}
