"""The result of a run of rows: a table with one line for each row, in the order of the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.contracts.brief import shortened
from fastroai.drawing.pages import escaped, page, table
from fastroai.errors import FastroAIError
from fastroai.errors.base import error_chain
from fastroai.records import Usage, dollars
from fastroai.rows.facts import Resumption, RowEnded
from fastroai.rows.frames import as_frame, is_arrow, with_types
from fastroai.rows.record import Lines
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import ReasonCode, RunStatus
from fastroai.store.reading.as_json import as_json
from fastroai.store.record.values import value_from_json
from fastroai.usage import format_cost

OutputT = TypeVar("OutputT", covariant=True)
T = TypeVar("T")

_AT_ONCE: Final = 500
"""Rows that are read from a store at once."""
_SHOWN: Final = 5
_short: Final = partial(shortened, most=40)

_ARROW_TYPES: Final = {
    "row": "int64",
    "key": "string",
    "error": "string",
    "cost_usd": "decimal",
    "input_tokens": "int64",
    "output_tokens": "int64",
    "requests": "int64",
    "attempts": "int64",
    "cached": "bool",
    "duration_ms": "double",
}
"""The columns beside inputs and outputs, with their types in Arrow and Parquet, whatever their values: so the
files of several runs can be read as one table."""
_OWN: Final = tuple(_ARROW_TYPES)
_ABOUT: Final = _OWN[2:]
"""The columns after those of the inputs and outputs."""
_TABLE_ATTRIBUTE: Final = "__fastroai_table__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[OutputT]):
    """One line of a table: a row, with its output or its failure, and what it has cost."""

    number: int
    """Position among the rows that were given, from 0."""
    key: str
    """The key that identifies the row: that of `key=`, otherwise its number and a hash of its inputs."""
    inputs: Mapping[str, Any]
    """The inputs by name, as JSON."""
    output: OutputT | None
    """The output; `None` if the row has failed."""
    failure: FailureFacts | None
    """The exception with which the row has failed, if it has."""
    usage: Usage
    """All that the row has spent, retries included."""
    attempts: int
    """Attempts at the row."""
    cached: bool
    """Whether the answer was kept from before, so that no request was made."""
    duration_ms: float
    """Wall time from the moment the row was read to its end, in milliseconds."""

    @property
    def ok(self) -> bool:
        """Whether the row has its output."""
        return self.failure is None

    @property
    def error(self) -> str | None:
        """The type and the message of the exception with which the row has failed."""
        return None if self.failure is None else str(self.failure)

    @property
    def cost_usd(self) -> Decimal:
        """Exact known cost, in US dollars."""
        return self.usage.cost_usd

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost: no request is unpriced or unmeasured."""
        return self.usage.cost_complete

    def as_columns(self, output_columns: Sequence[str] | None) -> dict[str, Any]:
        """Return the row by column. `output_columns` are the fields of the output, if it has any."""
        inputs = {f"input_{name}" if name in _OWN else name: value for name, value in self.inputs.items()}
        shown: dict[str, Any] = {"row": self.number, "key": self.key, **inputs}
        if output_columns is None:
            shown[_free("output", inputs)] = as_json(self.output)
        else:
            known = fields_of(self.output)
            for column in output_columns:
                shown[_free(column, inputs)] = known.get(column)
        usage = self.usage
        about = (
            self.error,
            usage.cost_usd if usage.cost_complete else None,
            usage.input_tokens,
            usage.output_tokens,
            usage.request_count,
            self.attempts,
            self.cached,
            self.duration_ms,
        )
        return shown | dict(zip(_ABOUT, about, strict=True))


def _free(column: str, inputs: Mapping[str, Any]) -> str:
    """Return a name for a column of the output that is no column of the inputs or of the table."""
    return f"output_{column}" if column in inputs or column in _OWN else column


def fields_of(output: object) -> Mapping[str, JsonValue]:
    """Return the fields of an output as JSON; none for an output without fields."""
    found = as_json(output)
    return found if isinstance(found, dict) else {}


def columns_of(returns: Annotation | None) -> Sequence[str] | None:
    """Return the names of the fields of a type; `None` if it is not a class that declares its fields."""
    kind = cast("Any", returns)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [*kind.model_fields]
    if is_dataclass(kind):
        return [one.name for one in fields(kind)]
    annotations = getattr(kind, "__required_keys__", None)
    if annotations is not None:  # a TypedDict
        return [*kind.__annotations__]
    return None


class RowTable(Generic[OutputT]):
    """The result of a run of rows: one line for each row that has ended, in the order of the rows.

        table = await classify.map(tickets, store="runs.db", run_id="tickets")
        table.frame()           # of the library that the rows came from
        table.failed            # the rows without an output
        table.cost_usd

    Each line is a `Row`, with the inputs, the output or failure, and the cost. Rows that wait, that a budget
    stopped or that were not begun have no line. Without a store, all rows are in memory. With one, they are
    read on demand: `async for row in table` and `for row in table` read a few hundred at a time; `failed`,
    `outputs`, `records`, `frame` and `arrow` read all. Reading without `await` blocks the event loop.
    """

    def __init__(
        self,
        *,
        name: str,
        run_id: str,
        lines: Lines,
        returns: Annotation | None,
        read: Callable[[JsonValue], object] | None = None,
        usage: Usage,
        status: RunStatus,
        reason: str,
        reason_code: ReasonCode | None,
        resumed: Resumption | None,
        waiting: Sequence[str] = (),
        backend: str | None = None,
        duration_ms: float = 0.0,
    ) -> None:
        """Called by `map`. `read` makes an output of its JSON."""
        self.name = name
        """The name of what gave the outputs."""
        self.run_id = run_id
        self.usage: Usage = usage
        """All that the run has spent, in all its processes."""
        self.status: RunStatus = status
        """`"finished"`: each row has ended. `"failed"`: a budget is used up. `"paused"`, `"cancelled"`:
        somebody asked for that, or a row waits. The same call with the same `run_id` and `store` goes on."""
        self.reason, self.reason_code = reason, reason_code
        self.resumed: Resumption | None = resumed
        """How many rows were on record, and what became of them; `None` for a new run."""
        self.waiting: Sequence[str] = tuple(waiting)
        """Keys of the rows that wait for a person or an event."""
        self.duration_ms = duration_ms
        """Wall time of the run in this process, in milliseconds."""
        self._lines, self._returns, self._read, self._backend = lines, returns, read, backend

    @staticmethod
    def of(error: BaseException) -> RowTable[Any] | None:
        """Return the table of a run of rows, as far as it was, from the exception that has ended it.

            try:
                table = classify.map_sync(tickets, write_to="tickets.csv")
            except OSError as error:  # or KeyboardInterrupt
                table = RowTable.of(error)

        Return `None` if it has ended no run of rows, or if a store has the rows: then the same call of `map`
        continues the run. The causes of the exception are searched, too.
        """
        known = (link.__dict__.get(_TABLE_ATTRIBUTE) for link in error_chain(error))
        return next((table for table in known if table is not None), None)

    def attach(self, error: BaseException) -> None:
        """Attach the table to an exception, so that `RowTable.of` returns it. Called by `map`.

        An exception that already has a table keeps that one.
        """
        error.__dict__.setdefault(_TABLE_ATTRIBUTE, self)

    # --- sums ---

    @property
    def cost_usd(self) -> Decimal:
        """Exact known cost of the run, in all its processes, in US dollars. See `cost_complete`."""
        return self.usage.cost_usd

    @property
    def cost_complete(self) -> bool:
        """True if `cost_usd` is the whole cost of the run.

        False if the price of the model of a request is unknown, or the usage of a request never came.
        """
        return self.usage.cost_complete

    @property
    def ok(self) -> bool:
        """True if the run has finished, and each row has its output. With a store, this reads all rows."""
        return self.status == "finished" and not self.failed

    # --- rows ---

    @cached_property
    def _numbers(self) -> Sequence[int]:
        return self._lines.numbers()

    def __len__(self) -> int:
        return len(self._numbers)

    async def __aiter__(self) -> AsyncIterator[Row[OutputT]]:
        """Read the rows, a few hundred at a time."""
        for start in range(0, len(self), _AT_ONCE):
            for row in await self._rows(self._numbers[start : start + _AT_ONCE]):
                yield row

    def __iter__(self) -> Iterator[Row[OutputT]]:
        for start in range(0, len(self), _AT_ONCE):
            yield from _now(self._rows(self._numbers[start : start + _AT_ONCE]))

    def __getitem__(self, index: int) -> Row[OutputT]:
        """Return the row at a position in the table. Raises `IndexError`."""
        [row] = _now(self._rows([self._numbers[index]]))
        return row

    @cached_property
    def failed(self) -> tuple[Row[OutputT], ...]:
        """The rows that have failed."""
        return tuple(row for row in self if not row.ok)

    @property
    def outputs(self) -> list[OutputT | None]:
        """The outputs of all rows that have ended, in the order of the rows; `None` for a row that failed.

        With a store, this reads all rows, and blocks the event loop meanwhile.
        """
        return [row.output for row in self]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows that have ended, as a list of dicts. Each dict has the values of one row, by column.

        The columns are `row` (the position, from 0) and `key`, then the inputs, then the fields of the
        output, or `output` if it has no fields. Then come `error`, `cost_usd`, `input_tokens`,
        `output_tokens`, `requests`, `attempts`, `cached` and `duration_ms`.

        Failed rows are included: their `error` is a text, and their output is `None`. Inputs and outputs are
        as JSON, so a date is a text. `cost_usd` is `None` unless the whole cost is known.

        An input that is named like a column of the table, such as `key` or `error`, becomes `input_NAME`. An
        output, or a field of it, that is named like such a column or like an input becomes `output_NAME`.

        With a store, this reads all rows, and blocks the event loop meanwhile.
        """
        rows = [*self]
        columns = self.output_columns(rows)
        return [row.as_columns(columns) for row in rows]

    def output_columns(self, rows: Sequence[Row[Any]] = ()) -> Sequence[str] | None:
        """Return the names of the fields of the outputs, which are columns of `records` and `frame`.

        These are the fields of the declared output type. If it declares none, as with `dict`, they are the
        fields that the outputs of `rows` have. Return `None` if the outputs have no fields, as with texts:
        then there is one column, `output`.
        """
        declared = columns_of(self._returns)
        if declared is not None or not rows:
            return declared
        outputs = [fields_of(row.output) for row in rows if row.ok]
        if not outputs or not all(outputs):
            return None
        return [*dict.fromkeys(name for output in outputs for name in output)]

    # --- frames ---

    def frame(self, backend: str | None = None) -> Any:
        """Return all rows as a frame of the library that they came from, or of an installed one.

        The rows are those that have ended, failed ones included, with the columns of `records`. A column of
        values that the library does not have in one column, such as numbers and texts, has their JSON.

        Args:
            backend: `"pandas"`, `"polars"` or `"pyarrow"`; by default, the library of the frame that was
                given to `map`, otherwise the first of these that is imported or installed.

        Raises:
            ConfigurationError: `backend` is another name, or a library that is not installed.
            MissingExtraError: narwhals is not installed, or none of the libraries: the extra `frames`.
        """
        return self.frame_of([*self], backend)

    def frame_of(self, rows: Sequence[Row[Any]], backend: str | None = None) -> Any:
        """Return these rows as a frame, as `frame` does for all rows of the table.

        Use it for rows that you have read with `async for`, which does not block the event loop.

        Raises:
            ConfigurationError: `backend` is another name, or a library that is not installed.
            MissingExtraError: narwhals is not installed, or none of the libraries: the extra `frames`.
        """
        outputs = self.output_columns(rows)
        records = [row.as_columns(outputs) for row in rows]
        names = [*dict.fromkeys(name for record in records for name in record)]
        if not records:
            names = ["row", "key", *(outputs or ["output"]), *_ABOUT]
        columns = {name: [record.get(name) for record in records] for name in names}
        made = as_frame(columns, backend or self._backend)
        return with_types(made, _ARROW_TYPES) if is_arrow(made) else made

    def arrow(self) -> Any:
        """Return all rows as a `pyarrow.Table`, with the columns of `records`.

        Raises:
            ConfigurationError: pyarrow is not installed.
            MissingExtraError: narwhals is not installed: the extra `frames`.
        """
        return self.frame("pyarrow")

    # --- for people ---

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    def __str__(self) -> str:
        last = _now(self._rows(self._numbers[-_SHOWN:]))
        lines = [_line(row) for row in last]
        if len(self) > len(lines):
            lines.insert(0, "…")
        return "\n".join([*lines, self.summary])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        last = _now(self._rows(self._numbers[-_SHOWN:]))
        more = (
            f'<p class="faint">the last {len(last)} of {len(self):,} rows</p>'
            if len(self) > len(last)
            else ""
        )
        lines = table(("row", "inputs", "output", "cost"), map(_cells, last), texts=3)
        return page(f"<h3>{escaped(self.summary)}</h3>{more}{lines}", str(self))

    @property
    def summary(self) -> str:
        """The totals of the table for people, in one line of text.

        It has the number of rows, the status and its reason, the cost, requests and tokens, how many rows
        wait, and what a resumed run did with its rows.
        """
        usage = self.usage
        told = [f"{len(self):,} rows of {self.name!r}: {self.status}"]
        if self.reason and self.status != "finished":
            told[0] += f" ({self.reason})"
        told.append(_cost_of(usage))
        told.append(f"{usage.request_count:,} requests")
        told.append(f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens")
        if self.waiting:
            told.append(f"{len(self.waiting):,} wait")
        if self.resumed is not None:
            told.append(str(self.resumed))
        return ", ".join(told)

    # --- parts ---

    async def _rows(self, numbers: Sequence[int]) -> list[Row[OutputT]]:
        return [row_of(end, self._read) for end in await self._lines.read(numbers)]


class RowFailed(FastroAIError):
    """A row has failed, and `on_error="stop"`. `table` has the rows that ended before.

    What to do: Correct the row, or leave `on_error` out, so that the other rows continue. With a store, the
    same call with the same `run_id` asks only the rows that have no output.
    """

    table: RowTable[Any] | None = None

    def __init__(self, name: str, number: int, key: str, reason: str) -> None:
        super().__init__(name, number, key, reason)
        self.name, self.number, self.key, self.reason = name, number, key, reason

    def __str__(self) -> str:
        return f"row {self.number} ({self.key}) of {self.name!r} failed: {self.reason}"


def row_of(end: RowEnded, read: Callable[[JsonValue], object] | None) -> Row[Any]:
    """Return the line for the end of a row. `read` makes an output of the JSON that a store has."""
    output: Any = end.output if read is None or end.failure is not None else read(end.output)
    return Row(
        number=end.number,
        key=end.key,
        inputs=end.inputs,
        output=output,
        failure=end.failure,
        usage=end.usage,
        attempts=end.attempts,
        cached=end.is_cached,
        duration_ms=end.duration_ms,
    )


def reader_of(returns: Annotation | None) -> Callable[[JsonValue], object]:
    """Return the function that makes an output of its JSON."""

    def read(stored: JsonValue) -> object:
        return value_from_json(stored, returns)

    return read


def _cells(row: Row[Any]) -> Sequence[str]:
    """Return a row as cells of HTML."""
    inputs, output = _shown(row)
    return str(row.number), escaped(inputs), escaped(output), format_cost(row.usage)


def _shown(row: Row[Any]) -> tuple[str, str]:
    """Return the inputs and the output of a row in short."""
    inputs = ", ".join(_short(value) for value in row.inputs.values())
    return inputs, f"failed: {row.error}" if row.failure is not None else _short(row.output)


def _line(row: Row[Any]) -> str:
    inputs, output = _shown(row)
    return f"{row.number:>6}  {inputs} → {output}  {_cost_of(row.usage)}"


def _cost_of(usage: Usage) -> str:
    known = dollars(usage.cost_usd)
    if usage.cost_complete:
        return known
    return f"at least {known}" if usage.cost_usd else "cost not known"


def _now(reading: Coroutine[Any, Any, T]) -> T:
    """Read from a store at once: also where an event loop runs, which is blocked meanwhile."""
    if running_loop() is None:
        return asyncio.run(reading)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, reading).result()
