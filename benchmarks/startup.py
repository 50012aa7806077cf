"""Import, and the time from the start of Python to a first answer, each in a fresh interpreter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from benchmarks.measure import Row, medians

FIRST_ANSWER = """
import asyncio
from {module} import {name}
from pydantic_ai.models.test import TestModel
asyncio.run({name}(TestModel()).run("hi"))
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


BENCHMARKS = (startup,)
