"""Text that is being written. It is not on record piece by piece, so a file takes it from worker to worker.

Workers on several machines would take a channel of Redis instead.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel

from fastroai.pipelines import RunEvent, StepStarted, TextChunk


class Piece(BaseModel):
    """Some text that a step has just written."""

    step: str
    at: int
    """How many characters the step had written before. A piece at 0 begins anew."""
    text: str


class TextWriter:
    """Writes what the steps of a run write, while it goes on in this process."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("a", encoding="utf-8")
        self._written: dict[str, int] = {}

    def add(self, event: RunEvent) -> None:
        """Take in what has happened in the run."""
        match event:
            case StepStarted(step_id=step):
                self._written[step] = 0
            case TextChunk(step_id=step, text=text):
                piece = Piece(step=step, at=self._written[step], text=text)
                self._written[step] += len(text)
                self._file.write(piece.model_dump_json() + "\n")
                self._file.flush()
            case _:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)  # what the steps have written is on record now, as their outputs


class TextReader:
    """Reads what the steps of a run are writing, in whatever worker, each piece once."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[Piece]:
        """Return the pieces that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                lines = file.read()
        except FileNotFoundError:
            return []
        whole = lines[: lines.rfind(b"\n") + 1]
        self._at += len(whole)
        return [Piece.model_validate_json(line) for line in whole.splitlines()]
