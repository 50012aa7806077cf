"""The options of runs that workers carry, as type checkers see them."""

from typing import Any, assert_type

from fastroai import Pipeline, StepContext, infer, step
from fastroai.distributed import Client, Distributed, RunHandle
from fastroai.pipelines import PipelineResult
from fastroai.rows import RowTable


@step
async def says(ctx: StepContext) -> str:
    return ctx.get_input("text", str)


@infer(intent="Repeat the text", model="openai:gpt-5-mini")
async def repeat(text: str) -> str:
    raise NotImplementedError


async def start_and_map(app: Distributed, client: Client) -> None:
    letters = Pipeline("letters", {"says": says})
    assert_type(await app.start("letters", {}, priority=1, delay=0.5, tags=["a"]), RunHandle[Any])
    run = await app.start(letters, {"text": "a"}, run_id="a", partition="b", tenant="c")
    result = await run.result()
    assert isinstance(result, PipelineResult)
    assert_type(await app.map(repeat, ["a"], key=None, on_error="stop"), RunHandle[RowTable[str]])
    assert_type(await client.map("repeat", ["a"], concurrency=2), RunHandle[RowTable[Any]])
    await app.start("letters", {}, priorty=1)  # type: ignore[call-overload]
    await client.start("letters", {}, key="id")  # type: ignore[call-arg]
    await client.map("repeat", [], on_error="go on")  # type: ignore[arg-type]
    app.schedule("often", letters, "* * * * *", {}, delay=1)  # type: ignore[call-arg]
