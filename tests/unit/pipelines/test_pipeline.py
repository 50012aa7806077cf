"""Running a pipeline, from anywhere."""

import asyncio
import concurrent.futures
from types import MappingProxyType
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai.errors import ConfigurationError, RunningLoopError, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.runtime import current_scope


@step
async def hello(ctx: StepContext[str]) -> str:
    return f"hello {ctx.get_input('name')} from {ctx.deps}"


PIPELINE = Pipeline[str, Any, str]("p", {"hello": hello})


async def test_inputs_and_deps_go_in_and_the_output_comes_out() -> None:
    assert (await PIPELINE.execute({"name": "Ada"}, "me")).output == "hello Ada from me"


@pytest.mark.parametrize("inputs", [MappingProxyType({"name": "Ada"}), {"name": "Ada"}])
async def test_inputs_are_any_mapping(inputs: Any) -> None:
    assert (await PIPELINE.execute(inputs)).output == "hello Ada from None"


@pytest.mark.parametrize("inputs", ["name", 5, [("name", "Ada")]])
async def test_anything_else_is_refused(inputs: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^inputs=.*a mapping of names to values"):
        await PIPELINE.execute(inputs)


async def test_no_inputs_are_no_inputs() -> None:
    with pytest.raises(StepExecutionError, match="given: none"):
        await PIPELINE.execute()


def test_a_script_runs_it_without_a_loop() -> None:
    assert PIPELINE.execute_sync({"name": "Ada"}, "me").output == "hello Ada from me"


def test_threads_of_a_script_run_it_at_the_same_time() -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda name: PIPELINE.execute_sync({"name": name}).output, "abcd"))
    assert results == [f"hello {name} from None" for name in "abcd"]


async def test_on_a_running_loop_it_says_to_await() -> None:
    with pytest.raises(RunningLoopError, match=r"use: await pipeline\.execute\(\.\.\.\)"):
        PIPELINE.execute_sync({"name": "Ada"})


async def test_in_a_thread_of_a_step_it_is_inside_that_step() -> None:
    @step
    async def spends(ctx: StepContext) -> str:
        return (await ctx.run(paid_agent(100), "hello")).output

    inner = Pipeline[Any, Any, str]("inner", {"spends": spends})

    @step
    def in_a_thread(ctx: StepContext) -> str | None:
        return inner.execute_sync().output

    result = await Pipeline[Any, Any, str]("outer", {"thread": in_a_thread}).execute()
    assert result.output == "answer to hello"
    assert result.usage.steps["thread"].cost_microcents == 100


def test_what_a_pipeline_is_made_of_can_be_read() -> None:
    config = PipelineConfig(retries=1)
    pipeline = Pipeline[str, Any, str](
        "p", {"a": hello, "b": hello}, {"b": ["a"]}, config=config, step_configs={"a": StepConfig(retries=0)}
    )
    assert (pipeline.name, pipeline.output_step, pipeline.config) == ("p", "b", config)
    assert dict(pipeline.steps) == {"a": hello, "b": hello}
    assert pipeline.dependencies == {"a": (), "b": ("a",)}
    with pytest.raises(TypeError):
        pipeline.steps["c"] = hello  # type: ignore[index]


async def test_settings_reach_the_steps_most_specific_first() -> None:
    """The call is first; it has its tests beside `ctx.run`."""
    seen: dict[str, tuple[Any, ...]] = {}

    async def look(ctx: StepContext) -> None:
        config = ctx.config
        seen[ctx.step_id] = (config.timeout, config.retries, config.trace, config.on_error)

    pipeline = Pipeline[Any, Any](
        "p",
        {
            "inherits": step(look),
            "own": step(timeout=20, retries=2)(look),
            "named": step(timeout=20, retries=2)(look),
            "zero": step(retries=0, timeout=None)(look),
        },
        output_step="own",
        config=PipelineConfig(timeout=10, retries=3, trace=False, on_error="continue"),
        step_configs={"named": StepConfig(timeout=30, on_error="fail")},
    )
    await pipeline.execute()
    assert seen == {
        "inherits": (10, 3, False, "continue"),
        "own": (20, 2, False, "continue"),
        "named": (30, 2, False, "fail"),
        "zero": (None, 0, False, "continue"),
    }


async def test_runs_leave_no_scope_behind_whatever_their_end() -> None:
    @step
    async def fails(ctx: StepContext) -> None:
        raise ValueError("x")

    await PIPELINE.execute({"name": "Ada"})
    with pytest.raises(StepExecutionError):
        await Pipeline[Any, Any]("p", {"fails": fails}).execute()
    assert current_scope() is None


async def test_pipelines_of_the_same_kind_can_share_their_steps() -> None:
    others = [Pipeline[str, Any, str](f"p{number}", {"hello": hello}) for number in range(3)]
    results = await asyncio.gather(*(pipeline.execute({"name": pipeline.name}) for pipeline in others))
    assert [result.output for result in results] == [f"hello p{number} from None" for number in range(3)]
