"""Logs of runs, made by hand: entry by entry, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, TypedDict

from pydantic import JsonValue

from fastroai.places import step_name
from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import RetriesUsed
from fastroai.runtime.fact_base import NOWHERE, FailureFacts, Part
from fastroai.runtime.facts import (
    AnyFact,
    OnceStarted,
    ReplayDiverged,
    RequestEnded,
    RequestPlace,
    RequestSent,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStatus,
    SpendingRecorded,
    StepFailed,
    StepFinished,
    StepRetried,
    StepSkipped,
    StepStarted,
    StopRequested,
)
from fastroai.store import SQLiteRunStore
from fastroai.store.reading.index import add_to_index
from fastroai.store.reading.trace import RunTrace
from fastroai.store.record.entries import (
    RunHeader,
    entry_to_store,
)
from fastroai.store.record.headers import encode_header, header_key, log_key, new_epoch, spending_of, utc_day
from fastroai.store.run_store import RunStore

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def definition(
    needs: dict[str, list[str]], *, runs: dict[str, JsonValue] | None = None, name: str = "desk"
) -> JsonValue:
    """The shape of a pipeline; `runs` has nested definitions by step."""
    steps: dict[str, JsonValue] = {
        step: {"needs": list(befores), "on_error": "fail", "runs": (runs or {}).get(step)}
        for step, befores in needs.items()
    }
    return {"name": name, "steps": steps, "output_step": [*needs][-1]}


def failure(message: str = "no connection", *, error_type: str = "ConnectionError") -> FailureFacts:
    return FailureFacts(error_type=error_type, message=message, failure_class="recoverable")


def record(cost: str | None = "0.001", model: str = "gpt-5-mini") -> RequestRecord:
    """A request that ended, or one that never did."""
    return RequestRecord(
        model=model,
        provider="openai",
        outcome="unmeasured" if cost is None else "settled",
        cost_usd=None if cost is None else Decimal(cost),
        bound_usd=Decimal("0.05") if cost is None else None,
        tokens=Tokens(input_tokens=10, output_tokens=2),
    )


class Where(TypedDict):
    """Where a fact about a step is."""

    part: Part
    step_id: str
    visit: int


class Log:
    """A log that grows; each method writes one entry, `seconds` after the one before."""

    def __init__(
        self,
        shape: JsonValue = None,
        *,
        run_id: str = "r1",
        start: datetime = START,
        inputs: dict[str, JsonValue] | None = None,
        pipeline: str = "desk",
        forked_from: str | None = None,
    ) -> None:
        self.run_id, self.at = run_id, start
        self._part = Part(run_id, pipeline, (pipeline,))
        self.entries: list[AnyFact] = [
            RunStarted(
                timestamp=start.timestamp(),
                part=self._part,
                definition=shape,
                inputs=inputs or {},
                forked_from=forked_from,
            )
        ]
        self._requests = 0

    def add(self, entry: AnyFact, seconds: float = 1.0) -> Log:
        self.at += timedelta(seconds=seconds)
        part = self._part if entry.part == NOWHERE else entry.part
        self.entries.append(replace(entry, timestamp=self.at.timestamp(), part=part))
        return self

    def at_place(self, place: str) -> Where:
        """What a fact about the step at a place says of that."""
        around, _, own = place.rpartition("/")
        _, _, visit = own.partition("#")
        return {
            "part": self._part.inside(around),
            "step_id": step_name(place),
            "visit": int(visit or 1),
        }

    def start(self, place: str, after: str | None = None, *, seconds: float = 0.0) -> Log:
        cause = "it needs no other step" if after is None else f"{after!r} was the last that it needed"
        return self.add(StepStarted(**self.at_place(place), cause=cause), seconds)

    def output(
        self,
        place: str,
        output: JsonValue = "done",
        *,
        attempt: int = 1,
        conversation: Literal["complete", "incomplete"] | None = None,
    ) -> Log:
        where = self.at_place(place)
        return self.add(StepFinished(**where, attempt=attempt, output=output, conversation=conversation))

    def retry(self, place: str, *, attempt: int = 1, delay: float = 0.5) -> Log:
        used = RetriesUsed(attempt=attempt + 1, recoverable=attempt)
        return self.add(StepRetried(place=place, attempt=attempt, failure=failure(), delay=delay, used=used))

    def call_retry(self, place: str) -> Log:
        used = RetriesUsed(attempt=2, recoverable=1)
        return self.add(
            StepRetried(
                place=place, call="1", unit="call", attempt=1, failure=failure(), delay=0.25, used=used
            )
        )

    def fail(self, place: str, *, attempt: int = 1, why: FailureFacts | None = None) -> Log:
        return self.add(StepFailed(**self.at_place(place), attempt=attempt, failure=why or failure()))

    def skip(self, place: str, failed: str) -> Log:
        cause = f"it needs {failed!r}, which failed"
        return self.add(StepSkipped(**self.at_place(place), cause=cause), 0.0)

    def request(
        self,
        place: str,
        cost: str | None = "0.001",
        *,
        fingerprint: str = "f1",
        waited_ms: float = 0.0,
        asked: JsonValue = None,
        answered: JsonValue = None,
    ) -> Log:
        """One that is sent and ends; with no cost, one that never ended."""
        self._requests += 1
        number = f"q{self._requests}"
        where = RequestPlace(
            place=place, call="1", attempt=1, fingerprint=fingerprint, model="openai:gpt-5-mini"
        )
        self.add(RequestSent(id=number, request=where, record=record(None), messages=asked), 0.1)
        if cost is None:
            return self
        known = replace(record(cost), waited_ms=waited_ms)
        return self.add(RequestEnded(id=number, record=known, response=answered), 0.4)

    def spend(self, place: str, cost: str) -> Log:
        return self.add(SpendingRecorded(place=place, record=record(cost, "search-engine")))

    def once(self, place: str, name: str) -> Log:
        return self.add(OnceStarted(place=place, name=name))

    def diverge(self, place: str) -> Log:
        return self.add(ReplayDiverged(place=place, call="1"))

    def resume(self, shape: JsonValue = None, **inputs: JsonValue) -> Log:
        return self.add(RunResumed(inputs=inputs, definition=shape), 60.0)

    def stop(self, reason: str) -> Log:
        return self.add(StopRequested(reason=reason))

    def end(self, status: RunStatus = "finished", why: FailureFacts | None = None) -> Log:
        return self.add(RunFinished(status=status, failure=why))

    @property
    def trace(self) -> RunTrace:
        return RunTrace(self.entries)

    async def write(self, store: RunStore, **changes: object) -> RunHeader:
        """Put the run into a store, with a header that fits."""
        opened, last = self.entries[0], self.entries[-1]
        assert isinstance(opened, RunStarted)
        usage = self.trace.usage
        header = RunHeader(
            run_id=self.run_id,
            epoch=new_epoch(),
            pipeline=opened.pipeline,
            status=self.trace.status,
            started_at=opened.at,
            updated_at=last.at,
            **spending_of(usage),
            forked_from=opened.forked_from,
            later_days=tuple(sorted({utc_day(e.at) for e in self.entries} - {utc_day(opened.at)})),
        )
        if self.trace.failure is not None:
            why = self.trace.failure
            header = replace(header, error=f"{why.error_type}: {why.message}")
        if header.status == "running":  # and its process has died
            header = replace(header, owner="elsewhere pid 1 (gone)", lease_until=last.at)
        header = replace(header, **changes)
        await add_to_index(store, header)
        await store.compare_and_set(header_key(self.run_id), encode_header(header), revision=0)
        await store.append(log_key(header), [entry_to_store(e) for e in self.entries], revision=0)
        return header


def write(store: SQLiteRunStore, *logs: Log, **changes: object) -> None:
    """Put runs into a store, and close it."""

    async def all_of_them() -> None:
        for log in logs:
            await log.write(store, **changes)
        await store.aclose()

    asyncio.run(all_of_them())


def support_desk(run_id: str = "r1", **options: object) -> Log:
    """A run that has most of what a run can have, and finished."""
    inner = definition({"draft": [], "check": ["draft"]}, name="inner")
    shape = definition(
        {"classify": [], "look_up": [], "write": ["classify"], "publish": ["look_up"]},
        runs={"write": inner},
    )
    log = Log(shape, run_id=run_id, inputs={"text": "Where is my parcel?"}, **options)  # type: ignore[arg-type]
    log.start("classify").start("look_up")
    log.request("classify@1").output("classify", "parcel")
    log.start("write", "classify")
    log.retry("look_up").fail("look_up", attempt=2).skip("publish", "look_up")
    log.start("write@1/inner/draft").request("write@1/inner/draft@1", "0.002", fingerprint="f2")
    log.output("write@1/inner/draft", "Dear").start("write@1/inner/check", "draft")
    log.output("write@1/inner/check", {"ok": True})
    return log.output("write", "Dear …").end()
