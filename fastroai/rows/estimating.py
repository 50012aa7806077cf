"""The quote for many rows, from a sample of them that is not paid for again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, cast

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT, dollars, exact_sum
from fastroai.rows.options import RowOptions
from fastroai.rows.run import RowRun
from fastroai.rows.source import Rows, RowSource
from fastroai.rows.table import RowTable
from fastroai.rows.target import RowTarget, check_deps
from fastroai.runs.openings import store_of
from fastroai.runs.request import RunRequest
from fastroai.steps.estimating import nothing_paid
from fastroai.store.run_store import RunStoreLike
from fastroai.usage import Quote
from fastroai.usage.limits import NO_LIMITS

MOST_QUOTED: Final = 2_000
"""Most rows that are quoted one by one. More rows have no highest cost, unless a budget bounds it."""


async def estimate_rows(
    target: RowTarget[Any],
    rows: RowSource,
    sample: int,
    options: RowOptions,
    request: RunRequest[Any],
    store: RunStoreLike | None,
) -> Quote:
    """Return the quote for all rows.

    With a store, a sample of the rows is asked, as a part of the run that `map` goes on with. Without one,
    the sample is only quoted.

    Raises:
        ConfigurationError: the number of the rows is not known before they are read.
    """
    check_deps(target, request.deps)
    total = Rows(rows, target, options.inputs, options.key).total
    if total is None:
        expected = "a list or a frame: `map` could not read an iterator again"
        raise ConfigurationError("rows", rows, expected)
    chosen = spread(total, sample)
    is_kept = store_of(store, target.config.store) is not None
    wanted = range(total) if total <= MOST_QUOTED else chosen
    quotes = await _quotes(target, rows, replace(options, only=frozenset(wanted)), request.deps)
    of_sample = [quotes[number] for number in chosen]
    name = f"{total:,} rows of {target.name!r}"
    if is_kept:
        if request.run_id is None:
            raise ConfigurationError("run_id", None, "the id of the run that `map` continues")
        table = await RowRun(target, rows, replace(options, only=frozenset(chosen)), request, store).table()
        quote = await _from_table(name, total, table)
    else:
        likely = exact_sum(one.expected_usd for one in of_sample)
        quote = Quote.unknown("", name=name).expecting(
            _scaled(likely, total, len(chosen)), f"{len(chosen)} of the rows, as they were quoted"
        )
    return _bounded(quote, [*quotes.values()], total).within(*(request.limits or NO_LIMITS).budgets)


def spread(total: int, sample: int) -> Sequence[int]:
    """Return the numbers of `sample` rows, evenly spread."""
    count = min(total, sample)
    return [number * total // count for number in range(count)]


async def _quotes(
    target: RowTarget[Any], rows: RowSource, options: RowOptions, deps: object
) -> dict[int, Quote]:
    """Return the quote of each row that is read. A row that cannot be asked costs nothing."""
    quotes: dict[int, Quote] = {}
    source = Rows(rows, target, options.inputs, options.key, options.only)
    async with nothing_paid():
        while (row := await source.read()) is not None:
            unusable = Quote.exactly(0, "it cannot be asked")
            quotes[row.number] = unusable if row.error else await target.quote(row.inputs, deps)
    return quotes


async def _from_table(name: str, total: int, table: RowTable[Any]) -> Quote:
    """Return a quote from rows that were asked, which are all that is on record of the run."""
    spent, asked = table.cost_usd, len(table)
    likely = spent if not asked else _scaled(spent, total, asked)
    least = "" if table.cost_complete else "at least "
    because = f"{asked} of the rows, which have cost {least}{dollars(spent)}"
    if failed := table.failed:
        because += f"; {len(failed)} of them failed, the first with {failed[0].error}"
    if table.status != "finished":
        because += f"; the sample ended early: {table.reason or table.status}"
    return Quote(
        name=name,
        lower_usd=spent,
        expected_usd=max(spent, likely),
        upper_usd=None,
        lower_reasons=("what the sample has cost",),
        expected_reasons=(because,),
    )


def _bounded(quote: Quote, quotes: Sequence[Quote], total: int) -> Quote:
    """Return a quote with the highest cost of all rows, if each was quoted and has one."""
    unbounded = next((one for one in quotes if one.upper_usd is None), None)
    if len(quotes) < total:
        return replace(quote, upper_reasons=(f"only {len(quotes):,} of the rows were quoted one by one",))
    if unbounded is not None:
        return replace(quote, upper_reasons=unbounded.upper_reasons)
    most = max(exact_sum(one.upper_usd or Decimal(0) for one in quotes), quote.expected_usd)
    return replace(quote, upper_usd=most, upper_reasons=("the highest cost of each row",))


def _scaled(usd: Decimal, total: int, count: int) -> Decimal:
    return usd if not count else EXACT.divide(EXACT.multiply(usd, cast("Any", total)), cast("Any", count))
