"""Text that is being written. It is not on record piece by piece, so a file takes it from worker to worker.

Workers on several machines would take a channel of Redis instead.
"""

from pathlib import Path

from pydantic import BaseModel

from fastroai.pipelines import RunEvent, RunFinished, RunStarted, StepStarted, TextChunk


class Piece(BaseModel):
    """Some text that a step has just written."""

    step: str
    at: int
    """How many characters the step had written before. A piece at 0 begins anew."""
    text: str


class TextWriter:
    """Writes what the steps of the runs of this process write, while they go on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, dict[str, int]] = {}

    def add(self, event: RunEvent) -> None:
        """Take in what has happened in a run."""
        run = event.run_id
        match event:
            case RunStarted(path=(_,)) | RunFinished(path=(_,)):
                # What the steps have written before is on record now, as their outputs, or is lost.
                self._written.pop(run, None)
                _file(self._folder, run).unlink(missing_ok=True)
            case StepStarted(step_id=step):
                self._written.setdefault(run, {})[step] = 0
            case TextChunk(step_id=step, text=text):
                written = self._written[run]
                piece = Piece(step=step, at=written[step], text=text)
                written[step] += len(text)
                with _file(self._folder, run).open("a", encoding="utf-8") as file:
                    file.write(piece.model_dump_json() + "\n")
            case _:
                pass


class TextReader:
    """Reads what the steps of a run are writing, in whatever worker, each piece once."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._path, self._at = _file(folder, run_id), 0

    def new(self) -> list[Piece]:
        """Return the pieces that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                lines = file.read()
        except FileNotFoundError:
            self._at = 0  # the run has ended, or goes on in another worker
            return []
        whole = lines[: lines.rfind(b"\n") + 1]
        self._at += len(whole)
        return [Piece.model_validate_json(line) for line in whole.splitlines()]


def _file(folder: Path, run_id: str) -> Path:
    return folder / f"{run_id}.text"
