from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from support.run_logs import Log, definition, failure

from fastroai.errors import CostBudgetExceeded, StepExecutionError
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
from fastroai.runtime.facts import RunFinished, StepFinished, StepStarted
from fastroai.store import Divergence, MemoryRunStore, RunTrace


def pipeline_of(
    needs: dict[str, list[str]],
    *,
    failing: dict[str, BaseException] | None = None,
    exempt: tuple[str, ...] = (),
    limit: int | None = None,
    waiting: tuple[str, ...] = (),
    output_step: str | None = None,
) -> Pipeline[Any, Any]:
    """Steps that give their name; `failing` and `waiting` may be changed between runs."""
    errors = {} if failing is None else failing

    def make(name: str) -> Any:
        @step
        async def one(ctx: StepContext) -> Any:
            await asyncio.sleep(0)
            if name in errors:
                raise errors[name]
            if name in waiting and "answer" not in ctx.inputs:
                return ConversationState(status=ConversationStatus.INCOMPLETE, data=None)
            return name

        return one

    return Pipeline(
        "desk",
        steps={name: make(name) for name in needs},
        dependencies=needs,
        output_step=output_step or [*needs][-1],
        config=PipelineConfig(max_concurrency=limit),
        step_configs={name: StepConfig(on_error="continue") for name in exempt},
    )


DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


async def trace_of(pipeline: Pipeline[Any, Any], store: MemoryRunStore) -> RunTrace:
    """Run it, and read what is on record."""
    with suppress(StepExecutionError, CostBudgetExceeded, asyncio.CancelledError):
        await pipeline.execute(run_id="r1", store=store)
    return await store.trace("r1")


async def test_a_step_that_fails_while_the_output_of_another_is_stored_replays_as_it_was() -> None:
    class Slow(MemoryRunStore):
        async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
            if any(b'"step_finished"' in value for value in values) and not failed.is_set():
                is_storing.set()
                await failed.wait()
            await super().append(key, values, revision=revision)

    is_storing, failed = asyncio.Event(), asyncio.Event()

    @step
    async def good(ctx: StepContext) -> None: ...

    @step
    async def bad(ctx: StepContext) -> None:
        await is_storing.wait()
        asyncio.get_running_loop().call_soon(failed.set)
        raise ValueError("no")

    pipeline = Pipeline(
        "desk",
        {"good": good, "bad": bad, "third": good, "fourth": good},
        output_step="fourth",
        config=PipelineConfig(max_concurrency=2),
        step_configs={"bad": StepConfig(on_error="continue")},
    )
    trace = await trace_of(pipeline, Slow())
    entries = [(type(entry).__name__, getattr(entry, "place", "")) for entry in trace.entries]
    assert entries.index(("StepFinished", "good")) < entries.index(("StepFailed", "bad"))
    third = next(attempt for attempt in trace.attempts if attempt.step == "third")
    assert third.cause == "it needs no other step; it waited for a place until 'good' ended"
    fourth = next(attempt for attempt in trace.attempts if attempt.step == "fourth")
    assert fourth.cause == "it needs no other step; it waited for a place until 'bad' ended"
    assert trace.replay(pipeline) is None


async def test_a_run_that_waited_and_was_resumed_replays_as_it_was() -> None:
    pipeline = pipeline_of(DIAMOND, waiting=("b",))
    store = MemoryRunStore()
    assert (await trace_of(pipeline, store)).replay(pipeline) is None
    await pipeline.resume("r1", store=store, inputs={"answer": 42})
    trace = await store.trace("r1")
    assert (trace.status, trace.replay(pipeline)) == ("finished", None)


async def test_what_starts_in_a_resumed_run_has_not_waited_for_steps_that_are_reused() -> None:
    failing: dict[str, BaseException] = {"c": ValueError("no")}
    pipeline = pipeline_of({"a": [], "b": [], "c": [], "d": []}, failing=failing, limit=1)
    store = MemoryRunStore()
    await trace_of(pipeline, store)
    del failing["c"]
    await pipeline.resume("r1", store=store)
    trace = await store.trace("r1")
    due = "it needs no other step"
    assert [(attempt.step, attempt.cause) for attempt in trace.attempts] == [
        ("a", due),
        ("b", f"{due}; it waited for a place until 'a' ended"),
        ("c", f"{due}; it waited for a place until 'b' ended"),
        ("c", due),
        ("d", f"{due}; it waited for a place until 'c' ended"),
    ]
    assert trace.replay(pipeline) is None


async def test_a_run_that_died_is_replayed_as_far_as_it_got() -> None:
    pipeline = pipeline_of(DIAMOND)
    trace = await trace_of(pipeline, MemoryRunStore())
    for length in range(1, len(trace.entries)):
        assert RunTrace(trace.entries[:length]).replay(pipeline) is None


async def test_a_fork_replays_as_it_was() -> None:
    pipeline, store = pipeline_of(DIAMOND), MemoryRunStore()
    await trace_of(pipeline, store)
    await pipeline.fork("r1", at="c", new_run_id="r2", store=store)
    assert (await store.trace("r2")).replay(pipeline) is None


async def test_a_run_that_a_budget_around_it_stopped_replays_as_it_was() -> None:
    """Not the step's own, so it stops the run although the step may fail."""
    stop = CostBudgetExceeded(1, 1, scope_path=("desk",))
    pipeline = pipeline_of(DIAMOND, failing={"b": stop}, exempt=("b",))
    trace = await trace_of(pipeline, MemoryRunStore())
    assert trace.status == "failed"
    assert trace.replay(pipeline) is None


async def test_a_run_in_which_the_task_of_a_step_was_cancelled_replays_as_it_was() -> None:
    pipeline = pipeline_of(DIAMOND, failing={"b": asyncio.CancelledError()})
    trace = await trace_of(pipeline, MemoryRunStore())
    assert trace.status == "failed"
    assert trace.replay(pipeline) is None


def outer_of(inner: Pipeline[Any, Any]) -> Pipeline[Any, Any]:
    middle = Pipeline("middle/1", {"deep": inner.as_step()})
    return Pipeline("outer", {"x": middle.as_step(), "y": inner.as_step()}, {"y": ["x"]})


async def test_nested_pipelines_replay_as_they_were_and_not_as_others() -> None:
    outer = outer_of(pipeline_of(DIAMOND))
    trace = await trace_of(outer, MemoryRunStore())
    assert trace.replay(outer) is None
    divergence = trace.replay(outer_of(pipeline_of({**DIAMOND, "c": ["b"]})))
    assert divergence is not None
    assert divergence.got == "'c' started, because 'a' was the last that it needed"
    started = trace.entries[divergence.position - 1]
    assert isinstance(started, StepStarted)
    assert started.place == "x@1/middle%2F1/deep@1/desk/c", "the innermost, of two, is the first"


class Chooses(BasePipeline[Any, Any]):
    """A router of variants, all of which are pipelines of one name."""

    def __init__(self, **variants: Pipeline[Any, Any] | BasePipeline[Any, Any]) -> None:
        super().__init__("chooses")
        for name, variant in variants.items():
            self.register_pipeline(name, variant)

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return str(inputs.get("to", "right"))


async def test_a_run_of_a_router_replays_as_it_was_and_not_as_another() -> None:
    right, wrong = pipeline_of(DIAMOND), pipeline_of({**DIAMOND, "c": ["b"]})
    one = Chooses(left=wrong, right=Chooses(right=right))
    ran = await one.execute({"to": "right"})
    assert ran.output == "d"
    assert one.replay(ran.trace) is None
    assert ran.trace.replay(Pipeline("around", {"ask": one.as_step()})) is not None, "another pipeline"
    divergence = ran.trace.replay(Chooses(right=wrong))
    assert divergence is not None
    assert divergence.got == "'c' started, because 'a' was the last that it needed"
    around = Pipeline[Any, Any]("around", {"ask": one.as_step()})
    assert (await around.execute()).trace.replay(around) is None
    changed = (await around.execute()).trace.replay(
        Pipeline("around", {"ask": Chooses(right=wrong).as_step()})
    )
    assert changed is not None
    assert changed.got == divergence.got


# --- divergence ---


async def test_a_step_that_needs_less_would_have_started_for_another_cause() -> None:
    trace = await trace_of(pipeline_of(DIAMOND), MemoryRunStore())
    divergence = trace.replay(pipeline_of({**DIAMOND, "c": []}))
    assert divergence is not None
    assert divergence.expected == "'c' started, because it needs no other step"
    assert divergence.got == "'c' started, because 'a' was the last that it needed"
    assert str(divergence) == (
        f"at entry {divergence.position} the replay has {divergence.expected}; on record is {divergence.got}"
    )


async def test_a_step_that_was_added_would_have_been_started() -> None:
    trace = await trace_of(pipeline_of(DIAMOND), MemoryRunStore())
    divergence = trace.replay(pipeline_of({**DIAMOND, "e": ["d"]}))
    assert divergence == Divergence(
        len(trace.entries), "'e' started, because 'd' was the last that it needed", "the run finished"
    )


async def test_a_step_that_was_removed_would_not_have_started() -> None:
    trace = await trace_of(pipeline_of({"a": [], "z": []}), MemoryRunStore())
    divergence = trace.replay(pipeline_of({"a": []}))
    assert divergence == Divergence(3, "no start of 'z'", "'z' started, because it needs no other step")


async def test_a_failure_that_would_not_have_stopped_the_run() -> None:
    trace = await trace_of(pipeline_of({"a": []}, failing={"a": ValueError()}), MemoryRunStore())
    divergence = trace.replay(pipeline_of({"a": []}, exempt=("a",)))
    because = "every step that could run has run, and 1 failed"
    assert divergence == Divergence(4, f"the run finished, because {because}", "the run failed")
    trace = await trace_of(pipeline_of(DIAMOND, failing={"b": ValueError()}), MemoryRunStore())
    divergence = trace.replay(pipeline_of(DIAMOND, exempt=("b",)))
    assert divergence is not None
    assert divergence.expected == "'d' skipped, because it needs 'b', which failed"


async def test_a_failure_that_would_have_stopped_the_run() -> None:
    needs: dict[str, list[str]] = {"a": [], "b": ["a"], "c": []}
    pipeline = pipeline_of(needs, failing={"a": ValueError()}, exempt=("a",))
    trace = await trace_of(pipeline, MemoryRunStore())
    divergence = trace.replay(pipeline_of(needs))
    assert divergence is not None
    assert divergence.expected == "no skip of 'b'"


ONE = pipeline_of({"a": []})


def divergence_of(log: Log, pipeline: Pipeline[Any, Any] = ONE) -> str | None:
    divergence = log.trace.replay(pipeline)
    return None if divergence is None else divergence.expected


def test_records_that_no_machine_would_have_written() -> None:
    shape = definition({"a": []})
    assert divergence_of(Log(shape).start("a").output("a").output("a")) == "'a' not running"
    assert divergence_of(Log(shape).fail("a")) == "'a' not running"
    assert divergence_of(Log(shape).start("a").skip("a", "z")) == "no skip of 'a'"
    assert divergence_of(Log(shape).start("a", "z")) == "'a' started, because it needs no other step"
    assert divergence_of(Log(shape).start("a").end()) == "the run waiting for 'a'"
    assert divergence_of(Log(shape).end()) == "'a' started, because it needs no other step"
    assert divergence_of(Log(shape).start("a").output("a").end("paused")) == (
        "the run finished, because every step has run"
    )
    assert divergence_of(Log(shape).start("a").fail("a").end()) == "the run failed, because 'a' failed"


def test_what_ends_a_run_from_outside_is_no_divergence() -> None:
    shape = definition({"a": []})
    stopped = Log(shape).start("a").stop("the task that ran it was cancelled")
    assert divergence_of(stopped.end("failed", failure(error_type="TimeLimitExceeded"))) is None
    assert divergence_of(Log(shape).start("a").output("a").end("cancelled")) is None


def test_skips_of_what_an_early_end_left_are_decided() -> None:
    pipeline = pipeline_of({"a": [], "b": ["a"]})
    log = Log(definition({"a": [], "b": ["a"]})).start("a").output("a", conversation="incomplete")
    assert divergence_of(log, pipeline) is None
    assert divergence_of(log.skip("b", "a"), pipeline) == "'b' skipped, because 'a' needs more from the user"


def test_what_is_told_of_each_entry() -> None:
    log = Log(definition({"a": []})).start("a").output("a").output("a")
    assert "an output of 'a'" in str(log.trace.replay(ONE))
    log = Log(definition({"a": []})).start("a").output("a").fail("a")
    assert "a failure of 'a'" in str(log.trace.replay(ONE))
    log = Log(definition({"a": []})).start("a").skip("a", "z")
    assert "'a' skipped, because it needs 'z', which failed" in str(log.trace.replay(ONE))


async def test_a_replay_runs_nothing() -> None:
    ran: list[str] = []

    @step
    async def one(ctx: StepContext) -> str:
        ran.append(ctx.step_id)
        return "x"

    pipeline = Pipeline("desk", {"a": one})
    store = MemoryRunStore()
    await pipeline.execute(run_id="r1", store=store)
    trace = await store.trace("r1")
    assert [type(entry) for entry in trace.entries[-2:]] == [StepFinished, RunFinished]
    assert pipeline.replay(trace) is None
    assert ran == ["a"]
