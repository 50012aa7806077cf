"""Rows as they are given: read one at a time, with their inputs by name and the key of each."""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from pydantic_core import to_json, to_jsonable_python

from fastroai.errors import ConfigurationError
from fastroai.errors.texts import nearest_hint
from fastroai.rows.frames import frame_rows, is_column, is_frame, values_of
from fastroai.rows.target import TakesRows
from fastroai.store.record.declarations import digest

RowSource: TypeAlias = Iterable[object] | AsyncIterable[object]
"""Rows: a list, an iterator or an async iterator of mappings or of single values; or a frame."""

RowInputs: TypeAlias = Mapping[str, str] | Callable[[Any], Mapping[str, object]]
"""The column of each parameter, where the names differ; or a function from a row to the inputs."""

RowKey: TypeAlias = str | Callable[[Any], object]
"""The column that identifies a row, or a function from a row to its key."""


@dataclass(slots=True)
class ReadRow:
    """A row, ready to be asked."""

    number: int
    key: str
    is_keyed: bool
    inputs: Mapping[str, Any]
    """The bound inputs; of a row that cannot be asked, what was given."""
    shown: Mapping[str, Any]
    """The inputs as JSON."""
    asked: str
    error: Exception | None = None
    """Why the row cannot be asked."""


class Rows:
    """The rows of a run, which are read when somebody is ready to ask the next one."""

    def __init__(
        self,
        rows: RowSource,
        target: TakesRows,
        inputs: RowInputs | None = None,
        key: RowKey | None = None,
        only: Container[int] | None = None,
        *,
        as_json: bool = False,
    ) -> None:
        """Take the rows, and how their columns belong to the inputs of the target.

        With `only`, the rows with other numbers are left out. With `as_json`, the target only checks the
        inputs of a row, which are the JSON in which they cross processes.

        Raises:
            ConfigurationError: the rows are no rows, or a frame lacks a column.
        """
        self._target, self._inputs, self._key, self._only = target, inputs, key, only
        self._as_json = as_json
        self.total: int | None = None
        """The number of rows, if it is known before they are read."""
        columns: Sequence[str] | None = None
        if is_frame(rows):
            self.total, columns, rows = frame_rows(rows)
        elif is_column(rows):
            self.total, rows = len(cast("Sequence[object]", rows)), values_of(rows)
        elif isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable | AsyncIterable):
            expected = "a list or an iterator of rows: mappings or single values; or a frame or a column"
            raise ConfigurationError("rows", rows, expected)
        elif hasattr(rows, "__len__"):
            self.total = len(cast("Sequence[object]", rows))
        self._check_inputs(columns)
        self._async: AsyncIterator[object] | None = None
        self._sync: Iterator[object] = iter(())
        if isinstance(rows, AsyncIterable):
            self._async = aiter(rows)
        else:
            self._sync = iter(rows)
        self._read = 0

    def _check_inputs(self, columns: Sequence[str] | None) -> None:
        parameters, inputs = self._target.parameters, self._inputs
        if isinstance(inputs, Mapping):
            is_valid = all(isinstance(one, str) for one in [*inputs.keys(), *inputs.values()])
        else:
            is_valid = inputs is None or callable(inputs)
        if not is_valid:
            expected = "a mapping from inputs to columns, or a function from a row to its inputs"
            raise ConfigurationError("inputs", inputs, expected)
        if not (self._key is None or isinstance(self._key, str) or callable(self._key)):
            expected = "the name of a column, or a function from a row to its key"
            raise ConfigurationError("key", self._key, expected)
        if isinstance(inputs, Mapping) and parameters is not None:
            for name in inputs:
                if name not in parameters:
                    hint = nearest_hint(name, tuple(parameters))
                    expected = f"inputs of {self._target.name!r}, which are {_listed(parameters)}.{hint}"
                    raise ConfigurationError("inputs", name, expected)
        if columns is None:
            return
        if isinstance(self._key, str) and self._key not in columns:
            raise ConfigurationError(
                "rows", self._key, f"a frame with {_no_column(self._key, columns, _KEY)}"
            )
        if callable(inputs):
            return
        named = inputs or {}
        needed = [name for name, required in (parameters or {}).items() if required or name in named]
        for name in needed:
            if (column := named.get(name, name)) not in columns:
                expected = _no_column(column, columns, _input(name, self._target.name))
                raise ConfigurationError("rows", column, f"a frame with {expected}")

    async def read(self) -> ReadRow | None:
        """Return the next row; `None` after the last one. Raises what the iterator raises."""
        while True:
            try:
                row = await anext(self._async) if self._async is not None else next(self._sync)
            except (StopAsyncIteration, StopIteration):
                return None
            number, self._read = self._read, self._read + 1
            if self._only is None or number in self._only:
                return self._prepared(number, row)

    async def aclose(self) -> None:
        """Close an async generator, so that what it holds is given back now."""
        if self._async is not None and (close := getattr(self._async, "aclose", None)) is not None:
            await close()

    def _prepared(self, number: int, row: object) -> ReadRow:
        key: str | None = None
        given: Mapping[str, object] = {}
        try:
            key = self._key_of(row)
            given = inputs_of_row(row, self._target.parameters, self._inputs, self._target.name)
            bound, shown = self._bound(given)
            asked = digest(to_json(shown, inf_nan_mode="constants", fallback=repr))
        except Exception as error:  # validators, `inputs=` and `key=` are the user's, and can raise anything
            shown = {name: None if value is None else _shown(value) for name, value in given.items()}
            asked = digest(_shown(row))
            told = RowUnusable(number, key, error)
            return ReadRow(number, key or f"{number}-{asked}", key is not None, given, shown, asked, told)
        return ReadRow(number, key or f"{number}-{asked}", key is not None, bound, shown, asked)

    def _bound(self, given: Mapping[str, object]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return bound inputs, and their JSON."""
        if not self._as_json:
            bound = self._target.bind(given)
            return bound, self._target.as_json(bound)
        crossing: dict[str, Any] = to_jsonable_python(dict(given), inf_nan_mode="constants")
        self._target.bind(crossing)
        return crossing, crossing

    def _key_of(self, row: object) -> str | None:
        if self._key is None:
            return None
        key = self._key(row) if callable(self._key) else _column(row, self._key, _KEY)
        if key is None or key == "" or key != key:  # nan is no key
            raise ValueError(f"its key is {key!r}")
        return str(key)


def inputs_of_row(
    row: object, parameters: Mapping[str, bool] | None, inputs: RowInputs | None, name: str
) -> Mapping[str, object]:
    """Return the inputs of a row by name.

    `parameters` are those of the target with this name, each with whether it is required.

    Raises:
        ValueError: a column is missing.
        TypeError: the row is no mapping, and there are several inputs, or `inputs` made no mapping of it.
    """
    if callable(inputs):
        made: object = inputs(row)
        if not isinstance(made, Mapping):
            raise TypeError(f"inputs= made {made!r} of it, and not a mapping from inputs to values")
        return made
    if not isinstance(row, Mapping):
        if inputs:
            raise TypeError(f"inputs= names columns, but this row is of the type {type(row).__name__}")
        return {_only(parameters, name): row}
    known: Mapping[str, object] = row
    named = inputs or {}
    if parameters is None:
        left = {column: value for column, value in known.items() if column not in named.values()}
        return left | {one: _column(row, column, _input(one, name)) for one, column in named.items()}
    found: dict[str, object] = {}
    for parameter, required in parameters.items():
        column = named.get(parameter, parameter)
        if required or column in known or parameter in named:
            found[parameter] = _column(row, column, _input(parameter, name))
    return found


class RowUnusable(Exception):
    """A row cannot be asked: a column is missing, or a value is not what the function takes."""

    def __init__(self, number: int, key: str | None, reason: Exception) -> None:
        super().__init__(number, key, reason)
        self.number, self.key, self.reason = number, key, reason

    def __str__(self) -> str:
        key = "" if self.key is None else f" ({self.key})"
        return f"row {self.number}{key}: {self.reason}"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # it is the user's, or nested too deeply
        return f"<{type(value).__name__}>"


_Needs: TypeAlias = tuple[str, str]
"""What needs a column, and what to do if the column has another name."""

_KEY: Final = ("key= names", "")


def _input(name: str, target: str) -> _Needs:
    return f"{target!r} needs", f" If the column has another name, say which: inputs={{{name!r}: ...}}"


def _column(row: object, column: str, needs: _Needs) -> object:
    if not isinstance(row, Mapping):
        raise TypeError(f"it is a {type(row).__name__} and has no column {column!r}")
    if column not in row:
        raise ValueError(f"it has no {_no_column(column, tuple(map(str, row)), needs)}")
    value: object = row[column]
    return value


def _no_column(column: str, columns: Sequence[str], needs: _Needs) -> str:
    what, remedy = needs
    hint = nearest_hint(column, columns)
    return f"column {column!r}, which {what}; its columns are {_listed(columns)}.{hint}{remedy}"


def _only(parameters: Mapping[str, bool] | None, target: str) -> str:
    if parameters is None:
        raise TypeError(f"{target!r} takes inputs by name, so each row must be a mapping")
    required = [name for name, is_required in parameters.items() if is_required] or [*parameters][:1]
    if len(required) != 1:
        raise TypeError(f"{target!r} takes {_listed(parameters)}, so each row must be a mapping")
    return required[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
