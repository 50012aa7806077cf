"""`ctx.once` and `ctx.idempotency_key`: a side effect happens once in a run, and others can tell."""

from __future__ import annotations

import asyncio
import functools
import threading
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel
from support.interruptions import RUN, DyingStore, entries_of, go_on, interrupt, nth
from support.patience import PATIENCE
from support.steps import run_alone

from fastroai.errors import OnceInterrupted, RunCorrupt, RunStoreUnavailable, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.runtime.facts import AnyFact, OnceDone, OnceFailed, OnceStarted, StepFinished
from fastroai.steps.context import scope_of
from fastroai.store import MemoryRunStore


def counted(done: list[int]) -> int:
    """One more."""
    done.append(1)
    return len(done)


class Receipt(BaseModel):
    """What a bank gives."""

    number: int
    day: date


RECEIPT = Receipt(number=7, day=date(2026, 3, 1))


def alone(execute: Any, **options: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step, as a new process has it."""
    return Pipeline("p", {"alone": step(execute)}, **options)


def at_the_end(entries: Any) -> bool:
    """When the step has done all it does."""
    return any(isinstance(entry, StepFinished) for entry in entries)


# --- in one process ---


@pytest.mark.parametrize("stored", [False, True])
async def test_an_effect_happens_once_whatever_the_attempts(stored: bool) -> None:
    done: list[int] = []

    async def pay() -> int:
        done.append(1)
        return len(done)

    async def work(ctx: StepContext[None]) -> list[int]:
        results = [await ctx.once("pay", pay), await ctx.once("pay", pay)]
        if ctx.attempt < 3:
            raise ConnectionError
        return results

    pipeline = alone(work, step_configs={"alone": StepConfig(retries=2, retry_delay=0.0)})
    result = await pipeline.execute(store=MemoryRunStore() if stored else None)
    assert result.output == [1, 1]


async def test_two_names_are_two_effects_and_so_are_two_steps() -> None:
    done: list[str] = []

    @step
    async def one(ctx: StepContext[None]) -> None:
        for name in ("a", "b"):
            await ctx.once(name, functools.partial(done.append, f"{ctx.step_id} {name}"))

    await Pipeline("p", {"x": one, "y": one}, {"y": ["x"]}).execute()
    assert done == ["x a", "x b", "y a", "y b"]


async def test_who_asks_while_it_happens_waits_for_it() -> None:
    done: list[int] = []
    may_end = asyncio.Event()

    async def pay() -> str:
        done.append(1)
        await may_end.wait()
        return "paid"

    async def work(ctx: StepContext[None]) -> list[str]:
        callers = [asyncio.create_task(ctx.once("pay", pay)) for _ in range(3)]
        while not done:
            await asyncio.sleep(0)
        may_end.set()
        return await asyncio.gather(*callers)

    result = await run_alone(work)
    assert result.output == ["paid"] * 3
    assert done == [1]


async def test_an_effect_that_fails_is_repeated_by_whoever_asks_next() -> None:
    done: list[int] = []

    def pay() -> str:
        done.append(1)
        if len(done) < 3:
            raise ConnectionError("no answer")
        return "paid"

    async def work(ctx: StepContext[None]) -> list[Any]:
        return await asyncio.gather(*(ctx.once("pay", pay) for _ in range(3)), return_exceptions=True)

    result = await run_alone(work)
    assert result.output is not None
    assert [str(one) for one in result.output] == ["no answer", "no answer", "paid"]


async def test_a_sync_step_asks_for_it_too_and_its_effect_may_give_an_awaitable() -> None:
    async def pay() -> str:
        return threading.current_thread().name

    def work(ctx: StepContext[None]) -> list[str]:
        here = threading.current_thread().name
        return [here, ctx.once_sync("a", lambda: threading.current_thread().name)]

    async def awaited(ctx: StepContext[None]) -> str:
        return await ctx.once("pay", lambda: pay())

    names = (await run_alone(step(work))).output
    assert names is not None
    assert "MainThread" not in names
    assert (await run_alone(awaited)).output == "MainThread"


async def test_mapped_steps_have_effects_of_their_own() -> None:
    done: list[int] = []

    @step
    async def one(ctx: StepContext[None]) -> int:
        return await ctx.once("tell", functools.partial(counted, done))

    async def work(ctx: StepContext[None]) -> list[int]:
        return sorted(await ctx.map(one, [1, 2, 3]) + await ctx.map(one, [4]))

    assert (await run_alone(work)).output == [1, 2, 3, 4]


async def test_a_thread_that_nobody_waits_for_any_more_still_does_it_once() -> None:
    done: list[int] = []
    may_end = threading.Event()

    def pay() -> str:
        done.append(1)
        assert may_end.wait(PATIENCE)
        return "paid"

    async def work(ctx: StepContext[None]) -> str:
        if ctx.attempt == 2:
            may_end.set()
        return await ctx.once("pay", pay, if_interrupted="fail")

    store = MemoryRunStore()
    config = StepConfig(timeout=0.05, retries=50, retry_delay=0.0)  # of which a busy machine needs some
    pipeline = alone(work, step_configs={"alone": config})
    result = await pipeline.execute(store=store, run_id=RUN)
    assert result.output == "paid"
    assert done == [1]
    assert sum(isinstance(entry, OnceDone) for entry in await entries_of(store)) == 1


@pytest.mark.parametrize("policy", ["repeat", "fail"])
async def test_what_a_timeout_interrupts_is_repeated_unless_told_otherwise(policy: Any) -> None:
    done: list[int] = []

    async def pay() -> str:
        done.append(1)
        if len(done) == 1:
            await asyncio.Event().wait()
        return "paid"

    async def work(ctx: StepContext[None]) -> str:
        return await ctx.once("pay", pay, if_interrupted=policy)

    config = StepConfig(timeout=0.05, retries=50, retry_delay=0.0)
    pipeline = alone(work, step_configs={"alone": config})
    if policy == "repeat":
        assert (await pipeline.execute()).output == "paid"
        return
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.execute()
    assert isinstance(caught.value.original_error, OnceInterrupted)
    assert done == [1]


# --- across processes ---


@pytest.mark.parametrize("returns", [Receipt, None])
@pytest.mark.parametrize("sync", [False, True])
async def test_another_process_has_the_result_as_it_was(returns: Any, sync: bool) -> None:
    done: list[int] = []
    value = RECEIPT if returns else {"number": 7}

    async def pay() -> Any:
        done.append(1)
        return value

    def pay_now() -> Any:
        done.append(1)
        return value

    async def work(ctx: StepContext[None]) -> bool:
        receipt = await ctx.once("pay", pay_now if sync else pay, returns=returns)
        again = await ctx.once("pay", pay, returns=returns)
        return receipt == again == value and type(receipt) is type(value)

    store = MemoryRunStore()
    await interrupt(alone(work), store, at_the_end)
    assert (await go_on(alone(work), store)).output is True
    assert done == [1]


async def test_a_result_that_is_of_another_type_now_is_refused() -> None:
    async def work(ctx: StepContext[None], returns: Any = int) -> None:
        await ctx.once("pay", lambda: "text" if returns is str else 7, returns=returns)

    async def first(ctx: StepContext[None]) -> None:
        await work(ctx, str)

    store = MemoryRunStore()
    await interrupt(alone(first), store, at_the_end)
    with pytest.raises(StepExecutionError) as caught:
        await go_on(alone(work), store)
    assert isinstance(caught.value.original_error, RunCorrupt)


@pytest.mark.parametrize("policy", ["repeat", "fail"])
@pytest.mark.parametrize(("kind", "written"), [(OnceStarted, True), (OnceDone, False), (OnceDone, True)])
async def test_the_window_that_is_left_is_the_users_choice(
    policy: Any, kind: type[AnyFact], written: bool
) -> None:
    done: list[int] = []

    async def work(ctx: StepContext[None]) -> int:
        return await ctx.once("pay", functools.partial(counted, done), if_interrupted=policy)

    store = MemoryRunStore()
    await interrupt(alone(work), store, nth(kind), written=written)
    begun = kind is OnceDone
    if written and kind is OnceDone:
        assert (await go_on(alone(work), store)).output == 1
    elif policy == "repeat":
        assert (await go_on(alone(work), store)).output == 1 + begun
    else:
        with pytest.raises(StepExecutionError) as caught:
            await go_on(alone(work), store)
        assert isinstance(caught.value.original_error, OnceInterrupted)
    assert len(done) == begun + (policy == "repeat" and not (written and begun))


async def test_an_effect_that_failed_was_not_interrupted() -> None:
    done: list[int] = []

    def pay() -> int:
        done.append(1)
        if len(done) == 1:
            raise ConnectionError("refused")
        return len(done)

    async def work(ctx: StepContext[None]) -> int:
        return await ctx.once("pay", pay, if_interrupted="fail")

    store = MemoryRunStore()
    with pytest.raises(StepExecutionError, match="refused"):
        await alone(work).execute(run_id=RUN, store=store)
    assert any(isinstance(entry, OnceFailed) for entry in await entries_of(store))
    assert (await go_on(alone(work), store)).output == 2


async def test_a_nested_step_that_runs_again_does_not_do_it_again() -> None:
    done: list[int] = []
    processes: list[int] = []

    def pipeline() -> Pipeline[Any, Any]:
        processes.append(1)

        @step
        async def pay(ctx: StepContext[None]) -> int:
            paid = await ctx.once("pay", functools.partial(counted, done))
            if len(processes) == 1:
                raise ConnectionError("and then the line went dead")
            return paid

        return Pipeline("outer", {"nested": Pipeline("inner", {"pay": pay}).as_step()})

    store = MemoryRunStore()
    with pytest.raises(StepExecutionError):
        await pipeline().execute(run_id=RUN, store=store)
    assert (await go_on(pipeline(), store)).output == 1
    assert done == [1]


# --- keys ---


async def test_a_key_is_the_same_in_every_attempt_and_process_and_for_nothing_else() -> None:
    keys: dict[str, set[str]] = {}

    @step
    async def noted(ctx: StepContext[None]) -> None:
        keys.setdefault(f"{ctx.run_id} {'/'.join(scope_of(ctx).path)}", set()).add(ctx.idempotency_key)
        assert len(ctx.idempotency_key) == 32
        if ctx.attempt == 1:
            raise ConnectionError

    @step
    async def mapping(ctx: StepContext[None]) -> None:
        await ctx.map(noted, [1, 2])

    def pipeline() -> Pipeline[Any, Any]:
        inner = Pipeline("inner", {"a": noted}, config=PipelineConfig(retries=1, retry_delay=0.0))
        return Pipeline(
            "outer",
            {"a": noted, "b": noted, "mapped": mapping, "nested": inner.as_step()},
            {"nested": ["mapped"], "mapped": ["b"], "b": ["a"]},
            config=PipelineConfig(retries=1, retry_delay=0.0),
        )

    store = MemoryRunStore()
    await interrupt(pipeline(), store, nth(StepFinished, 5))
    await go_on(pipeline(), store)
    await pipeline().execute(run_id="another")
    assert len(keys) == 10
    assert all(len(of_one) == 1 for of_one in keys.values())
    assert len(set.union(*keys.values())) == 10


async def test_an_effect_whose_result_cannot_be_stored_has_happened_all_the_same() -> None:
    store, happened = MemoryRunStore(), list[int]()

    @step
    async def pay(ctx: StepContext[Any]) -> None:
        await ctx.once("pay", lambda: happened.append(1) or object(), if_interrupted="fail")

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"pay": pay})
    with pytest.raises(StepExecutionError, match="cannot be stored"):
        await pipeline.execute(run_id="r", store=store)
    with pytest.raises(StepExecutionError, match="step 'pay' began 'pay', and it is unknown"):
        await pipeline.resume("r", store=store)
    assert happened == [1]


async def test_what_to_do_with_an_interrupted_effect_is_one_of_two_things() -> None:
    @step
    async def pay(ctx: StepContext[Any]) -> None:
        await ctx.once("pay", lambda: None, if_interrupted="fial")  # type: ignore[call-overload]

    with pytest.raises(StepExecutionError, match="'repeat' or 'fail'"):
        await Pipeline("p", {"pay": pay}).execute()


@pytest.mark.parametrize("name", ["a", "2", "route/of @ #1"])
async def test_a_run_after_an_effect_takes_over_nothing_of_a_run_inside_of_it(name: str) -> None:
    def pipeline() -> Pipeline[Any, Any, Any]:
        @step
        async def look(ctx: StepContext[Any]) -> str:
            return ctx.get_input("which", str)

        inner = Pipeline[Any, Any, Any]("inner", {"look": look})

        @step
        async def work(ctx: StepContext[Any]) -> list[Any]:
            async def first() -> Any:
                return (await inner.execute({"which": "first"})).output

            found = await ctx.once(name, first)
            return [found, *[(await inner.execute({"which": one})).output for one in ("second", "third")]]

        return Pipeline("p", {"work": work})

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await pipeline().execute(run_id=RUN, store=DyingStore(store, nth(StepFinished, 3)))
    result = await pipeline().resume(RUN, store=store)
    assert result.output == ["first", "second", "third"]
    assert result.trace.replay(pipeline()) is None
