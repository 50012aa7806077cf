"""`spend report`: rows of spending as a table, JSON and CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.run_logs import Log, definition
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.store import SQLiteRunStore

NOW = datetime.now(UTC)


@pytest.fixture
def store(tmp_path: Path) -> str:
    place = str(tmp_path / "runs.db")

    def spent(run_id: str, days_ago: int, *costs: str | None) -> Log:
        start = NOW - timedelta(days=days_ago, hours=1)
        log = Log(definition({"a": []}), run_id=run_id, start=start).start("a")
        for cost in costs:
            log = log.request("a@1", cost)
        return log.end()

    async def fill() -> None:
        opened = SQLiteRunStore(place, clock=lambda: NOW)
        await spent("r1", 1, "0.001", "0.002").write(opened, tenant="acme", tags=("eu", "=vip"))
        await spent("r2", 20, "0.5").write(opened, tenant="globex")
        await spent("r3", 1, None).write(opened)
        await opened.aclose()

    asyncio.run(fill())
    return place


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["spend", "report", *arguments], prog_name="fastroai")


def shown(*arguments: str) -> Any:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_rows_by_several_fields_are_json_with_exact_costs(store: str) -> None:
    rows = json.loads(shown("--store", store, "--by", "tenant, model", "--json"))
    assert [(row["tenant"], row["cost_usd"], row["requests"], row["cost_complete"]) for row in rows] == [
        (None, "0", 1, False),
        ("acme", "0.003", 2, True),
        ("globex", "0.5", 1, True),
    ]
    assert {row["model"] for row in rows} == {"openai:gpt-5-mini"}
    assert json.loads(shown("--store", store, "--by", "tenant,model", "--format", "json")) == rows


@pytest.mark.parametrize(
    "since", ["7d", "168h", (NOW - timedelta(days=7)).date().isoformat()], ids=["days", "hours", "date"]
)
def test_a_period_is_an_age_or_a_day(store: str, since: str) -> None:
    rows = json.loads(shown("--store", store, "--by", "tenant", "--since", since, "--json"))
    assert [row["tenant"] for row in rows] == [None, "acme"]
    before = json.loads(shown("--store", store, "--by", "tenant", "--until", since, "--json"))
    assert [row["tenant"] for row in before] == ["globex"]


def test_csv_has_a_line_for_each_row_and_no_formulas(store: str) -> None:
    table = list(csv.DictReader(io.StringIO(shown("--store", store, "--by", "tag", "--format", "csv"))))
    assert [(row["tag"], row["cost_usd"], row["cost_complete"]) for row in table] == [
        ("", "0.5", "false"),
        ("'=vip", "0.003", "true"),
        ("eu", "0.003", "true"),
    ]
    assert shown("--store", store, "--since", "1s", "--format", "csv").startswith("day,requests,")


def test_the_table_says_where_a_name_or_a_cost_is_not_known(store: str) -> None:
    lines = [line.split() for line in shown("--store", store, "--by", "tenant").splitlines()]
    assert lines[0] == ["tenant", "requests", "tokens", "in", "tokens", "out", "cost"]
    assert [(line[0], line[-1]) for line in lines[1:]] == [
        ("(none)", "unknown"),
        ("acme", "$0.003"),
        ("globex", "$0.50"),
    ]
    assert shown("--store", store, "--since", "1s") == f"no spending found in {store}\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            ("--by", "customer"),
            "--by='customer': expected a sequence of day, pipeline, step, model, t",
        ),
        (("--since", "yesterday"), "--since='yesterday': expected an age, as in 7d"),
        (("--until", "1"), "--until='1': expected an age"),
        (("--format", "xml"), "'xml' is not one of 'table', 'json', 'csv'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(store: str, options: tuple[str, ...], named: str) -> None:
    result = call("--store", store, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr
