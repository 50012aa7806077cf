"""Going on with runs that are on record."""

import asyncio
import json
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, RootModel, field_validator
from support.durable import DIAMOND, Counted
from support.faulty_store import FaultyStore, Write, everything_in, fails_at, gone
from support.leftovers import assert_no_task_is_left
from support.stored_runs import entries_of, log_key_of, raw_log, replace_log
from support.virtual_time import in_virtual_time
from typing_extensions import TypedDict

from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    RunCorrupt,
    RunDefinitionChanged,
    RunExists,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    RunStoreUnavailable,
    RunTakenOver,
    StepExecutionError,
    TimeBudgetExceeded,
    TimeLimitExceeded,
    ValueNotStorable,
)
from fastroai.pipelines import (
    BasePipeline,
    ConversationState,
    ConversationStatus,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    step,
)
from fastroai.runtime.facts import FORMAT, RunFinished, RunStarted, StepFinished
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.record.entries import (
    entry_in_store,
    entry_to_store,
)
from fastroai.store.record.headers import decode_header, encode_header, header_key
from fastroai.usage import Budget

INCOMPLETE, COMPLETE = ConversationStatus.INCOMPLETE, ConversationStatus.COMPLETE


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def store() -> MemoryRunStore:
    return MemoryRunStore()


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert_no_task_is_left()


async def failed(
    pipeline: Pipeline[Any, Any], store: Any, inputs: Any = None, run_id: str = "r"
) -> Exception:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.execute(inputs, run_id="r", store=store)
    return caught.value


async def status(store: Any, run_id: str = "r") -> str:
    return (await RunHistory(store).summary(run_id)).status


# --- what runs again ---


async def test_with_a_store_in_the_config_none_is_named(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = counted.pipeline("p", DIAMOND, config=PipelineConfig(store=store))
    run_id = (await pipeline.execute()).run_id
    assert (await pipeline.resume(run_id)).output
    assert (await pipeline.fork(run_id, at="d")).output
    assert len(await RunHistory(store).list()) == 2


async def test_failures_of_steps_that_may_fail_are_tried_again(
    counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = counted.pipeline("p", DIAMOND, config=PipelineConfig(on_error="continue"))
    counted.failing = {"b"}
    result = await pipeline.execute(run_id="r", store=store)
    assert (set(result.errors), set(result.skipped), await status(store)) == ({"b"}, {"d"}, "finished")
    counted.failing.clear()
    counted.take()
    result = await pipeline.resume("r", store=store)
    assert counted.take() == {"b": 1, "d": 1}
    assert (result.errors, result.skipped) == ({}, {})


async def test_a_failed_step_goes_on_at_its_next_attempt_with_fresh_retries(store: MemoryRunStore) -> None:
    attempts: list[int] = []

    @step(retries=1)
    async def shaky(ctx: StepContext[Any]) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 4:
            raise ValueError
        return "done"

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"shaky": shaky})
    await failed(pipeline, store)
    assert attempts == [1, 2]
    assert (await pipeline.resume("r", store=store)).output == "done"
    assert attempts == [1, 2, 3, 4]


async def test_a_cancelled_step_goes_on_at_the_same_attempt(store: MemoryRunStore) -> None:
    attempts: list[int] = []
    reached = asyncio.Event()

    @step(retries=5)
    async def slow(ctx: StepContext[Any]) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError
        if len(attempts) == 2:
            reached.set()
            await asyncio.Event().wait()
        return "done"

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"slow": slow})
    running = asyncio.create_task(pipeline.execute(run_id="r", store=store))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await status(store) == "cancelled"
    assert (await pipeline.resume("r", store=store)).output == "done"
    assert attempts == [1, 2, 2]


@pytest.mark.parametrize(
    "needs",
    [
        {f"s{number}": [f"s{number - 1}"] if number else [] for number in range(1_000)},
        {f"s{number}": [] for number in range(1_999)} | {"last": ["s1998"]},
    ],
    ids=["chain", "independent"],
)
async def test_large_pipelines_go_on_where_they_were(
    needs: dict[str, list[str]], counted: Counted, store: MemoryRunStore
) -> None:
    last = list(needs)[-1]
    options = {"output_step": last, "config": PipelineConfig(on_error="continue")}
    pipeline = Pipeline("p", {name: counted.step(name, lambda ctx: 1) for name in needs}, needs, **options)
    counted.failing = {last}
    await pipeline.execute(run_id="r", store=store)
    counted.failing.clear()
    counted.take()
    assert (await pipeline.resume("r", store=store)).output == 1
    assert counted.take() == {last: 1}


async def test_events_and_hooks_are_told_of_what_runs_and_not_of_what_is_reused(
    counted: Counted, store: MemoryRunStore
) -> None:
    told: list[tuple[str, str]] = []

    def hook(event: Any) -> None:
        told.append((type(event).__name__, event.step_id))

    config = PipelineConfig(on_step_start=hook, on_step_success=hook, on_step_failure=hook)
    pipeline = counted.pipeline("p", {"a": [], "b": ["a"]}, config=config)
    counted.failing = {"b"}
    await failed(pipeline, store)
    counted.failing.clear()
    told.clear()
    await pipeline.resume("r", store=store)
    assert told == [("StepStarted", "b"), ("StepFinished", "b")]


async def test_what_was_spent_counts_on_also_by_step(counted: Counted, store: MemoryRunStore) -> None:
    def spend(ctx: StepContext[Any]) -> int:
        ctx.record_usage(model="search", cost_usd="0.25")
        return 1

    steps = {"a": counted.step("a", spend), "b": counted.step("b", spend)}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"b": ["a"]})
    counted.failing = {"b"}
    await failed(pipeline, store)
    counted.failing.clear()
    result = await pipeline.resume("r", store=store)
    assert result.usage.cost_usd == Decimal("0.50")
    assert {name: usage.cost_usd for name, usage in result.usage.steps.items()} == {
        "a": Decimal("0.25"),
        "b": Decimal("0.25"),
    }
    assert (await RunHistory(store).header("r")).cost_usd == Decimal("0.50")
    assert result.trace.usage.cost_usd == Decimal("0.50")


async def test_spending_recorded_in_a_worker_thread_is_on_record(store: MemoryRunStore) -> None:
    @step
    def pay(ctx: StepContext[Any]) -> str:
        ctx.record_usage(model="search", cost_usd="0.25")
        return "paid"

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"pay": pay})
    await pipeline.execute(run_id="r", store=store)
    assert (await pipeline.resume("r", store=store)).usage.cost_usd == Decimal("0.25")


# --- conversations ---


async def test_a_conversation_goes_on_over_several_resumes(counted: Counted, store: MemoryRunStore) -> None:
    seen: list[Any] = []

    @step
    async def ask(ctx: StepContext[Any]) -> ConversationState[list[str]]:
        before = ctx.conversation_state
        seen.append(None if before is None else before.data)
        said = [*([] if before is None else before.data or []), ctx.get_input("text")]
        return ConversationState(COMPLETE if len(said) == 3 else INCOMPLETE, said)

    steps = {
        "first": counted.step("first"),
        "ask": ask,
        "reply": counted.step("reply", lambda ctx: ctx.get_dependency("ask").data),
    }
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"ask": ["first"], "reply": ["ask"]})
    result = await pipeline.execute({"text": "a"}, run_id="r", store=store)
    assert (result.stopped_early, await status(store)) == (True, "paused")
    result = await pipeline.resume("r", store=store, inputs={"text": "b"})
    assert result.conversation_state == ConversationState(INCOMPLETE, ["a", "b"])
    result = await pipeline.resume("r", store=store, inputs={"text": "c"})
    assert (result.output, await status(store)) == (["a", "b", "c"], "finished")
    assert seen == [None, ["a"], ["a", "b"]]
    assert counted.take() == {"first": 1, "reply": 1}
    assert result.trace.inputs == {"text": "c"}
    assert result.trace.replay(pipeline) is None


async def test_a_conversation_in_a_nested_pipeline_goes_on_where_it_was(
    counted: Counted, store: MemoryRunStore
) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> ConversationState[list[str]]:
        before = ctx.conversation_state
        said = [*([] if before is None else before.data or []), ctx.get_input("text")]
        return ConversationState(COMPLETE if len(said) == 3 else INCOMPLETE, said)

    @step
    async def close(ctx: StepContext[Any]) -> str:
        return "".join(ctx.get_dependency("ask").data)

    inner: Pipeline[Any, Any, str] = Pipeline(
        "inner",
        {"read": counted.step("read"), "ask": ask, "close": close},
        {"ask": ["read"], "close": ["ask"]},
    )
    middle: Pipeline[Any, Any, str] = Pipeline("middle", {"in": inner.as_step()})
    pipeline: Pipeline[Any, Any, str] = Pipeline("p", {"in": middle.as_step()})
    await pipeline.execute({"text": "a"}, run_id="r", store=store)
    result = await pipeline.resume("r", store=store, inputs={"text": "b"})
    assert result.conversation_state == ConversationState(INCOMPLETE, ["a", "b"])
    result = await pipeline.resume("r", store=store, inputs={"text": "c"})
    assert result.output == "abc"
    assert counted.take() == {"read": 1}


# --- nested pipelines ---


class Router(BasePipeline[Any, Any]):
    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return "only"


async def test_a_step_that_runs_a_pipeline_twice_finds_both_again(
    counted: Counted, store: MemoryRunStore
) -> None:
    inner = Pipeline("inner", {"a": counted.step("inner.a", lambda ctx: ctx.get_input("n"))})

    @step
    async def both(ctx: StepContext[Any]) -> list[int]:
        outputs = [(await inner.execute({"n": n})).output for n in (1, 2)]
        if "both" not in counted.ran:
            counted.ran["both"] += 1
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(0)
        return outputs

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"both": both})
    with pytest.raises(asyncio.CancelledError):
        await pipeline.execute(run_id="r", store=store)
    assert counted.ran["inner.a"] == 2
    assert (await pipeline.resume("r", store=store)).output in ([1, 2],)


async def test_a_nested_pipeline_shares_the_store_of_the_run_whatever_its_own(
    counted: Counted, store: MemoryRunStore
) -> None:
    own = MemoryRunStore()
    inner = counted.pipeline("inner", {"a": []}, config=PipelineConfig(store=own))
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"in": inner.as_step()})
    await pipeline.execute(run_id="r", store=store)
    assert await everything_in(own) == {}
    await pipeline.execute()
    assert len(await RunHistory(own).list()) == 1


async def test_the_context_is_shared_with_nested_pipelines_and_is_not_stored(store: MemoryRunStore) -> None:
    client = object()

    @step
    async def look(ctx: StepContext[Any]) -> bool:
        ctx.shared["seen"] = ctx.shared.get("seen", 0) + 1
        return ctx.shared["client"] is client and ctx.deps is client

    inner: Pipeline[Any, Any] = Pipeline("inner", {"look": look})
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"in": inner.as_step(), "look": look}, output_step="look")
    context: dict[str, Any] = {"client": client}
    result = await pipeline.execute(deps=client, context=context, run_id="r", store=store)
    assert (result.step_outputs, context["seen"]) == ({"in": True, "look": True}, 2)
    assert b"object at" not in repr(await everything_in(store)).encode()


async def test_map_in_a_step_that_is_cut_off_is_done_again(counted: Counted, store: MemoryRunStore) -> None:
    each = counted.step("each", lambda ctx: ctx.get_input("item") * 2)

    @step
    async def fan(ctx: StepContext[Any]) -> list[int]:
        doubled = await ctx.map(each, [1, 2, 3])
        if "fan" in counted.failing:
            raise ValueError
        return doubled

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"fan": fan})
    counted.failing = {"fan"}
    await failed(pipeline, store)
    counted.failing.clear()
    assert (await pipeline.resume("r", store=store)).output == [2, 4, 6]


# --- typed values ---

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    model_config = ConfigDict(strict=True)
    id: int
    due: datetime


class Box(BaseModel, Generic[T]):
    held: T


class Names(RootModel[list[str]]):
    pass


@dataclass
class Point:
    x: Decimal


class Row(TypedDict):
    colour: Colour


ORDER = Order(id=1, due=datetime(2026, 1, 2))

TYPED: list[tuple[Any, Any]] = [
    (ORDER, Order),
    (Point(Decimal("1.10")), Point),
    ({"colour": Colour.RED}, Row),
    (Colour.RED, Colour),
    (datetime(2026, 1, 2), datetime),
    (Decimal("0.10"), Decimal),
    ((1, "a"), tuple[int, str]),
    ({1, 2}, set[int]),
    (b"text", bytes),
    ("1", int | str),
    (Box[Order](held=ORDER), Box[Order]),
    (Names(["a"]), Names),
    (ConversationState(COMPLETE, ORDER), ConversationState[Order]),
]


@pytest.mark.parametrize(("value", "declared"), TYPED, ids=[str(declared) for _, declared in TYPED])
async def test_typed_outputs_and_inputs_come_back_as_what_they_are(
    value: Any, declared: Any, store: MemoryRunStore
) -> None:
    seen: list[Any] = []

    async def give(ctx: StepContext[Any]) -> Any:
        return value

    @step
    async def use(ctx: StepContext[Any]) -> str:
        seen.append((ctx.get_dependency("give"), ctx.get_input("value")))
        if len(seen) == 1:
            raise ValueError
        return "used"

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"give": step(give, returns=declared), "use": use},
        {"use": ["give"]},
        accepts={"value": declared},
    )
    await failed(pipeline, store, {"value": value})
    await pipeline.resume("r", store=store)
    assert seen[0] == seen[1] == (value, value)
    assert [type(each) for each in seen[1]] == [type(value)] * 2


async def test_inputs_given_anew_are_coerced_as_those_of_execute_are(store: MemoryRunStore) -> None:
    @step
    async def read(ctx: StepContext[Any]) -> list[Any]:
        if ctx.get_input("n") == 1:
            raise ValueError("too few")
        return [ctx.get_input("n"), ctx.get_input("more", None)]

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"read": read}, accepts={"n": int})
    with pytest.raises(StepExecutionError, match="too few"):
        await pipeline.execute({"n": "1"}, run_id="r", store=store)
    with pytest.raises(ContractViolation):
        await pipeline.resume("r", store=store, inputs={"n": "x"})
    result = await pipeline.resume("r", store=store, inputs={"n": "2", "more": [1]})
    assert result.trace.inputs == {"n": 2, "more": [1]}


async def test_a_run_that_has_finished_takes_no_other_inputs(store: MemoryRunStore) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"read": step(lambda ctx: ctx.get_input("n"))})
    assert (await pipeline.execute({"n": 1}, run_id="r", store=store)).output == 1
    before = await everything_in(store)
    with pytest.raises(RunStatusConflict, match="run 'r' is finished.*Fork this one"):
        await pipeline.resume("r", store=store, inputs={"n": 2})
    assert await everything_in(store) == before
    assert (await pipeline.resume("r", store=store)).output == 1


async def test_what_a_conversation_has_gathered_need_not_fit_before_it_is_complete(
    store: MemoryRunStore,
) -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> ConversationState[dict[str, int]]:
        before = ctx.conversation_state
        if before is None:
            return ConversationState(ConversationStatus.INCOMPLETE, {"n": None})  # type: ignore[dict-item]
        assert before.data == {"n": None}
        return ConversationState(ConversationStatus.COMPLETE, {"n": 1})

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"ask": ask})
    assert (await pipeline.execute(run_id="r", store=store)).stopped_early
    assert (await pipeline.resume("r", store=store)).output.data == {"n": 1}


# --- what is refused: nothing runs, and the store stays as it was ---


async def refused(
    expected: type[Exception],
    match: str,
    pipeline: Pipeline[Any, Any],
    counted: Counted,
    store: Any,
    **options: Any,
) -> Any:
    before = await everything_in(store)
    with pytest.raises(expected, match=match) as caught:
        await pipeline.resume(options.pop("run_id", "r"), store=store, **options)
    assert counted.take() == {}
    assert await everything_in(store) == before
    return caught.value


async def recorded(counted: Counted, store: Any) -> Pipeline[Any, Any]:
    pipeline = counted.pipeline("p", DIAMOND)
    counted.failing = {"d"}
    await failed(pipeline, store)
    counted.failing.clear()
    counted.take()
    return pipeline


async def test_a_run_that_is_not_there_is_not_found(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    await refused(RunNotFound, "no run 'other' in", pipeline, counted, store, run_id="other")


async def test_the_id_of_a_run_cannot_be_used_again(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    before = await everything_in(store)
    with pytest.raises(RunExists, match=r"already \(failed\); continue it with resume"):
        await pipeline.execute(run_id="r", store=store)
    assert (counted.take(), await everything_in(store)) == ({}, before)


@pytest.mark.parametrize("run_id", ["", " r", "r ", "a\nb", "a\0", "x" * 201, "\x85", "\ud800", 3])
async def test_ids_that_no_run_can_have(run_id: Any, counted: Counted, store: MemoryRunStore) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    with pytest.raises(ConfigurationError, match="run_id"):
        await pipeline.execute(run_id=run_id, store=store)
    with pytest.raises(ConfigurationError, match="run_id"):
        await pipeline.resume(run_id, store=store)
    with pytest.raises(ConfigurationError, match="run_id"):
        await pipeline.execute(run_id=run_id)
    assert (counted.take(), await everything_in(store)) == ({}, {})


@pytest.mark.parametrize(
    "run_id", ["../../etc/passwd", "a/b", "run:x", "é%2f", "'; DROP TABLE run_key; --", "x" * 200]
)
async def test_ids_that_look_odd_are_only_ids(run_id: str, counted: Counted, store: MemoryRunStore) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    await pipeline.execute(run_id=run_id, store=store)
    assert [run.run_id for run in await RunHistory(store).list()] == [run_id]
    assert (await pipeline.fork(run_id, at="d", store=store)).output


async def test_without_a_store_a_run_has_its_id_and_cannot_be_resumed(counted: Counted) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    assert (await pipeline.execute(run_id="mine")).run_id == "mine"
    with pytest.raises(ConfigurationError, match="the store that has the run"):
        await pipeline.resume("mine")


@pytest.mark.parametrize("inputs", ["text", [1]])
async def test_inputs_that_are_no_mapping(inputs: Any, counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    await refused(ConfigurationError, "inputs", pipeline, counted, store, inputs=inputs)
    with pytest.raises(ConfigurationError, match="outputs"):
        await pipeline.fork("r", store=store, outputs=inputs)


async def test_a_changed_pipeline_is_refused_with_what_has_changed(
    counted: Counted, store: MemoryRunStore
) -> None:
    await recorded(counted, store)
    changed = counted.pipeline("p", {"a": [], "b": ["a"], "d": ["b"], "e": ["d"]})
    error = await refused(RunDefinitionChanged, "run 'r' was started", changed, counted, store)
    assert error.changes == (
        "the output is that of 'e' (was 'd'); the run has not reached it",
        "step 'c' was removed; the run has reached it",
        "step 'd' needs 'b' (needed 'b', 'c'); the run has reached it",
        "step 'e' is new; the run has not reached it",
    )
    result = await changed.resume("r", store=store, force=True)
    assert counted.take() == {"d": 1, "e": 1}
    assert result.output == ["e", ["d", ["b", ["a"]]]]
    assert (await changed.resume("r", store=store)).output == result.output


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage",
        b"{}",
        *map(with_checksum, [b"garbage", b"[]", b'{"kind": "step_finished"}', b'{"kind": "new_kind"}']),
    ],
)
async def test_an_entry_that_cannot_be_read(garbage: bytes, counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    log = await raw_log(store, "r")
    await replace_log(store, "r", [*log, garbage])
    error = await refused(RunCorrupt, "or start a new run", pipeline, counted, store)
    assert error.position == len(log) + 1


async def test_a_log_without_its_beginning(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    await replace_log(store, "r", (await raw_log(store, "r"))[1:])
    await refused(RunCorrupt, "entry 1 of run 'r' cannot be read", pipeline, counted, store)


async def test_a_header_that_cannot_be_read(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    held = await store.read(header_key("r"))
    await store.compare_and_set(header_key("r"), b"{", revision=held.revision)
    await refused(RunCorrupt, "its header is damaged", pipeline, counted, store)


@pytest.mark.parametrize("position", [1, 2, -1])
async def test_a_byte_that_has_changed_is_found_and_the_entry_named(
    position: int, counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = await recorded(counted, store)
    log = list(await raw_log(store, "r"))
    index = position - 1 if position > 0 else len(log) - 1
    at = log[index].index(b'"kind"')
    log[index] = log[index][:at] + bytes([log[index][at] ^ 1]) + log[index][at + 1 :]
    await replace_log(store, "r", log)
    error = await refused(RunCorrupt, "its checksum does not match", pipeline, counted, store)
    assert error.position == index + 1
    with pytest.raises(RunCorrupt, match=f"entry {index + 1} of"):
        await store.trace("r")


@pytest.mark.parametrize("part", ["header", "log"])
async def test_a_record_of_a_later_version(part: str, counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    key = header_key("r") if part == "header" else await log_key_of(store, "r")
    later = [
        with_checksum(without_checksum(value).replace(b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1)))
        for value in (await store.read(key)).values
    ]
    await store.delete(key)
    await store.append(key, later, revision=0)
    await refused(RunFromNewerVersion, f"format {FORMAT + 1}", pipeline, counted, store)


async def test_a_run_of_an_earlier_version_is_refused_and_can_be_deleted(
    counted: Counted, store: MemoryRunStore
) -> None:
    """Format 1 had no checksums, and the id alone was the key of the log."""
    pipeline = counted.pipeline("p", DIAMOND)
    header = {
        "format": 1,
        "run_id": "r",
        "pipeline": "p",
        "status": "finished",
        "started_at": "2026-03-01T12:00:00Z",
        "updated_at": "2026-03-01T12:00:00Z",
    }
    await store.append("run:r", [json.dumps(header).encode()], revision=0)
    await store.append("log:r", [b'{"kind": "run_started", "format": 1, "run_id": "r"}'], revision=0)
    await store.append("signal:r", [b"cancel"], revision=0)
    await refused(RunFromOlderVersion, "Resume it with the version that wrote it", pipeline, counted, store)
    with pytest.raises(RunFromOlderVersion):
        await pipeline.execute(run_id="r", store=store)
    history = RunHistory(store)
    assert [(run.run_id, run.status) for run in await history.list()] == [("r", "unreadable")]
    with pytest.raises(RunFromOlderVersion):
        await history.delete("r")
    await history.delete("r", force=True)
    assert await store.list("") == []


def retyped(counted: Counted, name: str) -> Pipeline[Any, Any]:
    """The pipeline with another type of the output of one step."""

    @step
    async def other(ctx: StepContext[Any]) -> int:
        counted.ran[name] += 1
        return 1

    return Pipeline("p", {one: counted.step(one) for one in DIAMOND} | {name: other}, DIAMOND)


@pytest.mark.parametrize("force", [False, True])
async def test_an_output_of_another_type_than_the_step_declares_now(
    force: bool, counted: Counted, store: MemoryRunStore
) -> None:
    await recorded(counted, store)
    pipeline, reason = retyped(counted, "b"), "the output of 'b' is not of the type that it declares"
    await refused(RunCorrupt, reason, pipeline, counted, store, force=force)
    before = await everything_in(store)
    with pytest.raises(RunCorrupt):
        await pipeline.fork("r", at="d", store=store)
    assert await everything_in(store) == before


async def test_an_output_on_which_no_step_depends_any_more_is_read_when_somebody_asks_for_it(
    counted: Counted, store: MemoryRunStore
) -> None:
    await recorded(counted, store)
    result = await retyped(counted, "a").resume("r", store=store)
    assert (result.ok, counted.take()) == (True, {"d": 1})
    assert [*result.step_outputs] == ["a", "b", "c", "d"]
    with pytest.raises(RunCorrupt, match="the output of 'a' is not of the type that it declares"):
        result.step_outputs["a"]


class CountedReply(BaseModel):
    """How often each was read from JSON."""

    name: str
    read: ClassVar[Counter[str]] = Counter()

    @field_validator("name")
    @classmethod
    def _count(cls, name: str) -> str:
        cls.read[name] += 1
        return name


async def test_a_resumed_run_decodes_an_output_once_and_only_if_somebody_reads_it(
    store: MemoryRunStore,
) -> None:
    failing = {"d"}

    def replying(name: str) -> Any:
        @step
        async def reply(ctx: StepContext[Any]) -> CountedReply:
            if name in failing:
                raise ValueError("no")
            return CountedReply(name=name)

        return reply

    @step
    async def last(ctx: StepContext[Any]) -> str:
        if failing:
            raise ValueError("no")
        return ctx.get_dependency("b", CountedReply).name + ctx.get_dependency("b", CountedReply).name

    steps = {name: replying(name) for name in "abc"} | {"d": last}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"b": ["a"], "d": ["b"]}, output_step="d")
    await failed(pipeline, store)
    failing.clear()
    CountedReply.read.clear()
    result = await pipeline.resume("r", store=store)
    assert (result.output, CountedReply.read) == ("bb", {"b": 1})
    assert result.step_outputs["a"] == result.step_outputs["a"] == CountedReply.model_construct(name="a")
    assert CountedReply.read == {"a": 1, "b": 1}
    again = await pipeline.resume("r", store=store)
    assert CountedReply.read == {"a": 1, "b": 1}
    copy = pickle.loads(pickle.dumps(again.step_outputs))
    assert (type(copy), copy) == (dict, again.step_outputs)
    assert again.model_dump()["step_outputs"] == {**{one: {"name": one} for one in "abc"}, "d": "bb"}


async def test_inputs_of_another_type_than_the_pipeline_accepts_now(
    counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    await pipeline.execute({"n": "text"}, run_id="r", store=store)
    counted.take()
    retyped = counted.pipeline("p", DIAMOND, accepts={"n": int})
    await refused(RunCorrupt, "the pipeline does not accept its inputs", retyped, counted, store)


# --- what cannot be stored ---


@pytest.mark.parametrize("inputs", [{"client": object()}, {1: 2}, {"text": "\ud800"}])
async def test_an_input_that_cannot_be_stored_is_refused_before_anything(
    inputs: Any, counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    with pytest.raises(ValueNotStorable, match="input "):
        await pipeline.execute(inputs, run_id="r", store=store)
    assert (counted.take(), await everything_in(store)) == ({}, {})
    await recorded(counted, store)
    await refused(ValueNotStorable, "input ", pipeline, counted, store, inputs=inputs)


async def test_an_output_that_cannot_be_stored_fails_its_step_at_once_and_the_mended_run_goes_on(
    counted: Counted, store: MemoryRunStore
) -> None:
    bad: list[Any] = [{"rows": [Point(Decimal(1))]}]
    steps = {"a": counted.step("a"), "b": counted.step("b", lambda ctx: bad[0])}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"b": ["a"]}, config=PipelineConfig(retries=3))
    error = await failed(pipeline, store)
    original = error.original_error
    assert isinstance(original, ValueNotStorable)
    assert (original.what, original.field, original.type_name) == (
        "the output of step 'b'",
        "rows[0]",
        "Point",
    )
    assert counted.take() == {"a": 1, "b": 1}
    bad[0] = {"rows": [1]}
    assert (await pipeline.resume("r", store=store)).output == {"rows": [1]}
    assert counted.take() == {"b": 1}


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [ValueError("half a \ud800 pair"), Unreadable()])
async def test_a_message_that_cannot_be_stored_is_no_reason_not_to_store_the_failure(
    error: Exception, store: MemoryRunStore
) -> None:
    @step(retries=1, retry_delay=0)
    async def fails(ctx: StepContext[Any]) -> None:
        raise error

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"fails": fails})
    raised = await failed(pipeline, store)
    assert await status(store) == "failed"
    assert raised.trace is not None
    assert raised.trace.to_json()


# --- a codec ---


class Backwards:
    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    def decode(self, payload: bytes) -> bytes:
        return payload[::-1]


class Broken(Backwards):
    def decode(self, payload: bytes) -> bytes:
        raise ZeroDivisionError


async def test_a_codec_sees_everything_that_users_gave_and_steps_made(store: MemoryRunStore) -> None:
    seen: list[Any] = []

    @step
    async def first(ctx: StepContext[Any]) -> str:
        return f"SECRET {ctx.get_input('text')}"

    @step
    async def second(ctx: StepContext[Any]) -> str:
        seen.append((ctx.get_dependency("first"), ctx.get_input("text")))
        if len(seen) == 1:
            raise ValueError
        return "SECRET"

    config = PipelineConfig(codec=Backwards())
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"first": first, "second": second}, {"second": ["first"]}, config=config
    )
    await failed(pipeline, store, {"text": "SECRET"})
    await pipeline.resume("r", store=store)
    assert seen[0] == seen[1] == ("SECRET SECRET", "SECRET")
    assert b"SECRET" not in b"".join(
        value for held, _ in (await everything_in(store)).values() for value in held
    )
    for codec, why in (
        (None, "it was written with a codec"),
        (Broken(), "the codec cannot decode it: ZeroDivision"),
    ):
        other: Pipeline[Any, Any] = Pipeline(
            "p", {"first": first, "second": second}, {"second": ["first"]}, config=PipelineConfig(codec=codec)
        )
        await refused(RunCorrupt, why, other, Counted(), store)


# --- time ---


@in_virtual_time
async def test_total_timeout_is_for_each_part_of_a_run_and_its_end_is_on_record() -> None:
    store, slow = MemoryRunStore(), [True]

    @step
    async def wait(ctx: StepContext[Any]) -> str:
        await asyncio.sleep(100 if slow[0] else 5)
        return "done"

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"wait": wait}, config=PipelineConfig(total_timeout=10))
    with pytest.raises(TimeLimitExceeded) as caught:
        await pipeline.execute(run_id="r", store=store)
    summary = await RunHistory(store).summary("r")
    assert (summary.status, "TimeLimitExceeded" in str(summary.error)) == ("failed", True)
    assert caught.value.trace.status == "failed"  # type: ignore[union-attr]
    slow[0] = False
    assert (await pipeline.resume("r", store=store)).output == "done"


@in_virtual_time
async def test_the_milliseconds_of_a_budget_are_for_all_parts_of_a_run() -> None:
    store = MemoryRunStore()

    @step
    async def wait(ctx: StepContext[Any]) -> str:
        await asyncio.sleep(ctx.get_input("seconds"))
        return "done"

    def pipeline(ms: int) -> Pipeline[Any, Any]:
        return Pipeline("p", {"wait": wait}, config=PipelineConfig(budget=Budget(ms=ms)))

    with pytest.raises(TimeBudgetExceeded):
        await pipeline(10_000).execute({"seconds": 100}, run_id="r", store=store)
    assert await status(store) == "failed"
    # The clock of this test is not that of the entries, so let them say that ten seconds have passed.
    log = await raw_log(store, "r")
    await replace_log(store, "r", [*log[:-1], _later(log[0], log[-1], seconds=10)])
    with pytest.raises(TimeBudgetExceeded):
        await pipeline(10_000).resume("r", store=store, inputs={"seconds": 1})
    assert (await pipeline(12_000).resume("r", store=store, inputs={"seconds": 1})).output == "done"


def _later(first: bytes, last: bytes, seconds: int) -> bytes:
    opened, ended = entry_in_store("r", 1, first), entry_in_store("r", 2, last)
    assert isinstance(opened, RunStarted)
    assert isinstance(ended, RunFinished)
    return entry_to_store(replace(ended, timestamp=opened.timestamp + seconds))


# --- a store that fails ---


@in_virtual_time
async def test_a_store_that_fails_for_a_while_costs_no_step() -> None:
    counted, store = Counted(), FaultyStore()
    store.before = fails_at(6, 7, 9, 10, 11)
    result = await counted.pipeline("p", DIAMOND).execute(run_id="r", store=store)
    assert result.ok
    assert counted.take() == dict.fromkeys("abcd", 1)
    assert result.trace.entries == (await RunHistory(store).trace("r")).entries


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("durability", ["sync", "async"])
@in_virtual_time
async def test_a_store_that_is_gone_stops_the_run_which_can_be_resumed(
    durability: Any, after: bool, nested: bool
) -> None:
    for first in range(1, 11):
        counted, store = Counted(), FaultyStore()

        def gone_from_here(write: Write, first: int = first) -> None:
            if write.number >= first:
                raise gone()

        store.before, store.after = (None, gone_from_here) if after else (gone_from_here, None)
        config = PipelineConfig(on_error="continue", durability=durability, retries=2)
        inner = counted.pipeline("p", DIAMOND, config=config)
        pipeline = Pipeline("outer", {"in": inner.as_step()}, config=config) if nested else inner
        with suppress(RunStoreUnavailable):
            assert (await pipeline.execute(run_id="r", store=store)).ok, "only its header is not up to date"
        ran = counted.take()
        assert max(ran.values(), default=0) <= 1
        store.before = store.after = None
        kept = {
            entry.place.rpartition("/")[2]
            for entry in await entries_of(store, "r")
            if isinstance(entry, StepFinished) and entry.place != "in"
        }
        try:
            resumed = await pipeline.resume("r", store=store)
        except RunNotFound:
            assert not ran
            resumed = await pipeline.execute(run_id="r", store=store)
        assert resumed.output == ["d", ["b", ["a"]], ["c", ["a"]]]
        assert set(counted.take()) == set(DIAMOND) - kept
    assert_no_task_is_left()


async def test_somebody_who_takes_the_run_over_stops_it_and_the_loser_writes_nothing(
    counted: Counted, store: MemoryRunStore
) -> None:
    waiting, go = asyncio.Event(), asyncio.Event()

    @step
    async def wait(ctx: StepContext[Any]) -> str:
        counted.ran["wait"] += 1
        if counted.ran["wait"] == 1:
            waiting.set()
            await go.wait()
        return "done"

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"wait": wait, "after": counted.step("after", lambda ctx: "after")}, {"after": ["wait"]}
    )
    loser = asyncio.create_task(pipeline.execute(run_id="r", store=store))
    await waiting.wait()
    with pytest.raises(RunInProgress):
        await pipeline.resume("r", store=store)
    held = await store.read(header_key("r"))
    header = decode_header("r", held.values[-1])
    assert header.lease_until is not None
    expired = replace(header, lease_until=held.now, steady_until=None)
    await store.compare_and_set(header_key("r"), encode_header(expired), revision=held.revision)
    winner = await pipeline.resume("r", store=store)
    assert winner.output == "after"
    before = await everything_in(store)
    go.set()
    with pytest.raises(RunTakenOver):
        await loser
    assert await everything_in(store) == before
    assert counted.take() == {"wait": 2, "after": 1}


async def test_of_two_tasks_that_resume_a_run_one_goes_on(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = await recorded(counted, store)
    outcomes = await asyncio.gather(
        *(pipeline.resume("r", store=store) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, RunInProgress) for outcome in outcomes) == 4
    assert counted.take() == {"d": 1}


async def test_of_two_tasks_that_begin_a_run_one_does(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    outcomes = await asyncio.gather(
        *(pipeline.execute(run_id="r", store=store) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, RunExists) for outcome in outcomes) == 4
    assert counted.take() == dict.fromkeys("abcd", 1)


async def test_a_run_whose_process_died_while_its_header_says_running(
    counted: Counted, store: MemoryRunStore
) -> None:
    pipeline = await recorded(counted, store)
    held = await store.read(header_key("r"))
    header = decode_header("r", held.values[-1])
    running = replace(header, status="running", owner="elsewhere pid 1 (gone)", lease_until=header.updated_at)
    await store.compare_and_set(header_key("r"), encode_header(running), revision=held.revision)
    assert await status(store) == "interrupted"
    assert (await pipeline.resume("r", store=store)).ok


def test_the_sync_forms(counted: Counted, store: MemoryRunStore) -> None:
    pipeline = counted.pipeline("p", DIAMOND)
    pipeline.execute_sync(run_id="r", store=store)
    counted.take()
    assert pipeline.resume_sync("r", store=store).ok
    assert pipeline.fork_sync("r", at="d", new_run_id="f", store=store).run_id == "f"
    assert counted.take() == {"d": 1}


async def test_a_step_may_have_other_settings_when_the_run_is_resumed(
    counted: Counted, store: MemoryRunStore
) -> None:
    await recorded(counted, store)
    other = counted.pipeline(
        "p", DIAMOND, step_configs={"d": StepConfig(timeout=3, retries=2)}, config=PipelineConfig(timeout=5)
    )
    assert (await other.resume("r", store=store)).ok


async def test_a_state_of_a_union_is_stored_as_the_state_that_it_names() -> None:
    waits = True

    @step
    async def ask(ctx: StepContext) -> dict[str, object] | ConversationState[list[int]]:
        known = ctx.conversation_state
        if waits:
            return ConversationState(ConversationStatus.INCOMPLETE, [1])
        return {"status": "complete", "before": known.data if known else None}

    pipeline, store = Pipeline("chat", {"ask": ask}), MemoryRunStore()
    assert (await pipeline.execute(run_id="r", store=store)).stopped_early
    waits = False
    for _ in range(2):
        result = await pipeline.resume("r", store=store)
        assert result.output == {"status": "complete", "before": [1]}
