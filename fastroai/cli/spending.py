"""`spend report`."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_history
from fastroai.cli.options import AsJson, Form, Store
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import fields_of
from fastroai.cli.targets import age
from fastroai.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.store.reading.run_index import Dimension
    from fastroai.store.reading.spending import SpendingRow

_SPENT: Final = (
    "failed_requests input_tokens output_tokens cost_usd cost_complete committed_usd unbounded_requests"
)


async def report(
    store: Store,
    by: Annotated[
        str,
        typer.Option(
            help="Fields of the rows: day, pipeline, step, model, tenant, tag; separate several with commas."
        ),
    ] = "day",
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="An age, as in 7d, or a day or time of UTC.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="As --since; the period ends before it.")
    ] = None,
    form: Form = "table",
    as_json: AsJson = False,
) -> int:
    """Add up what all stored runs have spent, by time and name."""
    dimensions = cast("tuple[Dimension, ...]", tuple(name for one in by.split(",") if (name := one.strip())))
    now = datetime.now(UTC)
    async with opened_history(store) as history:
        rows = await history.spending(
            since=_time("--since", since, now), until=_time("--until", until, now), by=dimensions
        )
    if as_json or form == "json":
        print_json([_shape(row, dimensions) for row in rows])
    elif form == "csv":
        from fastroai.records import Usage
        from fastroai.store.reading.spending import SpendingRow

        headings = _shape(SpendingRow(usage=Usage()), dimensions)
        write_csv(headings, [_shape(row, dimensions) for row in rows])
    else:
        from fastroai.cli.tables import console, nothing, spending_table

        console().print(spending_table(rows, dimensions) if rows else nothing("no spending found", store))
    return OK


def _shape(row: SpendingRow, by: tuple[Dimension, ...]) -> dict[str, JsonValue]:
    usage = row.usage
    names: dict[str, JsonValue] = {
        one: None if (name := getattr(row, one)) is None else str(name) for one in by
    }
    return {
        **names,
        "requests": usage.request_count,
        **fields_of(_SPENT.split(), usage),
    }


def write_csv(headings: Iterable[str], rows: Iterable[dict[str, JsonValue]]) -> None:
    """Print rows as CSV, with no cell that a spreadsheet takes for a formula."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    for row in rows:
        writer.writerow(_cell(value) for value in row.values())


def _cell(value: JsonValue) -> JsonValue:
    from fastroai.usage.reports.report_data import inert

    if isinstance(value, bool):
        return str(value).lower()
    return inert(value) if isinstance(value, str) else value


def _time(option: str, text: str | None, now: datetime) -> datetime | None:
    """Return the time that an option names: an age, such as `7d`, or a day or time in UTC."""
    from fastroai.store.clock import ago

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ago(now, _age(option, text))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _age(option: str, text: str) -> timedelta:
    try:
        return age(option, text)
    except ConfigurationError:
        expected = "an age, as in 7d or 12h, or a day or time of UTC, as in 2026-03-01"
        raise ConfigurationError(option, text, expected) from None
