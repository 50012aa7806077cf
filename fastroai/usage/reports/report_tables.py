"""A usage report for people: one table, in plain text, Markdown, HTML and for rich. Amounts are rounded."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from fastroai.plain_text import plain_line
from fastroai.usage.money import format_cost
from fastroai.usage.reports.report_rows import NO_AGENT, NO_STEP, NO_TENANT, NO_VARIANT, Rows, UsageRow

if TYPE_CHECKING:
    from rich.console import RenderableType


# Characters that are written as entities, which all dialects take for plain text. A dollar sign can begin a
# formula; an underscore within a word is plain text already.
_MARKDOWN: Final = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")

_NOT_IN_THE_COST: Final = "not in the cost"
_ROUNDING: Final = Decimal("0.000001")
"""US dollars by which bills may differ from prices without a note."""


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells of text, not escaped yet; the first of each row is a name. The notes go below."""

    header: list[str]
    sections: list[_Section]
    notes: list[str]


def as_text(report: Rows) -> str:
    """Return the report as columns of plain text."""
    table = _table(report)
    empty = [""] * (len(table.header) - 1)
    lines = [table.header]
    for section in table.sections:
        if section.title:
            lines += [["", *empty], [section.title, *empty]]
        indent = "  " if section.title else ""
        lines += [[indent + name, *cells] for name, *cells in section.rows]
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    text = []
    for name, *cells in lines:
        aligned = (cell.rjust(width) for cell, width in zip(cells, others, strict=True))
        text.append("  ".join([name.ljust(first), *aligned]).rstrip())
    return "\n".join([*text, *(["", *table.notes] if table.notes else [])])


def as_markdown(report: Rows) -> str:
    """Return the report as a table in GitHub's Markdown, which most other dialects read as well."""
    table = _table(report)
    columns = len(table.header) - 1
    lines = [table.header, [":---", *["---:"] * columns]]
    for section in table.sections:
        if section.title:
            lines.append([f"**{section.title}**", *[""] * columns])
        lines += [[_MARKDOWN.sub(_entity, name), *cells] for name, *cells in section.rows]
    text = [f"| {' | '.join(cells)} |" for cells in lines]
    notes = (line for note in table.notes for line in ("", _MARKDOWN.sub(_entity, note)))
    return "\n".join([*text, *notes, ""])


def as_html(report: Rows) -> str:
    """Return the report as an HTML table."""
    table = _table(report)
    left = ' style="text-align: left"'
    lines = ['<table class="report">', f"<thead>{_html_row(table.header, 'th')}</thead>"]
    for section in table.sections:
        lines.append("<tbody>")
        if section.title:
            lines.append(f'<tr><th colspan="{len(table.header)}"{left}>{section.title}</th></tr>')
        lines += [_html_row(row, "td") for row in section.rows]
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>", *(f"<p>{html.escape(note)}</p>" for note in table.notes)])


def _html_row(cells: list[str], tag: str) -> str:
    name, *others = (html.escape(cell) for cell in cells)
    columns = "".join(f'<{tag} style="text-align: right">{cell}</{tag}>' for cell in others)
    return f'<tr><{tag} style="text-align: left">{name}</{tag}>{columns}</tr>'


def as_rich(report: Rows) -> RenderableType:
    """Return the report as a table of rich."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = _table(report)
    rows = [row for section in table.sections for row in section.rows]
    grid = Table(box=None, padding=(0, 2, 0, 0))
    for index, title in enumerate(table.header):
        words = [word for cell in (title, *(row[index] for row in rows)) for word in cell.split()]
        # Numbers stay whole where the terminal is narrow; names, and what has no number, are folded.
        whole = None if title in ("", _NOT_IN_THE_COST) else max(map(len, words))
        grid.add_column(title, justify="right" if index else "left", overflow="fold", min_width=whole)
    for section in table.sections:
        if section.title:
            grid.add_row()
            grid.add_row(Text(section.title, style="bold"))
        for row in section.rows:
            grid.add_row(*map(Text, row))  # a plain string would be read as rich's markup
    return Group(grid, *(Text(note, style="bold") for note in (["", *table.notes] if table.notes else [])))


def _table(report: Rows) -> _Table:
    """Return the table, without rows of zeros, groups without a named row, and empty columns."""
    groups = {"": [report.total]}
    for group, rows in report.groups.items():
        if rows.keys() - {NO_STEP, NO_AGENT, NO_VARIANT, NO_TENANT}:
            groups[f"by {group}"] = [row for row in rows.values() if _has_content(row)]
    shown = [row for rows in groups.values() for row in rows]
    columns = {title: cell for title, cell in _COLUMNS.items() if not title or any(map(cell, shown))}
    sections = [
        _Section(title, [[cell(row) for cell in columns.values()] for row in rows])
        for title, rows in groups.items()
        if rows
    ]
    return _Table(list(columns), sections, [*_notes(report.total), *_bills(report.stated_over_priced_usd)])


def _has_content(row: UsageRow) -> bool:
    """Return whether anything happened: a model request, or spending by `spend`."""
    counts = (row.request_count, row.failed_requests, row.unpriced_requests, row.unmeasured_requests)
    return any(counts) or bool(row.committed_usd)


def _cost(row: UsageRow) -> str:
    if row.cost_complete:
        return _usd(row.cost_usd)
    if row.unbounded_requests:
        return f"at least {_usd(row.cost_usd)}" if row.cost_usd else "unknown"
    if row.cost_usd:
        return f"{_usd(row.cost_usd)} to {_usd(row.committed_usd)}"
    return f"at most {_usd(row.committed_usd)}"


def _left_out(row: UsageRow) -> str:
    counts = {
        "released": row.failed_requests,
        "unpriced": row.unpriced_requests,
        "unmeasured": row.unmeasured_requests,
    }
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count)


def _share(row: UsageRow) -> str:
    if row.share is None or not (row.cost_usd or row.cost_complete):
        return ""
    return "<0.1%" if 0 < row.share < 0.0005 else f"{row.share:.1%}"


def _notes(total: UsageRow) -> list[str]:
    """Return notes on the cost that the table omits, so that nobody takes its total for the whole cost."""
    if total.cost_complete:
        return []
    notes = ["The cost is not complete, and shares are those of the known cost."]
    if total.unpriced_requests:
        units = f": {plain_line(', '.join(total.unpriced_units))}" if total.unpriced_units else ""
        notes.append(f"Unpriced (no price is known{units}): {total.unpriced_requests:,}.")
    if total.unmeasured_requests:
        notes.append(
            f"Unmeasured (sent, and their usage never came or cannot be true): {total.unmeasured_requests:,}."
        )
    return [*notes, _bound(total)]


def _bound(total: UsageRow) -> str:
    """Return a sentence on how much all unpriced and unmeasured requests can cost beyond the known cost."""
    counts = {"unpriced": total.unpriced_requests, "unmeasured": total.unmeasured_requests}
    kinds = " and ".join(kind for kind, count in counts.items() if count)
    number, unbounded = sum(counts.values()), total.unbounded_requests
    they = f"the {number:,} {kinds} requests" if number > 1 else f"the {kinds} request"
    most = f"at most {_usd(total.uncertain_usd)} USD more"
    if not unbounded:
        return f"{they.capitalize()} cost{'' if number > 1 else 's'} {most}."
    if unbounded == number:
        return f"Nothing is known to bound the cost of {they}."
    return (
        f"Nothing is known to bound the cost of {unbounded:,} of {they}; the other "
        f"{f'{number - unbounded:,} cost' if number - unbounded > 1 else 'one costs'} {most}."
    )


def _bills(over_priced_usd: Decimal) -> list[str]:
    difference = over_priced_usd.copy_abs()  # exact in every decimal context, unlike `abs`
    if difference < _ROUNDING:
        return []
    more = "more" if over_priced_usd > 0 else "less"
    return [f"Providers billed {_usd(difference)} USD {more} than the prices known here; the bills count."]


def _usd(amount: Decimal) -> str:
    # The unit is in the header: in many notebooks, two dollar signs are a formula.
    return format_cost(amount).removeprefix("$")


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"


_COLUMNS: Final[dict[str, Callable[[UsageRow], str]]] = {
    "": lambda row: plain_line(row.name),
    "cost (USD)": _cost,
    "share": _share,
    "requests": lambda row: f"{row.request_count:,}",
    "tokens in": lambda row: f"{row.input_tokens:,}",
    "tokens out": lambda row: f"{row.output_tokens:,}",
    "cached": lambda row: f"{row.cache_read_tokens:,}" if row.cache_read_tokens else "",
    _NOT_IN_THE_COST: _left_out,
}
"""The columns, each with the function that writes its cells."""
