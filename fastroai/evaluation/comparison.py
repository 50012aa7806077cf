"""`Comparison`: the results of variants side by side, as text, as HTML in notebooks, and as a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Final

from fastroai.contracts.brief import shortened
from fastroai.drawing.pages import escaped, page, table
from fastroai.drawing.scatter import Axis, Point, scatter
from fastroai.drawing.svg_style import STYLE
from fastroai.evaluation.compared import Compared
from fastroai.evaluation.intervals import Interval
from fastroai.evaluation.results import CaseResult, VariantResult
from fastroai.usage import format_cost

_MOST: Final = 10
"""Most cases and problems that are shown; the comparison has all."""
_short: Final = partial(shortened, most=48)


class Comparison(Compared):
    """The results of variants on the cases of a dataset. `print` shows it as a table, and so do notebooks.

        comparison.quality("equals_expected")      # the share that passed, with its interval, by variant
        comparison.difference("equals_expected", "large")
        comparison.differing                       # names of the cases on which variants differ
        comparison.to_svg()                        # quality against cost

    A case on which the task failed has not passed any assertion. It has no scores.
    """

    def to_svg(self, evaluation: str | None = None) -> str:
        """Return a plot of quality against the cost of a case, with 95 % intervals, as an SVG image."""
        return _plot(self, self.named(evaluation))

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(map(repr, self.variants))}>"

    def __str__(self) -> str:
        header, rows = _summary(self)
        lines = [*_aligned([header, *rows]), *_differences(self)]
        differing = self.differing
        if differing:
            lines += ["", _counted(len(differing), "differs", "differ")]
            for name in differing[:_MOST]:
                lines.append(f"  {name}")
                lines += _aligned([("   ", variant, *cells) for variant, *cells in _side_by_side(self, name)])
        lines += ["", *self.problems[:_MOST]] if self.problems else []
        if len(self.problems) > _MOST:
            lines.append(f"… and {len(self.problems) - _MOST} more: see .problems")
        return "\n".join(line.rstrip() for line in lines)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        header, rows = _summary(self)
        body = table(header, [[escaped(cell) for cell in row] for row in rows])
        body += "".join(f"<p>{escaped(line)}</p>" for line in _differences(self))
        if differing := self.differing:
            cells = [
                (name if not index else "", *row)
                for name in differing[:_MOST]
                for index, row in enumerate(_side_by_side(self, name))
            ]
            body += f"<h3>{_counted(len(differing), 'differs', 'differ')}</h3>" + table(
                ("case", "variant", "output", "evaluations"),
                [[escaped(cell) for cell in row] for row in cells],
                texts=4,
            )
        body += "".join(f'<p class="faint">{escaped(line)}</p>' for line in self.problems[:_MOST])
        if self.evaluations:
            body += f'<div class="picture">{_plot(self, self.evaluations[0], style="")}</div>'
        return page(body, str(self))


def _plot(comparison: Compared, evaluation: str, *, style: str = STYLE) -> str:
    """Return a plot of quality against the cost of a case."""
    points: list[Point] = []
    for name, one in comparison.variants.items():
        quality, cost = one.quality(evaluation), one.cost_usd_per_case
        if quality is not None and cost is not None:
            low, high = (quality.value if end is None else end for end in (quality.low, quality.high))
            points.append(Point(name, float(cost), quality.value, low, high))
    is_share = _is_share(comparison, evaluation)
    lowest = 0.0 if is_share else min([0.0, *(one.low for one in points)])
    highest = 1.0 if is_share else max([1.0, *(one.high for one in points)])
    dearest = max((one.x for one in points), default=0.0)
    costs = Axis("cost of a case", 0.0, dearest * 1.1, lambda value: format_cost(Decimal(str(value))))
    shown = (lambda value: f"{value:.0%}") if is_share else (lambda value: f"{value:.2g}")
    return scatter(
        f"{evaluation} against cost", points, costs, Axis(evaluation, lowest, highest, shown), style=style
    )


def _summary(comparison: Compared) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the header and the rows of the table: one for each variant."""
    names = comparison.evaluations
    header = ["", *names, "cost a case", "cases", "failed", "latency"]
    return header, [
        [
            variant.name,
            *(_shown(variant.quality(name), _is_share(comparison, name)) for name in names),
            _cost(variant),
            str(len(variant.cases)),
            str(len(variant.failures)),
            "" if variant.duration_ms is None else f"{variant.duration_ms:,.0f} ms",
        ]
        for variant in comparison.variants.values()
    ]


def _differences(comparison: Compared) -> Iterator[str]:
    """Yield a line for each difference to the first variant, and one that names the methods."""
    first, *others = comparison.variants
    methods: dict[str, None] = {}
    for evaluation in comparison.evaluations:
        is_share = _is_share(comparison, evaluation)
        for quality in comparison.quality(evaluation).values():
            methods |= {} if quality is None else {quality.method: None}
        for other in others:
            found = comparison.difference(evaluation, other)
            if found is not None:
                methods[found.method] = None
                verdict = "" if found.is_positive or found.is_negative else ", which can be by chance"
                yield f"{other} - {first}, {evaluation}: {_shown(found, is_share, sign='+')}{verdict}"
    if methods:
        yield f"In parentheses: 95 % confidence intervals ({', '.join(methods)})."


def _side_by_side(comparison: Compared, case: str) -> Iterator[Sequence[str]]:
    """Yield the variant, its output, and what evaluators say of that, for each variant."""
    for variant in comparison.variants.values():
        if (one := variant.cases.get(case)) is not None:
            output = _short(one.output) if one.failure is None else f"failed: {_short(one.failure)}"
            yield variant.name, output, _evaluations(one)


def _evaluations(case: CaseResult) -> str:
    told: list[str] = []
    for name, one in case.evaluations.items():
        value = one.value
        shown = ("passed" if value else "not passed") if isinstance(value, bool) else _short(value)
        told.append(f"{name}: {shown}")
    return ", ".join(told)


def _is_share(comparison: Compared, evaluation: str) -> bool:
    return all(variant.is_assertion(evaluation) for variant in comparison.variants.values())


def _cost(variant: VariantResult) -> str:
    cost = variant.cost_usd_per_case
    if cost is None:
        return ""
    return ("" if variant.usage.cost_complete else "at least ") + format_cost(cost)


def _shown(found: Interval | None, is_share: bool, sign: str = "") -> str:
    if found is None:
        return "none"
    scale, unit, digits = (100, " %", ".1f") if is_share else (1, "", ".3f")
    value = f"{found.value * scale:{sign}{digits}}{unit}"
    if found.low is None or found.high is None:
        return value
    return f"{value} ({found.low * scale:{sign}{digits}} to {found.high * scale:{sign}{digits}})"


def _counted(count: int, one: str, several: str) -> str:
    return f"1 case {one}:" if count == 1 else f"{count} cases {several}:"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
