"""A run is taken up although a write of the process that had it is carried out late."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.durable import Counted
from support.interruptions import RUN, When, nth

from fastroai import Pipeline
from fastroai.errors import RunStoreUnavailable
from fastroai.runtime.facts import RunFinished, StepFinished
from fastroai.store import MemoryRunStore, StoredKey, StoredValues
from fastroai.store.record.entries import entry_in_store
from fastroai.store.record.headers import header_key


class LateWrites:
    """A store that loses the writes of a process that dies, and carries out the first one of these late.

    It does so just after the next process has written to the header of the run.
    """

    def __init__(self, when: When) -> None:
        self.store, self._when, self._late = MemoryRunStore(), when, list[tuple[str, Sequence[bytes], int]]()
        self.dies = True

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        if self.dies and (self._late or self._when([entry_in_store(RUN, 1, value) for value in values])):
            self._late.append((key, values, revision))
            raise OSError("the process is gone")
        await self.store.append(key, values, revision=revision)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        if self.dies and self._late:
            raise OSError("the process is gone")
        await self.store.compare_and_set(key, value, revision=revision)
        if self._late and key == header_key(RUN):
            key, values, revision = self._late[0]
            self._late.clear()
            await self.store.append(key, values, revision=revision)

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return await self.store.read(key, after=after)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await self.store.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        await self.store.delete(key)


@pytest.mark.parametrize("late", [nth(StepFinished), nth(StepFinished, 2), nth(RunFinished)])
async def test_a_write_of_a_dead_process_that_is_carried_out_late_counts(late: When) -> None:
    counted = Counted()
    steps = {"one": counted.step("one", lambda ctx: 1), "two": counted.step("two", lambda ctx: 2)}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"two": ["one"]})
    store = LateWrites(late)
    with pytest.raises(RunStoreUnavailable):
        await pipeline.execute(run_id=RUN, store=store)
    before, store.dies = counted.ran.copy(), False

    result = await pipeline.resume(RUN, store=store)

    assert (result.status, result.output) == ("finished", 2)
    assert counted.ran["one"] == 1, "its end got on record"
    assert counted.ran["two"] == 1
    assert before["one"] == 1
    assert result.trace.replay(pipeline) is None
