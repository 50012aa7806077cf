"""A store of runs that counts what is read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fastroai.store import MemoryRunStore, StoredKey, StoredValues


class Counting(MemoryRunStore):
    """Counts reads by the first part of the key, and the values that they gave."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.values: Counter[str] = Counter()

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        found = await super().read(key, after=after)
        self.reads[key.partition(":")[0]] += 1
        self.values[key.partition(":")[0]] += len(found.values)
        return found

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        self.reads[f"list {prefix.partition(':')[0]}"] += 1
        return await super().list(prefix, after=after, limit=limit)
