"""Which runs of a store to find, in which order, and a page of what was found."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT
from fastroai.runtime.facts import RunStatus
from fastroai.runtime.options import check_count
from fastroai.store.clock import EPOCH, MICROSECOND
from fastroai.store.record.entries import RunHeader, RunState
from fastroai.store.record.headers import check_run_id

ItemT_co = TypeVar("ItemT_co", covariant=True)

RunOrder: TypeAlias = Literal["started", "updated", "duration", "cost"]
"""What runs are sorted by."""

STATES: Final = get_args(RunState)
PAGE: Final = 50
MOST_AT_ONCE: Final = 1_000
"""Most items of one page."""
NOT_KNOWN: Final = -1
"""Place in any order of a run whose header cannot be read: it comes after all others, or before them if the
order is ascending."""
_ORDERS: Final = get_args(RunOrder)
_NANODOLLARS: Final = Decimal(10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """The runs to find, and their order. A run must match every field that is set.

        failed = RunQuery(status="failed", tenant="acme", sort="cost")
        page = await history.page(failed, limit=50)

    By default, all runs match. Times need a time zone: a run matches from `…_since` on, and before `…_until`.
    `search` has words, each of which must be in the id, the name of the pipeline or a tag, in upper or lower
    case. The latest, longest or most expensive runs come first, unless `ascending` is set.

    Raises:
        ConfigurationError: there is no such status or order, a name or `search` is not text, or a time has no
            time zone.
    """

    status: RunState | None = None
    """`queued`, `running`, `paused`, `finished`, `failed`, `cancelled`, `interrupted`, `set_aside` or
    `unreadable`."""
    pipeline: str | None = None
    """Name of the pipeline, graph, flow or workflow."""
    tag: str | None = None
    tenant: str | None = None
    tenants: Collection[str] | None = None
    """Tenants, the runs of which are wanted; `None` for all runs, also those without a tenant."""
    search: str = ""
    """Words, each of which occurs in the id, the name of the pipeline or a tag; upper and lower case are the
    same."""
    started_since: datetime | None = None
    """Time at or after which the run began."""
    started_until: datetime | None = None
    """Time before which the run began."""
    updated_since: datetime | None = None
    """Time at or after which the header of the run was last written: at its end, or when it last showed life.
    """
    updated_until: datetime | None = None
    """Time before which the header of the run was last written."""
    asks: bool = False
    """Whether only runs are wanted that wait for the answer of a person."""
    due_until: datetime | None = None
    """Time by which a paused run can go on; only such runs are wanted."""
    sort: RunOrder = "started"
    """`started`; `updated`; `duration`: the time between the two; or `cost`: what is known of it. Runs at the
    same place in this order are in the order of their ids."""
    ascending: bool = False
    """Whether the oldest, shortest or cheapest runs come first."""

    def __post_init__(self) -> None:
        check_state(self.status)
        check_names(self.pipeline, self.tag, self.tenant)
        if self.tenants is not None and not _are_names(self.tenants):
            raise ConfigurationError("tenants", self.tenants, "names of tenants, as in {'acme', 'globex'}")
        if not isinstance(self.search, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("search", self.search, "words, as text")
        if self.sort not in _ORDERS:
            raise ConfigurationError("sort", self.sort, f"one of {', '.join(_ORDERS)}")
        for option in _TIMES:
            check_time(option, getattr(self, option))

    @property
    def recorded_status(self) -> RunStatus | None:
        """The status that the headers of the wanted runs have; `None` if it can be any.

        It is `running` for `queued`, `interrupted` and `set_aside`, which headers do not tell apart. It is
        `None` for `unreadable`, and if the query has no status.
        """
        match self.status:
            case "queued" | "interrupted" | "set_aside":
                return "running"
            case "unreadable":
                return None
            case status:
                return status

    @property
    def words(self) -> Sequence[str]:
        """The words of `search`, split at spaces and without the difference between upper and lower case."""
        return self.search.casefold().split()

    def matches(self, header: RunHeader) -> bool:
        """Return whether the header of a run fits every field of this query that is set.

        A header has the status `running` also for runs that are `queued`, `interrupted` or `set_aside`: look
        at `RunSummary.status` to tell these apart. With `unreadable`, the status is not compared.
        """
        text = search_text(header)
        return (
            self.recorded_status in (None, header.status)
            and self.pipeline in (None, header.pipeline)
            and (self.tag is None or self.tag in header.tags)
            and self.tenant in (None, header.tenant)
            and (self.tenants is None or header.tenant in self.tenants)
            and all(word in text for word in self.words)
            and (self.started_since is None or self.started_since <= header.started_at)
            and (self.started_until is None or header.started_at < self.started_until)
            and (self.updated_since is None or self.updated_since <= header.updated_at)
            and (self.updated_until is None or header.updated_at < self.updated_until)
            and (not self.asks or bool(header.questions))
            and (self.due_until is None or (header.due_at is not None and header.due_at < self.due_until))
        )

    def place(self, header: RunHeader | None, run_id: str) -> Place:
        """Return the place of a run in the order of this query: a number by which it is sorted, and its id.

        The number is a time or duration in microseconds, or a cost in billionths of a US dollar. `header` is
        `None` for a run whose header cannot be read: its number is -1.
        """
        return Place(NOT_KNOWN if header is None else order_values(header)[self.sort], run_id)

    def rank(self, place: Place) -> tuple[int, str]:
        """Return a key for `sorted`: places with a lower key come first in the order of this query.

        Places with the same number are in the order of their ids.
        """
        return (place.order if self.ascending else -place.order), place.run_id


_TIMES: Final = ("started_since", "started_until", "updated_since", "updated_until", "due_until")


class Place(NamedTuple):
    """The place of a run in an order."""

    order: int
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[ItemT_co]):
    """A page of what was found."""

    items: tuple[ItemT_co, ...]
    next: str | None
    """Where the next page begins: give it as `after`. `None` if this is the last page."""

    def __len__(self) -> int:
        """Return the number of items on this page."""
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Cursor:
    """What `Page.next` says: after which run, and after which of its items, the next page begins."""

    place: Place
    item: int = 0
    """Position of the last item of the run that was on a page; 0 if all of them were."""

    def text(self, query: RunQuery) -> str:
        """Return the cursor as `Page.next` has it."""
        way = "up" if query.ascending else "down"
        return f"{query.sort} {way} {self.place.order} {self.item} {self.place.run_id}"

    @classmethod
    def of(cls, query: RunQuery, text: object) -> Cursor:
        """Read a cursor.

        Raises:
            ConfigurationError: it is no cursor, or one of another order.
        """
        way = "up" if query.ascending else "down"
        try:
            sort, found, order, item, run_id = str(text).split(" ", 4)
            cursor = cls(Place(int(order), run_id), int(item))
            check_run_id(run_id)
            # A cursor may come from a client, and a column of a database holds 64 bits.
            if (sort, found) == (query.sort, way) and cursor.place.order.bit_length() < 64:
                return cursor
        except ValueError:
            pass
        raise ConfigurationError("after", text, "Page.next of a page of the same query")


def microseconds(at: datetime) -> int:
    """Return a time as microseconds since 1970; 0 for earlier times."""
    return max((at - EPOCH) // MICROSECOND, 0)


def order_values(header: RunHeader) -> dict[RunOrder, int]:
    """Return the numbers by which a run is sorted: microseconds, and billionths of a US dollar."""
    started, updated = microseconds(header.started_at), microseconds(header.updated_at)
    cost = math.floor(EXACT.multiply(header.cost_usd, _NANODOLLARS))
    return {"started": started, "updated": updated, "duration": max(updated - started, 0), "cost": cost}


def search_text(header: RunHeader) -> str:
    """Return the text in which words are searched for."""
    return "\n".join((header.run_id, header.pipeline, *header.tags)).casefold()


def check_state(status: object) -> None:
    """Refuse what is not the status of a run. Raises `ConfigurationError`."""
    if status is not None and status not in STATES:
        raise ConfigurationError("status", status, f"one of {', '.join(STATES)}")


def check_names(pipeline: object, tag: object, tenant: object) -> None:
    """Refuse names that are no text. Raises `ConfigurationError`."""
    for option, name in (("pipeline", pipeline), ("tag", tag), ("tenant", tenant)):
        if name is not None and not isinstance(name, str):
            raise ConfigurationError(option, name, f"the name of a {option}, as text")


def _are_names(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Collection):
        return False
    return all(isinstance(name, str) for name in names)


def check_time(option: str, at: object) -> None:
    """Refuse a value that is neither `None` nor a time with a time zone. Raises `ConfigurationError`."""
    if at is not None and not _has_utc(at):
        raise ConfigurationError(option, at, "a time with a time zone: datetime(2026, 3, 1, tzinfo=UTC)")


def _has_utc(at: object) -> bool:
    try:
        return isinstance(at, datetime) and at.utcoffset() is not None and bool(at.astimezone(UTC))
    except OverflowError:  # it is in the year 0 or 10,000 there
        return False


def check_page(limit: int) -> None:
    """Refuse a number of items that no page has. Raises `ConfigurationError`."""
    check_count("limit", limit, least=1, required=True)
    if limit > MOST_AT_ONCE:
        raise ConfigurationError(
            "limit", limit, f"at most {MOST_AT_ONCE:,}; the next page begins at Page.next"
        )
