"""Provider limits and circuit breakers in a store of runs: each line and each circuit is one value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from fastroai.runtime.concurrency.sync import in_background
from fastroai.runtime.owner import steady_seconds
from fastroai.runtime.providers.shared_circuit import CircuitRow, OpenCircuit
from fastroai.runtime.providers.shared_line import LineRow, OpenLine
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.run_sqlite import SQLiteRunStore
from fastroai.store.hints import HintsChanges
from fastroai.store.row_codec import RowCodec
from fastroai.store.run_store import RunStore, StoredValues, innermost
from fastroai.store.shared_values import SharedValues

EVERY: Final = 0.05
"""Seconds between two looks at a value in a store that does not tell of changes, while a request waits."""
_BETWEEN: Final = 0.01
"""Least seconds between two looks, although a busy value changes all the time."""
_UNHINTED: Final = 5.0
"""Seconds after which a value is looked at, because a hint can be lost."""


T = TypeVar("T")


class _Opened(Protocol):
    @property
    def is_changed(self) -> bool: ...
    @property
    def row(self) -> Any: ...


OpenedT = TypeVar("OpenedT", bound=_Opened)


class LimitValues(SharedValues[str, OpenedT]):
    """The values of one kind, by key and provider."""

    lost = "delete the key in the store, or give the limit another key= or store="

    def __init__(
        self,
        runs: RunStore,
        kind: str,
        codec: RowCodec[Any],
        opens: Callable[[Any, float], OpenedT],
    ) -> None:
        super().__init__(runs)
        self._kind, self._codec, self._opens = kind, codec, opens
        # All that share a file are on one machine, which has a clock that nobody can set.
        self._is_steady = isinstance(innermost(runs), SQLiteRunStore)
        self._revisions: dict[str, int] = {}

    def key_of(self, name: str) -> str:
        """See `SharedValues`."""
        return f"provider:{self._kind}:{name}"

    async def changed(self, name: str, timeout: float) -> None:
        """Return when a value may have changed since this process asked, or after `timeout` seconds."""
        if not isinstance(self.runs, HintsChanges):
            await asyncio.sleep(min(timeout, EVERY))
            return
        await asyncio.sleep(min(timeout, _BETWEEN))
        rest = min(timeout, _UNHINTED) - _BETWEEN
        if rest > 0:
            await self.runs.changed(self.key_of(name), revision=self._revisions.get(name, 0), timeout=rest)

    def _described(self, name: str) -> str:
        return f"the {self._kind} of {name!r}"

    def _open(self, name: str, value: bytes | None, now: datetime) -> OpenedT:
        row = None if value is None else self._codec.decode(value)
        return self._opens(row, steady_seconds() if self._is_steady else now.timestamp())

    def _encode(self, opened: OpenedT) -> bytes | None:
        return self._codec.encode(opened.row) if opened.is_changed else None

    def _decided(self, name: str, opened: OpenedT, found: StoredValues, *, is_written: bool) -> None:
        self._revisions[name] = found.revision + is_written


_LINES: Final = RowCodec(LineRow, 1)
_CIRCUITS: Final = RowCodec(CircuitRow, 1)


@dataclass(frozen=True)
class StoredLimits:
    """The `LimitStore` in a store of runs."""

    runs: RunStore
    lines: LimitValues[OpenLine] = field(compare=False, repr=False)
    circuits: LimitValues[OpenCircuit] = field(compare=False, repr=False)

    def in_background(self, work: Coroutine[Any, Any, T], *, finishes: bool = False) -> Future[T]:
        """Run a coroutine on the background loop."""
        return in_background(work, finishes=finishes)


def open_limit_store(store: object) -> StoredLimits:
    """Make the store of limits in any store of runs, or at a path or URL.

    Raises:
        ConfigurationError: it is neither a store of runs nor the place of one.
        MissingExtraError: the client of the database at a URL is not installed.
    """
    runs = adapt_run_store(store)
    return StoredLimits(
        runs,
        LimitValues(runs, "line", _LINES, OpenLine),
        LimitValues(runs, "circuit", _CIRCUITS, OpenCircuit),
    )
