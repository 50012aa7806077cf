"""The layout of a drawing, in pixels: boxes in rows, lines around them, and labels that nothing covers.

A layered layout after Sugiyama, Tagawa and Toda (1981): cycles are broken and nodes put on layers
(`layering`), lines get a point in each row that they pass (`rows`), rows are put in order (`ordering`) and in
place (`positions`, `straightening`). Lines run straight down within rows and swing only in the gaps between
them, where no box is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf

from fastroai.drawing.boxes import Size, label_of, size_of
from fastroai.drawing.drawing import Drawing, DrawnEdge, DrawnNode
from fastroai.drawing.ordering import ordered
from fastroai.drawing.ports import Ports, move_lonely, ports_of
from fastroai.drawing.positions import positions
from fastroai.drawing.routes import Label, Point, Route, loops_of, route_of
from fastroai.drawing.rows import Link, rows_of
from fastroai.drawing.straightening import straighten

DOT = 7.0
"""Radius in pixels of the dot at which a run begins."""

_MARGIN, _BAND, _GAP, _LANE = 16.0, 10.0, 22.0, 12.0
_BESIDE_BOX, _BESIDE_LINE = 28.0, 16.0


@dataclass(frozen=True)
class Box:
    """A node in its place; `x` and `y` are its centre."""

    node: DrawnNode
    size: Size
    x: float
    y: float
    end: bool
    inside: Layout | None
    """The layout of the drawing in the box, if there is one."""


@dataclass(frozen=True)
class Layout:
    """A drawing with every part in its place. All coordinates are positive."""

    width: float
    height: float
    boxes: list[Box]
    routes: list[Route]
    dot: Point | None


def lay_out(drawing: Drawing) -> Layout:
    """Return the layout of a drawing. The same drawing always gets the same layout."""
    plan = _Plan(drawing)
    plan.place_across()
    plan.place_down()
    return Layout(plan.width, plan.height, plan.boxes(), plan.routes(), plan.dot_at())


class _Plan:
    """The parts of a layout by number: nodes as declared, the dot if there is one, then points of lines."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        number = {node.id: index for index, node in enumerate(drawing.nodes)}
        self.dot = len(number) if drawing.starts else None
        self.nodes = len(number) + bool(drawing.starts)
        between = [edge for edge in drawing.edges if edge.source != edge.target]
        self.edges: list[DrawnEdge | None] = [*([None] * len(drawing.starts)), *between]
        self.links = [Link(len(number), number[start]) for start in drawing.starts]
        self.links += [Link(number[edge.source], number[edge.target], bool(edge.text)) for edge in between]
        self.loops: defaultdict[str, list[DrawnEdge]] = defaultdict(list)
        for edge in drawing.edges:
            if edge.source == edge.target:
                self.loops[edge.source].append(edge)
        led_to = {link.target for link in self.links}
        first = sorted(range(self.nodes), key=lambda node: (node != self.dot, node in led_to))
        self.rows = rows_of(first, self.links)
        self.chains = self.rows.chains
        self.width = self.height = 0.0
        self.x: list[float] = []
        self.ports: Ports = {}
        self.top: list[float] = []
        self.bottom: list[float] = []
        self._measure()

    def _measure(self) -> None:
        """Find out how wide and high each item is, and how strongly it pulls at others."""
        items = len(self.rows.row_of)
        self.left, self.right, self.tall = ([0.0] * items for _ in range(3))
        self.strength = [1.0] * items
        self.inside = [None if node.inside is None else lay_out(node.inside) for node in self.drawing.nodes]
        self.sizes = [
            size_of(
                node,
                [label_of(loop) for loop in self.loops[node.id]],
                (0, 0) if inside is None else (inside.width, inside.height),
            )
            for node, inside in zip(self.drawing.nodes, self.inside, strict=True)
        ]
        for item, size in enumerate(self.sizes):
            self.left[item], self.right[item] = size.width / 2, size.width / 2 + size.beside
            self.tall[item] = size.height
        if self.dot is not None:
            self.left[self.dot] = self.right[self.dot] = DOT
            self.tall[self.dot] = 2 * DOT
        self.labels = [label_of(edge) if edge else None for edge in self.edges]
        for edge, label, chain in zip(self.edges, self.labels, self.chains, strict=True):
            if label and chain.label is not None:
                self.left[chain.label] = self.right[chain.label] = label.width / 2
                self.tall[chain.label] = label.height
            for point in chain.items[1:-1]:
                self.strength[point] = 0.2 if edge and edge.style == "dashed" else 1.0

    def place_across(self) -> None:
        """Place items from left to right, lines to and from them, and lanes at the side for long lines."""
        rows = self.rows
        rows.rows = ordered(rows.rows, rows.above, rows.below)
        self.x = positions(rows.rows, rows.above, rows.below, self._distance, self._pull)
        lanes: defaultdict[int, list[int]] = defaultdict(list)  # one lane for all lines to the same node
        for link, chain in zip(self.links, self.chains, strict=True):
            for item in chain.items:
                if rows.row_of[item][0] != rows.row_of[item][1]:
                    lanes[link.target].append(item)
                    self.x[item] = inf
        self.ports = ports_of(self.chains, self.x, self._reach)
        points = [[item for item in chain.items[1:-1] if self.x[item] < inf] for chain in self.chains]
        ends = [(self.ports[index, True], self.ports[index, False]) for index in range(len(self.chains))]
        straighten(points, ends, rows.rows, self.x, self._distance)
        move_lonely(self.ports, self.chains, self.x, self._reach)
        inside = [item for row in rows.rows for item in row]
        shift = _MARGIN - min((self.x[item] - self.left[item] for item in inside), default=0)
        self.x = [place + shift for place in self.x]
        self.ports = {end: place + shift for end, place in self.ports.items()}
        self.width = max((self.x[item] + self.right[item] for item in inside), default=0) + _MARGIN
        for lane in lanes.values():
            for item in lane:
                self.x[item] = self.width
            self.width += _LANE

    def _distance(self, one: int, other: int) -> float:
        boxes = one < self.nodes and other < self.nodes
        return self.right[one] + self.left[other] + (_BESIDE_BOX if boxes else _BESIDE_LINE)

    def _pull(self, one: int, other: int) -> float:
        """Return how strongly two items pull to be in line, by the weights of Gansner et al. (1993)."""
        base = (1.0, 2.0, 8.0)[(one >= self.nodes) + (other >= self.nodes)]
        return base * min(self.strength[one], self.strength[other])

    def _reach(self, node: int) -> float:
        return 0 if node == self.dot else self.left[node] - 12

    def place_down(self) -> None:
        """Place the top and bottom of each row. A gap is higher if lines go farther across it."""
        down = _MARGIN
        for row in self.rows.rows:
            band = _BAND if any(item < self.nodes for item in row) else 0
            self.top.append(down)
            self.bottom.append(down + max((self.tall[item] for item in row), default=0) + 2 * band)
            across = [abs(self.x[item] - self.x[end]) for item in row for end in self.rows.below[item]]
            down = self.bottom[-1] + _GAP + min(max(across, default=0) / 12, 60)
        self.height = max(self.bottom, default=_MARGIN) + _MARGIN

    def _middle(self, item: int) -> float:
        row, _ = self.rows.row_of[item]
        return (self.top[row] + self.bottom[row]) / 2

    def boxes(self) -> list[Box]:
        return [
            Box(
                node,
                self.sizes[index],
                self.x[index],
                self._middle(index),
                node.id in self.drawing.ends,
                self.inside[index],
            )
            for index, node in enumerate(self.drawing.nodes)
        ]

    def dot_at(self) -> Point | None:
        return None if self.dot is None else (self.x[self.dot], self._middle(self.dot))

    def routes(self) -> list[Route]:
        routes = [self._route(index) for index in range(len(self.chains))]
        for box in self.boxes():
            routes += loops_of(self.loops[box.node.id], box.x + box.size.width / 2, box.y)
        return routes

    def _route(self, index: int) -> Route:
        chain, text = self.chains[index], self.labels[index]
        upper, *between, lower = chain.items
        row_of = self.rows.row_of
        leaving = self._middle(upper) + self.tall[upper] / 2
        meeting = self._middle(lower) - self.tall[lower] / 2
        stretches = [
            (self.ports[index, True], leaving, self.bottom[row_of[upper][0]]),
            *((self.x[item], self.top[row_of[item][0]], self.bottom[row_of[item][1]]) for item in between),
            (self.ports[index, False], self.top[row_of[lower][0]], meeting),
        ]
        label = None
        if text and chain.label is not None:
            label = Label(text, self.x[chain.label], self._middle(chain.label))
        return route_of(self.edges[index], stretches, label, up=chain.up)
