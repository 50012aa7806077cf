"""The rows of a drawing: nodes on their layers, and a point in each row for every line through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from fastroai.drawing.layering import layers_of

_LONGEST = 24
"""Rows that a line may pass. Longer lines go around at the side: their points would be quadratic."""


@dataclass(frozen=True)
class Link:
    """A line between two different nodes, by their numbers."""

    source: int
    target: int
    labelled: bool = False


@dataclass
class Chain:
    """The items of a link from its upper node to its lower one, with points in the rows between."""

    items: list[int]
    label: int | None = None
    """The item that has room for the label, in the row next to the source of the link."""
    up: bool = False
    """Whether the link leads from the lower node to the upper one."""


@dataclass
class Rows:
    """Items by row: nodes have the first numbers, and points of lines the next."""

    rows: list[list[int]]
    row_of: list[tuple[int, int]]
    """First and last row of each item. They differ for items at the side, which are in no row's list."""
    above: list[list[int]]
    below: list[list[int]]
    chains: list[Chain] = field(default_factory=list)

    def add(self, first: int, last: int) -> int:
        """Add a point in these rows, and return its number."""
        item = len(self.row_of)
        self.row_of.append((first, last))
        self.above.append([])
        self.below.append([])
        if first == last:
            self.rows[first].append(item)
        return item

    def join(self, upper: int, lower: int) -> None:
        """Connect two items in adjacent rows by a piece of line."""
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def rows_of(first: Sequence[int], links: Sequence[Link]) -> Rows:
    """Return all nodes in rows, with the points of links between them. The walk follows the order `first`.

    Two layers have another row between them for labels, or for links that would lie on each other.
    """
    layer = layers_of([(link.source, link.target) for link in links], first)
    pairs = Counter(frozenset((link.source, link.target)) for link in links)
    between = [0] * (max(layer, default=-1) + 1)
    for link in links:
        if link.labelled or pairs[frozenset((link.source, link.target))] > 1:
            between[_gap(layer, link)] = 1
    row = [
        index + extra for index, extra in zip(range(len(between)), accumulate([0, *between]), strict=False)
    ]
    found = Rows([[] for _ in range(max(row, default=-1) + 1)], [], [], [])
    found.row_of = [(row[own], row[own]) for own in layer]
    found.above, found.below = [[] for _ in layer], [[] for _ in layer]
    for node in first:
        found.rows[row[layer[node]]].append(node)
    for link in links:
        found.chains.append(_chain(found, link))
    return found


def _gap(layer: Sequence[int], link: Link) -> int:
    """Return the layer above the gap that a link enters when it leaves its source."""
    return layer[link.source] - (layer[link.source] > layer[link.target])


def _chain(rows: Rows, link: Link) -> Chain:
    up = rows.row_of[link.source] > rows.row_of[link.target]
    upper, lower = (link.target, link.source) if up else (link.source, link.target)
    first, last = rows.row_of[upper][0] + 1, rows.row_of[lower][0] - 1
    beside_source = last if up else first
    if last - first < _LONGEST:
        spans = [(row, row) for row in range(first, last + 1)]
    elif not link.labelled:
        spans = [(first, last)]
    else:
        spans = [(first, last - 1), (last, last)] if up else [(first, first), (first + 1, last)]
    points = [rows.add(*span) for span in spans]
    items = [upper, *points, lower]
    for one, next_ in pairwise(items):
        if all(rows.row_of[item][0] == rows.row_of[item][1] for item in (one, next_)):
            rows.join(one, next_)
    label = next((item for item in points if rows.row_of[item] == (beside_source,) * 2), None)
    return Chain(items, label if link.labelled else None, up)
