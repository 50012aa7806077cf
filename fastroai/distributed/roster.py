"""Who carries the runs of an application: its living workers, and the definitions that each of them knows.

Both are values of the store of runs, so that processes without the code of a pipeline can read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue, TypeAdapter

from fastroai.errors import RevisionConflict
from fastroai.runtime.owner import is_dead
from fastroai.store.reading.index import store_time
from fastroai.store.record.headers import keys_with
from fastroai.store.run_store import RunStore, deletes_at_revision

_WORKERS: Final = "worker:"
_DEFINITIONS: Final = "definition:"
_FORGOTTEN: Final = timedelta(hours=1)
"""Time after which a dead worker is taken off the list."""
_TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker as the store has it."""

    executor: str
    owner: str
    """The process, by which others on its machine see at once that it has died."""
    version: str
    queues: tuple[str, ...]
    knows: Mapping[str, str]
    """Fingerprints of definitions, by name."""
    since: datetime
    until: datetime
    """Time at which it counts as dead, unless it says until then that it lives; by the clock of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefinition:
    """The parts of a pipeline or graph that a process without its code needs to begin runs of it."""

    name: str
    kind: str
    definition: dict[str, JsonValue]
    input_schema: dict[str, JsonValue] | None
    """JSON Schema of the inputs; `None` if no type says what fits."""
    is_sealed: bool
    """Whether the values of its runs go through a codec."""


_WORKER: Final = TypeAdapter(WorkerRecord)
_DEFINITION: Final = TypeAdapter(KnownDefinition)


@dataclass(frozen=True, slots=True)
class Roster:
    """The living workers of an application, at some moment."""

    workers: Sequence[WorkerRecord]

    def is_living(self, executor: str | None) -> bool:
        """Return whether a worker lives."""
        return any(worker.executor == executor for worker in self.workers)

    def serves(self, version: str | None, queue: str) -> bool:
        """Return whether a living worker takes stretches of a version from a queue; for `None`, none does."""
        return any(worker.version == version and queue in worker.queues for worker in self.workers)

    def version_for(self, name: str, definition: str, queue: str) -> str | None:
        """Return the version of the newest worker that knows a definition and serves a queue."""
        able = [
            worker
            for worker in self.workers
            if worker.knows.get(name) == definition and queue in worker.queues
        ]
        return max(able, key=lambda worker: worker.since).version if able else None

    @property
    def names(self) -> Collection[str]:
        """Names of all pipelines and graphs that somebody knows."""
        return {name for worker in self.workers for name in worker.knows}


async def read_roster(store: RunStore, app: str) -> Roster:
    """Return the workers of an application that live."""
    now, living = await store_time(store), list[WorkerRecord]()
    async for found in keys_with(store, _worker_key(app, "")):
        if found.value:
            worker = _WORKER.validate_json(found.value)
            if worker.until > now and not is_dead(worker.owner):
                living.append(worker)
    return Roster(living)


async def sign_on(store: RunStore, app: str, worker: WorkerRecord) -> None:
    """Put on record that a worker lives, or lives on. Forget those who died long ago."""
    key, value = _worker_key(app, worker.executor), _WORKER.dump_json(worker)
    await _write(store, key, value)
    if not deletes_at_revision(store):
        return
    async for found in keys_with(store, _worker_key(app, "")):
        if found.value and _WORKER.validate_json(found.value).until < worker.since - _FORGOTTEN:
            with suppress(RevisionConflict):
                await store.delete(found.key, revision=found.revision)


async def sign_off(store: RunStore, app: str, executor: str) -> None:
    """Put on record that a worker takes no more stretches."""
    await store.delete(_worker_key(app, executor))


async def publish(store: RunStore, app: str, known: KnownDefinition) -> None:
    """Put a definition on record, for processes without its code."""
    await _write(store, _definition_key(app, known.name), _DEFINITION.dump_json(known))


async def published(store: RunStore, app: str, name: str) -> KnownDefinition | None:
    """Return the definition of this name that was put on record last."""
    found = await store.read(_definition_key(app, name))
    return _DEFINITION.validate_json(found.values[-1]) if found.values else None


async def published_names(store: RunStore, app: str) -> Sequence[str]:
    """Return the names of all definitions on record."""
    prefix = f"{_DEFINITIONS}{app}:"
    return sorted([_DEFINITION.validate_json(one.value).name async for one in keys_with(store, prefix)])


async def published_apps(store: RunStore) -> Sequence[str]:
    """Return the names of all applications whose definitions are on record."""
    return sorted({one.key.split(":")[1] async for one in keys_with(store, _DEFINITIONS)})


def _worker_key(app: str, executor: str) -> str:
    return f"{_WORKERS}{app}:{executor}"


def _definition_key(app: str, name: str) -> str:
    return f"{_DEFINITIONS}{app}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


async def _write(store: RunStore, key: str, value: bytes) -> None:
    """Write a value over whatever there is."""
    for left in reversed(range(_TRIES)):
        found = await store.read(key)
        if found.values[-1:] == (value,):
            return
        try:
            return await store.compare_and_set(key, value, revision=found.revision)
        except RevisionConflict:
            if not left:
                raise
