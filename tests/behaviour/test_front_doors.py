"""Every front door opens everything: one test of behaviour for each cell of the table in the docs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.carried_doors import CarriedDoor
from support.fork_server import Program
from support.patience import PATIENCE

from fastroai.distributed import Distributed, QueueOptions
from fastroai.errors import ConfigurationError, RunExists, RunInProgress, RunStatusConflict
from fastroai.graphs import Edge, Graph
from fastroai.pipelines import (
    BasePipeline,
    PauseRequested,
    Pipeline,
    Progress,
    RunEvent,
    RunFinished,
    RunStarted,
    SplitPipeline,
    StepContext,
    StepFinished,
    StepStarted,
    step,
)
from fastroai.store import RunHistory, SQLiteRunStore

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run-methods.md"


@dataclass
class Desk:
    """A door to two steps, of which the second waits while it is told to."""

    kind: str
    place: str
    store: SQLiteRunStore
    ran: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    waits: bool = False
    """Whether the second step receives a message."""
    elsewhere: str = ""
    """What the second step does in another process: `wait` or `die`."""

    carried: Callable[[Any], Any] = field(default=lambda door: door)
    """Has the runs of a door carried by a worker, if they are."""

    @property
    def door(self) -> Any:
        return self.carried(DOORS[self.kind](self))

    @property
    def first(self) -> Any:
        @step
        async def first(ctx: StepContext[str]) -> str:
            self.ran.append("first")
            return "first"

        return first

    @property
    def second(self) -> Any:
        @step
        async def second(ctx: StepContext[str]) -> str:
            self.ran.append("second")
            self.arrived.set()
            if self.elsewhere:
                print("arrived", flush=True)
            if self.elsewhere == "die":
                os._exit(9)
            await self.leave.wait()
            if self.waits:
                await ctx.receive("go")
            return f"{ctx.get_input('text', str)} for {ctx.deps}"

        return second

    def take(self) -> list[str]:
        ran, self.ran = self.ran, []
        return ran


def _pipeline(desk: Desk) -> Pipeline[str, Any, str]:
    name = "one" if desk.kind in ROUTERS else "desk"
    return Pipeline(name, {"first": desk.first, "second": desk.second}, {"second": ["first"]})


def _graph(desk: Desk) -> Graph[str, Any, str]:
    return Graph(
        "desk", nodes={"first": desk.first, "second": desk.second}, edges=[Edge("first", "second", "always")]
    )


class _Router(BasePipeline[str, Any, str]):
    """Goes to another variant each time that it is asked."""

    def __init__(self, desk: Desk) -> None:
        super().__init__("desk")
        self.asked = 0
        self.register_pipeline("one", _pipeline(desk))
        self.register_pipeline("other", Pipeline("other", {"never": desk.first}))

    async def route(self, inputs: Mapping[str, Any], deps: str) -> str:
        self.asked += 1
        return "one" if self.asked == 1 else "other"


def _split(desk: Desk) -> SplitPipeline[str, Any, str]:
    split = SplitPipeline[str, Any, str]("desk", key=lambda inputs, deps: deps)
    split.add_variant("one", _pipeline(desk), weight=1)
    return split


DOORS: dict[str, Callable[[Desk], Any]] = {
    "Pipeline": _pipeline,
    "Graph": _graph,
    "BasePipeline": _Router,
    "SplitPipeline": _split,
}
ROUTERS = ("BasePipeline", "SplitPipeline")


@asynccontextmanager
async def halted_in_the_middle(desk: Desk, run_id: str = "r") -> AsyncIterator[Any]:
    """A run of which the first step has finished and the second was cancelled."""
    door = desk.door
    run = asyncio.create_task(door.run({"text": "tea"}, "Ada", run_id=run_id, store=desk.store))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    await door.cancel(run_id)
    assert (await run).status == "cancelled"
    assert desk.take() == ["first", "second"]
    desk.leave.set()
    yield door


async def run_and_execute(desk: Desk) -> None:
    desk.leave.set()
    results = [
        await desk.door.run({"text": "tea"}, "Ada"),
        await desk.door.execute({"text": "tea"}, "Ada"),
        await asyncio.to_thread(desk.door.run_sync, {"text": "tea"}, "Ada"),
        await asyncio.to_thread(desk.door.execute_sync, {"text": "tea"}, "Ada"),
    ]
    assert [(one.output, one.status) for one in results] == [("tea for Ada", "finished")] * 4


async def run_id_and_store(desk: Desk) -> None:
    desk.leave.set()
    result = await desk.door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store)
    assert result.run_id == "r"
    assert (await RunHistory(desk.store).summary("r")).status == "finished"
    with pytest.raises(RunExists):
        await desk.door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store)


async def tags_and_tenant(desk: Desk) -> None:
    desk.leave.set()
    door, store, history = desk.door, desk.store, RunHistory(desk.store)
    await door.run(
        {"text": "tea"}, "Ada", run_id="r", store=store, tags=["blue", "new", "blue"], tenant="ada"
    )
    async with door.stream({"text": "tea"}, "Bob", run_id="s", store=store, tags=["blue"]) as events:
        async for _ in events:
            pass
    await door.run(
        {"text": "tea"}, "Eve", run_id="t", store=store, tenant="eve", on_existing="resume", on_busy="enqueue"
    )
    assert {run.run_id: (run.tags, run.tenant) for run in await history.list()} == {
        "r": (("blue", "new"), "ada"),
        "s": (("blue",), None),
        "t": ((), "eve"),
    }
    assert [run.run_id for run in await history.list(tag="blue")] == ["s", "r"]
    assert [run.run_id for run in await history.list(tenant="eve")] == ["t"]
    can_fork = desk.kind in ("Pipeline", "Graph")  # where the second step has the same name
    if can_fork:
        forked = await door.fork("r", at="second", deps="Ada", store=store)
        assert [run.run_id for run in await history.list(tenant="ada", limit=1)] == [forked.run_id]
    for wrong in ({"tags": "blue"}, {"tags": [""]}, {"tenant": ""}, {"tenant": "a\nb"}, {"tenant": 7}):
        with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))}="):
            await door.run({"text": "tea"}, "Ada", store=store, **wrong)
    assert len(await history.list()) == (4 if can_fork else 3)


async def on_existing(desk: Desk) -> None:
    async with halted_in_the_middle(desk) as door:
        with pytest.raises(RunExists, match="cancelled"):
            await door.run({"text": "tea"}, "Bob", run_id="r", store=desk.store, on_existing="return")
        options: dict[str, Any] = {"run_id": "r", "store": desk.store}
        result = await door.run({"text": "ink"}, "Bob", on_existing="resume", **options)
        assert (result.output, desk.take()) == ("ink for Bob", ["second"])
        for again in ("return", "resume"):
            result = await door.run({"text": "ink"}, "Bob", on_existing=again, **options)
            assert (result.output, result.status, desk.take()) == ("ink for Bob", "finished", [])
    async with desk.door.stream({"text": "tea"}, "Eve", on_existing="replace", **options) as events:
        assert [event async for event in events]
    assert (events.result.output, desk.take()) == ("tea for Eve", ["first", "second"])


async def on_busy(desk: Desk) -> None:
    door = desk.door
    run = asyncio.create_task(door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    for on_existing in ("resume", "return", "replace"):
        with pytest.raises(RunInProgress):
            await door.run({"text": "tea"}, run_id="r", store=desk.store, on_existing=on_existing)
    options: dict[str, Any] = {"store": desk.store, "deps": "Bob"}
    with pytest.raises(RunInProgress):
        await door.resume("r", on_busy="enqueue", busy_timeout=0.1, **options)
    desk.leave.set()
    result = await door.resume("r", on_busy="enqueue", **options)
    assert {(await run).output, result.output} == {"tea for Ada"}

    desk.arrived.clear()
    desk.leave.clear()
    run = asyncio.create_task(desk.door.run({"text": "tea"}, "Ada", run_id="s", store=desk.store))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    desk.take()
    other = Desk(desk.kind, desk.place, desk.store)
    other.leave.set()
    async with other.door.resume_stream(
        "s", inputs={"text": "ink"}, on_busy="interrupt", **options
    ) as events:
        assert [event async for event in events]
    assert ((await run).status, events.result.output) == ("cancelled", "ink for Bob")
    assert other.take() == ["second"]


async def stream(desk: Desk) -> None:
    desk.leave.set()
    async with desk.door.stream({"text": "tea"}, "Ada", run_id="r", store=desk.store) as events:
        seen = [event async for event in events]
    assert isinstance(seen[0], RunStarted)
    assert isinstance(seen[-1], RunFinished)
    assert "second" in [one.step_id for one in seen if isinstance(one, StepFinished)]
    assert events.result.output == "tea for Ada"


async def progress_of_runs(desk: Desk) -> None:
    told, desk.waits = list[Progress](), True
    paused: dict[str, Any] = {"run_id": "r", "store": desk.store, "on_progress": told.append}
    desk.leave.set()
    await desk.door.run({"text": "tea"}, "Ada", **paused)
    assert (told[0].ended, told[-1].status, told[-1].ended) == (0, "paused", 1)
    told.clear()
    await desk.door.send("r", "go", store=desk.store)
    await desk.door.resume("r", deps="Ada", store=desk.store, on_progress=told.append)
    assert (told[-1].status, told[-1].ended) == ("finished", 2)
    assert 1 in {one.ended for one in told}, "the first step has finished before"
    assert told[-1].total == (None if desk.kind == "Graph" else 2)


async def on_event(desk: Desk) -> None:
    desk.leave.set()
    heard = list[RunEvent]()

    async def listen(event: RunEvent) -> None:
        heard.append(event)
        raise ValueError("a listener that fails does not matter")

    result = await desk.door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store, on_event=listen)
    assert (result.output, heard[0].run_id) == ("tea for Ada", "r")
    assert isinstance(heard[0], RunStarted)
    assert isinstance(heard[-1], RunFinished)
    heard.clear()
    options: dict[str, Any] = {"on_event": heard.append}
    await asyncio.to_thread(desk.door.run_sync, {"text": "tea"}, "Ada", **options)
    assert isinstance(heard[-1], RunFinished)
    heard.clear()
    async with desk.door.stream({"text": "tea"}, "Ada", **options) as events:
        assert [event async for event in events] == heard
    at = "route/one/second" if desk.kind in ROUTERS else "second"
    options |= {"store": desk.store, "deps": "Bob"}
    forked = await desk.door.fork("r", at=at, **options)
    assert heard[-1].run_id == forked.run_id
    desk.take()
    async with halted_in_the_middle(Desk(desk.kind, desk.place, desk.store), "s") as door:
        heard.clear()
        await door.resume("s", **options)
        assert isinstance(heard[-1], RunFinished)
        assert [one.step_id for one in heard if isinstance(one, StepStarted)][-1] == "second"


async def store_by_its_path(desk: Desk) -> None:
    desk.leave.set()
    path = Path(desk.place)
    assert (await desk.door.run({"text": "tea"}, "Ada", run_id="r", store=path)).output == "tea for Ada"
    assert (await desk.door.get_state("r", store=str(path))).status == "finished"
    assert [run.run_id for run in await RunHistory(path).list()] == ["r"]
    assert (await desk.door.run(on_existing="return", run_id="r", store=desk.store)).output == "tea for Ada"


async def resume(desk: Desk) -> None:
    async with halted_in_the_middle(desk) as door:
        result = await door.resume("r", store=desk.store, deps="Bob")
    assert (result.output, result.status) == ("tea for Bob", "finished")
    assert desk.take() == ["second"]


async def resume_with_inputs(desk: Desk) -> None:
    async with halted_in_the_middle(desk) as door:
        result = await door.resume("r", inputs={"text": "ink"}, store=desk.store, deps="Bob")
    assert (result.output, desk.take()) == ("ink for Bob", ["second"])
    trace = await RunHistory(desk.store).trace("r")
    assert trace.inputs == {"text": "ink"}
    assert desk.kind in ROUTERS or trace.replay(door) is None


async def resume_stream(desk: Desk) -> None:
    async with (
        halted_in_the_middle(desk) as door,
        door.resume_stream("r", inputs={"text": "ink"}, store=desk.store, deps="Bob") as events,
    ):
        seen = [event async for event in events]
    assert [one.step_id for one in seen if isinstance(one, StepStarted)][-1] == "second"
    assert not [one for one in seen if isinstance(one, StepStarted) and one.step_id == "first"]
    assert events.result.output == "ink for Bob"


async def fork(desk: Desk) -> None:
    desk.leave.set()
    door = desk.door
    await door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store)
    assert desk.take() == ["first", "second"]
    at = "route/one/second" if desk.kind in ROUTERS else "second"
    other = await door.fork("r", at=at, inputs={"text": "ink"}, store=desk.store, deps="Bob")
    assert (other.output, desk.take()) == ("ink for Bob", ["second"])
    assert (await RunHistory(desk.store).summary(other.run_id)).forked_from == "r"


async def pause(desk: Desk) -> None:
    door = desk.door
    async with door.stream({"text": "tea"}, "Ada", run_id="r", store=desk.store) as events:
        async for event in events:
            if isinstance(event, StepStarted) and event.step_id == "first":
                await door.pause("r")
    paused = events.result
    assert (paused.status, paused.reason) == ("paused", "a pause was requested")
    assert paused.resume_at == (("route",) if desk.kind in ROUTERS else ("second",))
    assert desk.take() == ["first"]
    desk.leave.set()
    assert (await door.resume("r", store=desk.store, deps="Bob")).output == "tea for Bob"
    with pytest.raises(RunStatusConflict, match="is finished"):
        await door.pause("r", store=desk.store)


async def cancel(desk: Desk) -> None:
    async with halted_in_the_middle(desk) as door:
        assert (await door.get_state("r", store=desk.store)).status == "cancelled"
    with pytest.raises(RunStatusConflict, match="is cancelled"):
        await door.cancel("r", store=desk.store)


async def interrupt(desk: Desk) -> None:
    door = desk.door
    async with door.stream({"text": "tea"}, "Ada", run_id="r", store=desk.store) as events:
        async for event in events:
            if isinstance(event, StepStarted) and event.step_id == "first":
                await door.interrupt()
    assert (events.result.status, desk.take()) == ("paused", ["first"])
    assert await RunHistory(desk.store).due("desk") == ()
    await door.interrupt()  # nothing is running
    with pytest.raises(RunStatusConflict, match="is interrupted"):
        await door.interrupt("r", store=desk.store)
    assert await taken_up_by_itself(desk) == ["second"]


async def interrupt_and_cancel_the_task(desk: Desk) -> None:
    run = asyncio.create_task(desk.door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    another = desk.door  # which does not know of the run: it leaves word in the store
    await another.interrupt("r", store=desk.store)
    async with asyncio.timeout(PATIENCE):
        async for _, fact in another.follow("r", store=desk.store):
            if isinstance(fact, PauseRequested):
                break
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert desk.take() == ["first", "second"]
    assert await taken_up_by_itself(desk) == ["second"]


async def taken_up_by_itself(desk: Desk) -> list[str]:
    """What runs when the run `r`, which is interrupted, is recovered."""
    door, history = desk.door, RunHistory(desk.store)
    assert (await door.get_state("r", store=desk.store)).status == "interrupted"
    assert [run.run_id for run in await history.list(status="interrupted")] == ["r"]
    desk.leave.set()
    outcomes = await door.recover(deps_for=lambda run: "Bob", store=desk.store)
    assert {run_id: one.output for run_id, one in outcomes.items()} == {"r": "tea for Bob"}
    assert (await history.trace("r")).replay(door) is None
    return desk.take()


async def cancel_from_another_process(desk: Desk) -> None:
    other = await in_another_process(desk, "wait")
    door = desk.door
    try:
        await door.cancel("r", store=desk.store)
        facts = [fact async for _, fact in door.follow("r", store=desk.store)]
        assert isinstance(facts[-1], RunFinished)
        assert facts[-1].status == "cancelled"
        assert await asyncio.to_thread(other.end) == (0, "", "")
    finally:
        other.kill()


async def get_state(desk: Desk) -> None:
    door = desk.door
    run = asyncio.create_task(door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    state = await door.get_state("r", store=desk.store)
    assert (state.run_id, state.status, state.finish) == ("r", "running", None)
    assert (state.inputs, state.questions) == ({"text": "tea"}, ())
    # A router is a pipeline whose one step runs the variant.
    outputs, last = ({}, "route") if desk.kind in ROUTERS else ({"first": "first"}, "second")
    assert (state.running, outputs.items() <= state.outputs.items()) == ((last,), True)
    desk.leave.set()
    await run
    later = await door.get_state("r", store=desk.store)
    assert (later.status, later.running, later.outputs[last]) == ("finished", (), "tea for Ada")
    assert later.position > state.position


async def follow(desk: Desk) -> None:
    door = desk.door
    run = asyncio.create_task(door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    position = (await door.get_state("r", store=desk.store)).position
    rest = door.follow("r", after=position, store=desk.store)
    desk.leave.set()
    after = [(at, fact) async for at, fact in rest]
    await run
    assert [at for at, _ in after] == [*range(position + 1, position + 1 + len(after))]
    assert [fact.output for _, fact in after if isinstance(fact, StepFinished)][-1] == "tea for Ada"
    assert isinstance(after[-1][1], RunFinished)
    everything = [fact async for _, fact in door.follow("r", store=desk.store)]
    assert isinstance(everything[0], RunStarted)


async def recover(desk: Desk) -> None:
    other = await in_another_process(desk, "die")
    assert await asyncio.to_thread(other.end) == (9, "", "")
    door = desk.door
    assert (await door.get_state("r", store=desk.store)).status == "interrupted"
    untouched = Desk(desk.kind, desk.place, desk.store)
    doomed = untouched.door
    run = asyncio.create_task(doomed.run({"text": "tea"}, "Ada", run_id="cancelled", store=desk.store))
    await asyncio.wait_for(untouched.arrived.wait(), PATIENCE)
    await doomed.cancel("cancelled")
    assert (await run).status == "cancelled"
    desk.leave.set()
    asked = list[str]()

    async def deps_for(run: Any) -> str:
        asked.append(run.run_id)
        return "Bob"

    events = list[RunEvent]()
    outcomes = await door.recover(deps_for=deps_for, store=desk.store, on_event=events.append)
    assert {run_id: one.output for run_id, one in outcomes.items()} == {"r": "tea for Bob"}
    assert (desk.take(), asked) == (["second"], ["r"])
    assert {event.run_id for event in events} == {"r"}
    assert [event.output for event in events if isinstance(event, StepFinished)][-1] == "tea for Bob"
    assert await door.recover(deps_for=deps_for, store=desk.store) == {}


async def recover_every(desk: Desk) -> None:
    await _cut_off(desk, lambda door: door.recover_every(0.01, deps_for=lambda run: "Bob", store=desk.store))


async def serve(desk: Desk) -> None:
    await _cut_off(desk, lambda door: door.serve(every=0.01, deps_for=lambda run: "Bob", store=desk.store))


async def _cut_off(desk: Desk, begin: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
    """A run that a process has let go of is taken up by a loop, which is cancelled, and then by another."""
    door = desk.door
    async with door.stream({"text": "tea"}, "Ada", run_id="r", store=desk.store) as events:
        async for event in events:
            if isinstance(event, StepStarted) and event.step_id == "first":
                await door.interrupt()
    assert desk.take() == ["first"]
    loop = asyncio.create_task(begin(desk.door))
    await asyncio.wait_for(desk.arrived.wait(), PATIENCE)
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert (await door.get_state("r", store=desk.store)).status == "interrupted"
    desk.leave.set()
    loop = asyncio.create_task(begin(desk.door))
    async with asyncio.timeout(PATIENCE):
        async for _, _fact in door.follow("r", store=desk.store):
            pass
    loop.cancel()
    await asyncio.wait([loop])
    assert desk.take() == ["second", "second"]
    assert (await door.get_state("r", store=desk.store)).status == "finished"


async def wake_and_send(desk: Desk) -> None:
    desk.leave.set()
    desk.waits = True
    door = desk.door
    paused = await door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store)
    assert (paused.status, [wait.name for wait in paused.waits]) == ("paused", ["go"])
    asked = list[str]()

    def deps_for(run: Any) -> str:
        asked.append(run.run_id)
        return "Bob"

    assert await door.wake(deps_for=deps_for, store=desk.store) == {}
    await door.send("r", "go", store=desk.store)
    events = list[RunEvent]()

    async def listen(event: RunEvent) -> None:
        events.append(event)
        raise ValueError("a listener that fails does not matter")

    outcomes = await door.wake(deps_for=deps_for, store=desk.store, on_event=listen)
    assert isinstance(events[-1], RunFinished)
    assert {run_id: one.output for run_id, one in outcomes.items()} == {"r": "tea for Bob"}
    assert asked == ["r"]
    assert await door.wake(deps_for=deps_for, store=desk.store) == {}


async def wake_every(desk: Desk) -> None:
    desk.leave.set()
    desk.waits = True
    door = desk.door
    await door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store)
    loop = asyncio.create_task(door.wake_every(0.01, deps_for=lambda run: "Bob", store=desk.store))
    try:
        await door.send("r", "go", store=desk.store)
        async with asyncio.timeout(PATIENCE):
            while (await door.get_state("r", store=desk.store)).status != "finished":
                await asyncio.sleep(0.01)
    finally:
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop


POWERS: dict[str, Callable[[Desk], Awaitable[None]]] = {
    "`run`, `execute`": run_and_execute,
    "`run_id=`, `store=`": run_id_and_store,
    "`store=` by its path": store_by_its_path,
    "`execute(tags=, tenant=)`": tags_and_tenant,
    "`execute(on_existing=)`": on_existing,
    "`on_busy=`": on_busy,
    "`stream`": stream,
    "`on_event=`": on_event,
    "`progress=`, `on_progress=`": progress_of_runs,
    "`resume`": resume,
    "`resume(inputs=)`": resume_with_inputs,
    "`resume_stream`": resume_stream,
    "`fork`": fork,
    "`pause`": pause,
    "`interrupt`": interrupt,
    "`interrupt`, then cancel the task": interrupt_and_cancel_the_task,
    "`cancel`": cancel,
    "`cancel` from another process": cancel_from_another_process,
    "`get_state`": get_state,
    "`follow`": follow,
    "`recover`": recover,
    "`send`, `wake`": wake_and_send,
    "`wake_every`": wake_every,
    "`recover_every`": recover_every,
    "`serve`": serve,
}
CELLS = [(door, power) for door in DOORS for power in POWERS]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteRunStore]:
    store = SQLiteRunStore(tmp_path / "runs.db")
    yield store
    await store.aclose()


@pytest.mark.parametrize(("door", "power"), CELLS)
async def test_the_power_works_through_the_front_door(
    door: str, power: str, store: SQLiteRunStore, tmp_path: Path
) -> None:
    await POWERS[power](Desk(door, str(tmp_path / "runs.db"), store))


CARRIED = (
    "`run_id=`, `store=`",
    "`resume`",
    "`resume(inputs=)`",
    "`fork`",
    "`cancel`",
    "`get_state`",
    "`follow`",
)
"""Powers that runs have, too, that a worker carries."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "power"),
    [(door, power) for door in DOORS for power in CARRIED if door not in ROUTERS or power in CARRIED[1:4]],
)
async def test_the_power_works_on_runs_that_a_worker_carries(door: str, power: str, tmp_path: Path) -> None:
    place = str(tmp_path / "runs.db")
    async with Distributed(place, name="front-doors") as app, AsyncExitStack() as stack:
        carried = list[CarriedDoor]()

        def carry(door: Any) -> CarriedDoor:
            if not carried:  # the desk makes its door anew, the same each time
                carried.append(CarriedDoor(app, door))
            return carried[0]

        app.register_queue("default", QueueOptions(polling_interval_sec=0.02))
        desk = Desk(door, place, app.store, carried=carry)
        assert desk.door
        await stack.enter_async_context(app.worker(every=0.05, graceful_timeout=1.0))
        await POWERS[power](desk)


def test_the_reference_has_the_methods_that_are_tried_here() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| method or option")[2].partition("\n\n")[0].splitlines()[2:]
    assert [row.split("|")[1].strip() for row in table] == [*POWERS]
    assert all(f"`{door}`" in page for door in DOORS)


# --- runs of other processes ---


async def in_another_process(desk: Desk, does: str) -> Program:
    """The same desk there, with a run `r` whose second step has started, and waits or dies."""
    process = Program(__file__, desk.kind, desk.place, does)
    assert await asyncio.to_thread(process.stdout.readline) == "arrived\n"
    return process


async def _main(kind: str, place: str, does: str) -> None:
    desk = Desk(kind, place, SQLiteRunStore(place), elsewhere=does)
    result = await desk.door.run({"text": "tea"}, "Ada", run_id="r", store=desk.store)
    await desk.store.aclose()
    assert result.status == "cancelled"


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
