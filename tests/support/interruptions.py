"""Processes that die, without dying: a store that takes no more writes ends a run as a kill would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from fastroai import ChatResponse, Pipeline, PipelineResult, step
from fastroai.errors import RunStoreUnavailable
from fastroai.records import RequestRecord, Usage
from fastroai.runtime.facts import AnyFact, ReplayDiverged, RequestEnded, RequestSent
from fastroai.store import MemoryRunStore, StoredKey, StoredValues
from fastroai.store.record.entries import (
    entry_in_store,
)
from fastroai.testing import ModelServer
from support import stored_runs

RUN = "r1"
When = Callable[[Sequence[AnyFact]], bool]
"""Told of the entries of each write to a log."""


class DyingStore:
    """A store that fails for good at a chosen write: before it happens, or after."""

    def __init__(self, store: Any, when: When, *, written: bool = False) -> None:
        self._store, self._when, self._written = store, when, written
        self.is_dead = False
        self.writes = 0

    def _check(self) -> None:
        if self.is_dead:
            raise OSError("the process is gone")

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        self._check()
        self.writes += 1
        self.is_dead = self._when([entry_in_store(RUN, 1, value) for value in values])
        if self._written or not self.is_dead:
            await self._store.append(key, values, revision=revision)
        self._check()

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        self._check()
        return await self._store.read(key, after=after)  # type: ignore[no-any-return]

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        self._check()
        await self._store.compare_and_set(key, value, revision=revision)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await self._store.list(prefix, after=after, limit=limit)  # type: ignore[no-any-return]

    async def delete(self, key: str) -> None:
        await self._store.delete(key)


def nth(kind: type[AnyFact], number: int = 1, **facts: object) -> When:
    """At the write that has the entry number `number` of this kind, from 1, with these facts."""
    seen = 0

    def when(entries: Sequence[AnyFact]) -> bool:
        nonlocal seen
        seen += sum(
            isinstance(entry, kind) and all(getattr(entry, name) == value for name, value in facts.items())
            for entry in entries
        )
        return seen >= number

    return when


def never(entries: Sequence[AnyFact]) -> bool:
    """The store goes on."""
    return False


async def interrupt(pipeline: Pipeline[Any, Any], store: Any, when: When, **options: Any) -> None:
    """Run `pipeline` until the write, which is the first that does not happen."""
    written: bool = options.pop("written", False)
    with pytest.raises(RunStoreUnavailable):
        await pipeline.execute(
            options.pop("inputs", None),
            run_id=RUN,
            store=DyingStore(store, when, written=written),
            **options,
        )


async def go_on(pipeline: Pipeline[Any, Any], store: Any, **options: Any) -> PipelineResult[Any]:
    """Resume that run with a pipeline that is made anew, as another process would."""
    return await pipeline.resume(RUN, store=store, **options)


async def entries_of(store: Any) -> list[AnyFact]:
    """The log of the run."""
    return await stored_runs.entries_of(store, RUN)


def logged(entries: Iterable[AnyFact]) -> list[RequestRecord]:
    """What the requests in a log cost, and the bounds of those that never ended."""
    records: dict[str, RequestRecord] = {}
    for entry in entries:
        if isinstance(entry, RequestSent | RequestEnded):
            records[entry.id] = entry.record
    return list(records.values())


def lasting(record: RequestRecord) -> RequestRecord:
    """A record without what differs from run to run."""
    return replace(record, started_at=None, duration_ms=0.0, waited_ms=0.0, backoff_ms=0.0, response_id=None)


def same_records(records: Iterable[RequestRecord], others: Iterable[RequestRecord]) -> bool:
    """Whether the same was spent, for the same, whatever the order."""
    return sorted(map(repr, map(lasting, records))) == sorted(map(repr, map(lasting, others)))


def spent(records: Iterable[RequestRecord]) -> Usage:
    """Their sum."""
    return Usage.of(list(records))


class Desk:
    """A pipeline of one step, `work`, which is made anew for each process; and what its calls have given."""

    def __init__(self, server: ModelServer, work: Callable[[Desk], Any], **options: Any) -> None:
        self.server, self._work, self._options = server, work, options
        self.done: Counter[str] = Counter()
        """What tools and steps note of themselves."""
        self.responses: list[ChatResponse[Any]] = []
        """What calls gave that the step has noted here."""
        self.model = cache(server.model)
        """Clients are slow to make, and have nothing to remember."""

    @property
    def pipeline(self) -> Pipeline[Any, Any]:
        """As a new process has it."""
        return Pipeline("desk", {"work": step(self._work(self))}, **self._options)

    async def undisturbed(self) -> PipelineResult[Any]:
        """A run of it that nothing interrupts; nothing of that is left but its result."""
        result = await self.pipeline.execute(run_id=RUN, store=MemoryRunStore())
        self.server.ledger.clear()
        return result

    def forget(self) -> list[ChatResponse[Any]]:
        """Begin again; the responses until now."""
        responses, self.responses = self.responses, []
        self.done.clear()
        self.server.ledger.clear()
        return responses

    async def interrupted(self, when: When, *, written: bool = False) -> PipelineResult[Any]:
        """The result of a run that was interrupted there, and taken up again."""
        store = MemoryRunStore()
        await interrupt(self.pipeline, store, when, written=written)
        self.responses.clear()
        result = await go_on(self.pipeline, store)
        await assert_the_sum_of_the_log(result, store)
        entries = await entries_of(store)
        assert not any(isinstance(entry, ReplayDiverged) for entry in entries)
        return result


async def assert_the_sum_of_the_log(result: PipelineResult[Any], store: Any) -> None:
    """Every account of a run that was resumed says what the log says, and the trace too."""
    records = [replace(record, use="kept") for record in logged(await entries_of(store))]
    total = replace(spent(records), agent_call_count=result.usage.total.agent_call_count)
    assert result.usage.total == total
    assert same_records((replace(one, use="kept") for one in result.usage.records), records)
    assert sum((one.cost_usd for one in result.usage.by_model.values()), Decimal(0)) == total.cost_usd
    for name in ("cost_usd", "committed_usd", "request_count", "failed_requests", "agent_call_count"):
        assert sum(getattr(one, name) for one in result.usage.steps.values()) == getattr(total, name)
    assert result.trace.usage.cost_usd == total.cost_usd


def assert_same_account(response: ChatResponse[Any], other: ChatResponse[Any]) -> None:
    """Two calls gave and cost the same."""
    assert response.output == other.output
    assert response.cost_usd == other.cost_usd
    assert response.usage == other.usage
    assert list(map(lasting, response.records)) == list(map(lasting, other.records))
    assert response.tool_calls == other.tool_calls or len(response.tool_calls) == len(other.tool_calls)
