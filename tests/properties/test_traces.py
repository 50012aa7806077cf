"""Traces: any log comes back from JSON and does not differ from itself, and any run replays as it was."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import fields
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.run_logs import definition
from support.schedules import Schedule, schedules

from fastroai.errors import StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.records import RequestRecord, Tokens, exact_sum
from fastroai.runtime import RetriesUsed
from fastroai.runtime.fact_base import FailureFacts, Part
from fastroai.runtime.facts import (
    AnyFact,
    OnceDone,
    OnceStarted,
    ReplayDiverged,
    RequestEnded,
    RequestPlace,
    RequestSent,
    RunFinished,
    RunResumed,
    RunStarted,
    SpendingRecorded,
    StepFailed,
    StepFinished,
    StepRetried,
    StepSkipped,
    StepStarted,
    ToolEnded,
)
from fastroai.store import MemoryRunStore, RunTrace

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TIMES = st.integers(0, 2**32).map(float)
ROOT = Part("r1", "desk", ("desk",))
PARTS = st.sampled_from([ROOT, *map(ROOT.inside, ("a@1/in", "a@2/in", "b@1/in", "b@1/in/y@1/deep"))])
STEPS = st.sampled_from(["a", "b", "a@1/in/x", "a@2/in/x", "b@1/in/y", "b@1/in/y@1/deep/z", "%C3%A4"])
ATTEMPTS = STEPS.flatmap(lambda step: st.integers(1, 3).map(lambda number: f"{step}@{number}"))
FAILURES = st.builds(FailureFacts, error_type=TEXTS, message=TEXTS, failure_class=TEXTS)
RECORDS = st.builds(
    RequestRecord,
    model=TEXTS,
    provider=TEXTS,
    outcome=st.sampled_from(["settled", "unmeasured", "released"]),
    tokens=st.builds(Tokens, input_tokens=st.integers(0, 10**9)),
    cost_usd=st.none() | st.decimals(0, 10, places=9).map(Decimal),
)
REQUESTS = st.builds(RequestPlace, place=ATTEMPTS, call=TEXTS, attempt=st.integers(1, 3), fingerprint=TEXTS)
KNOWN = {
    "timestamp": TIMES,
    "attempt": st.integers(1, 4),
    "call": TEXTS,
    "cause": TEXTS,
    "conversation": st.sampled_from([None, "complete", "incomplete"]),
    "delay": st.floats(0, 60),
    "duration_ms": st.floats(0, 1e6),
    "failure": FAILURES,
    "id": st.sampled_from(["1", "2", "3"]),
    "name": TEXTS,
    "output": VALUES,
    "place": STEPS,
    "record": RECORDS,
    "request": REQUESTS,
    "response": VALUES,
    "result": VALUES,
    "retry": st.none() | TEXTS,
    "status": st.sampled_from(["finished", "paused", "failed", "cancelled"]),
    "inputs": st.dictionaries(TEXTS, VALUES, max_size=2),
    "definition": st.just(definition({"a": [], "b": ["a"]})) | VALUES,
    "tool": TEXTS,
    "used": st.builds(RetriesUsed, attempt=st.integers(1, 5), recoverable=st.integers(0, 5)),
    "step_id": st.sampled_from(["a", "b", "c"]),
    "part": PARTS,
    "visit": st.integers(1, 2),
    "budget": st.sampled_from([None, "own", "outer"]),
    "unit": st.sampled_from(["step", "call"]),
    "reason": TEXTS,
}


def entries_of(kind: type[AnyFact], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[AnyFact]:
    known = {**KNOWN, **more}
    return st.builds(kind, **{one.name: known[one.name] for one in fields(kind) if one.name in known})


@st.composite
def traces(draw: st.DrawFn) -> RunTrace:
    """Anything that a log can hold, in any order after its beginning."""
    opened = draw(entries_of(RunStarted, part=st.just(ROOT), forked_from=st.none() | TEXTS))
    in_steps = (
        StepStarted,
        StepRetried,
        StepFinished,
        StepFailed,
        StepSkipped,
        RequestSent,
        RequestEnded,
        RunResumed,
    )
    others = (RunFinished, OnceStarted, OnceDone)
    in_attempts = (StepRetried, SpendingRecorded, ToolEnded, ReplayDiverged)
    entry = st.one_of(
        *(entries_of(kind) for kind in (*in_steps, *others)),
        *(entries_of(kind, place=ATTEMPTS) for kind in in_attempts),
    )
    return RunTrace([opened, *draw(st.lists(entry, max_size=12))])


@given(traces())
def test_a_trace_comes_back_from_json_as_it_was(trace: RunTrace) -> None:
    assert RunTrace.from_json(trace.to_json()) == trace


@given(traces())
def test_a_trace_can_be_read_whatever_is_in_it_and_does_not_differ_from_itself(trace: RunTrace) -> None:
    assert trace.diff(RunTrace.from_json(trace.to_json())) == ()
    assert trace.explain().count("\n") < len(trace.entries)
    for attempt in trace.attempts:
        assert trace.events_for(attempt.place)
    sent = [record for record in trace.records if record.outcome != "released"]
    assert trace.usage.cost_usd == exact_sum(
        record.cost_usd for record in sent if record.cost_usd is not None
    )
    assert {attempt.place for attempt in trace.attempts if "/" not in attempt.place} <= {
        summary.place for summary in trace.steps
    }


def pipeline_of(schedule: Schedule, failing: set[str]) -> Pipeline[Any, Any]:
    def make(name: str) -> Any:
        @step
        async def one(ctx: StepContext) -> str:
            for _ in range(schedule.seconds[name]):
                await asyncio.sleep(0)
            if name in failing:
                raise ValueError(name)
            return name

        return one

    return Pipeline(
        "p",
        steps={name: make(name) for name in schedule.needs},
        dependencies=schedule.needs,
        output_step=next(iter(schedule.needs)),
        config=PipelineConfig(max_concurrency=schedule.limit),
        step_configs={name: StepConfig(on_error="continue") for name in schedule.exempt},
    )


@settings(deadline=None)
@given(schedules(size=8), st.data())
async def test_any_run_replays_as_it_was_also_after_it_was_resumed(
    schedule: Schedule, data: st.DataObject
) -> None:
    failing = set(schedule.failing)
    pipeline, store = pipeline_of(schedule, failing), MemoryRunStore()
    with suppress(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    trace = await store.trace("r")
    assert trace.replay(pipeline) is None
    length = data.draw(st.integers(1, len(trace.entries)))
    assert RunTrace(trace.entries[:length]).replay(pipeline) is None, "as far as it had got"
    if trace.status == "failed":
        failing -= data.draw(st.sets(st.sampled_from(sorted(failing))))
        with suppress(StepExecutionError):
            await pipeline.resume("r", store=store)
        assert (await store.trace("r")).replay(pipeline) is None
