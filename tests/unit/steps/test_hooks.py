"""Hooks are told what becomes of steps, and change nothing."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.agents import paid_agent
from support.patience import PATIENCE
from support.steps import run_alone
from support.virtual_time import in_virtual_time

from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.pipelines import (
    Pipeline,
    PipelineConfig,
    RunEvent,
    StepConfig,
    StepContext,
    StepFailed,
    StepFinished,
    StepRetried,
    StepStarted,
    step,
)
from fastroai.steps.context import scope_of


class Told:
    """Hooks that note what they are told."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def note(self, event: RunEvent) -> None:
        self.events.append(event)

    async def note_later(self, event: RunEvent) -> None:
        await asyncio.sleep(0)
        self.events.append(event)

    @property
    def options(self) -> dict[str, Any]:
        """All hooks, sync and async ones."""
        return {
            "on_step_start": self.note,
            "on_step_success": self.note_later,
            "on_step_failure": self.note_later,
            "on_retry": self.note,
        }

    @property
    def story(self) -> list[tuple[str, str]]:
        return [(type(event).__name__, getattr(event, "step_id", "")) for event in self.events]


async def fine(ctx: StepContext) -> str:
    return "done"


async def broken(ctx: StepContext) -> None:
    raise ValueError("broken")


async def test_a_hook_may_take_nothing_the_event_or_the_exception() -> None:
    told: list[object] = []

    def of_error(error: Any) -> None:
        told.append(error)

    async def of_some_error(why: "OSError | None") -> None:
        told.append(why)

    def of_unknown(event: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
        told.append(type(event))

    class Alarm:
        def ring(self, why: OSError) -> None:
            told.append(why)

    for hook in (of_error, of_some_error, Alarm().ring, lambda: told.append("nothing"), of_unknown):

        @step(retries=1, retry_delay=0, on_retry=hook, on_step_failure=hook)
        async def fails(ctx: StepContext) -> None:
            raise ConnectionRefusedError(f"attempt {ctx.attempt}")

        with pytest.raises(StepExecutionError):
            await Pipeline[None, Any]("p", {"fails": fails}).execute()
    assert list(map(str, told[:6])) == ["attempt 1", "attempt 2"] * 3
    assert told[6:] == ["nothing", "nothing", StepRetried, StepFailed]


async def test_hooks_by_step_id_of_the_step_and_of_the_pipeline_are_all_told_the_step_first() -> None:
    order: list[str] = []

    def says(name: str) -> Callable[[RunEvent], None]:
        return lambda event: order.append(name)

    await run_alone(
        step(on_step_start=says("step"))(fine),
        step_configs={"alone": StepConfig(on_step_start=says("by id"))},
        config=PipelineConfig(on_step_start=says("pipeline")),
    )
    assert order == ["by id", "step", "pipeline"]


async def test_a_nested_pipeline_has_hooks_of_its_own() -> None:
    inner, outer = Told(), Told()
    nested = Pipeline[None, Any, str]("inner", {"deep": step(fine)}, config=PipelineConfig(**inner.options))
    await Pipeline[None, Any, str](
        "outer", {"nest": nested.as_step()}, config=PipelineConfig(**outer.options)
    ).execute()
    assert inner.story == [("StepStarted", "deep"), ("StepFinished", "deep")]
    assert outer.story == [("StepStarted", "nest"), ("StepFinished", "nest")]


@in_virtual_time
async def test_retries_of_an_agent_call_and_of_a_mapped_step_are_told_too() -> None:
    told, of_item = Told(), Told()
    failures = iter([ValueError("the call")])

    async def before(prompt: str) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    @step(on_retry=of_item.note, on_step_start=of_item.note)
    async def item(ctx: StepContext) -> None:
        if ctx.attempt == 1:
            raise ValueError("the item")

    @step(retries=1, on_retry=told.note)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=before), "hello")
        await ctx.map(item, ["one"])

    await run_alone(asks)
    assert [(type(event), event.unit) for event in told.events if isinstance(event, StepRetried)] == [
        (StepRetried, "call")
    ]
    assert of_item.story == [("StepRetried", "alone[0]")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("option", ["on_step_start", "on_step_success"])
async def test_a_hook_that_raises_is_reported_and_changes_nothing(
    option: str, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    def fails(event: RunEvent) -> None:
        raise LookupError("a bug in the hook")

    async def fails_later(event: RunEvent) -> None:
        fails(event)

    @step(retries=3, **{option: fails_later if is_async else fails})  # type: ignore[call-overload]
    async def counted(ctx: StepContext) -> str:
        nonlocal runs
        runs += 1
        return "done"

    with caplog.at_level(logging.ERROR, "fastroai.steps"):
        result = await run_alone(counted)
    assert (result.output, runs, result.quality) == ("done", 1, "clean")
    assert "LookupError: a bug in the hook" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_failing_hook_of_a_failed_step_leaves_the_failure_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(event: RunEvent) -> None:
        raise LookupError("a bug in the hook")

    with pytest.raises(StepExecutionError) as caught:
        await run_alone(step(on_step_failure=fails)(broken))
    assert str(caught.value.original_error) == "broken"
    assert "a bug in the hook" in caplog.text


async def test_the_hooks_after_one_that_raises_are_told_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()

    def fails(event: RunEvent) -> None:
        raise LookupError

    await run_alone(step(on_step_success=fails)(fine), config=PipelineConfig(on_step_success=told.note))
    assert told.story == [("StepFinished", "alone")]
    assert caplog.records


async def test_a_run_that_is_cancelled_in_a_hook_is_cancelled() -> None:
    reached, told = asyncio.Event(), Told()

    async def waits(event: RunEvent) -> None:
        reached.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(run_alone(step(on_step_success=waits, on_step_failure=told.note)(fine)))
    await asyncio.wait_for(reached.wait(), PATIENCE)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert told.events == []


async def test_a_hook_that_is_cancelled_from_inside_itself_is_a_hook_that_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stumbles(event: RunEvent) -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    result = await run_alone(step(on_step_start=stumbles)(fine))
    assert result.output == "done"
    assert "was cancelled by itself" in caplog.text


async def test_a_stream_of_events_and_hooks_go_side_by_side() -> None:
    told = Told()
    pipeline = Pipeline[None, Any, str]("p", {"fine": step(fine)}, config=PipelineConfig(**told.options))
    async with pipeline.stream() as stream:
        seen = [event async for event in stream]
    assert [event for event in seen if isinstance(event, StepStarted | StepFinished)] == told.events


async def test_without_hooks_nobody_listens() -> None:
    async def looks(ctx: StepContext) -> bool:
        return scope_of(ctx).listener is None

    assert (await run_alone(looks)).output is True


@pytest.mark.parametrize("option", ["on_step_start", "on_step_success", "on_step_failure", "on_retry"])
@pytest.mark.parametrize("config", [StepConfig, PipelineConfig])
def test_a_hook_is_something_that_can_be_called(config: type[StepConfig], option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{option}='tell me'"):
        config(**{option: "tell me"})  # type: ignore[arg-type]


async def test_a_hook_may_take_nothing() -> None:
    told: list[str] = []

    async def later() -> None:
        told.append("finished")

    @step(on_step_start=lambda: told.append("started"), on_step_success=later)
    async def work(ctx: StepContext) -> None: ...

    def with_a_default(event: object = None) -> None:
        told.append(type(event).__name__)

    config = PipelineConfig(on_step_success=with_a_default)
    await Pipeline("p", {"work": work}, config=config).execute()

    assert told == ["started", "finished", "StepFinished"]
