"""What users of Temporal look for. Its code cannot run here, so each function tries what is here instead."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from support.migrating import Tried, assert_renamed, here_it_is

from fastroai import (
    Inbox,
    MemoryRunStore,
    Pipeline,
    PipelineConfig,
    RetryPolicy,
    RunHistory,
    StepContext,
    StepExecutionError,
    TimeLimitExceeded,
    step,
)
from fastroai.errors import RunDefinitionChanged, RunExists

TRIED: Final = Tried()


@step
async def greets(ctx: StepContext[None]) -> str:
    return f"Hello, {ctx.get_input('name', str)}"


def greeting() -> Pipeline[None]:
    return Pipeline[None]("greeting", {"greets": greets})


MIA: Final = {"name": "Mia"}


@TRIED("a workflow")
@TRIED("an activity")
async def workflow() -> None:
    assert (await greeting().run(MIA)).step_outputs["greets"] == "Hello, Mia"


@TRIED("the event history")
async def event_history() -> None:
    store = MemoryRunStore()
    await greeting().run(MIA, run_id="r", store=store)
    trace = await store.trace("r")
    assert "greets" in trace.explain()


@TRIED("the workflow id")
@TRIED("reuse and conflict policies of ids")
async def run_ids() -> None:
    store = MemoryRunStore()
    first = await greeting().run(MIA, run_id="r", store=store)
    assert first.run_id == "r"
    with pytest.raises(RunExists):
        await greeting().run(MIA, run_id="r", store=store, on_existing="fail")
    again = await greeting().run(run_id="r", store=store, on_existing="return")
    assert again.output == "Hello, Mia"
    replaced = await greeting().run({"name": "Ada"}, run_id="r", store=store, on_existing="replace")
    assert replaced.output == "Hello, Ada"


@TRIED("replaying a history in a test")
async def replayed() -> None:
    trace = (await greeting().run(MIA)).trace
    assert trace.replay(greeting()) is None


@TRIED("a retry policy")
async def retried() -> None:
    @step(retries=1, retry_delay=0)
    async def flaky(ctx: StepContext[None]) -> int:
        if ctx.attempt == 1:
            raise ConnectionRefusedError("not up")
        return ctx.attempt

    assert (await Pipeline[None]("p", {"flaky": flaky}).run()).output == 2


@TRIED("start-to-close timeout")
async def time_limit_of_an_attempt() -> None:
    @step(timeout=0.01)
    async def hangs(ctx: StepContext[None]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StepExecutionError) as stopped:
        await Pipeline[None]("p", {"hangs": hangs}).run()
    assert isinstance(stopped.value.original_error, TimeLimitExceeded)


@TRIED("schedule-to-close timeout, execution timeout")
async def time_limit_of_a_run() -> None:
    @step
    async def hangs(ctx: StepContext[None]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeLimitExceeded):
        await Pipeline[None]("p", {"hangs": hangs}, config=PipelineConfig(total_timeout=0.01)).run()


@TRIED("an idempotency key")
async def effects_once() -> None:
    store, keys = MemoryRunStore(), []
    fails = [True]

    @step
    async def pays(ctx: StepContext[None]) -> str:
        async def pay() -> str:
            keys.append(ctx.idempotency_key)
            return "paid"

        paid = await ctx.once("pay", pay)
        if fails:
            fails.clear()
            raise ValueError("afterwards")
        return paid

    paying = Pipeline[None]("p", {"pays": pays})
    with pytest.raises(StepExecutionError):
        await paying.run(run_id="r", store=store)
    assert (await paying.resume("r", store=store)).output == "paid"
    assert len(keys) == 1


@TRIED("a child workflow")
async def nested() -> None:
    assert (await Pipeline[None]("outer", {"inner": greeting().as_step()}).run(MIA)).output == "Hello, Mia"


@TRIED("a timer")
async def timers() -> None:
    @step
    async def naps(ctx: StepContext[None]) -> str:
        await ctx.sleep(0.001)
        return "awake"

    assert (await Pipeline[None]("p", {"naps": naps}).run()).output == "awake"


def receiving() -> Pipeline[None]:
    @step
    async def receives(ctx: StepContext[None]) -> int:
        return await ctx.receive("number", int)

    return Pipeline[None]("receiving", {"receives": receives})


@TRIED("a signal")
async def signals() -> None:
    store = MemoryRunStore()
    assert (await receiving().run(run_id="r", store=store)).status == "paused"
    await receiving().send("r", "number", 7, store=store)
    assert (await receiving().resume("r", store=store)).output == 7


def asking() -> Pipeline[None]:
    @step
    async def asks(ctx: StepContext[None]) -> bool:
        return await ctx.ask("Refund?", bool)

    return Pipeline[None]("asking", {"asks": asks})


@TRIED("an update, which a person gives")
async def answers() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)
    (question,) = await Inbox(store).list()
    await Inbox(store).answer(question.id, True)
    assert (await asking().resume("r", store=store)).output is True


@TRIED("a query")
async def queries() -> None:
    store = MemoryRunStore()
    await greeting().run(MIA, run_id="r", store=store)
    assert (await greeting().get_state("r", store=store)).status == "finished"
    kinds = [type(fact).__name__ async for _, fact in greeting().follow("r", store=store)]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunFinished")


@TRIED("cancelling, terminating")
async def cancelled() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)
    await asking().cancel("r", store=store)
    assert (await asking().get_state("r", store=store)).status == "cancelled"


@TRIED("reset to an earlier event")
async def forked() -> None:
    store = MemoryRunStore()
    await greeting().run(MIA, run_id="r", store=store)
    other = await greeting().fork("r", at="greets", inputs={"name": "Ada"}, store=store)
    assert other.output == "Hello, Ada"


@TRIED("versioning, patching")
async def changed_definitions() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)

    @step
    async def adds(ctx: StepContext[None]) -> str:
        return "added"

    steps = {"asks": asking().steps["asks"], "adds": adds}
    changed = Pipeline[None]("asking", steps, {"asks": ["adds"]})
    with pytest.raises(RunDefinitionChanged):
        await changed.resume("r", store=store)
    forced = await changed.resume("r", store=store, force=True)
    assert forced.step_outputs == {"adds": "added"}


@TRIED("search attributes")
async def searches() -> None:
    store = MemoryRunStore()
    await greeting().run(MIA, run_id="r", store=store, tags=["vip"], tenant="acme")
    for options in ({"status": "finished"}, {"pipeline": "greeting"}, {"tag": "vip"}, {"tenant": "acme"}):
        assert [run.run_id for run in await RunHistory(store).list(**options)] == ["r"]  # type: ignore[arg-type]
    assert not await RunHistory(store).list(tag="other")


@TRIED("a worker takes over from one that died")
async def served() -> None:
    store = MemoryRunStore()
    taken_up = asyncio.Event()

    @step
    async def receives(ctx: StepContext[None]) -> None:
        await ctx.receive("number", int)
        taken_up.set()

    waiting = Pipeline[None]("receiving", {"receives": receives})
    await waiting.run(run_id="r", store=store)
    await waiting.send("r", "number", 7, store=store)
    service = asyncio.create_task(waiting.serve(store=store))
    await taken_up.wait()
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service


@TRIED("activities completed from outside")
async def completed() -> None:
    store = MemoryRunStore()

    @step
    async def receives(ctx: StepContext[None]) -> int:
        return await ctx.receive("result", int)

    waiting = Pipeline[None]("receiving", {"receives": receives})
    await waiting.run(run_id="r", store=store)
    await waiting.send("r", "result", 7, store=store)
    assert (await waiting.resume("r", store=store)).output == 7


@TRIED("`from fastroai import workflow`, `activity`")
def names() -> None:
    assert_renamed(workflow="Pipeline", activity="step")


@TRIED("`RetryPolicy(maximum_attempts=3, initial_interval=…)`")
def retry_policies() -> None:
    untyped: Any = RetryPolicy
    names = {
        "maximum_attempts": "max_retries=",
        "maximum_interval": "max_backoff=",
        "initial_interval": "backoff=",
    }
    for name, here in names.items():
        with pytest.raises(TypeError, match=here_it_is(here)):
            untyped(**{name: 3})
    assert RetryPolicy(max_retries=2, backoff=0.5).max_retries == 2
