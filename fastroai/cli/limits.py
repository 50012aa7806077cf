"""`spend limits`, `spend set`, `spend reset` and `spend adjustments`."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fastroai.cli.exits import OK
from fastroai.cli.opened import default_of_option, opened_book
from fastroai.cli.options import AsJson, Form
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import fields_of
from fastroai.cli.spending import write_csv
from fastroai.cli.text import local
from fastroai.errors import ConfigurationError
from fastroai.plain_text import plain
from fastroai.records import dollars

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.usage.shared.spend_amounts import Window
    from fastroai.usage.shared.spend_store import SpendAdjustment, SpendStatus

AS_IN_CODE = "default"
"""The argument of `spend set` that returns a limit to the amount in code."""

SpendPlace = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=["FASTROAI_SPEND_STORE", "FASTROAI_STORE"],
        default_factory=default_of_option,
        help="The store of the spend limits: a file, or a URL of Redis or PostgreSQL.",
        show_default=False,
    ),
]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The key of the limit, as `spend limits` shows it.", show_default=False
    ),
]
WindowName = Annotated[str, typer.Option("--window", help="hour, day, month or total.")]
By = Annotated[
    str | None, typer.Option(help="The person who changes it; by default the user of this machine.")
]
Reason = Annotated[str, typer.Option(help="The reason, which is stored.", show_default=False)]
OnlyKey = Annotated[str | None, typer.Option(help="Only this key.")]

_AMOUNTS = ("limit_usd", "spent_usd", "reserved_usd", "remaining_usd")
_WINDOW_FIELDS = ("key", "window", "is_open", *_AMOUNTS, "resets_at")
_ADJUSTMENT_FIELDS = ("at", "key", "window", "resets_at", "changes", "from_usd", "to_usd", "by", "reason")


async def limits(
    store: SpendPlace,
    key: OnlyKey = None,
    window: Annotated[str | None, typer.Option(help="Only windows of this kind.")] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Also windows that are over.")] = False,
    form: Form = "table",
    as_json: AsJson = False,
) -> int:
    """List what each spend limit has spent, reserved and left."""
    async with opened_book(store) as book:
        statuses = await book.list(key=key, window=cast("Window | None", window), closed=closed)
    if as_json or form == "json":
        print_json([_shape(status) for status in statuses])
    elif form == "csv":
        rows = [{**_shape(each), "adjustments": len(each.adjustments)} for each in statuses]
        write_csv((*_WINDOW_FIELDS, "adjustments"), rows)
    else:
        from fastroai.cli.tables import console, limits_table, nothing

        console().print(
            limits_table(statuses) if statuses else nothing("no spend limit has counted anything", store)
        )
    return OK


async def adjustments(
    store: SpendPlace,
    key: OnlyKey = None,
    form: Form = "table",
    as_json: AsJson = False,
) -> int:
    """List the changes by hand: the person, the time, the reason, and the amounts before and after."""
    async with opened_book(store) as book:
        statuses = await book.list(key=key, closed=True)
    made = [(status, one) for status in statuses for one in status.adjustments]
    made.sort(key=lambda pair: pair[1].at)
    rows = [_adjustment_of(status, one) for status, one in made]
    if as_json or form == "json":
        print_json(rows)
    elif form == "csv":
        write_csv(_ADJUSTMENT_FIELDS, rows)
    else:
        from fastroai.cli.tables import adjustments_table, console, nothing

        console().print(adjustments_table(made) if made else nothing("nothing was changed by hand", store))
    return OK


async def set_limit(
    key: Key,
    usd: Annotated[
        str,
        typer.Argument(
            metavar="USD",
            help="The new limit in US dollars, or `default` for the one in code.",
            show_default=False,
        ),
    ],
    store: SpendPlace,
    reason: Reason,
    window: WindowName = "day",
    new: Annotated[
        bool, typer.Option("--new", help="Also if nothing has been spent under this key yet.")
    ] = False,
    by: By = None,
    as_json: AsJson = False,
) -> int:
    """Raise or lower a spend limit, in all processes, until the end of its window."""
    async with opened_book(store) as book:
        if not new:  # a mistyped key would be the limit of nobody
            await book.check_known(key, window=cast("Window", window))
        amount = None if usd == AS_IN_CODE else usd
        status = await book.set_limit(
            key, amount, window=cast("Window", window), by=_person(by), reason=reason
        )
    return _tell(status, as_json)


async def reset(
    key: Key,
    store: SpendPlace,
    reason: Reason,
    window: WindowName = "day",
    by: By = None,
    as_json: AsJson = False,
) -> int:
    """Set the spending of the open window of a spend limit to zero."""
    async with opened_book(store) as book:
        status = await book.reset(key, window=cast("Window", window), by=_person(by), reason=reason)
    return _tell(status, as_json)


def _tell(status: SpendStatus, as_json: bool) -> int:
    """Print a change, and whether requests are admitted after it."""
    if as_json:
        print_json(_shape(status))
        return OK
    made = status.adjustments[-1]
    what = "limit" if made.changes == "limit" else "spending"
    until = "" if status.resets_at is None else f" until {local(status.resets_at)}"
    print(
        f"{what} of {plain(status.key)} ({status.window}): {dollars(made.from_usd)} -> {dollars(made.to_usd)}"
    )
    if status.remaining_usd:
        print(f"{dollars(status.remaining_usd)} is left{until}")
    else:
        used = f"{dollars(status.spent_usd)} is spent and {dollars(status.reserved_usd)} reserved"
        print(f"{used}: no request is admitted{until}")
    return OK


def _person(by: str | None) -> str:
    """Return the person who makes a change: by default the user of this machine."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise ConfigurationError("--by", None, "your name: this machine has none for this user") from error


def _shape(status: SpendStatus) -> dict[str, JsonValue]:
    made: list[JsonValue] = [_adjustment_of(status, one) for one in status.adjustments]
    return {**fields_of(_WINDOW_FIELDS, status), "adjustments": made}


def _adjustment_of(status: SpendStatus, made: SpendAdjustment) -> dict[str, JsonValue]:
    return fields_of(_ADJUSTMENT_FIELDS, made, status)
