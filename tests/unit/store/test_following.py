"""Somebody who follows a run gets its facts, each once and in order, as they get on record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.patience import PATIENCE
from support.run_logs import Log
from support.run_stores import KINDS, AsyncStore, OpenStore, run_stores

from fastroai.errors import ConfigurationError, RunNotFound, RunStoreUnavailable, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime.facts import AnyFact, RunFinished, RunResumed, RunStarted, StepFinished, StepStarted
from fastroai.store import MemoryRunStore, RunHistory, StoredValues
from fastroai.store.hints import HintsChanges
from fastroai.store.reading import following
from fastroai.store.record.entries import entry_to_store
from fastroai.store.record.headers import decode_header, header_key, log_key
from fastroai.workflows import WorkflowRuns

TWO_STEPS = """
version: "0.2"
flows:
  main:
    input: {}
    steps:
      - {id: a, intent: Look}
      - {id: b, intent: Look again, depends_on: [a]}
"""


@pytest.fixture(params=[*KINDS, "of a user"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    if request.param == "of a user":
        held: dict[str, Any] = {}
        yield lambda: AsyncStore(held)
    else:
        with run_stores(request.param, request, tmp_path) as opens:
            yield opens


class Gate:
    """A pipeline whose second step waits until it is let through."""

    def __init__(self, **options: Any) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

        @step
        async def first(ctx: StepContext[Any]) -> str:
            return "one"

        @step
        async def second(ctx: StepContext[Any]) -> str:
            self.reached.set()
            await self.open.wait()
            return "two"

        config = PipelineConfig(**options)
        self.pipeline = Pipeline("p", {"a": first, "b": second}, {"b": ["a"]}, config=config)


async def closed(*stores: Any) -> None:
    for store in stores:
        if aclose := getattr(store, "aclose", None):
            await aclose()


async def all_of(followed: Any) -> list[tuple[int, AnyFact]]:
    async with asyncio.timeout(PATIENCE):
        return [one async for one in followed]


async def test_it_gets_what_the_trace_has_while_the_run_goes_on(open_store: OpenStore) -> None:
    mine, theirs, gate = open_store(), open_store(), Gate()
    run = asyncio.create_task(gate.pipeline.execute({"n": 1}, run_id="r", store=mine))
    async with asyncio.timeout(PATIENCE):
        await gate.reached.wait()
        followed, before = RunHistory(theirs).follow("r"), []
        async for position, fact in followed:
            before.append((position, fact))
            if isinstance(fact, StepStarted) and fact.step_id == "b":
                break
        assert not run.done(), "it is told of what has not ended"
        waiting = asyncio.create_task(all_of(followed))
        gate.open.set()
        await run
        told = [*before, *await waiting]
    trace = await RunHistory(theirs).trace("r")
    assert [fact for _, fact in told] == list(trace.entries)
    assert [fact.part.name for _, fact in told] == ["p"] * len(told)
    assert [position for position, _ in told] == list(range(1, len(told) + 1))
    await closed(mine, theirs)


async def test_it_goes_on_after_any_position(open_store: OpenStore) -> None:
    store = open_store()
    gate = Gate()
    gate.open.set()
    await gate.pipeline.execute(run_id="r", store=store)
    history = RunHistory(store)
    whole = await all_of(history.follow("r"))
    assert isinstance(whole[0][1], RunStarted)
    assert isinstance(whole[-1][1], RunFinished)
    for after in range(len(whole) + 1):
        assert await all_of(history.follow("r", after=after)) == whole[after:]
    with pytest.raises(ConfigurationError, match=f"which ends at {len(whole)}"):
        await anext(history.follow("r", after=len(whole) + 1))
    await closed(store)


@pytest.mark.parametrize("after", ["5", None, True, 1.0, -1])
def test_it_goes_on_after_a_position_only(after: Any) -> None:
    with pytest.raises(ConfigurationError, match="after=.*the position that came with the last fact, an int"):
        RunHistory(MemoryRunStore()).follow("r", after=after)


async def test_a_run_that_has_not_begun_is_not_found() -> None:
    store = MemoryRunStore()
    followed = RunHistory(store).follow("r1")
    with pytest.raises(RunNotFound, match="check the id"):
        await anext(followed)
    await Log().end().write(store)
    assert len(await all_of(followed)) == 2, "the same iteration can be tried again"


async def test_of_a_workflow_that_is_driven_the_next_report_is_waited_for() -> None:
    store = MemoryRunStore()
    runs = WorkflowRuns(store)
    await runs.plan(TWO_STEPS, run_id="r")
    followed = RunHistory(store).follow("r")
    for _ in (await store.trace("r")).entries:
        await anext(followed)
    waiting = asyncio.create_task(all_of(followed))
    await asyncio.sleep(0.05)
    assert not waiting.done(), "its status is `waiting`, but something is due"
    for step_id in ("a", "b"):
        await runs.step_done("r", step_id, {})
    told = await waiting
    assert isinstance(told[-1][1], RunFinished)


async def test_a_wait_that_is_cancelled_loses_nothing(open_store: OpenStore) -> None:
    store, gate = open_store(), Gate()
    run = asyncio.create_task(gate.pipeline.execute(run_id="r", store=store))
    await asyncio.wait_for(gate.reached.wait(), PATIENCE)
    followed, told = RunHistory(store).follow("r"), []
    async with asyncio.timeout(PATIENCE):
        async for one in followed:
            told.append(one)
            if isinstance(one[1], StepStarted) and one[1].step_id == "b":
                break
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(followed)
    gate.open.set()
    told += await all_of(followed)
    await run
    assert [fact for _, fact in told] == list((await RunHistory(store).trace("r")).entries)
    await closed(store)


async def test_a_run_whose_process_has_died_is_waited_for(open_store: OpenStore) -> None:
    store, log = open_store(), Log()
    header = await log.start("a").write(store)
    followed = RunHistory(store).follow("r1")
    told = [await anext(followed) for _ in log.entries]
    waiting = asyncio.create_task(all_of(followed))
    later = (RunResumed(), RunFinished(status="finished"))
    await store.append(log_key(header), [entry_to_store(one) for one in later], revision=len(told))
    assert [type(fact) for _, fact in await waiting] == [RunResumed, RunFinished]
    await closed(store)


async def test_a_resumed_run_is_followed_from_its_first_end_on(open_store: OpenStore) -> None:
    """Where the header says another thing than the log, the log is right."""
    store, log = open_store(), Log()
    header = await log.end("paused").write(store)
    history = RunHistory(store)
    assert [type(fact) for _, fact in await all_of(history.follow("r1"))] == [RunStarted, RunFinished]
    assert await all_of(history.follow("r1", after=2)) == []
    later = (RunResumed(), RunFinished(status="finished"))
    await store.append(log_key(header), [entry_to_store(one) for one in later], revision=2)
    assert [position for position, _ in await all_of(history.follow("r1", after=2))] == [3, 4]
    await closed(store)


async def test_a_run_that_is_deleted_meanwhile_is_not_found(open_store: OpenStore) -> None:
    store = open_store()
    await Log().start("a").write(store)
    followed = RunHistory(store).follow("r1")
    await anext(followed)
    await anext(followed)
    waiting = asyncio.create_task(all_of(followed))
    await RunHistory(store).delete("r1", force=True)
    with pytest.raises(RunNotFound):
        await waiting
    with pytest.raises(RunNotFound):
        await anext(RunHistory(store).follow("r1"))
    await closed(store)


async def test_values_are_as_people_are_told_of_them() -> None:
    class Backwards:
        def encode(self, payload: bytes) -> bytes:
            return payload[::-1]

        decode = encode

    store = MemoryRunStore()
    gate = Gate(store=store, codec=Backwards())
    gate.open.set()
    await gate.pipeline.execute({"secret": "name"}, run_id="r")
    facts = [fact for _, fact in await all_of(RunHistory(store, codec=Backwards()).follow("r"))]
    assert isinstance(facts[0], RunStarted)
    assert facts[0].inputs == {"secret": "name"}
    assert [fact.output for fact in facts if isinstance(fact, StepFinished)] == ["one", "two"]
    _, sealed = await anext(RunHistory(store).follow("r"))
    assert isinstance(sealed, RunStarted)
    assert "name" not in str(sealed.inputs)


class Failing(MemoryRunStore):
    fails = False

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        if self.fails:
            raise RunStoreUnavailable(repr(self), "it is away")
        return await super().read(key, after=after)


async def test_a_store_that_was_away_is_read_again() -> None:
    store = Failing()
    await Log().start("a").end().write(store)
    followed = RunHistory(store).follow("r1")
    store.fails = True
    with pytest.raises(RunStoreUnavailable):
        await anext(followed)
    store.fails = False
    assert len(await all_of(followed)) == 3


async def test_a_store_without_hints_is_looked_at_less_often_while_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 12:
            await store.append(key, [entry_to_store(RunFinished(status="finished"))], revision=1)

    store = AsyncStore({})
    key = log_key(await Log().write(store))
    monkeypatch.setattr(following.asyncio, "sleep", sleep)
    assert len(await all_of(RunHistory(store).follow("r1"))) == 2
    assert slept == sorted(slept)
    assert (slept[0], slept[-1]) == (following.SOONEST, following.LATEST)


# --- hints ---


@pytest.fixture(params=["memory", "redis", "postgres"])
def hinting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    with run_stores(request.param, request, tmp_path) as opens:
        yield opens


async def test_a_hint_comes_with_every_write_of_another_client(hinting: OpenStore) -> None:
    mine, theirs = hinting(), hinting()
    assert isinstance(mine, HintsChanges)
    async with asyncio.timeout(PATIENCE):
        for write, revision in (
            (lambda: theirs.append("k", [b"1"], revision=0), 0),
            (lambda: theirs.append("k", [b"2", b"3"], revision=1), 1),
            (lambda: theirs.compare_and_set("k", b"4", revision=3), 3),
            (lambda: theirs.delete("k"), 4),
        ):
            waits = asyncio.create_task(until_changed(mine, "k", revision))
            other = asyncio.create_task(mine.changed("another key", revision=0, timeout=0.01))
            await write()
            await waits
            await other
    await closed(mine, theirs)


async def until_changed(store: Any, key: str, revision: int) -> None:
    """A hint may come too early, but not too late."""
    while (await store.read(key)).revision == revision:
        await store.changed(key, revision=revision, timeout=PATIENCE * 2)


async def test_what_has_changed_already_is_not_waited_for(hinting: OpenStore) -> None:
    store = hinting()
    await store.append("k", [b"1"], revision=0)
    async with asyncio.timeout(PATIENCE):
        await store.changed("k", revision=0, timeout=PATIENCE * 2)
        await store.changed("k", revision=1, timeout=0.01)
    await closed(store)


async def test_many_wait_for_one_store_at_once(hinting: OpenStore) -> None:
    mine, theirs = hinting(), hinting()
    keys = [f"k{number}" for number in range(20)]
    waits = [asyncio.create_task(until_changed(mine, key, 0)) for key in keys]
    async with asyncio.timeout(PATIENCE):
        for key in reversed(keys):
            await theirs.append(key, [b"1"], revision=0)
        await asyncio.gather(*waits)
    await closed(mine, theirs)


async def test_hints_go_on_when_the_connection_was_cut(
    postgres_dsn: str, tmp_path: Path, request: Any
) -> None:
    with run_stores("postgres", request, tmp_path) as opens:
        mine, theirs = opens(), opens()
        waits = asyncio.create_task(until_changed(mine, "k", 0))
        async with asyncio.timeout(PATIENCE):
            await theirs.read("k")
            async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as connection:
                cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
                while not (await (await connection.execute(cut)).fetchall()):
                    await asyncio.sleep(0.01)
            await theirs.append("k", [b"1"], revision=0)
            await waits
        await closed(mine, theirs)


class HoldsTheEnd(MemoryRunStore):
    """Gives up no lease before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Wait before the header of a run that has ended is written."""
        if key == header_key("r") and decode_header("r", value).lease_until is None:
            self.reached.set()
            await self.open.wait()
        await super().compare_and_set(key, value, revision=revision)


@pytest.mark.parametrize("order", ["before", "after"])
async def test_a_run_can_be_resumed_as_soon_as_its_last_fact_was_seen(order: str) -> None:
    failures = [ValueError("the first time")]

    @step
    async def works(ctx: StepContext[Any]) -> str:
        if failures:
            raise failures.pop()
        return "done"

    store, pipeline = HoldsTheEnd(), Pipeline("p", {"works": works})
    history = RunHistory(store)
    run = asyncio.create_task(pipeline.execute(run_id="r", store=store))
    await store.reached.wait()

    async def resumed_at_the_end() -> Any:
        async for _, fact in pipeline.follow("r", store=store):
            if isinstance(fact, RunFinished):
                return await pipeline.resume("r", store=store)

    if order == "after":
        store.open.set()
        with pytest.raises(StepExecutionError):
            await run
    follower = asyncio.create_task(resumed_at_the_end())
    if order == "before":
        for _ in range(100):
            await asyncio.sleep(0)
        assert not follower.done()
        assert (await history.state("r")).status == "running"
        store.open.set()
        with pytest.raises(StepExecutionError):
            await run
    assert (await asyncio.wait_for(follower, PATIENCE)).output == "done"
    assert (await history.state("r")).status == "finished"


async def test_the_last_fact_is_told_although_another_process_takes_the_run_up_before_that() -> None:
    gate = Gate()
    store = MemoryRunStore()
    async with gate.pipeline.stream(run_id="r", store=store) as events:
        async for event in events:
            if isinstance(event, StepStarted):
                await gate.pipeline.pause("r")
    followed = gate.pipeline.follow("r", store=store)
    goes_on = asyncio.create_task(gate.pipeline.resume("r", store=store))
    await gate.reached.wait()
    kinds = []
    async for _, fact in followed:
        kinds.append(fact.kind)
        if isinstance(fact, RunResumed):
            gate.open.set()
    await goes_on
    assert kinds.count("run_finished") == 2
