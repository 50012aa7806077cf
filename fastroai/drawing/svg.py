"""Drawings as SVG: one piece of text that needs no script, no font and no other file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape, quoteattr

from fastroai.drawing.boxes import FONT, LINE, SMALL_FONT, SMALL_LINE, Text
from fastroai.drawing.drawing import Drawing, DrawnEdge, NodeState
from fastroai.drawing.layout import DOT, Box, Layout, lay_out
from fastroai.drawing.routes import ARROW, Route
from fastroai.drawing.svg_style import MARKS, STYLE
from fastroai.plain_text import BIDIRECTIONAL

_NOT_XML = re.compile(f"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[{BIDIRECTIONAL}]")
"""Matches characters that XML 1.0 cannot hold, not even escaped (all but its production `Char`), and those
that change the direction of text.
"""


def svg(drawing: Drawing, *, style: str = STYLE) -> str:
    """Return the drawing as an SVG image, from top to bottom, with the path of a run in colour.

    Edges that were taken are wider, and say how often if more than once. A double frame marks a node where a
    run may end. Each state of a node has a colour, and a mark at a corner of its box. Colours follow the
    reader's light or dark theme. They are rules for classes in `.fastroai-drawing`, which a page that holds
    the image can override; `data-node`, `data-source` and `data-target` have the ids. The text is well-formed
    XML for any ids and labels, has no script, and is the same for the same drawing.

    `style` is the style sheet in the image. If it is empty, the page must have one; a page needs this
    if its content security policy allows no inline styles.
    """
    layout = lay_out(drawing)
    return image(_text(drawing.title), layout.width, layout.height, _contents(layout), style)


def image(title: str, width: float, height: float, contents: Iterable[str], style: str) -> str:
    """Return an SVG image with a title, both as XML, on the background of drawings."""
    wide, high = _number(width), _number(height)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fastroai-drawing" role="img" width="{wide}" '
            f'height="{high}" viewBox="0 0 {wide} {high}">',
            f"<title>{title}</title>",
            *([f"<style>{style}</style>"] if style else []),
            f'<rect class="background" width="{wide}" height="{high}"/>',
            *contents,
            "</svg>\n",
        ]
    )


def _contents(layout: Layout) -> Iterator[str]:
    if layout.dot:
        x, y = layout.dot
        yield f'<circle class="start" cx="{_number(x)}" cy="{_number(y)}" r="{_number(DOT)}"/>'
    # The way that was taken is drawn over the rest.
    yield from map(_edge, sorted(layout.routes, key=lambda route: bool(route.edge and route.edge.taken)))
    yield from map(_node, layout.boxes)


def _node(box: Box) -> str:
    node, size = box.node, box.size
    told = node.text if node.label in (None, node.id) else f"{node.text} ({node.id})"
    told += "" if node.state == "plain" else f": {node.state}"
    told += f", {node.note}" if node.note else ""
    left, top = box.x - size.width / 2, box.y - size.height / 2
    round_ = size.height / 2 if node.kind == "pause" else 6
    frames = [_frame("box", left, top, size.width, size.height, round_)]
    if box.end:
        frames.append(_frame("inner", left + 3, top + 3, size.width - 6, size.height - 6, max(round_ - 3, 3)))
    if node.kind == "graph" and box.inside is None:
        sides = " ".join(
            f"M{_number(x)} {_number(top)}v{_number(size.height)}" for x in (left + 8, left + size.width - 8)
        )
        frames.append(f'<path class="inner" d="{sides}"/>')
    first = box.y - size.heading / 2 if box.inside is None else top + 9
    lines = _lines("label", size.lines, box.x, first, LINE, FONT)
    if size.note:
        lines += _lines("note", [size.note], box.x, first + LINE * len(size.lines), SMALL_LINE, SMALL_FONT)
    if box.inside is not None:
        x, y = box.x - box.inside.width / 2, first + size.heading + 4
        lines += f'<g transform="translate({_number(x)} {_number(y)})">{"".join(_contents(box.inside))}</g>'
    opened = "" if box.inside is None else " open"
    return (
        f'<g class="node {node.state} {node.kind}{opened}" data-node={_attribute(node.id)}>'
        f"<title>{_text(told)}</title>{''.join(frames)}{lines}{_mark(node.state, left, top)}</g>"
    )


def _mark(state: NodeState, x: float, y: float) -> str:
    """Return the mark of a state, which tells it without colour, on a corner of a box."""
    if state == "plain":
        return ""
    return (
        f'<g class="badge" transform="translate({_number(x + 2)} {_number(y + 2)})"><circle r="7.5"/>'
        f'<path d="{MARKS[state]}"/></g>'
    )


def _edge(route: Route) -> str:
    start, *rest = route.points
    line = f"M{_point(start)}C{' '.join(map(_point, rest))}"
    drawn = f'<path class="line" d="{line}"/><path class="head" d="{_head(route)}"/>'
    if route.edge is None:
        return f'<g class="edge">{drawn}</g>'
    if route.label:
        drawn += _label(route.label.text, route.label.x, route.label.y)
    edge = route.edge
    classes = " ".join(["edge", *(["dashed"] * (edge.style == "dashed")), *(["taken"] * bool(edge.taken))])
    ends = f"data-source={_attribute(edge.source)} data-target={_attribute(edge.target)}"
    return f'<g class="{classes}" {ends}><title>{_text(_told(edge))}</title>{drawn}</g>'


def _told(edge: DrawnEdge) -> str:
    told = f"{edge.source} → {edge.target}"
    told += f": {edge.label}" if edge.label else ""
    if edge.taken:
        told += f", taken {'once' if edge.taken == 1 else f'{edge.taken} times'}"
    return told


def _head(route: Route) -> str:
    """Return the path of a triangle from the end of the line to the tip."""
    (x, y), (tip_x, _) = route.points[-1], route.tip
    half = ARROW * 0.6
    one, other = ((x - half, y), (x + half, y)) if x == tip_x else ((x, y - half), (x, y + half))
    return f"M{_point(route.tip)}L{_point(one)}L{_point(other)}Z"


def _label(text: Text, x: float, y: float) -> str:
    left, top = x - text.width / 2, y - text.height / 2
    back = _frame("back", left, top, text.width, text.height, 3)
    return back + _lines("label", text.lines, x, top + 1, SMALL_LINE, SMALL_FONT)


def _lines(name: str, lines: Iterable[str], x: float, top: float, line: float, font: float) -> str:
    # Text looks centred if its baseline is 0.36 of the font size below the middle of the line.
    return "".join(
        f'<text class="{name}" x="{_number(x)}" y="{_number(top + line * (index + 0.5) + font * 0.36)}">'
        f"{_text(text)}</text>"
        for index, text in enumerate(lines)
    )


def _frame(name: str, left: float, top: float, width: float, height: float, round_: float) -> str:
    return (
        f'<rect class="{name}" x="{_number(left)}" y="{_number(top)}" width="{_number(width)}" '
        f'height="{_number(height)}" rx="{_number(round_)}"/>'
    )


def _point(point: tuple[float, float]) -> str:
    return f"{_number(point[0])} {_number(point[1])}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
