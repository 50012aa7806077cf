"""What is too deep or too long for a record is refused or cut, and says so."""

from __future__ import annotations

import pytest

from fastroai import MemoryRunStore, Pipeline, RunHistory, StepContext, step
from fastroai.errors import StepExecutionError, ValueNotStorable


@step
async def first(ctx: StepContext) -> str:
    return "x"


def nested(depth: int) -> Pipeline[None]:
    inner = Pipeline("p0", {"first": first})
    for number in range(1, depth):
        inner = Pipeline(f"p{number}", {"step": inner.as_step()})
    return inner


@pytest.mark.parametrize("depth", [70, 150])
async def test_pipelines_that_are_nested_too_deeply_to_be_read_again_are_refused_before_they_run(
    depth: int,
) -> None:
    store = MemoryRunStore()
    with pytest.raises(ValueNotStorable, match=rf"definition of pipeline 'p{depth - 1}'.*nested too deeply"):
        await nested(depth).execute({}, store=store)
    assert not await store.list("")


async def test_pipelines_that_are_nested_less_deeply_are_on_record() -> None:
    store = MemoryRunStore()
    await nested(50).execute({}, run_id="r", store=store)
    assert (await nested(50).resume("r", store=store)).output == "x"


async def test_of_a_very_long_message_the_beginning_is_on_record() -> None:
    @step
    async def fails(ctx: StepContext) -> None:
        raise ValueError("long " * 1_000_000)

    store = MemoryRunStore()
    with pytest.raises(StepExecutionError):
        await Pipeline("p", {"fails": fails}).execute({}, run_id="r", store=store)
    history = RunHistory(store)
    error = (await history.summary("r")).error
    assert error is not None
    assert error.endswith(" characters in all)")
    assert len((await history.trace("r")).to_json()) < 50_000
