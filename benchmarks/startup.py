"""Import, and the time from the start of Python to a first answer, each in a fresh interpreter."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.measure import Row, medians
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.store import SQLiteRunStore

FIRST_ANSWER = """
import asyncio
from {module} import {name}
from pydantic_ai.models.test import TestModel
asyncio.run({name}(TestModel()).run("hi"))
"""


PIPELINE = """
import asyncio
from fastroai import Pipeline, StepContext, step

@step
async def one(ctx: StepContext) -> int:
    return 1

asyncio.run(Pipeline("p", {"one": one}).execute())
"""


async def run_python(code: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    if await process.wait():
        raise RuntimeError(f"failed: {code}")


async def startup() -> AsyncIterator[Row]:
    took = await medians(
        {
            "nothing": lambda: run_python("pass"),
            "import": lambda: run_python("import fastroai"),
            "ours": lambda: run_python(FIRST_ANSWER.format(module="fastroai", name="FastroAgent")),
            "bare": lambda: run_python(FIRST_ANSWER.format(module="pydantic_ai", name="Agent")),
        },
        rounds=7,
    )
    imported = (took["import"] - took["nothing"]) * 1e3
    yield Row(
        "import fastroai, over an empty interpreter",
        f"{imported:.0f} ms",
        "",
        None,
        "≤ 60 ms",
        imported <= 60,
    )
    ratio = took["ours"] / took["bare"]
    yield Row(
        "time to the first answer, beside bare PydanticAI",
        f"{took['ours'] * 1e3:.0f} ms",
        f"{took['bare'] * 1e3:.0f} ms",
        ratio,
        "≤ 1.05 x",
        ratio <= 1.05,
    )


async def command_line() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "runs.db")
        store = SQLiteRunStore(place)
        for number in range(20):
            await Pipeline("nothing", {"nothing": nothing}).execute(run_id=f"r{number}", store=store)
        await store.aclose()
        took = await medians(
            {
                "nothing": lambda: run_python("pass"),
                "help": lambda: run_command("--help"),
                "list": lambda: run_command("runs", "list", "--store", place),
                "show": lambda: run_command("runs", "show", "r1", "--store", place),
            },
            rounds=7,
        )
    for name, what in (("help", "--help"), ("list", "runs list, of 20"), ("show", "runs show")):
        yield Row(
            f"fastroai {what}, beside an empty interpreter",
            f"{took[name] * 1e3:.0f} ms",
            f"{took['nothing'] * 1e3:.0f} ms",
            None,
            "≤ 300 ms",
            took[name] <= 0.3,
        )


@step
async def nothing(ctx: StepContext) -> None: ...


async def run_command(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fastroai.cli", *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise RuntimeError(f"failed: {arguments}")


async def cpu_seconds(code: str, rounds: int = 7) -> float:
    """The least CPU seconds of a fresh interpreter that runs the code, its imports included."""
    taken = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        await run_python(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(taken)


async def cpu_of_starting() -> AsyncIterator[Row]:
    pipeline = await cpu_seconds(PIPELINE)
    yield Row(
        "CPU of a pipeline without agents, imports included",
        f"{pipeline:.2f} s",
        aim="≤ 0.3 s",
        met=pipeline <= 0.3,
    )
    ours = await cpu_seconds(FIRST_ANSWER.format(module="fastroai", name="FastroAgent"))
    bare = await cpu_seconds(FIRST_ANSWER.format(module="pydantic_ai", name="Agent"))
    yield Row(
        "CPU of the first answer, beside bare PydanticAI",
        f"{ours:.2f} s",
        f"{bare:.2f} s",
        ours / bare,
        "≤ 1.1 x",
        ours <= 1.1 * bare,
    )


BENCHMARKS = (startup, cpu_of_starting, command_line)
