"""A plot of points with error bars as SVG, in the style of drawings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fastroai.drawing.pages import escaped
from fastroai.drawing.svg import image
from fastroai.drawing.svg_style import STYLE
from fastroai.drawing.text import width_of

_WIDTH: Final = 560
_HEIGHT: Final = 340
_LEFT: Final = 70
_RIGHT: Final = 500
_TOP: Final = 30
_BOTTOM: Final = 280
_FONT: Final = 13


@dataclass(frozen=True)
class Point:
    """A point of a plot, with the ends of its error bar."""

    label: str
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Axis:
    """An axis from `first` to `last`."""

    name: str
    first: float
    last: float
    shown: Callable[[float], str]
    """Function that writes a value on the axis."""

    def share(self, value: float) -> float:
        """Return where on the axis a value is, from 0 to 1. Values beyond its ends are at the ends."""
        return min(1.0, max(0.0, (value - self.first) / ((self.last - self.first) or 1.0)))

    @property
    def ticks(self) -> Sequence[float]:
        """The values that are written beside it."""
        return [self.first + (self.last - self.first) * part / 4 for part in range(5)]


def scatter(title: str, points: Sequence[Point], x: Axis, y: Axis, *, style: str = STYLE) -> str:
    """Return a plot of points as an SVG image, without script, and well-formed for any labels.

    `style` is as in `svg`.
    """
    parts = [
        f'<path class="line" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>',
        *(_label(value, _BOTTOM + 18, x.shown(tick), "note") for tick in x.ticks for value in [_x(x, tick)]),
        *(_label(_LEFT - 30, _y(y, tick) + 4, y.shown(tick), "note") for tick in y.ticks),
        _label((_LEFT + _RIGHT) / 2, _BOTTOM + 44, x.name),
        _label(_LEFT, _TOP - 12, y.name),
    ]
    taken: list[tuple[float, float, float]] = []
    for one in sorted(points, key=lambda point: (point.x, point.y)):
        left, top, half = _x(x, one.x), _y(y, one.y), width_of(one.label, _FONT) / 2
        # Names of points near each other go below one another.
        middle, place = left + 12 + half, top + 4
        middle = middle if middle + half < _WIDTH else left - 12 - half
        while any(abs(middle - at) < half + wide and abs(place - high) < 15 for at, high, wide in taken):
            place += 15
        taken.append((middle, place, half))
        bar = f"M{left:.1f} {_y(y, one.low):.1f}V{_y(y, one.high):.1f}"
        parts += [
            f'<g class="taken"><title>{escaped(f"{one.label}: {y.shown(one.y)}, {x.shown(one.x)}")}</title>'
            f'<path class="line" d="{bar}"/><circle class="head" cx="{left:.1f}" cy="{top:.1f}" r="6"/></g>',
            _label(middle, place, one.label),
        ]
    return image(escaped(title), _WIDTH, _HEIGHT, parts, style)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.share(value) * (_RIGHT - _LEFT)


def _y(axis: Axis, value: float) -> float:
    return _BOTTOM - axis.share(value) * (_BOTTOM - _TOP)


def _label(x: float, y: float, text: str, name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>'
