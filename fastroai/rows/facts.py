"""The fact that only runs of rows make: a row has ended. Its request facts are those of every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fastroai.data_kinds import Name, Payload
from fastroai.records import Usage
from fastroai.runtime.fact_base import Begins, Ends, FailureFacts, Outcome, PlanFact, RunEvent, Telling


@dataclass(slots=True, kw_only=True)
class RowStarted(Begins, PlanFact):
    """The run of a row began, in a `map` of a pipeline, graph, router or flow with a store.

    `number` is the position of the row, from 0. `key` identifies the row. `child` is the id of its run. If
    the `map` is resumed, a row that had not ended has another one.

    Only the log and traces of the `map` have this fact. Listeners (`on_event`) get the `RunStarted` of the
    row instead. Without a store, and for rows of functions and agents, there is no such fact, because the
    rows have no runs of their own.
    """

    kind: ClassVar[str] = "row_started"
    identity: ClassVar = ("row", "key")
    number: int
    """Position of the row among the rows that were given, from 0."""
    key: Name[str]
    """The key that identifies the row."""
    child: str
    """The id of the run."""

    @property
    @override
    def child_run(self) -> str:
        return self.child

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        return (f"row {self.number} ({self.key}) began as run {self.child!r}",)


@dataclass(slots=True, kw_only=True)
class RowEnded(Ends, PlanFact):
    """The event that a row of `map` has its output, or has failed after its retries.

    `failure` is `None` if it has its output. `usage` is the spending for the row.
    """

    kind: ClassVar[str] = "row_ended"
    counted_as: ClassVar = "row"
    holds: ClassVar = "the output of row {0.number}"
    identity: ClassVar = ("row", "key")
    number: int
    """Position of the row among the rows that were given, from 0."""
    key: Name[str]
    """The key that identifies the row."""
    asked: Name[str] = ""
    """Hash of the inputs."""
    inputs: Payload[Any] = None
    """The inputs by name; in a fact from a log, and in a trace, their JSON."""
    output: Payload[Any] = None
    """The output; in a fact from a log, and in a trace, its JSON."""
    failure: FailureFacts | None = None
    """The exception with which the row failed, if it did."""
    attempts: int = 1
    """Attempts at the row; requests that were repeated inside of one do not count."""
    is_cached: bool = False
    """Whether the answer was kept from before, so that no request was made for it."""
    duration_ms: float = 0.0
    """Wall time from the moment the row was read to its end, in milliseconds."""
    usage: Usage = field(default_factory=Usage)
    """All that this row has spent since it last ended, retries included."""
    child: str = ""
    """Id of the run of a pipeline, graph or flow that gave the output."""

    @property
    @override
    def child_run(self) -> str:
        return self.child

    @property
    @override
    def child_usage(self) -> Usage:
        return self.usage if self.child else Usage()

    @property
    @override
    def outcome(self) -> Outcome:
        return "succeeded" if self.failure is None else "failed"

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        ended = "has its output" if self.failure is None else self.failure.sentence
        return (f"row {self.number} ({self.key}) {ended}",)


WhyGivenBack = Literal["finished", "kept"]
"""Why a row is not asked again: its answer is on record; or it is kept although its question has changed."""


@dataclass(slots=True, kw_only=True)
class RowGivenBack(RunEvent):
    """A row whose answer is on record was not asked again. Listeners are told; the log has the answer."""

    counted_as: ClassVar = "row"
    number: int
    key: str
    why: WhyGivenBack = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What a run that goes on did with its rows. Each is counted once.

    If the run has finished, all but `gone` add up to the rows.
    """

    finished: int = 0
    """Rows that had their output, and were not asked again."""
    kept: int = 0
    """Rows whose declared question has changed, and whose answers were kept: `on_changed="keep"`."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Rows that were asked again because something changed: how many, by what has changed. It is a part of
    the declaration, such as `model`, or `inputs` for a row with this key and other inputs."""
    failed: int = 0
    """Rows that had failed, and were asked again."""
    interrupted: tuple[str, ...] = ()
    """Keys of the rows that were in flight when the process died, except those of `collected`. A request
    without an answer on record counts at its bound."""
    collected: tuple[str, ...] = ()
    """Keys of the rows whose requests an earlier process has sent in batches, or to be answered in the
    background. They were not sent again."""
    stopped: int = 0
    """Rows that had begun when a budget ended the run, or that waited when it was paused. They went on where
    they were."""
    new: int = 0
    """Rows that no earlier process had begun."""
    unread: int = 0
    """Rows on record that were not read again, because the run stopped before. They are in the table, unless
    their question has changed and `on_changed` is `"ask"`."""
    gone: int = 0
    """Rows on record that were not among the rows this time. They are not in the table."""

    def __str__(self) -> str:
        told = [f"{self.finished} finished before"] if self.finished else []
        told += [f"{self.kept} kept although the question has changed"] if self.kept else []
        told += [f"{count} asked anew (new {what})" for what, count in self.changed.items()]
        told += [f"{self.failed} had failed"] if self.failed else []
        told += [f"{len(self.interrupted)} interrupted"] if self.interrupted else []
        told += [f"{len(self.collected)} to be collected"] if self.collected else []
        told += [f"{self.stopped} stopped before"] if self.stopped else []
        told += [f"{self.new} new"] if self.new else []
        told += [f"{self.unread} not read again"] if self.unread else []
        told += [f"{self.gone} gone"] if self.gone else []
        return ", ".join(told) or "no rows"
