"""Tables: frames in and out, files, and what people see."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from fastroai.errors import ConfigurationError, usage_of
from fastroai.functions import compute, contract, infer
from fastroai.rows import RowEnded, RowTable
from fastroai.store import MemoryRunStore
from fastroai.testing import Fault, ModelServer, Reply

COLUMNS: dict[str, Any] = {
    "pandas": lambda values: pd.Series(values),
    "polars": lambda values: pl.Series(values),
    "pyarrow": lambda values: pa.array(values),
    "numpy": lambda values: np.array(values, dtype=object),
}
FRAMES: dict[str, Any] = {
    "pandas": lambda rows: pd.DataFrame(rows),
    "polars": lambda rows: pl.DataFrame(rows),
    "polars, lazy": lambda rows: pl.LazyFrame(rows),
    "pyarrow": lambda rows: pa.Table.from_pylist(rows),
    "duckdb": lambda rows: duckdb.connect().from_arrow(pa.Table.from_pylist(rows)),
}


@contract
class Scored(BaseModel):
    label: str
    score: float | None
    tags: list[str] = []


@compute
async def score(text: str | None, weight: float | None = 1.0) -> Scored:
    if text == "bad":
        raise ValueError("no good")
    return Scored(label=(text or "none").upper(), score=weight, tags=["a", "b"])


ROWS: list[dict[str, Any]] = [
    {"text": "one", "weight": 1.5, "id": 7},
    {"text": None, "weight": None, "id": 8},
    {"text": "bad", "weight": 2.0, "id": 9},
]


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_frames_go_in_and_come_out(library: str, store: Any) -> None:
    table = await score.map(FRAMES[library](ROWS), store=store, key="id")
    assert [row.inputs for row in table] == [
        {"text": "one", "weight": 1.5},
        {"text": None, "weight": None},
        {"text": "bad", "weight": 2.0},
    ]
    assert [row.key for row in table] == ["7", "8", "9"]
    for backend in ("pandas", "polars", "pyarrow"):
        frame = table.frame(backend)
        columns = [*frame.column_names] if backend == "pyarrow" else [*frame.columns]
        assert columns[:7] == ["row", "key", "text", "weight", "label", "score", "tags"]
        assert type(frame).__module__.startswith(backend)
    records = table.arrow().to_pylist()
    assert [record["label"] for record in records] == ["ONE", "NONE", None]
    assert "no good" in records[2]["error"]
    assert records[0]["cost_usd"] == Decimal(0)


async def test_a_frame_comes_out_of_the_library_that_it_came_from() -> None:
    assert isinstance((await score.map(pl.DataFrame(ROWS[:1]))).frame(), pl.DataFrame)
    assert isinstance((await score.map(pd.DataFrame(ROWS[:1]))).frame(), pd.DataFrame)


async def test_what_is_not_there_in_pandas_is_none_and_a_nan_of_polars_stays() -> None:
    frame = pd.DataFrame({"text": ["a", None, pd.NA], "weight": [float("nan"), 1.0, 2.0]})
    table = await score.map(frame)
    assert [row.inputs["text"] for row in table] == ["a", None, None]
    assert table[0].inputs["weight"] is None
    [row] = await score.map(pl.DataFrame({"text": ["a"], "weight": [math.nan]}))
    assert row.output is not None
    assert row.output.score is not None
    assert math.isnan(row.output.score)


async def test_a_frame_without_a_column_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ConfigurationError, match=r"column 'text', which 'score' needs.*'txt'"):
        await score.map(pd.DataFrame({"txt": ["a"]}))
    with pytest.raises(ConfigurationError, match=r"column 'nr', which key= names; its columns are .*'id'\.$"):
        await score.map(pl.DataFrame(ROWS), key="nr")


async def test_a_frame_that_changes_under_the_run_is_read_as_it_was() -> None:
    frame = pd.DataFrame({"text": ["a", "b", "c"]})

    async def change(event: object) -> None:
        frame["text"] = "changed"
        frame.drop(index=frame.index, inplace=True)

    table = await score.map(frame, concurrency=1, on_event=change)
    assert [row.inputs["text"] for row in table] == ["a", "b", "c"]


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_files_have_whole_lines_at_once_and_are_in_order_at_the_end(tmp_path: Path, store: Any) -> None:
    path, seen = tmp_path / "rows.jsonl", list[list[int]]()

    def look(event: object) -> None:
        text = path.read_text(encoding="utf-8")
        assert not text or text.endswith("\n")
        seen.append([json.loads(line)["row"] for line in text.splitlines()])

    table = await score.map(ROWS, store=store, run_id="r", write_to=path, on_event=look, concurrency=1)
    assert [0, 1, 2] in seen
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in lines] == [0, 1, 2]
    assert lines[0]["tags"] == ["a", "b"]
    assert [line["label"] for line in lines] == [record["label"] for record in table.records]
    assert names_in(tmp_path) == ["rows.jsonl"]


async def test_csv_and_parquet_have_the_same_rows(tmp_path: Path) -> None:
    await score.map(ROWS, write_to=tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [(line["row"], line["label"], line["tags"]) for line in lines] == [
        ("0", "ONE", '["a","b"]'),
        ("1", "NONE", '["a","b"]'),
        ("2", "", ""),
    ]
    await score.map(ROWS, write_to=tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").column("label").to_pylist() == ["ONE", "NONE", None]


async def test_the_parquet_files_of_several_runs_are_read_as_one_table(
    model_server: ModelServer, tmp_path: Path
) -> None:
    @infer(intent="Say it", model=model_server.model("openai:gpt-5-mini"), retries=0)
    async def say(text: str) -> str:
        raise NotImplementedError

    model_server.rule(lambda request: "bad" in request.prompt, Reply(fault=Fault.status(400)))
    tables = [
        await say.map(rows, write_to=tmp_path / f"{number}.parquet")
        for number, rows in enumerate((["fine"], ["fine", "bad"], ["bad"]))
    ]
    files = [pq.read_table(tmp_path / f"{number}.parquet").drop(["output"]) for number in range(3)]
    assert files[0].schema == files[1].schema == files[2].schema
    assert pa.concat_tables(files)["cost_usd"].to_pylist() == [
        row.cost_usd for table in tables for row in table
    ]


async def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    asked: list[object] = []
    for path, expected in (
        (tmp_path / "no" / "rows.csv", "a file that can be written"),
        ("rows.txt", ".csv"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            await score.map(ROWS, write_to=path, on_event=asked.append)
    assert not asked


async def test_a_table_is_shown_by_its_last_lines_and_its_sum() -> None:
    table = await score.map([f"text {number}" for number in range(10)])
    shown = str(table).splitlines()
    assert shown[0] == "…"
    assert shown[1].split() == ["5", "text", "5,", "1.0", "→", *shown[1].split()[5:]]
    assert shown[-1] == table.summary == "10 rows of 'score': finished, $0.00, 0 requests, 0 + 0 tokens"
    assert repr(table) == f"<{table.summary}>"
    assert table[-1].number == 9
    with pytest.raises(IndexError):
        table[10]


async def test_columns_of_the_output_do_not_hide_those_of_the_inputs() -> None:
    @compute
    async def relabel(label: str) -> Scored:
        return Scored(label="new", score=1.0)

    [record] = (await relabel.map(["old"])).records
    assert (record["label"], record["output_label"]) == ("old", "new")


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("library", COLUMNS)
async def test_a_column_of_a_frame_is_rows_of_single_values(library: str) -> None:
    table = await score.map(COLUMNS[library](["one", None]))
    assert [row.inputs["text"] for row in table] == ["one", None]
    assert [row.output.label for row in table if row.output] == ["ONE", "NONE"]


async def test_frames_that_cannot_be_rows_are_refused_and_say_why() -> None:
    doubled = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    for frame in (doubled, pa.RecordBatch.from_pylist([{"text": "a"}])):
        with pytest.raises(ConfigurationError, match="(?s)different names: .*(text|RecordBatch)"):
            await score.map(frame)


@compute
async def named(key: str, error: str, row: int) -> str:
    return f"{key} {error} {row}"


@contract
class Mixed(BaseModel):
    values: dict[str, int | str]
    text: str


@compute
async def mixed(number: int) -> Mixed:
    return Mixed(values={"a": number if number else "none"}, text="half \ud800")


async def test_columns_of_the_table_do_not_hide_those_of_the_inputs(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    table = await named.map([{"key": "K", "error": "E", "row": 7}], write_to=path)
    [record] = table.records
    assert (record["row"], record["key"], record["error"]) == (0, table[0].key, None)
    assert (record["input_row"], record["input_key"], record["input_error"]) == (7, "K", "E")
    [line] = csv.DictReader(path.read_text().splitlines())
    assert (line["row"], line["input_row"]) == ("0", "7")


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
async def test_values_that_no_column_can_have_are_json_and_nothing_is_lost(
    backend: str, tmp_path: Path
) -> None:
    table: Any = None
    for ending in ("csv", "jsonl", "parquet"):
        table = await mixed.map([0, 1], write_to=tmp_path / f"rows.{ending}")
    frame = table.frame(backend)
    assert list(frame["number"]) == [0, 1] or frame["number"].to_pylist() == [0, 1]
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [line["values"] for line in lines] == [{"a": "none"}, {"a": 1}]
    assert lines[0]["text"] == "half \ud800"
    written = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert [json.loads(line["values"]) for line in written] == [{"a": "none"}, {"a": 1}]
    assert written[0]["text"] == r"half \ud800"
    with pytest.raises(ConfigurationError, match="'pandas', 'polars', 'pyarrow'"):
        table.frame("excel")


async def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = await mixed.map([0])
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ConfigurationError, match="backend='polars'.*pip install polars"):
        table.frame("polars")


async def test_a_file_is_written_through_a_link_and_only_where_lines_stay(tmp_path: Path) -> None:
    path, link, device = tmp_path / "rows.csv", tmp_path / "link.csv", tmp_path / "null.csv"
    path.touch()
    link.symlink_to(path)
    await score.map(["a"], write_to=link)
    assert link.is_symlink()
    assert len(path.read_text().splitlines()) == 2
    device.symlink_to("/dev/null")
    with pytest.raises(ConfigurationError, match="a folder, a device or a pipe"):
        await score.map(["a"], write_to=device)


async def test_what_was_paid_is_on_the_exception_if_rows_cannot_be_read_or_written(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield from ("one", "two")
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone") as raised:
        await score.map(broken())
    table = RowTable.of(raised.value)
    assert table is not None
    assert (table.status, [row.inputs["text"] for row in table]) == ("failed", ["one", "two"])

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # as a disk that is full
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            await score.map([f"row {number}" for number in range(100)], write_to=tmp_path / "rows.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    table = RowTable.of(raised.value)
    assert table is not None
    assert 0 < len(table) < 100
    assert all(row.ok for row in table)


@compute
async def slow(number: int) -> int:
    await asyncio.sleep(0 if number < 3 else 3600)
    return number


async def test_rows_of_a_task_that_is_cancelled_are_on_the_exception() -> None:
    async def stop(event: object) -> None:
        if isinstance(event, RowEnded) and event.number == 2:
            going.cancel()

    going = asyncio.ensure_future(slow.map(range(5), on_event=stop, concurrency=1))
    with pytest.raises(asyncio.CancelledError) as raised:
        await going
    table = RowTable.of(raised.value)
    assert table is not None
    assert (table.status, table.outputs) == ("cancelled", [0, 1, 2])


def test_rows_of_a_script_that_is_interrupted_are_on_the_exception() -> None:
    def interrupt(event: object) -> None:
        if isinstance(event, RowEnded) and event.number == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as raised:
        slow.map_sync(range(5), on_event=interrupt, concurrency=1)
    table = RowTable.of(raised.value)
    assert table is not None
    assert table.outputs == [0, 1, 2]
    assert usage_of(raised.value) is not None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"inputs": ["text"]}, "a mapping from inputs to columns"),
        ({"inputs": {"text": 0}}, "a mapping from inputs to columns"),
        ({"key": ["text"]}, "the name of a column"),
    ],
)
async def test_options_of_another_type_are_refused_before_anything_is_asked(options: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        await score.map([{"text": "a"}], **options)


async def test_inputs_and_keys_that_cannot_be_used_are_told_by_row() -> None:
    table = await score.map(["a", "b"], inputs=lambda row: {"text": row} if row == "a" else row)
    assert (table[0].ok, table[1].ok) == (True, False)
    assert "row 1: inputs= made 'b' of it, and not a mapping" in str(table[1].error)
    table = await score.map([{"text": "a", "id": key} for key in (math.nan, None, "", 1)], key="id")
    assert [row.ok for row in table] == [False, False, False, True]
    assert "row 0: its key is nan" in str(table[0].error)
    [row] = await score.map([{"words": "a"}], inputs={"text": "body"})
    assert "no column 'body', which 'score' needs" in str(row.error)
    assert "inputs={'text': ...}" in str(row.error)
