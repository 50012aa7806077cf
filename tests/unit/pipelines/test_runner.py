"""Steps run as parallel as they allow, apart from each other, and none outlives its run."""

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.virtual_time import in_virtual_time, now

from fastroai.errors import CancelledInside, StepExecutionError, TimeLimitExceeded, usage_of
from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime import current_scope
from fastroai.steps.context import scope_of

Steps = dict[str, BaseStep[Any, Any]]
USERS: ContextVar[str] = ContextVar("users", default="unset")


@step
async def nothing(ctx: StepContext) -> None: ...


def sleeping(seconds: float) -> BaseStep[Any, Any]:
    """A step that takes so long and gives the time at which it has finished."""

    @step
    async def sleep(ctx: StepContext) -> float:
        await asyncio.sleep(seconds)
        return now()

    return sleep


class Hanging(BaseStep[Any, Any]):
    """Hangs until it is cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = asyncio.Event(), False

    async def execute(self, context: StepContext[Any]) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


# --- parallel as the dependencies allow ---


@in_virtual_time
async def test_the_run_takes_as_long_as_its_critical_path() -> None:
    result = await Pipeline(
        "p",
        {"a": sleeping(1), "b": sleeping(5), "c": sleeping(3), "d": sleeping(3), "e": sleeping(1)},
        {"b": ["a"], "c": ["a"], "d": ["c"], "e": ["b", "d"]},
    ).execute()
    assert now() == 8
    assert result.critical_path == ("a", "c", "d", "e")


@in_virtual_time
async def test_no_more_steps_than_max_concurrency_run_at_once() -> None:
    running = most = 0

    @step
    async def count(ctx: StepContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    steps: Steps = {str(number): count for number in range(10)}
    await Pipeline("p", steps, output_step="0", config=PipelineConfig(max_concurrency=3)).execute()
    assert most == 3
    assert now() == 4


async def test_threads_run_at_the_same_time_too() -> None:
    barrier = threading.Barrier(3)

    @step
    def meet(ctx: StepContext) -> int:
        return barrier.wait(PATIENCE)

    await Pipeline("p", dict.fromkeys("abc", meet), output_step="a").execute()


async def test_many_steps_that_never_wait_let_others_run_in_between() -> None:
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    @step
    async def count(ctx: StepContext) -> int:
        return others

    beside = asyncio.create_task(other())
    names = [str(number) for number in range(1_000)]
    dependencies = {after: [before] for before, after in itertools.pairwise(names)}
    result = await Pipeline("p", dict.fromkeys(names, count), dependencies).execute()
    beside.cancel()
    assert result.step_outputs["999"] - result.step_outputs["0"] >= 4


# --- apart from each other ---


@pytest.mark.parametrize("chained", [True, False])
async def test_context_variables_of_one_step_are_not_seen_by_another(chained: bool) -> None:
    seen: dict[str, str] = {}

    @step
    async def set_one(ctx: StepContext) -> None:
        seen[ctx.step_id] = USERS.get()
        USERS.set(f"set by {ctx.step_id}")
        await asyncio.sleep(0)
        assert USERS.get() == f"set by {ctx.step_id}"

    USERS.set("the caller's")
    dependencies = {"b": ["a"], "c": ["b"], "d": ["c"]} if chained else None
    await Pipeline("p", dict.fromkeys("abcd", set_one), dependencies, output_step="d").execute()
    assert seen == dict.fromkeys("abcd", "the caller's")
    assert USERS.get() == "the caller's"


async def test_the_steps_scope_is_current_in_the_step_its_tasks_and_its_threads() -> None:
    @step
    async def on_the_loop(ctx: StepContext) -> None:
        async def inside() -> object:
            return current_scope()

        assert current_scope() is scope_of(ctx)
        await asyncio.sleep(0)
        assert current_scope() is scope_of(ctx)
        assert await asyncio.create_task(inside()) is scope_of(ctx)

    @step
    def in_a_thread(ctx: StepContext) -> None:
        assert current_scope() is scope_of(ctx)

    result = await Pipeline("p", {"a": on_the_loop, "b": in_a_thread}, {"b": ["a"]}).execute()
    assert result.ok
    assert current_scope() is None


async def test_one_pipeline_runs_many_times_at_once_and_each_run_is_its_own() -> None:
    barrier = asyncio.Barrier(4)

    @step
    async def first(ctx: StepContext) -> int:
        await barrier.wait()
        return int(ctx.get_input("number"))

    @step
    async def second(ctx: StepContext) -> int:
        await barrier.wait()
        return ctx.get_dependency("first", int) * 10

    pipeline = Pipeline[None, Any, int]("p", {"first": first, "second": second}, {"second": ["first"]})
    results = await asyncio.gather(*(pipeline.execute({"number": number}) for number in range(4)))
    assert [result.output for result in results] == [0, 10, 20, 30]
    assert len({result.run_id for result in results}) == 4


# --- the end of a run ---


async def test_cancelling_the_run_cancels_every_step_and_waits_for_its_end() -> None:
    hanging = [Hanging() for _ in range(3)]
    cleaned_up = False

    @step
    async def slow_to_end(ctx: StepContext) -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cleaned_up = True

    steps: Steps = {f"h{number}": one for number, one in enumerate(hanging)}
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"slow": slow_to_end, **steps}, output_step="slow")
    run = asyncio.create_task(pipeline.execute())
    for one in hanging:
        await one.started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert all(one.cancelled for one in hanging)
    assert cleaned_up
    assert_no_task_is_left()
    assert usage_of(caught.value) is not None


async def test_cancelling_again_while_steps_end_does_not_leave_them_behind() -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    @step
    async def stubborn(ctx: StepContext) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                ending.set()

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"stubborn": stubborn})
    run = asyncio.create_task(pipeline.execute())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for _ in range(3):
        run.cancel()
        await ending.wait()
        ending.clear()
        assert not run.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_no_task_is_left()


async def test_a_step_that_swallows_cancellation_gives_an_output_and_nothing_follows() -> None:
    started = asyncio.Event()
    followed = False

    @step
    async def stubborn(ctx: StepContext) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "all the same"
        return "unreachable"

    @step
    async def follows(ctx: StepContext) -> None:
        nonlocal followed
        followed = True

    @step
    async def fails(ctx: StepContext) -> None:
        await started.wait()
        raise ValueError("x")

    steps: Steps = {"stubborn": stubborn, "follows": follows}
    run = asyncio.create_task(Pipeline[Any, Any]("p", steps, {"follows": ["stubborn"]}).execute())
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not followed

    started.clear()
    with_failure: Pipeline[Any, Any] = Pipeline(
        "p", {**steps, "fails": fails}, {"follows": ["stubborn"]}, output_step="follows"
    )
    with pytest.raises(StepExecutionError) as caught:
        await with_failure.execute()
    assert caught.value.step_outputs == {"stubborn": "all the same"}
    assert not followed


async def test_a_step_whose_own_task_was_cancelled_has_failed() -> None:
    attempts: list[int] = []

    @step(retries=1, retry_delay=0)
    async def awaits(ctx: StepContext) -> None:
        attempts.append(ctx.attempt)
        inside = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        inside.cancel()
        await inside

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"awaits": awaits, "other": step(lambda ctx: 1)}, output_step="other"
    )
    with pytest.raises(StepExecutionError, match="step 'awaits' failed: CancelledInside") as caught:
        await pipeline.execute()
    assert isinstance(caught.value.original_error, CancelledInside)
    config = PipelineConfig(on_error="continue")
    lenient: Pipeline[Any, Any] = Pipeline("p", pipeline.steps, output_step="other", config=config)
    result = await lenient.execute()
    assert (result.output, [*result.errors], attempts) == (1, ["awaits"], [1, 2, 1, 2])
    assert_no_task_is_left()


@pytest.mark.parametrize("on_error", ["fail", "continue"])
async def test_a_step_that_cancels_the_task_of_its_run_cancels_the_run(on_error: Any) -> None:
    hanging = Hanging()

    @step
    async def cancels_itself(ctx: StepContext) -> None:
        await hanging.started.wait()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"hanging": hanging, "cancels": cancels_itself},
        output_step="hanging",
        config=PipelineConfig(on_error=on_error),
    )
    with pytest.raises(asyncio.CancelledError):
        await pipeline.execute()
    assert hanging.cancelled
    assert_no_task_is_left()


@pytest.mark.parametrize("ticks", range(8))
async def test_a_cancellation_in_the_last_moments_of_a_run_is_not_lost(ticks: int) -> None:
    accepted = False

    async def cancel_soon() -> None:
        nonlocal accepted
        for _ in range(ticks):
            await asyncio.sleep(0)
        accepted = run.cancel()

    @step
    async def last(ctx: StepContext) -> asyncio.Task[None]:
        return asyncio.create_task(cancel_soon())

    run = asyncio.create_task(Pipeline[Any, Any]("p", {"last": last}).execute())
    await asyncio.wait([run])
    for _ in range(ticks + 2):
        await asyncio.sleep(0)
    assert run.cancelled() == accepted
    assert_no_task_is_left()


class NotOurs(BaseException):
    """What is not an Exception is nobody's ordinary failure."""


@pytest.mark.slow
async def test_what_is_not_an_exception_ends_the_run_as_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hanging = Hanging()
    error = NotOurs("stop")

    @step(retries=5)
    async def stops(ctx: StepContext) -> None:
        await hanging.started.wait()
        raise error

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"hanging": hanging, "stops": stops},
        output_step="stops",
        config=PipelineConfig(on_error="continue"),
    )
    with pytest.raises(NotOurs) as caught:
        await pipeline.execute()
    assert caught.value is error
    assert hanging.cancelled
    assert_no_task_is_left()
    del caught
    gc.collect()
    assert caplog.records == [], "and no task complains that nobody asked for its exception"


@pytest.mark.slow
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_step_ends_the_program_and_the_other_steps(
    interrupt: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Hanging] = []

    async def main() -> None:
        hanging = Hanging()
        made.append(hanging)

        @step
        async def stops(ctx: StepContext) -> None:
            await hanging.started.wait()
            raise interrupt

        await Pipeline[Any, Any]("p", {"hanging": hanging, "stops": stops}, output_step="stops").execute()

    with pytest.raises(interrupt), asyncio.Runner() as runner:
        runner.run(main())
    assert made[0].cancelled
    gc.collect()
    assert caplog.records == []


@pytest.mark.parametrize("why", ["a step failed", "the run was cancelled"])
def test_an_interrupt_while_steps_are_being_cancelled_is_not_lost(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        hanging = Hanging()

        @step
        async def exits_when_cancelled(ctx: StepContext) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise SystemExit(3)

        @step
        async def ends_it(ctx: StepContext) -> None:
            await hanging.started.wait()
            if why == "a step failed":
                raise ValueError("x")
            run.cancel()
            await asyncio.Event().wait()

        steps: Steps = {"exits": exits_when_cancelled, "hanging": hanging, "ends": ends_it}
        run = asyncio.create_task(Pipeline[Any, Any]("p", steps, output_step="ends").execute())
        await run

    with pytest.raises(SystemExit, match="3"), asyncio.Runner() as runner:
        runner.run(main())
    gc.collect()
    assert caplog.records == []


async def test_a_worker_that_somebody_cancels_from_outside_cancels_the_run() -> None:
    hanging = Hanging()
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"hanging": hanging, "other": Hanging()}, output_step="hanging"
    )
    run = asyncio.create_task(pipeline.execute())
    await hanging.started.wait()
    workers = asyncio.all_tasks() - {run, asyncio.current_task()}
    next(iter(workers)).cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_no_task_is_left()


@pytest.mark.parametrize("who", ["the run", "the worker"])
async def test_cancellation_reaches_a_worker_that_has_not_begun(who: str) -> None:
    hanging = Hanging()

    @step
    async def first(ctx: StepContext) -> None:
        begun = {run, test, asyncio.current_task()}

        def cancel_the_worker() -> None:
            [worker] = asyncio.all_tasks() - begun
            worker.cancel()

        # Either happens before the worker begins that is about to be made for the other step.
        if who == "the run":
            run.cancel()
        else:
            asyncio.get_running_loop().call_soon(cancel_the_worker)
        await asyncio.Event().wait()

    test = asyncio.current_task()
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"first": first, "other": hanging}, output_step="first")
    run = asyncio.create_task(pipeline.execute())
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not hanging.started.is_set()
    assert_no_task_is_left()


@in_virtual_time
async def test_total_timeout_of_a_pipeline_cancels_what_runs_and_keeps_what_finished() -> None:
    hanging = Hanging()
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"quick": sleeping(1), "hanging": hanging},
        output_step="hanging",
        config=PipelineConfig(total_timeout=5),
    )
    with pytest.raises(TimeLimitExceeded, match="pipeline 'p' took longer than 5 s") as caught:
        await pipeline.execute()
    assert caught.value.step_outputs == {"quick": 1}
    assert caught.value.run_id
    assert hanging.cancelled
    assert now() == 5
    assert_no_task_is_left()


async def test_everything_that_a_step_started_and_forgot_is_its_own_business_but_no_worker_is_left() -> None:
    tasks: list[asyncio.Task[Any]] = []

    @step
    async def forgets(ctx: StepContext) -> None:
        tasks.append(asyncio.create_task(asyncio.Event().wait()))

    await Pipeline("p", dict.fromkeys("abc", forgets), output_step="a").execute()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert_no_task_is_left()


CASES: dict[str, Callable[[], BaseStep[Any, Any]]] = {"nothing": lambda: nothing, "hanging": Hanging}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_cancelled_before_it_began_does_nothing(case: str) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"a": CASES[case]()})
    run = asyncio.create_task(pipeline.execute())
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_no_task_is_left()
