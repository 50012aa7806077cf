"""SVG drawings read back: where boxes, labels and lines are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

SVG = "{http://www.w3.org/2000/svg}"
Point = tuple[float, float]


@dataclass(frozen=True)
class Area:
    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: Area) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def has(self, point: Point) -> bool:
        """Inside, further than coordinates are rounded: lines begin on a box."""
        x, y = point
        return self.left + 0.2 < x < self.right - 0.2 and self.top + 0.2 < y < self.bottom - 0.2


@dataclass(frozen=True)
class SeenEdge:
    """An edge as it is in the picture."""

    source: str
    target: str
    classes: frozenset[str]
    told: str
    line: list[Point]
    """Points on it, close together."""
    head: list[Point]
    label: Area | None
    text: str


@dataclass(frozen=True)
class Picture:
    """What is to be seen."""

    root: ET.Element
    width: float
    height: float
    boxes: dict[str, Area]
    edges: list[SeenEdge]

    def node(self, node_id: str) -> ET.Element:
        (found,) = (group for group in self.root.iter(f"{SVG}g") if group.get("data-node") == node_id)
        return found

    def everything(self) -> Iterator[Area]:
        yield from self.boxes.values()
        for edge in self.edges:
            for x, y in [*edge.line, *edge.head]:
                yield Area(x, y, x, y)
            if edge.label:
                yield edge.label


def read(svg: str) -> Picture:
    """Parse it as XML; every node and edge in the picture, once for each time that it is drawn."""
    root = ET.fromstring(svg)
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    boxes: dict[str, Area] = {}
    edges: list[SeenEdge] = []
    for group in root.iter(f"{SVG}g"):
        classes = frozenset((group.get("class") or "").split())
        if "node" in classes:
            node_id = group.get("data-node") or ""
            assert node_id not in boxes
            boxes[node_id] = _area(group, "box")
        elif group.get("data-source") is not None:
            edges.append(_edge(group, classes))
    return Picture(root, float(root.get("width") or 0), float(root.get("height") or 0), boxes, edges)


def words(element: ET.Element) -> list[str]:
    """The text in it, line by line."""
    return [line.text or "" for line in element.iter(f"{SVG}text")]


def _edge(group: ET.Element, classes: frozenset[str]) -> SeenEdge:
    line, head = (path.get("d") or "" for path in group.iter(f"{SVG}path"))
    back = group.find(f"{SVG}rect")
    return SeenEdge(
        source=group.get("data-source") or "",
        target=group.get("data-target") or "",
        classes=classes,
        told=group.findtext(f"{SVG}title") or "",
        line=_along(_points(line)),
        head=_points(head),
        label=None if back is None else _area(group, "back"),
        text=" ".join(words(group)),
    )


def _area(group: ET.Element, name: str) -> Area:
    (rect,) = (rect for rect in group.iter(f"{SVG}rect") if rect.get("class") == name)
    x, y, width, height = (float(rect.get(key) or "nan") for key in ("x", "y", "width", "height"))
    return Area(x, y, x + width, y + height)


def _points(path: str) -> list[Point]:
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _along(points: list[Point]) -> list[Point]:
    """Points on a chain of cubic Bézier curves."""
    found = points[:1]
    for begin in range(0, len(points) - 1, 3):
        a, b, c, d = points[begin : begin + 4]
        for part in (0.125 * step for step in range(1, 9)):
            weights = (1 - part) ** 3, 3 * part * (1 - part) ** 2, 3 * part**2 * (1 - part), part**3
            x, y = (sum(w * p[axis] for w, p in zip(weights, (a, b, c, d), strict=True)) for axis in (0, 1))
            found.append((x, y))
    return found
