"""Encode facts as entries of a log, and the header of a run, in JSON, and decode them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from fastroai.errors import RunCorrupt
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import FORMAT, RunStarted, RunStatus, UnknownFact
from fastroai.runtime.kinds import fact_class
from fastroai.store.reading.run_quality import Quality
from fastroai.store.reading.run_spending import Spent
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.record.formats import check_format_in, in_this_format

RunState: TypeAlias = Literal[RunStatus, "queued", "interrupted", "set_aside", "unreadable"]
"""Status of a run, as seen from outside.

`queued`: it waits for a worker to begin it. `interrupted`: the process that ran it has died; it can be
resumed. `set_aside`: too many workers died with it, so none takes it up until somebody releases it.
`unreadable`: its header is damaged, or another version of FastroAI wrote it.
"""

_CONFIG: Final = ConfigDict(ser_json_inf_nan="constants")  # NaN and infinity would be `null` by default


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    # An adapter of the class alone would use the configuration of the class, which does not hold
    # for values of type `Any` in it.
    fact: Any = fact_class(kind)
    return TypeAdapter(fact | None, config=_CONFIG)  # pyright: ignore[reportArgumentType]


def encode_entry(fact: Fact, *, without: set[str] | None = None) -> bytes:
    """Return a fact as JSON text, without the fields in `without`. Its values are JSON already."""
    if isinstance(fact, UnknownFact):
        return to_json({"kind": fact.kind, **fact.fields}, inf_nan_mode="constants")
    serializer = _adapter(fact.kind).serializer
    if isinstance(fact, RunStarted) and fact.budgets is None:
        without = {*(without or ()), "budgets"}  # so that a run without them reads as one of before them
    fields = serializer.to_json(fact, exclude=without, exclude_defaults=not isinstance(fact, RunStarted))
    return b'{"kind":"%b",%b' % (fact.kind.encode(), fields[1:])


def decode_entry(run_id: str, position: int, text: bytes) -> Fact:
    """Return the fact of an entry, without its pipeline or graph: see `located`.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunFromOlderVersion: an earlier version of FastroAI has written it.
        RunCorrupt: it cannot be read.
    """
    try:
        raw = from_json(text)
    except ValueError:
        raise RunCorrupt(run_id, position, "it is not JSON") from None
    if not isinstance(raw, dict):
        raise RunCorrupt(run_id, position, "it is not a JSON object")
    raw = in_this_format(run_id, raw)
    kind = raw.pop("kind", None)
    if not isinstance(kind, str):
        raise RunCorrupt(run_id, position, f"there is no log entry of the kind {kind!r}")
    if fact_class(kind) is None:
        place, at = raw.get("part", ""), raw.get("timestamp")
        if not isinstance(place, str) or not isinstance(at, int | float):
            raise RunCorrupt(
                run_id, position, f"an entry of the kind {kind!r} does not say where and when it happened"
            )
        return UnknownFact(part=Part(place=place), timestamp=at, kind=kind, fields=raw)
    try:
        # The validator itself, as the method of the adapter takes as long again before it calls it.
        fact: Fact = _adapter(kind).validator.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RunCorrupt(run_id, position, f"{where}: {first['msg']}") from error
    return fact


def located(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts of a log, each with the pipeline or graph in which it happened."""
    if facts and isinstance(facts[0], RunStarted):
        locate(facts, {"": facts[0].part})
    return list(facts)


def locate(facts: Iterable[Fact], parts: dict[str, Part]) -> None:
    """Set the part of facts from a log. `parts` holds the known ones by place; new ones are added to it."""
    for fact in facts:
        place = fact.part.place
        if place not in parts:
            parts[place] = parts[""].inside(place)
        fact.part = parts[place]


def entry_to_store(entry: Fact) -> bytes:
    """Return an entry as it is stored."""
    return with_checksum(encode_entry(entry))


def entry_in_store(run_id: str, position: int, stored: bytes) -> Fact:
    """Return the entry that was stored. Raises as `decode_entry`."""
    try:
        text = without_checksum(stored)
    except ValueError as error:
        check_format_in(run_id, stored)  # format 1 had no checksums
        raise RunCorrupt(run_id, position, str(error)) from error
    return decode_entry(run_id, position, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which workers carry a run, and how far they are with it: see `fastroai.distributed`."""

    app: str
    """Name of the application whose workers carry it."""
    queue: str
    definition: str
    """Fingerprint of the definition of the run, by which workers that know it are found."""
    priority: int | None = None
    partition: str | None = None
    starts_at: datetime | None = None
    """Time before which the run does not begin; `None` for at once."""
    stretch: int = 1
    """Number of the stretch that carries the run now, or did last. No other one may take it up."""
    failures: int = 0
    """Stretches in a row that could not take the run up."""
    failure: str | None = None
    """Why the last of them could not."""
    deaths: int = 0
    """Workers in a row that died with the run before it had finished anything more."""
    done: int = 0
    """How much the run had finished when a worker last died with it."""
    is_set_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How far a run of rows is."""

    done: int = 0
    """Rows that have ended, those that failed included."""
    failed: int = 0
    waiting: int = 0
    """Rows that wait, for example for people."""
    total: int | None = None
    """The number of rows; `None` if it is not known."""

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        failed = f", {self.failed:,} failed" if self.failed else ""
        waiting = f", {self.waiting:,} waiting" if self.waiting else ""
        return f"{self.done:,}{of} rows{failed}{waiting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The record of a run beside its log: its status, owner, cost, and what it waits for."""

    format: int = FORMAT
    run_id: str
    epoch: str
    """A name that no other run has, not even one with the same id. The key of the log ends with it."""
    pipeline: str
    status: RunStatus
    started_at: datetime
    updated_at: datetime
    owner: str | None = None
    """The process that runs it."""
    lease_until: datetime | None = None
    """Time at which that process counts as dead, unless it renews the lease; by the clock of the store."""
    steady_until: float | None = None
    """End of the lease by the steady clock of the owner's machine, for other processes on that machine."""
    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    """Known cost so far, in US dollars, as of `updated_at`."""
    cost_complete: bool = True
    """Whether `cost_usd` is the whole cost."""
    spent: Spent | None = None
    """All that the run has spent, part by part; `None` while it goes on, and if only the log has that."""
    quality: Quality | None = None
    """Whether something failed although the run finished; `None` if it did not finish."""
    error: str | None = None
    forked_from: str | None = None
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    questions: tuple[int, ...] = ()
    """Positions in the log of the questions that wait for an answer, first asked first."""
    receives: tuple[tuple[int, str], ...] = ()
    """Positions in the log at which steps wait for messages, each with the name of the message."""
    due_at: datetime | None = None
    """Time from which a paused run can go on: something that it waits for has come, or its time is over."""
    log_revision: int = 0
    """Entries that the log had when the header was written. A log with fewer has lost some."""
    mail_revision: int = 0
    """Messages to the run that were sent when the header was written; as far as the sender told it."""
    routing: Routing | None = None
    """Which workers carry the run; `None` for a run of the process that began it."""
    rows: RowCounts | None = None
    """How far a run of rows is, as of `updated_at`; `None` for another run."""
    parent: str = ""
    """The run of rows one of whose rows this run is, if that waits for it."""
    later_days: tuple[date, ...] = ()
    """The days (UTC) after that of `started_at` on which a process had the run."""
