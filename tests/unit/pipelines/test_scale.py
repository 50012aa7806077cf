"""Large pipelines are legal: nothing recurses, and nothing grows faster than the steps."""

from typing import Any

import pytest
from support.leftovers import assert_no_task_is_left

from fastroai.errors import PipelineValidationError
from fastroai.pipelines import Pipeline, StepContext, step


@step
async def counts(ctx: StepContext[list[int]]) -> int:
    ctx.deps[0] += 1
    return ctx.deps[0]


@pytest.mark.slow
async def test_a_chain_of_five_thousand_steps() -> None:
    names = [f"s{number}" for number in range(5_000)]
    pipeline = Pipeline[list[int], Any, int](
        "chain", dict.fromkeys(names, counts), {name: [f"s{number}"] for number, name in enumerate(names[1:])}
    )
    counter = [0]
    result = await pipeline.execute(deps=counter)
    assert (result.output, counter[0], len(result.critical_path)) == (5_000, 5_000, 5_000)
    assert len(pipeline.levels) == 5_000
    assert pipeline.to_mermaid().count("-->") == 5_001


@pytest.mark.slow
async def test_ten_thousand_steps_in_ten_levels() -> None:
    levels = [[f"{level}.{number}" for number in range(1_000)] for level in range(10)]
    dependencies = {
        name: [f"{level - 1}.{number}", f"{level - 1}.{(number + 1) % 1_000}"]
        for level in range(1, 10)
        for number, name in enumerate(levels[level])
    }
    steps = dict.fromkeys((name for level in levels for name in level), counts)
    pipeline = Pipeline[list[int], Any, int]("levels", steps, dependencies, output_step="9.0")
    assert [len(level) for level in pipeline.levels] == [1_000] * 10
    counter = [0]
    result = await pipeline.execute(deps=counter)
    assert counter[0] == len(result.step_outputs) == 10_000
    assert len(result.critical_path) == 10
    assert_no_task_is_left()


def test_a_cycle_of_thousands_is_found() -> None:
    names = [f"s{number}" for number in range(3_000)]
    circle: dict[str, Any] = {name: [names[number - 1]] for number, name in enumerate(names)}
    with pytest.raises(PipelineValidationError, match="wait for each other"):
        Pipeline("circle", dict.fromkeys(names, counts), circle)
