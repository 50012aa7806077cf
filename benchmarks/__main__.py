"""`python -m benchmarks [word ...]`: all of them, or those with one of the words in their name or module."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console
from rich.table import Table

from benchmarks import (
    agents,
    bounds,
    budgets,
    distributed,
    durable_runs,
    first_requests,
    functions,
    graphs,
    pipelines,
    provider_limits,
    rows,
    run_stores,
    spending,
    startup,
    viewer,
    web,
    workflow_specs,
    workflows,
)


async def main(words: list[str]) -> None:
    """Run, and print a line as soon as it is known; a table of all at the end."""
    table = Table(title="FastroAI beside the bare alternative (medians)")
    for heading in ("what", "FastroAI", "bare", "ratio", "aim", ""):
        table.add_column(heading)
    console = Console(width=140)
    modules = (
        pipelines,
        graphs,
        agents,
        functions,
        bounds,
        first_requests,
        budgets,
        run_stores,
        spending,
        provider_limits,
        durable_runs,
        rows,
        startup,
        workflow_specs,
        workflows,
        web,
        viewer,
        distributed,
    )
    for benchmark in (benchmark for module in modules for benchmark in module.BENCHMARKS):
        name = f"{benchmark.__module__.removeprefix('benchmarks.')}.{benchmark.__name__}"
        if words and not any(word in name for word in words):
            continue
        console.print(f"{name} …", style="dim")
        async for row in benchmark():
            verdict = "" if row.met is None else "met" if row.met else "missed"
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            table.add_row(row.what, row.measured, row.bare, ratio, row.aim, verdict)
    console.print(table)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
