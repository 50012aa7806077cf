"""The horizontal position of each item in ordered layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

_ROUNDS = 6


def positions(
    layers: Sequence[Sequence[int]],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
    distance: Callable[[int, int], float],
    pull: Callable[[int, int], float],
) -> list[float]:
    """Return the centre of each item: near its neighbours above and below, and clear of items beside it.

    `distance` is the least distance between the centres of two items beside each other. `pull` is how
    strongly two items in adjacent layers pull to be in line.
    """
    at = [0.0] * len(above)
    gaps = [[0.0, *(distance(*pair) for pair in pairwise(layer))] for layer in layers]
    for layer, gap in zip(layers, gaps, strict=True):
        for item, place in zip(layer, accumulate(gap), strict=True):
            at[item] = place
    both = [[*upper, *lower] for upper, lower in zip(above, below, strict=True)]
    for sides in [(above, below)] * _ROUNDS + [(both, both)] * _ROUNDS:
        for neighbours, step in zip(sides, (1, -1), strict=True):
            for layer, gap in list(zip(layers, gaps, strict=True))[::step]:
                _settle(layer, gap, neighbours, pull, at)
    return at


def _settle(
    layer: Sequence[int],
    gaps: Sequence[float],
    neighbours: Sequence[Sequence[int]],
    pull: Callable[[int, int], float],
    at: list[float],
) -> None:
    wanted: list[tuple[float, float]] = []
    for item in layer:
        pulls = [(pull(item, other), at[other]) for other in neighbours[item]]
        strength = sum(weight for weight, _ in pulls)
        if pulls:
            wanted.append((sum(weight * place for weight, place in pulls) / strength, strength))
        else:
            wanted.append((at[item], 0.01))
    for item, place in zip(layer, nearest(wanted, gaps), strict=True):
        at[item] = place


def nearest(wanted: Sequence[tuple[float, float]], gaps: Sequence[float]) -> list[float]:
    """Return the places nearest to the wanted ones, each at least `gaps[i]` to the right of the one before.

    `wanted` has places and their weights; nearest by weighted least squares: isotonic regression of the
    places less the gaps before them, by pooling neighbours that are in the wrong order.
    """
    offsets = list(accumulate(gaps))
    pools: list[tuple[float, float, int]] = []
    for (place, weight), offset in zip(wanted, offsets, strict=True):
        pool = (place - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            heavy = before[1] + pool[1]
            pool = ((before[0] * before[1] + pool[0] * pool[1]) / heavy, heavy, before[2] + pool[2])
        pools.append(pool)
    level = [mean for mean, _, members in pools for _ in range(members)]
    return [base + offset for base, offset in zip(level, offsets, strict=True)]
