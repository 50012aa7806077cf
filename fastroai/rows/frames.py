"""Frames of pandas, polars, DuckDB and Arrow, as rows and back, through narwhals (the extra `frames`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from fastroai.errors import MissingExtraError

_LIBRARIES: Final = ("pandas", "polars", "pyarrow", "duckdb", "modin", "cudf", "narwhals")
"""The modules whose frames are rows. A frame of one that nobody has imported does not exist."""
_PLAIN: Final = (str, bool, int, float, list, dict)
_AT_ONCE: Final = 500
"""Rows that are made of a frame at once."""


def is_frame(rows: object) -> bool:
    """Return whether rows are a frame, without importing anything."""
    home = type(rows).__module__.partition(".")[0]
    if home not in _LIBRARIES and home != "_duckdb":
        return False
    kind = type(rows)  # the object itself may look at its data to say what its columns are
    return hasattr(kind, "columns") or hasattr(kind, "column_names")


def narwhals() -> Any:
    """Return the module narwhals. Raises `MissingExtraError`."""
    try:
        return import_module("narwhals")
    except ImportError as error:
        raise MissingExtraError("a data frame as rows", "frames", "narwhals") from error


def frame_rows(frame: Any) -> tuple[int | None, Sequence[str], Iterator[Mapping[str, object]]]:
    """Return the number of rows of a frame, its columns, and its rows as mappings.

    The frame is read as it is now: later changes to it do not reach the rows.
    """
    nw = narwhals()
    known = nw.from_native(frame)
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
    item = getattr(value, "item", None)  # of a number of numpy
    return value if item is None else _plain(item(), has_nan)


def as_frame(columns: Mapping[str, Sequence[object]], backend: str | None) -> Any:
    """Return columns as a frame of a library: by default, of the first that is imported or installed.

    Raises:
        MissingExtraError: narwhals or the library is not installed.
    """
    nw = narwhals()
    name = backend or _installed()
    if name == "pandas":
        import_module("pandas")
    data = {column: [*values] for column, values in columns.items()}
    return nw.from_dict(data, backend=name).to_native()


def _installed() -> str:
    names = ("pandas", "polars", "pyarrow")
    for name in (*(one for one in names if one in sys.modules), *names):
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise MissingExtraError("frame()", "frames", "pyarrow")


def backend_of(rows: object) -> str | None:
    """Return the library of a frame; `None` for other rows."""
    home = type(rows).__module__.partition(".")[0]
    return home if is_frame(rows) and home in ("pandas", "polars", "pyarrow") else None
