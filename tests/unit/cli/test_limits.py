"""`spend limits`, `spend set`, `spend reset` and `spend adjustments`."""

from __future__ import annotations

import asyncio
import csv
import getpass
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.spend_stores import account, claim
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.store import SQLiteSpendStore
from fastroai.usage import SpendAccount

WHY = ("--reason", "a large order", "--by", "Mia")
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture
def store(tmp_path: Path) -> str:
    place = str(tmp_path / "spend.db")

    async def spend(opened: SQLiteSpendStore, of: SpendAccount, usd: str) -> None:
        wanted = claim(usd, usd, of=of, keep=timedelta(days=90))
        assert (await opened.reserve(wanted)).granted
        assert await opened.mark_sent(wanted)
        await opened.settle(wanted, Decimal(usd))

    async def fill() -> None:
        earlier = SQLiteSpendStore(place, clock=lambda: YESTERDAY)
        await spend(earlier, account("day", "tenant:acme"), "8.5")
        await earlier.aclose()
        opened = SQLiteSpendStore(place)
        await spend(opened, account("day", "tenant:acme"), "2.25")
        await spend(opened, account("total", "=cmd"), "0.000001")
        await opened.reserve(claim("flying", 1, of=account("total", "=cmd"), lease=86_400))
        await opened.aclose()

    asyncio.run(fill())
    return place


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["spend", *arguments], prog_name="fastroai")


def shown(*arguments: str) -> Any:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_each_limit_is_told_with_what_is_left_of_its_open_window(store: str) -> None:
    rows = json.loads(shown("limits", "--store", store, "--json"))
    assert [list(row.values())[:7] for row in rows] == [
        ["=cmd", "total", True, "10", "0.000001", "1", "8.999999"],
        ["tenant:acme", "day", True, "10", "2.25", "0", "7.75"],
    ]
    assert rows[0]["resets_at"] is None
    assert datetime.fromisoformat(rows[1]["resets_at"]) > datetime.now(UTC)
    assert json.loads(shown("limits", "--store", store, "--format", "json")) == rows


def test_windows_that_are_over_are_told_on_demand(store: str) -> None:
    rows = json.loads(shown("limits", "--store", store, "--closed", "--key", "tenant:acme", "--json"))
    assert [(row["is_open"], row["spent_usd"]) for row in rows] == [(True, "2.25"), (False, "8.5")]
    lines = shown("limits", "--store", store, "--closed", "--window", "day").splitlines()
    assert [line.split()[:7] for line in lines[1:]] == [
        ["tenant:acme", "day", "open", "$10.00", "$2.25", "$0.00", "$7.75"],
        ["tenant:acme", "day", "closed", "$10.00", "$8.50", "$0.00", "$1.50"],
    ]


def test_csv_has_a_line_for_each_window_and_no_formulas(store: str) -> None:
    call("set", "=cmd", "20", "--store", store, "--window", "total", *WHY)
    table = list(csv.DictReader(io.StringIO(shown("limits", "--store", store, "--format", "csv"))))
    assert [(row["key"], row["is_open"], row["limit_usd"], row["adjustments"]) for row in table] == [
        ("'=cmd", "true", "20", "1"),
        ("tenant:acme", "true", "10", "0"),
    ]
    made = list(csv.DictReader(io.StringIO(shown("adjustments", "--store", store, "--format", "csv"))))
    assert [(row["key"], row["to_usd"], row["reason"]) for row in made] == [("'=cmd", "20", "a large order")]


def test_a_limit_is_raised_lowered_and_given_back_and_that_is_on_record(store: str) -> None:
    of = ("tenant:acme", "--store", store)
    assert "limit of tenant:acme (day): $10.00 -> $50.00\n$47.75 is left until " in shown(
        "set", *of[:1], "50", *of[1:], *WHY
    )
    lowered = shown("set", *of[:1], "2", *of[1:], *WHY)
    assert "$50.00 -> $2.00\n$2.25 is spent and $0.00 reserved: no request is admitted until " in lowered
    back = json.loads(shown("set", *of[:1], "default", *of[1:], *WHY, "--json"))
    assert (back["limit_usd"], back["remaining_usd"]) == ("10", "7.75")
    made = json.loads(shown("adjustments", "--store", store, "--json"))
    assert [(one["changes"], one["from_usd"], one["to_usd"]) for one in made] == [
        ("limit", "10", "50"),
        ("limit", "50", "2"),
        ("limit", "2", "10"),
    ]
    assert {(one["key"], one["by"], one["reason"]) for one in made} == {
        ("tenant:acme", "Mia", "a large order")
    }


def test_spending_is_reset_by_the_user_of_the_machine(store: str) -> None:
    told = shown("reset", "tenant:acme", "--store", store, "--reason", "a bug")
    assert told.startswith("spending of tenant:acme (day): $2.25 -> $0.00\n$10.00 is left")
    [line] = shown("adjustments", "--store", store, "--key", "tenant:acme").splitlines()[1:]
    assert line.split()[2:] == [
        "tenant:acme",
        "day",
        "spent",
        "$2.25",
        "$0.00",
        getpass.getuser(),
        "a",
        "bug",
    ]
    assert (
        shown("adjustments", "--store", store, "--key", "=cmd") == f"nothing was changed by hand in {store}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("set", "tenant:acm", "5"), "Did you mean 'tenant:acme'?"),
        (("set", "tenant:acme", "5", "--window", "hour"), "expected a window of 'tenant:acme': 'day'"),
        (("set", "tenant:acme", "5", "--window", "dya"), "Did you mean 'day'?"),
        (("set", "tenant:acme", "much"), "USD='much'"),
        (("set", "tenant:acme", "0"), "a positive amount of US dollars"),
        (("reset", "tenant:acme", "--by", " "), "--by=' '"),
        (("limits", "--format", "xml"), "'xml' is not one of 'table', 'json', 'csv'"),
        (("limits", "--window", "week"), "--window='week'"),
    ],
)
def test_errors_say_what_is_there(store: str, arguments: tuple[str, ...], named: str) -> None:
    reason = () if arguments[0] == "limits" else ("--reason", "a test")
    result = call(*arguments, "--store", store, *reason)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


def test_a_limit_is_set_before_the_first_spending_if_the_key_is_said_to_be_new(store: str) -> None:
    shown("set", "tenant:globex", "5", "--new", "--store", store, "--reason", "their plan")
    [line] = json.loads(shown("limits", "--store", store, "--key", "tenant:globex", "--json"))
    assert (line["limit_usd"], line["spent_usd"]) == ("5", "0")


def test_the_store_can_be_named_by_the_environment(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTROAI_STORE", "runs.db")
    monkeypatch.setenv("FASTROAI_SPEND_STORE", store)
    assert len(json.loads(shown("limits", "--json"))) == 2
    assert call("limits", "--store", f"{store}-typo").exit_code == 2


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    store = str(tmp_path / "[blue] spend.db")
    Path(store).touch()
    assert shown("limits", "--store", store) == f"no spend limit has counted anything in {store}\n"
