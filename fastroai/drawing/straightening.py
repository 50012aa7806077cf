"""Long lines are made straight: their points move freely between the items beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf


def straighten(
    chains: Sequence[Sequence[int]],
    ends: Sequence[tuple[float, float]],
    rows: Sequence[Sequence[int]],
    at: list[float],
    distance: Callable[[int, int], float],
) -> None:
    """Move the points of each chain into line, in stretches as long as its neighbours allow. Changes `at`.

    A chain is its points from top to bottom. Its `ends` are where its line comes from and goes to.
    """
    beside: dict[int, tuple[int | None, int | None]] = {}
    for row in rows:
        beside.update(
            (item, (before, after))
            for before, item, after in zip([None, *row[:-1]], row, [*row[1:], None], strict=True)
        )

    def room(item: int) -> tuple[float, float]:
        before, after = beside[item]
        least = -inf if before is None else at[before] + distance(before, item)
        most = inf if after is None else at[after] - distance(item, after)
        return least, max(least, most)

    for points, (above, below) in zip(chains, ends, strict=True):
        rooms = [room(item) for item in points]
        begin = 0
        while begin < len(points):
            end, (least, most) = begin + 1, rooms[begin]
            while end < len(points) and max(least, rooms[end][0]) <= min(most, rooms[end][1]):
                least, most = max(least, rooms[end][0]), min(most, rooms[end][1])
                end += 1
            mean = sum(at[item] for item in points[begin:end]) / (end - begin)
            wishes = [above] * (begin == 0) + [below] * (end == len(points))
            place = next((wish for wish in wishes if least <= wish <= most), min(max(mean, least), most))
            for item in points[begin:end]:
                at[item] = place
            begin = end
