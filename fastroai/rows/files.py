"""Files that get each row when it ends: CSV and JSON Lines at once, Parquet at the end."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Literal, TextIO

from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.rows.frames import as_text
from fastroai.rows.table import Row, RowTable, columns_of
from fastroai.rows.target import RowTarget

_FORMATS: Final = (".csv", ".jsonl", ".parquet")


class RowFile:
    """A file of rows. Each line is whole, and says the number of its row; at the end they are in order."""

    def __init__(self, path: str | os.PathLike[str], target: RowTarget[Any]) -> None:
        """Open the file, so that one that cannot be written is found before anything is paid.

        Raises:
            ConfigurationError: the name does not end with .csv, .jsonl or .parquet, or it cannot be written.
            MissingExtraError: pyarrow, which writes Parquet, is not installed.
        """
        self._path, self._format = Path(path).resolve(), Path(path).suffix.lower()
        if self._format not in _FORMATS:
            ends = f"{', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
            raise ConfigurationError("write_to", str(path), f"a file whose name ends with {ends}")
        if self._format == ".parquet":
            _parquet()
        self._outputs = columns_of(target.returns)
        self._columns: Sequence[str] | None = None
        self._file: TextIO | None = None
        try:
            if self._path.exists() and not self._path.is_file():
                raise OSError("it is a folder, a device or a pipe")
            _opened(self._path, "a").close()
        except OSError as error:
            raise ConfigurationError("write_to", str(path), f"a file that can be written: {error}") from error

    async def begin(self, rows: AsyncIterator[Row[Any]]) -> None:
        """Replace the file by one that begins with these rows, which have ended before."""
        if self._format != ".parquet":
            await self._replace(rows)
            self._file = _opened(self._path, "a")

    async def add(self, row: Row[Any]) -> None:
        """Write a row that has ended. The first one replaces the file, unless it has begun with others."""
        if self._format != ".parquet":
            if self._file is None:
                self._file = _opened(self._path, "w")
            self._write(self._file, row)
            self._file.flush()

    async def put_in_order(self, table: RowTable[Any]) -> None:
        """Write all rows of the table in their order, and replace the file."""
        self.close()
        if self._format == ".parquet":
            made = table.frame_of([row async for row in table], "pyarrow")
            with self._replaced() as temporary:
                _parquet().write_table(made, temporary)
            return
        self._columns = None
        await self._replace(aiter(table))

    async def _replace(self, rows: AsyncIterator[Row[Any]]) -> None:
        with self._replaced() as temporary, _opened(temporary, "w") as file:
            async for row in rows:
                self._write(file, row)

    @contextmanager
    def _replaced(self) -> Iterator[Path]:
        """Yield a new file beside this one, which takes its place at the end, or is removed."""
        name = f".{self._path.name}-"
        with NamedTemporaryFile(dir=self._path.parent, prefix=name, delete=False) as made:
            temporary = Path(made.name)
        try:
            yield temporary
            temporary.chmod(self._path.stat().st_mode)
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, with the rows that it has."""
        if self._file is not None:
            with suppress(OSError):  # of a line that is half in the file, which `add` has raised
                self._file.close()

    def _write(self, file: TextIO, row: Row[Any]) -> None:
        columns = row.as_columns(self._outputs)
        if self._format == ".jsonl":
            file.write(as_text(columns) + "\n")
            return
        line = io.StringIO()  # so that the file gets the whole line at once
        writer = csv.writer(line)
        if self._columns is None:
            self._columns = [*columns]
            writer.writerow(self._columns)
        writer.writerow([_cell(columns.get(name)) for name in self._columns])
        file.write(line.getvalue())


def _cell(value: object) -> object:
    if isinstance(value, Mapping | list | tuple):
        return as_text(value)
    return value


def _parquet() -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError("a Parquet file of rows", "frames", "pyarrow") from error


def _opened(path: Path, mode: Literal["a", "w"]) -> TextIO:
    return path.open(mode, encoding="utf-8", errors="backslashreplace", newline="")
