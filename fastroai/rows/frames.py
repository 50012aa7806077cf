"""Frames of pandas, polars, DuckDB and Arrow, as rows and back, through narwhals (the extra `frames`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from pydantic_core import to_jsonable_python

from fastroai.errors import ConfigurationError, MissingExtraError

_LIBRARIES: Final = ("pandas", "polars", "pyarrow", "duckdb", "modin", "cudf", "narwhals")
"""The modules whose frames are rows. A frame of one that nobody has imported does not exist."""
_MADE: Final = ("pandas", "polars", "pyarrow")
"""Those of them whose frames are made of tables."""
_PLAIN: Final = (str, bool, int, float, list, dict)
_DECIMAL_PLACES: Final = 18
"""Of amounts in Arrow, whose decimals have 38 digits. A price of a token has about ten."""
_AT_ONCE: Final = 500
"""Rows that are made of a frame at once."""


def is_frame(rows: object) -> bool:
    """Return whether rows are a frame, without importing anything."""
    home = type(rows).__module__.partition(".")[0]
    if home not in _LIBRARIES and home != "_duckdb":
        return False
    kind = type(rows)  # the object itself may look at its data to say what its columns are
    return hasattr(kind, "columns") or hasattr(kind, "column_names")


def is_column(rows: object) -> bool:
    """Return whether rows are the values of a column of a frame, or an array of numpy."""
    kind = type(rows)
    return kind.__module__.partition(".")[0] in (*_LIBRARIES, "numpy") and hasattr(kind, "__len__")


def values_of(column: Any) -> Iterator[object]:
    """Yield the values of a column, as Python has them."""
    has_nan = type(column).__module__.startswith(("pandas", "modin", "cudf"))
    return (_plain(value, has_nan) for value in column)


def narwhals() -> Any:
    """Return the module narwhals. Raises `MissingExtraError`."""
    try:
        return import_module("narwhals")
    except ImportError as error:
        raise MissingExtraError("a data frame as rows", "frames", "narwhals") from error


def frame_rows(frame: Any) -> tuple[int | None, Sequence[str], Iterator[Mapping[str, object]]]:
    """Return the number of rows of a frame, its columns, and its rows as mappings.

    The frame is read as it is now: later changes to it do not reach the rows.

    Raises:
        ConfigurationError: two columns have one name, or narwhals does not know frames like this one.
    """
    nw = narwhals()
    try:
        known = nw.from_native(frame)
    except (TypeError, nw.exceptions.NarwhalsError) as error:
        expected = f"a frame of pandas, polars, DuckDB or Arrow, whose columns have different names: {error}"
        raise ConfigurationError("rows", ..., expected) from error
    known = known.collect() if isinstance(known, nw.LazyFrame) else known.clone()
    has_nan = known.implementation.is_pandas_like()
    return len(known), [str(name) for name in known.columns], _rows(known, has_nan)


def _rows(frame: Any, has_nan: bool) -> Iterator[Mapping[str, object]]:
    for start in range(0, len(frame), _AT_ONCE):
        for row in frame[start : start + _AT_ONCE].iter_rows(named=True):
            yield {str(name): _plain(value, has_nan) for name, value in row.items()}


def _plain(value: Any, has_nan: bool) -> object:
    """Return a value of a frame as Python has it. In pandas, what is not there is `nan`, `NA` or `NaT`."""
    if value is None or isinstance(value, _PLAIN):
        return None if has_nan and isinstance(value, float) and value != value else value
    if has_nan and type(value).__name__ in ("NAType", "NaTType"):
        return None
    item = getattr(value, "item", None) or getattr(value, "as_py", None)  # of numpy, and of Arrow
    return value if item is None else _plain(item(), has_nan)


def as_frame(columns: Mapping[str, Sequence[object]], backend: str | None) -> Any:
    """Return columns as a frame of a library: by default, of the first that is imported or installed.

    A column whose values the library cannot have in one column has their JSON.

    Raises:
        ConfigurationError: it is none of these libraries, or is not installed.
        MissingExtraError: narwhals is not installed, or none of the libraries.
    """
    nw = narwhals()
    name = backend or _installed()
    if name not in _MADE:
        raise ConfigurationError("backend", name, f"one of {', '.join(map(repr, _MADE))}")
    try:
        import_module(name)
    except ImportError as error:
        raise ConfigurationError("backend", name, f"an installed library: pip install {name}") from error

    def made(data: Mapping[str, Sequence[object]]) -> Any:
        return nw.from_dict(dict(data), backend=name).to_native()

    def fitting(values: Sequence[object]) -> Sequence[object]:
        try:
            made({"": values})
        except Exception:
            return [value if value is None else as_text(value) for value in values]
        return values

    try:
        return made(columns)
    except Exception:  # each library has its own exceptions for values of different types
        return made({column: fitting(values) for column, values in columns.items()})


def is_arrow(frame: object) -> bool:
    """Return whether a frame is a table of Arrow."""
    return type(frame).__module__.partition(".")[0] == "pyarrow"


def with_types(table: Any, types: Mapping[str, str]) -> Any:
    """Return an Arrow table with these types of columns, `decimal` being one for exact US dollars.

    A column with values that its type cannot have stays as it is.
    """
    arrow = import_module("pyarrow")
    for name, alias in types.items():
        kind = arrow.decimal128(38, _DECIMAL_PLACES) if alias == "decimal" else arrow.type_for_alias(alias)
        if name in table.column_names:
            with suppress(arrow.ArrowInvalid):
                table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    return table


def as_text(value: object) -> str:
    """Return a text itself, and the JSON of another value. Halves of surrogate pairs are escaped."""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(to_jsonable_python(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace").decode()


def _installed() -> str:
    for name in (*(one for one in _MADE if one in sys.modules), *_MADE):
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise MissingExtraError("frame()", "frames", "pyarrow")


def backend_of(rows: object) -> str | None:
    """Return the library of a frame; `None` for other rows."""
    home = type(rows).__module__.partition(".")[0]
    return home if is_frame(rows) and home in _MADE else None
