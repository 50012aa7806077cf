"""A worker for `benchmarks.distributed`: `URL NAME ours|plain`. The steps sleep for `STEP_SECONDS`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from itertools import pairwise

from dbos import DBOS

from fastroai import Pipeline, StepContext, step
from fastroai.distributed import Distributed, QueueOptions
from fastroai.distributed.engine import places_of

STEPS = int(os.environ.get("STEPS", "5"))
AT_ONCE = int(os.environ.get("AT_ONCE", "50"))
"""Most runs of a worker at a time."""
POLLING = float(os.environ.get("POLLING", "0.05"))
"""Seconds between two looks at the queue."""


def note(run_id: str) -> None:
    """Write down that the first step of a run begins here, and when."""
    with open(os.environ["STARTED"], "a") as file:
        file.write(f"{run_id} {os.getpid()} {time.time()}\n")


def application(url: str, name: str) -> Distributed:
    """A pipeline of steps that do nothing, or sleep."""
    seconds = float(os.environ.get("STEP_SECONDS", "0"))

    @step
    async def works(ctx: StepContext) -> int:
        if "STARTED" in os.environ and ctx.step_id == "s0":
            note(ctx.run_id)
        if seconds:
            await asyncio.sleep(seconds)
        return 1

    names = [f"s{number}" for number in range(STEPS)]
    needs = {later: [earlier] for earlier, later in pairwise(names)}
    app = Distributed(url, name=name)
    app.register(Pipeline("steps", dict.fromkeys(names, works), dependencies=needs))
    app.register_queue("default", QueueOptions(worker_concurrency=AT_ONCE, polling_interval_sec=POLLING))
    return app


async def plain(url: str, name: str) -> None:
    """The same work on DBOS alone, written by hand."""
    seconds = float(os.environ.get("STEP_SECONDS", "0"))

    @DBOS.step()
    async def works() -> int:
        if seconds:
            await asyncio.sleep(seconds)
        return 1

    @DBOS.workflow(name="plain")
    async def run() -> int:
        if "STARTED" in os.environ:
            note(str(DBOS.workflow_id))
        return sum([await works() for _ in range(STEPS)])

    DBOS(
        config={
            "name": name,
            "system_database_url": places_of(url)[1],
            "executor_id": str(os.getpid()),
            "application_version": name,
            "log_level": "WARNING",
        }
    )
    DBOS.listen_queues([f"{name}.plain"])
    DBOS.launch()
    queue = f"{name}.plain"
    await DBOS.register_queue_async(queue, worker_concurrency=AT_ONCE, polling_interval_sec=POLLING)
    await asyncio.Event().wait()


if __name__ == "__main__":
    url, name, kind = sys.argv[1:]
    if kind == "ours":
        asyncio.run(application(url, name).worker().serve())
    else:
        asyncio.run(plain(url, name))
