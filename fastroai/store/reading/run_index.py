"""The optional ability of a store to find runs by itself: by what their headers say, without reading all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from typing_extensions import TypeIs

from fastroai.records import Usage
from fastroai.store.reading.run_queries import Place, RunQuery
from fastroai.store.run_store import RunStore, innermost

Dimension: TypeAlias = Literal["day", "pipeline", "step", "model", "tenant", "tag"]
"""Field by which spending can be broken down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """The header of a run that a store has found."""

    place: Place
    """Its place in the order of the query, with the id of the run."""
    value: bytes
    """The header as it is stored; empty if the store has lost it."""
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRuns:
    """The headers that a store has found."""

    runs: Sequence[FoundRun]
    now: datetime
    """The store's own clock, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingSum:
    """What runs have spent that have these fields in common. Fields that were not asked for are `None`."""

    day: date | None = None
    pipeline: str | None = None
    step: str | None = None
    model: str | None = None
    tenant: str | None = None
    tags: tuple[str, ...] | None = None
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingFound:
    """The spending that a store has summed."""

    sums: Sequence[SpendingSum]
    unread: Sequence[str]
    """Ids of other runs that may have spent something in the period. Only their logs say what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run to begin: its header, to be written at a revision, and a new log."""

    key: str
    value: bytes
    revision: int
    log_key: str
    entries: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A run to delete: the key of its header, at a revision, and its other keys."""

    key: str
    revision: int
    others: Collection[str]


@runtime_checkable
class IndexesRuns(RunStore, Protocol):
    """A `RunStore` that finds runs by itself. This is optional: in another store, `RunHistory` reads headers.

    Such a store looks at the headers that are written to it, whose keys begin with `run:`, and keeps what
    they say in an index, in the same transaction. So the index is never behind the headers. Other stores
    have index entries beside the headers, as keys.
    """

    async def find_runs(self, query: RunQuery, *, after: Place | None, limit: int) -> FoundRuns:
        """Return at most `limit` runs whose headers match, after a place in the order of the query."""
        ...

    async def count_runs(self, query: RunQuery) -> int:
        """Return the number of runs whose headers match."""
        ...

    async def sum_spending(
        self, since: datetime | None, until: datetime | None, by: Collection[Dimension]
    ) -> SpendingFound:
        """Sum up the spending in a period from the headers that say it, as of one moment.

        `tag` asks for all tags of the spending together: the caller counts it in the row of each.
        """
        ...

    async def begin_run(self, begun: Begun) -> None:
        """Write the header of a new run, and its log, together or not at all.

        Raises:
            RevisionConflict: the header has another revision.
        """
        ...

    async def delete_runs(self, doomed: Sequence[Doomed]) -> Sequence[bool]:
        """Delete runs whose headers still have their revisions, each as a whole; say which of them it was.

        As with `delete` at a revision, a header that is made anew never has that revision again.
        """
        ...

    async def index_anew(self) -> None:
        """Build the index from all headers, for a store in which somebody has changed rows by hand."""
        ...


_OPERATIONS: Final = tuple(name for name in vars(IndexesRuns) if not name.startswith("_"))


def indexes_runs(store: RunStore) -> IndexesRuns | None:
    """Return the store if it finds runs by itself, or the one within it that does; `None` if neither does.

    A store around another (`store_within`) finds runs only if that one does.
    """
    inner = innermost(store)
    if not _has_index(inner):
        return None
    return store if _has_index(store) else inner


def _has_index(store: RunStore) -> TypeIs[IndexesRuns]:
    # `isinstance` would collect these names anew each time, and take 100 times as long.
    return all(hasattr(store, name) for name in _OPERATIONS)
