"""A usage report for other programs: all of its rows and columns, amounts exact."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields
from decimal import Decimal
from typing import Final

from fastroai.plain_text import plain_line
from fastroai.usage.reports.report_rows import Rows, UsageRow

FORMAT_VERSION: Final = 3
"""The version of the format. It goes up when a field changes its meaning or goes away, not for new fields."""

# Where spreadsheets see the start of a formula (https://owasp.org/www-community/attacks/CSV_Injection): at
# the start of a cell, and after a character that some of them take for the end of a cell.
_FORMULA: Final = re.compile(r"(?:^|(?<=[,;]))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")

_Value = str | int | float | bool | None


def as_json(report: Rows) -> str:
    """Return the whole report as a JSON object."""
    data: dict[str, object] = {
        "version": FORMAT_VERSION,
        "currency": "USD",
        "cost_complete": report.total.cost_complete,
        "stated_over_priced_usd": _exact(report.stated_over_priced_usd),
        "total": _data(report.total),
    }
    for group, rows in report.groups.items():
        data[f"by_{group}"] = [_data(row) for row in rows.values()]
    return json.dumps(data, indent=2)


def as_csv(report: Rows) -> str:
    """Return the whole report as one CSV table; the first line has the names of the columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", *_data(report.total)])
    for group, rows in {"total": {"total": report.total}, **report.groups}.items():
        for row in rows.values():
            writer.writerow([group, *map(_cell, (_data(row) | {"name": inert(row.name)}).values())])
    return text.getvalue()


def _data(row: UsageRow) -> dict[str, _Value]:
    data: dict[str, _Value] = {}
    for column in fields(row):
        value = getattr(row, column.name)
        data[column.name] = _exact(value) if isinstance(value, Decimal) else value
        if column.name == "cost_usd":
            data["cost_complete"] = row.cost_complete
    return data | {"unpriced_units": ", ".join(row.unpriced_units)}


def _exact(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _cell(value: _Value) -> _Value:
    return str(value).lower() if isinstance(value, bool) else value


def inert(name: str) -> str:
    """Return a name that no spreadsheet takes for a formula."""
    return _FORMULA.sub("'", plain_line(name))
