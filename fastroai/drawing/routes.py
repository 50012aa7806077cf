"""The lines of edges, as curves that keep clear of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from fastroai.drawing.boxes import LOOP, LOOP_HEIGHT, Text, label_of
from fastroai.drawing.drawing import DrawnEdge

Point: TypeAlias = tuple[float, float]
Stretch: TypeAlias = tuple[float, float, float]
"""A vertical piece of a line: its x, and the y where it begins and ends."""

ARROW = 7.0
"""Length of an arrowhead in pixels."""


@dataclass(frozen=True)
class Label:
    """The text of an edge; `x` and `y` are its centre."""

    text: Text
    x: float
    y: float


@dataclass(frozen=True)
class Route:
    """The line of an edge: a point, then three for each cubic Bézier curve."""

    edge: DrawnEdge | None
    """The edge; `None` for the line from the dot to a node where a run begins."""
    points: tuple[Point, ...]
    tip: Point
    """The point of the arrowhead, which begins where the line ends."""
    label: Label | None = None


def route_of(edge: DrawnEdge | None, stretches: Sequence[Stretch], label: Label | None, *, up: bool) -> Route:
    """Return a route through all stretches, from top to bottom or `up`. It swings between two stretches."""
    if up:
        x, tip, bottom = stretches[0]
        points = _curves([(x, tip + ARROW, bottom), *stretches[1:]])[::-1]
    else:
        x, top, tip = stretches[-1]
        points = _curves([*stretches[:-1], (x, top, tip - ARROW)])
    return Route(edge, tuple(points), (x, tip), label)


def _curves(stretches: Sequence[Stretch]) -> list[Point]:
    x, top, bottom = stretches[0]
    points = [(x, top), *_straight(x, top, bottom)]
    for (x, _, bottom), (next_x, next_top, next_bottom) in pairwise(stretches):
        middle = (bottom + next_top) / 2
        points += [(x, middle), (next_x, middle), (next_x, next_top)]
        points += _straight(next_x, next_top, next_bottom)
    return points


def _straight(x: float, top: float, bottom: float) -> list[Point]:
    third = (bottom - top) / 3
    return [(x, top + third), (x, bottom - third), (x, bottom)] if third else []


def loops_of(edges: Sequence[DrawnEdge], side: float, middle: float) -> list[Route]:
    """Return the routes of edges from a node to itself, below each other at its right `side`."""
    routes: list[Route] = []
    for index, edge in enumerate(edges):
        y = middle + (index - (len(edges) - 1) / 2) * LOOP_HEIGHT
        top, bottom = y - 9, y + 9
        points = ((side, top), (side + LOOP, top - 4), (side + LOOP, bottom + 4), (side + ARROW, bottom))
        text = label_of(edge)
        label = Label(text, side + LOOP + text.width / 2, y) if text.lines else None
        routes.append(Route(edge, points, (side, bottom), label))
    return routes
