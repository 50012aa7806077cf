"""Resume a chain once, and print its CPU and memory: `python -m benchmarks.resume_once FILE RUN STEPS`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from time import process_time

from benchmarks.durable_runs import kept
from benchmarks.pipelines import chain
from fastroai.store import SQLiteRunStore


def most_megabytes() -> float:
    """The most memory that this process has had so far. On Linux only."""
    # Not `getrusage`, which counts the memory of the parent process before this program was loaded.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


async def main(path: str, run_id: str, steps: str) -> None:
    """Resume the run, and print the seconds of the CPU, and the MB before and at most."""
    pipeline = kept(chain(int(steps)), SQLiteRunStore(Path(path)), "async")
    before, used = most_megabytes(), process_time()
    await pipeline.resume(run_id)
    print(process_time() - used, before, most_megabytes())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
