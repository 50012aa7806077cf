"""The text that steps of running runs have written so far, kept in the store of the runs while they write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Never

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from fastroai.errors import RevisionConflict, RunNotFound, StoreUnavailable
from fastroai.runtime.events import TextChunk
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.facts import RunFinished, RunResumed, StepEnds, StepRetried, StepStarted
from fastroai.store.record.headers import read_header, text_key
from fastroai.store.record.payloads import PayloadCodec, seal_name, unseal_name
from fastroai.store.run_store import RunStore

PAUSE: Final = 0.25
"""Seconds between two writes of the text of a run."""
MOST: Final = 100_000
"""Characters of one step that are kept. What it writes beyond is seen when it has finished."""

_TEXTS: Final = TypeAdapter(dict[str, str])

logger: Final = logging.getLogger("fastroai.store")


@dataclass(slots=True)
class _Writing:
    """The texts of one run, by the places of their steps."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    key: str = ""
    revision: int = 0

    def begin(self, place: str) -> None:
        self.texts.pop(place, None)
        self.lengths.pop(place, None)

    def add(self, place: str, text: str) -> None:
        length = self.lengths.get(place, 0)
        if room := text[: MOST - length]:
            self.texts.setdefault(place, []).append(room)
            self.lengths[place] = length + len(room)

    def joined(self) -> dict[str, str]:
        for place, pieces in self.texts.items():
            self.texts[place] = ["".join(pieces)]
        return {place: text for place, (text,) in self.texts.items()}


class PartialTextWriter:
    """Keeps the text that the runs of this process are writing in their store, a few times a second.

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.write())
            await pipeline.execute(..., on_event=writer.add)

    Pieces of text are not on record, so other processes read them here. When a step ends, its text is its
    output, or is lost. A store that fails loses nothing but this view of the text.
    """

    def __init__(self, store: RunStore, codec: PayloadCodec | None = None) -> None:
        self._store, self._codec = store, codec
        self._runs: dict[str, _Writing] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()

    def add(self, event: RunEvent) -> None:
        """Take in what has happened in a run."""
        run_id = event.run_id
        match event:
            case TextChunk(step_id=step, text=text):
                self._runs.setdefault(run_id, _Writing()).add(event.part.prefix + step, text)
            case StepStarted(step_id=step) | StepEnds(step_id=step):
                if run_id not in self._runs:
                    return
                self._runs[run_id].begin(event.part.prefix + step)
            case StepRetried(place=place) if run_id in self._runs:
                self._runs[run_id].begin(event.part.prefix + place)
            case RunFinished() | RunResumed() if not event.part.place and run_id in self._runs:
                self._runs[run_id].texts.clear()
            case _:
                return
        self._changed.add(run_id)
        self._wake.set()

    def texts(self, run_id: str) -> Mapping[str, str] | None:
        """Return what the steps of a run of this process have written; `None` if it writes nothing here."""
        writing = self._runs.get(run_id)
        return None if writing is None else writing.joined()

    async def write(self) -> Never:
        """Write what changes, until the task is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, set()
            for run_id in changed & self._runs.keys():
                try:
                    await self._write(run_id, self._runs[run_id])
                except RunNotFound:  # it was deleted
                    self._runs.pop(run_id, None)
                except (StoreUnavailable, RevisionConflict) as error:
                    logger.info("the text that run %r is writing was not kept: %s", run_id, error)
            await asyncio.sleep(PAUSE)

    async def _write(self, run_id: str, writing: _Writing) -> None:
        if not writing.key:
            writing.key = text_key((await read_header(self._store, run_id)).header)
            writing.revision = (await self._store.read(writing.key)).revision
        texts = writing.joined()
        if not texts:
            del self._runs[run_id]
            await self._store.delete(writing.key)
            return
        value = seal_name(to_json(texts).decode(), self._codec).encode()
        try:
            await self._store.compare_and_set(writing.key, value, revision=writing.revision)
        except RevisionConflict:
            self._changed.add(run_id)
            self._wake.set()
            writing.key = ""  # another process had the run, or a write was repeated
            raise
        if not writing.revision:
            writing.revision = (await self._store.read(writing.key)).revision - 1
        writing.revision += 1


async def read_partial_text(
    store: RunStore, run_id: str, codec: PayloadCodec | None = None
) -> dict[str, str]:
    """Return what the steps of a run are writing, in whatever process, by their places.

    Raises:
        RunNotFound: the store has no such run.
        RunStoreUnavailable: the store could not be read.
    """
    found = await store.read(text_key((await read_header(store, run_id)).header))
    if not found.values:
        return {}
    try:
        return _TEXTS.validate_json(unseal_name(found.values[-1].decode(), codec))
    except ValidationError:  # it is sealed, and there is no codec
        return {}
