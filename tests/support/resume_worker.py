"""A process that resumes runs when it is told to: `store run_id file` in, what came of it out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class ResumeWorkers:
    """Processes that are told to resume a run, and do so at the same moment."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, __file__]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(count)
        ]
        self._answers()  # that it is ready

    def resume(self, store: str, run_id: str, file: Path) -> list[str]:
        """What came of it in each."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{store}\t{run_id}\t{file}\n")
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.flush()
        return self._answers()

    def end(self) -> None:
        for process in self._processes:
            process.communicate()

    def _answers(self) -> list[str]:
        return [process.stdout.readline().strip() for process in self._processes if process.stdout]


def pipeline_that_writes_to(file: Path, *, fails: bool = False) -> Any:
    """Two steps, each of which writes a line when it runs."""
    from fastroai.pipelines import Pipeline, StepContext, step

    def note(line: str) -> None:
        with file.open("a") as lines:
            lines.write(f"{line}\n")

    @step
    async def first(ctx: StepContext[Any]) -> str:
        note("first")
        return "first"

    @step
    async def second(ctx: StepContext[Any]) -> str:
        if fails:
            raise ValueError
        note("second")
        await asyncio.sleep(0.5)
        return "second"

    return Pipeline("shared", {"first": first, "second": second}, {"second": ["first"]})


def store_at(place: str) -> Any:
    from fastroai.store import PostgresRunStore, RedisRunStore, SQLiteRunStore

    kind, address, name = place.split("|")
    if kind == "sqlite":
        return SQLiteRunStore(address, timeout=30)
    return RedisRunStore(address, prefix=name) if kind == "redis" else PostgresRunStore(address, schema=name)


def main() -> None:
    from fastroai.errors import FastroAIError

    print("ready", flush=True)
    for line in sys.stdin:
        place, run_id, file = line.rstrip("\n").split("\t")
        pipeline, store = pipeline_that_writes_to(Path(file)), store_at(place)
        try:
            outcome = pipeline.resume_sync(run_id, store=store).output
        except FastroAIError as error:
            outcome = type(error).__name__
        print(outcome, flush=True)


if __name__ == "__main__":
    main()
