"""To stop a process is not to cancel its runs: loops and services that are cancelled hand their runs over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest

from fastroai import (
    Edge,
    Graph,
    Inbox,
    MemoryRunStore,
    Pipeline,
    RunHistory,
    Service,
    SQLiteRunStore,
    StepContext,
    flow,
    send_message,
    step,
)
from fastroai.errors import ConfigurationError, FlowStopped, QuestionClosed
from fastroai.functions import HumanReviewContext, await_human
from fastroai.store import RunSummary
from fastroai.workflows import Workflow

PATIENCE = 30.0
SOON = 0.01


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteRunStore]:
    store = SQLiteRunStore(tmp_path / "runs.db")
    yield store
    await store.aclose()


class Work:
    """The work of one step, which waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.times = 0
        self.at_once = 0
        self.most_at_once = 0

    async def do(self) -> str:
        self.times += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.set()
        try:
            await self.go_on.wait()
        finally:
            self.at_once -= 1
        return "done"


def a_pipeline(work: Work) -> Any:
    @step
    async def wait(ctx: StepContext[Any]) -> str:
        return await work.do()

    return Pipeline("job", {"wait": wait})


def a_graph(work: Work) -> Any:
    @step
    async def wait(ctx: StepContext[Any]) -> str:
        return await work.do()

    @step
    async def end(ctx: StepContext[Any]) -> str:
        return "done"

    return Graph("job", nodes={"wait": wait, "end": end}, edges=[Edge("wait", "end")])


def a_flow(work: Work) -> Any:
    @flow
    async def job() -> str:
        return await work.do()

    return job


def a_workflow(work: Work) -> Any:
    async def wait(text: str) -> dict[str, str]:
        return {"text": await work.do()}

    spec = """
version: "0.2"
contracts: {Out: {text: {type: string}}}
functions:
  wait: {mode: compute, intent: Wait, input: {text: {type: string}}, output: Out}
flows:
  job:
    input: {text: {type: string, default: a}}
    output: Out
    steps: [{id: wait, function: wait, inputs: {text: $.input.text}}]
"""
    return Workflow.load(spec).bind(functions={"wait": wait})


def a_nest(work: Work) -> Any:
    return Pipeline("nest", {"inside": a_pipeline(work).as_step()})


DOORS = [a_pipeline, a_graph, a_flow, a_workflow, a_nest]


async def status_of(store: Any, run_id: str = "r") -> str:
    return (await RunHistory(store).summary(run_id)).status


async def let_go(door: Any, work: Work, store: Any, run_id: str = "r") -> None:
    """Begin a run, and let go of it while its first step is running, as a process does that ends."""
    work.begun.clear()
    run = asyncio.create_task(door.execute(run_id=run_id, store=store))
    await asyncio.wait_for(work.begun.wait(), PATIENCE)
    await door.interrupt()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await status_of(store, run_id) == "interrupted"
    work.begun.clear()


async def cancelled(loop: Coroutine[Any, Any, Any], work: Work, *ways: str) -> None:
    """Let a loop take up a run, and cancel it while that run goes on."""
    task = asyncio.create_task(loop)
    await asyncio.wait_for(work.begun.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def in_block(service: Service) -> None:
    async with service:
        await asyncio.get_running_loop().create_future()


LOOPS: dict[str, Callable[[Any, Any], Coroutine[Any, Any, Any]]] = {
    "recover": lambda door, store: door.recover(store=store),
    "recover_every": lambda door, store: door.recover_every(SOON, store=store),
    "wake": lambda door, store: door.wake(store=store),
    "wake_every": lambda door, store: door.wake_every(SOON, store=store),
    "serve": lambda door, store: door.serve(every=SOON, store=store),
    "Service": lambda door, store: in_block(Service(door, every=SOON, store=store)),
}


@pytest.mark.parametrize(
    ("make", "name"),
    [*product(DOORS, ["recover_every", "serve"]), (a_pipeline, "recover"), (a_pipeline, "Service")],
)
async def test_a_cancelled_loop_hands_over_runs_of_every_kind(
    make: Callable[[Work], Any], name: str, store: SQLiteRunStore
) -> None:
    work = Work()
    await let_go(make(work), work, store)
    await cancelled(LOOPS[name](make(work), store), work)
    assert await status_of(store) == "interrupted"
    work.go_on.set()
    assert [*(await make(work).recover(store=store))] == ["r"]  # at once: no lease has to end
    assert (await status_of(store), work.times) == ("finished", 3)


def a_sleeper(work: Work) -> Any:
    @step
    async def wait(ctx: StepContext[Any]) -> str:
        await ctx.receive("go")
        return await work.do()

    return Pipeline("sleeper", {"wait": wait})


async def due(work: Work, store: Any) -> Any:
    door = a_sleeper(work)
    assert (await door.execute(run_id="r", store=store)).status == "paused"
    await send_message("r", "go", None, store=store)
    return door


@pytest.mark.parametrize("name", ["wake", "wake_every", "serve"])
async def test_every_method_that_wakes_hands_over_what_it_has_taken_up(
    name: str, store: SQLiteRunStore
) -> None:
    work = Work()
    door = await due(work, store)
    await cancelled(LOOPS[name](door, store), work)
    assert await status_of(store) == "interrupted"
    work.go_on.set()
    assert (await door.recover(store=store))["r"].output == "done"


async def test_a_scope_of_anyio_that_is_cancelled_hands_runs_over(store: SQLiteRunStore) -> None:
    work = Work()
    await let_go(a_pipeline(work), work, store)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: a_pipeline(work).serve(every=SOON, store=store))
            await work.begun.wait()
            group.cancel_scope.cancel()
    assert await status_of(store) == "interrupted"
    work.begun.clear()
    with anyio.move_on_after(PATIENCE) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: a_pipeline(work).recover(store=store))
            await work.begun.wait()
            scope.cancel()
    assert await status_of(store) == "interrupted"


async def test_a_loop_in_a_task_group_that_fails_hands_runs_over(store: SQLiteRunStore) -> None:
    work = Work()
    await let_go(a_pipeline(work), work, store)
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(a_pipeline(work).recover_every(SOON, store=store))
            await work.begun.wait()
            raise ValueError("something else has failed")
    assert await status_of(store) == "interrupted"


def test_a_program_that_ends_cancels_all_tasks_at_once_and_hands_over_what_a_loop_took_up(
    tmp_path: Path,
) -> None:
    """`asyncio.run` cancels the tasks of the runs themselves, in any order."""

    async def main() -> None:
        store, work = SQLiteRunStore(tmp_path / "runs.db"), Work()
        await let_go(a_pipeline(work), work, store)
        main.loop = asyncio.create_task(a_pipeline(work).recover_every(SOON, store=store))  # type: ignore[attr-defined]
        main.own = asyncio.create_task(a_pipeline(work).execute(run_id="own", store=store))  # type: ignore[attr-defined]
        while work.at_once < 2:
            await asyncio.sleep(0)

    async def statuses() -> list[str]:
        store = SQLiteRunStore(tmp_path / "runs.db")
        found = [await status_of(store, run_id) for run_id in ("r", "own")]
        await store.aclose()
        return found

    asyncio.run(main())
    assert asyncio.run(statuses()) == ["interrupted", "cancelled"]


async def test_a_run_that_is_cancelled_again_and_again_gives_up_its_lease(store: SQLiteRunStore) -> None:
    """A program that ends cancels the tasks of the runs, and then the loop that has them does, too."""
    work = Work()
    await let_go(a_pipeline(work), work, store)
    before = asyncio.all_tasks()
    loop = asyncio.create_task(a_pipeline(work).recover_every(SOON, store=store))
    await asyncio.wait_for(work.begun.wait(), PATIENCE)
    new = asyncio.all_tasks() - before
    while not loop.done():
        for task in new:
            task.cancel()
        await asyncio.sleep(0)
    assert (await RunHistory(store).summary("r")).lease_until is None


# --- what the caller cancels stays cancelled ---


async def _when(begun: asyncio.Event, end: Callable[[], object]) -> None:
    await begun.wait()
    end()


async def _by_timeout(run: Awaitable[Any], begun: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE) as limit:
            now = asyncio.get_running_loop().time()
            ending = asyncio.create_task(_when(begun, lambda: limit.reschedule(now)))
            await run
    await ending


async def _by_group(run: Awaitable[Any], begun: asyncio.Event) -> None:
    with anyio.CancelScope() as scope:
        ending = asyncio.create_task(_when(begun, scope.cancel))
        await run
    await ending


async def _by_cancel(run: Coroutine[Any, Any, Any], begun: asyncio.Event) -> None:
    task = asyncio.create_task(run)
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("end", [_by_timeout, _by_group, _by_cancel])
async def test_a_run_that_its_caller_cancels_is_cancelled_also_beside_a_service(
    end: Callable[[Any, asyncio.Event], Awaitable[None]], store: SQLiteRunStore
) -> None:
    work = Work()
    door = a_pipeline(work)
    async with Service(door, every=SOON, store=store):
        await end(door.execute(run_id="r", store=store), work.begun)
        assert await status_of(store) == "cancelled"
    assert (await status_of(store), work.times) == ("cancelled", 1)


async def test_a_run_that_somebody_cancels_is_cancelled_also_in_a_service_that_ends(
    store: SQLiteRunStore,
) -> None:
    work, held = Work(), asyncio.Event()

    @step
    async def wait(ctx: StepContext[Any]) -> str:
        try:
            return await work.do()
        except asyncio.CancelledError:
            held.set()
            with anyio.CancelScope(shield=True):
                await work.go_on.wait()  # what takes its time after a cancellation
            raise

    door = Pipeline("job", {"wait": wait})
    await let_go(a_pipeline(work), work, store)
    task = asyncio.create_task(door.recover_every(SOON, store=store))
    await asyncio.wait_for(work.begun.wait(), PATIENCE)
    await door.cancel("r", store=store)
    await asyncio.wait_for(held.wait(), PATIENCE)
    task.cancel()
    await asyncio.sleep(0)
    work.go_on.set()
    await asyncio.wait([task])
    assert await status_of(store) == "cancelled"


async def test_a_step_that_cancels_itself_is_not_tried_again_for_ever(
    store: SQLiteRunStore,
) -> None:
    work = Work()
    await let_go(a_pipeline(work), work, store)

    @step
    async def wait(ctx: StepContext[Any]) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await work.do()

    loop = asyncio.create_task(Pipeline("job", {"wait": wait}).recover_every(SOON, store=store))
    async with asyncio.timeout(PATIENCE):
        while await status_of(store) != "cancelled":
            await asyncio.sleep(SOON)
    assert not loop.done()
    loop.cancel()
    await asyncio.wait([loop])
    assert await status_of(store) == "cancelled"


# --- loops never wait for a run ---


def of_inputs(do: Callable[[StepContext[Any]], Awaitable[Any]], **options: Any) -> Any:
    @step
    async def work(ctx: StepContext[Any]) -> Any:
        return await do(ctx)

    return Pipeline("job", {"work": work}, **options)


async def begin_interrupted(store: Any, *run_ids: str) -> None:
    """Put runs on record that a process has let go of before their first step."""
    for run_id in run_ids:
        await _begin_interrupted(store, run_id, Work())


async def _begin_interrupted(store: Any, run_id: str, work: Work) -> None:
    await let_go(of_inputs(lambda ctx: work.do()), work, store, run_id)


async def test_a_loop_finds_runs_while_a_slow_one_goes_on(store: SQLiteRunStore) -> None:
    slow, done = asyncio.Event(), set[str]()
    begun = asyncio.Event()

    async def do(ctx: StepContext[Any]) -> str:
        if ctx.run_id == "slow":
            begun.set()
            await slow.wait()
        done.add(str(ctx.run_id))
        return "done"

    door = of_inputs(do)
    await begin_interrupted(store, "slow")
    loop = asyncio.create_task(door.recover_every(SOON, store=store))
    await asyncio.wait_for(begun.wait(), PATIENCE)
    await begin_interrupted(store, "quick")
    async with asyncio.timeout(PATIENCE):
        while await status_of(store, "quick") != "finished":
            await asyncio.sleep(SOON)
    assert (await status_of(store, "slow"), done) == ("running", {"quick"})
    slow.set()
    async with asyncio.timeout(PATIENCE):
        while await status_of(store, "slow") != "finished":
            await asyncio.sleep(SOON)
    loop.cancel()
    await asyncio.wait([loop])


@pytest.mark.parametrize("way", ["recover", "recover_every", "Service"])
async def test_at_most_so_many_runs_go_on_at_once_and_other_processes_can_have_the_rest(
    way: str, store: SQLiteRunStore
) -> None:
    ids = [f"r{number}" for number in range(5)]
    await begin_interrupted(store, *ids)
    work = Work()
    door = of_inputs(lambda ctx: work.do())
    ways: dict[str, Coroutine[Any, Any, Any]] = {
        "recover": door.recover(store=store, max_concurrency=2),
        "recover_every": door.recover_every(SOON, store=store, max_concurrency=2),
        "Service": in_block(Service(door, every=SOON, store=store, max_concurrency=2)),
    }
    loop = asyncio.create_task(ways.pop(way))
    for other in ways.values():
        other.close()
    while work.at_once < 2:
        await asyncio.sleep(SOON)
    statuses = [await status_of(store, run_id) for run_id in ids]
    assert sorted(statuses) == ["interrupted"] * 3 + ["running"] * 2
    work.go_on.set()
    async with asyncio.timeout(PATIENCE):
        while {await status_of(store, run_id) for run_id in ids} != {"finished"}:
            await asyncio.sleep(SOON)
    loop.cancel()
    await asyncio.wait([loop])
    assert (work.most_at_once, work.times) == (2, 5)


# --- an error is one run's ---


class Odd(BaseException):
    """An exception that is no `Exception`."""


@pytest.mark.parametrize("error", [ValueError("no"), Odd("no"), SystemExit("no")])
async def test_an_error_of_one_run_is_told_once_and_the_others_go_on(
    error: BaseException, store: SQLiteRunStore, caplog: pytest.LogCaptureFixture
) -> None:
    await begin_interrupted(store, "bad", "good")
    told = list[tuple[str, str]]()
    failed = asyncio.Event()

    async def do(ctx: StepContext[Any]) -> str:
        if ctx.run_id == "bad":
            raise error
        await failed.wait()
        return "done"

    async def on_error(run: RunSummary, error: BaseException) -> None:
        told.append((run.run_id, f"{type(error).__name__}: {error}"))
        failed.set()
        raise LookupError("a hook that fails does not matter")

    with caplog.at_level(logging.WARNING, "fastroai.runs"):
        loop = asyncio.create_task(of_inputs(do).recover_every(SOON, store=store, on_error=on_error))
        async with asyncio.timeout(PATIENCE):
            while await status_of(store, "good") != "finished":
                await asyncio.sleep(SOON)
        assert not loop.done()
        loop.cancel()
        await asyncio.wait([loop])
    ((run_id, text),) = told
    assert run_id == "bad"
    assert "no" in text
    assert "run 'bad' was not continued" in caplog.text
    assert "on_error failed" in caplog.text


async def test_an_error_that_comes_back_is_told_once_until_it_changes(store: SQLiteRunStore) -> None:
    await begin_interrupted(store, "r")
    told, asked = list[str](), 0
    enough = asyncio.Event()

    def deps_for(run: RunSummary) -> None:
        nonlocal asked
        asked += 1
        if asked == 8:
            enough.set()
        raise LookupError("a" if asked < 4 else "b")

    loop = asyncio.create_task(
        of_inputs(lambda ctx: asyncio.sleep(0)).recover_every(
            0, store=store, deps_for=deps_for, on_error=lambda run, error: told.append(str(error))
        )
    )
    await asyncio.wait_for(enough.wait(), PATIENCE)
    loop.cancel()
    await asyncio.wait([loop])
    assert told == ["a", "b"]


async def test_a_flow_that_waits_again_is_no_error(
    store: SQLiteRunStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A flow that pauses raises `FlowStopped` to its caller; to a loop that is nothing to report."""

    @flow
    async def twice() -> str:
        for question in ("First?", "Second?"):
            await await_human(HumanReviewContext(question))
        return "done"

    with pytest.raises(FlowStopped):
        await twice.run(run_id="r", store=store)
    inbox = Inbox(store)
    with caplog.at_level(logging.WARNING, "fastroai.runs"):
        async with Service(twice, every=SOON, store=store), asyncio.timeout(PATIENCE):
            while await status_of(store) != "finished":
                for question in await inbox.list():
                    with suppress(QuestionClosed):
                        await inbox.answer(question.id, "yes", reviewer="Mia")
                await asyncio.sleep(SOON)
    assert caplog.text == ""


# --- a service that ends in order ---


def two_steps(work: Work, ran: list[str]) -> Any:
    @step
    async def first(ctx: StepContext[Any]) -> str:
        ran.append("first")
        return await work.do()

    @step
    async def second(ctx: StepContext[Any]) -> str:
        ran.append("second")
        return "done"

    return Pipeline("job", {"first": first, "second": second}, {"second": ["first"]})


@asynccontextmanager
async def a_slow_end(work: Work) -> AsyncIterator[None]:
    """Let the step go on when the service has begun to end."""
    yield
    asyncio.get_running_loop().call_later(0.1, work.go_on.set)


async def test_steps_that_are_running_finish_and_the_next_ones_are_for_another_process(
    store: SQLiteRunStore,
) -> None:
    work, ran = Work(), list[str]()
    await let_go(two_steps(work, ran), work, store)
    ran.clear()
    async with Service(two_steps(work, ran), every=SOON, store=store), a_slow_end(work):
        await asyncio.wait_for(work.begun.wait(), PATIENCE)
    assert (await status_of(store), ran) == ("interrupted", ["first"])
    assert (await two_steps(work, ran).recover(store=store))["r"].output == "done"
    assert ran == ["first", "second"]


async def test_runs_that_the_program_began_itself_halt_with_the_service(store: SQLiteRunStore) -> None:
    work, ran = Work(), list[str]()
    door = two_steps(work, ran)
    async with Service(door, every=SOON, store=store), a_slow_end(work):
        run = asyncio.create_task(door.execute(run_id="r", store=store))
        await asyncio.wait_for(work.begun.wait(), PATIENCE)
    assert (await run).status == "paused"
    assert (await status_of(store), ran) == ("interrupted", ["first"])


async def test_steps_that_are_too_slow_are_cut_off(store: SQLiteRunStore) -> None:
    work = Work()
    await let_go(a_pipeline(work), work, store)
    async with Service(a_pipeline(work), every=SOON, store=store, graceful_timeout=0.05):
        await asyncio.wait_for(work.begun.wait(), PATIENCE)
    assert (await status_of(store), work.at_once) == ("interrupted", 0)


async def test_a_service_takes_up_nothing_more_when_it_ends(store: SQLiteRunStore) -> None:
    """Runs that wait for their turn are left to other processes."""
    await begin_interrupted(store, "a", "b", "c")
    work = Work()
    door = of_inputs(lambda ctx: work.do())
    async with Service(door, every=SOON, store=store, max_concurrency=1), a_slow_end(work):
        await asyncio.wait_for(work.begun.wait(), PATIENCE)
    assert work.times == 1
    statuses = [await status_of(store, run_id) for run_id in ("a", "b", "c")]
    assert statuses.count("interrupted") >= 2


async def test_one_service_has_several_definitions_and_can_be_opened_again(store: SQLiteRunStore) -> None:
    work = Work()
    await let_go(a_flow(work), work, store, "f")
    await let_go(a_nest(work), work, store, "n")
    await due(work, store)
    work.go_on.set()
    named = list[tuple[str, str]]()

    def deps_for(run: RunSummary) -> None:
        named.append((str(run.pipeline), run.run_id))

    service = Service(a_flow(work), a_nest(work), a_sleeper(work), every=SOON, store=store, deps_for=deps_for)
    for _ in range(2):
        async with service, asyncio.timeout(PATIENCE):
            while {await status_of(store, run_id) for run_id in "fnr"} != {"finished"}:
                await asyncio.sleep(SOON)
    assert sorted(named) == [("job", "f"), ("nest", "n"), ("sleeper", "r")]
    async with service:
        with pytest.raises(ConfigurationError, match="it is serving already"):
            await service.serve()


INVALID: list[tuple[Callable[[Any], Any], str]] = [
    (lambda door: Service(), "doors="),
    (lambda door: Service("door"), "doors='door'"),  # type: ignore[call-overload]
    (lambda door: Service(door), "store=None"),
    (lambda door: Service(door, store=MemoryRunStore(), every=-1), "every=-1"),
    (lambda door: Service(door, store=MemoryRunStore(), max_concurrency=0), "max_concurrency=0"),
    (lambda door: Service(door, store=MemoryRunStore(), graceful_timeout=-1), "graceful_timeout=-1"),
]


@pytest.mark.parametrize(("make", "message"), INVALID)
def test_a_service_that_cannot_serve_is_refused(make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(a_pipeline(Work()))
