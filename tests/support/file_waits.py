"""A kind of wait that the library does not have: for a file to appear. It uses nothing but public names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fastroai.human import Awaited, StepWait
from fastroai.pipelines import WaitEnded


@dataclass(frozen=True, kw_only=True)
class FileAppears(Awaited[str]):
    """A wait for a file, which gives its text."""

    name: str
    folder: Path
    every: timedelta = timedelta(milliseconds=10)

    what = "file"
    value_type = str

    async def look(self, wait: StepWait) -> WaitEnded | None:
        file = self.folder / self.name
        if file.exists():
            return wait.over(file.read_text())
        wait.look_again(self.every)
        return None
