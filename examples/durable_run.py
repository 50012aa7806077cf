"""A run on record: its process dies in the middle, and another goes on where it was, without paying twice.

Run: python examples/durable_run.py
"""

import asyncio
import tempfile
from pathlib import Path

from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.store import RunHistory, SQLiteRunStore

DIES = [True]


@step
async def read(ctx: StepContext[None]) -> list[str]:
    print("read the invoice")
    ctx.record_usage(model="ocr", cost_usd="0.03")
    return ["paper", "ink"]


@step
async def pay(ctx: StepContext[None]) -> str:
    receipt = await ctx.once("transfer", lambda: f"receipt {ctx.idempotency_key[:4]}")
    print("paid")
    if DIES[0]:
        raise SystemExit("the process dies")
    return receipt


@step
async def report(ctx: StepContext[None]) -> str:
    return f"{', '.join(ctx.get_dependency('read', list[str]))}: {ctx.get_dependency('pay', str)}"


pipeline = Pipeline(
    "invoice", {"read": read, "pay": pay, "report": report}, {"pay": ["read"], "report": ["pay", "read"]}
)


async def main(store: SQLiteRunStore) -> None:
    try:
        await pipeline.execute(run_id="invoice-42", store=store)
    except SystemExit as death:
        print(f"-- {death} --")

    DIES[0] = False
    result = await pipeline.resume("invoice-42", store=store)
    print(f"{result.output}, for ${result.usage.cost_usd}")
    print(result.trace.explain())
    for row in await RunHistory(store).spending(by=("pipeline", "model")):
        print(f"all runs of {row.pipeline!r}: ${row.usage.cost_usd} for {row.model!r}")
    await store.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(SQLiteRunStore(Path(folder) / "runs.db")))
