"""Runs whose every field has hostile text, for the pages that show them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from fastroai import Inbox, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.store import PayloadCodec, RunStore
from support.viewing import HOSTILE, LABEL


class Item(BaseModel):
    sku: Annotated[str, Field(max_length=20)]
    count: int


class Decision(BaseModel):
    verdict: Literal["refund", "replace", "refuse"]
    amount: Decimal | None = None
    days: Annotated[int, Field(ge=1, le=30, description=HOSTILE)]
    note: str = ""
    urgent: bool = False
    due: date | None = None
    tags: list[str] = []
    item: Item


@step
async def look_up(ctx: StepContext) -> dict[str, str]:
    async with ctx.spend("0.0125", model="acme:search") as purchase:
        purchase.settle("0.0125")
    return {"customer": HOSTILE}


def asking(
    of: Any = None,
    options: Sequence[Any] | None = None,
    question: Any = HOSTILE,
    codec: PayloadCodec | None = None,
) -> Pipeline[None]:
    """A pipeline whose second step asks a person for a value of a type, or for one of some options."""

    @step
    async def decide(ctx: StepContext) -> str:
        answer = await ctx.ask(question, of or object, to=LABEL, options=options)
        return f"decided: {answer}"

    steps = {"look up": look_up, "decide": decide}
    return Pipeline(LABEL, steps, {"decide": ["look up"]}, config=PipelineConfig(codec=codec))


async def asked(store: RunStore, pipeline: Pipeline[None], run_id: str = LABEL) -> str:
    """Run a pipeline until it asks, and return the id of the question."""
    await pipeline.execute(
        {"why": HOSTILE},
        run_id=run_id,
        store=store,
        tags=[LABEL],
        tenant=LABEL,
    )
    (question,) = await Inbox(store).list(run_id=run_id)
    return question.id


async def failed(store: RunStore, run_id: str = "failed") -> None:
    """A run that has failed, with hostile text as the reason."""

    @step
    async def fail(ctx: StepContext) -> None:
        raise ValueError(HOSTILE)

    try:
        await Pipeline(LABEL, {LABEL: fail}).execute(run_id=run_id, store=store)
    except StepExecutionError:
        return
    raise AssertionError("the run was to fail")
