"""Runs pipelines on a SQLite file, and says in a file beside it which writes have begun, and have ended."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from fastroai import Pipeline, StepContext, step
from fastroai.store import RunStore, SQLiteRunStore, StoredKey, StoredValues

TOLD = "told"


@step
async def page(ctx: StepContext) -> str:
    return f"{ctx.step_id} " * 60_000


@step
async def last(ctx: StepContext) -> int:
    return 7


PAGES = [f"page{number}" for number in range(6)]
PIPELINE = Pipeline(
    "book",
    {**dict.fromkeys(PAGES, page), "last": last},
    {later: [earlier] for earlier, later in zip(PAGES, [*PAGES[1:], "last"], strict=True)},
    output_step="last",
)


class Telling:
    """A store that tells each write before it begins, and its number when it has ended."""

    def __init__(self, store: RunStore, folder: Path) -> None:
        self._store = store
        self._file = os.open(folder / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._begun = 0

    async def _tell(self, write: Callable[[], Coroutine[Any, Any, None]], *what: Any) -> None:
        self._begun += 1
        number = self._begun
        os.write(self._file, f"{json.dumps(['begun', *what])}\n".encode())
        try:
            await write()
        except BaseException:
            os.write(self._file, f"{json.dumps(['refused', number])}\n".encode())
            raise
        os.write(self._file, f"{json.dumps(['ended', number])}\n".encode())

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        coded = [base64.b64encode(value).decode() for value in values]
        await self._tell(lambda: self._store.append(key, values, revision=revision), "append", key, coded)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        coded = base64.b64encode(value).decode()
        await self._tell(
            lambda: self._store.compare_and_set(key, value, revision=revision), "set", key, revision, coded
        )

    async def delete(self, key: str) -> None:
        await self._tell(lambda: self._store.delete(key), "delete", key)

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return await self._store.read(key, after=after)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await self._store.list(prefix, after=after, limit=limit)


async def main(folder: Path, fsync: bool, runs: int) -> None:
    store = SQLiteRunStore(folder / "runs.db", fsync=fsync)
    telling = Telling(store, folder)
    for number in range(runs):
        await PIPELINE.execute({}, run_id=f"r{number}", store=telling)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "fsync", int(sys.argv[3])))
