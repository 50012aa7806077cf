"""The state machine of a run of rows: which rows are asked, and when the run ends. Without clock or I/O.

It keeps which keys are done, and no outputs. Of a fresh run without keys of the user, it keeps nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias, assert_never

from pydantic import JsonValue

from fastroai.rows.facts import Resumption, RowEnded, WhyGivenBack
from fastroai.rows.source import ReadRow
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import PauseRequested, RunFinished, RunResumed, RunStarted, StopRequested, Wait
from fastroai.store.record.declarations import OnChanged, changed_parts

OnRowError: TypeAlias = Literal["record", "stop"]
"""What a failed row does: it is recorded, and the others go on; or it stops the run."""

Begun: TypeAlias = Literal["asked", "in batch", "stopped"]
"""How a process has left a row that it had begun: it has died or was cancelled; the request of the row was in
a batch; or a budget ended the run, or it was paused."""


def refused_key(number: int, key: str) -> str:
    """Return the key of a row that is refused because another row has its key."""
    return f"{number}: {key}"


def number_of_key(key: str) -> int:
    """Return a key as a number of 64 bits, which takes less memory than the text."""
    return int.from_bytes(hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest())


def declared_in(definition: JsonValue) -> Mapping[str, str] | None:
    """Return the hashes of what a definition declares for each row, by name; `None` if there is none."""
    declared = definition.get("declares") if isinstance(definition, dict) else None
    return {name: str(one) for name, one in declared.items()} if isinstance(declared, dict) else None


# --- what the machine is told, besides facts ---


@dataclass(slots=True)
class RowsEnded:
    """There is no further row, or none is read now or can be read or written."""

    is_all: bool = True
    """Whether all rows were read."""
    failure: FailureFacts | None = None
    raised: BaseException | None = None


@dataclass(slots=True)
class RowCut:
    """A row did not come to its end, and is asked when the run is resumed."""

    number: int
    key: str
    why: Literal["waits", "budget", "cancelled"]
    waits: Sequence[Wait] = ()
    """What the row waits for, if this run has its record, and no run of its own."""
    raised: BaseException | None = None
    failure: FailureFacts | None = None


Told: TypeAlias = RunStarted | RunResumed | RowsEnded | RowEnded | RowCut | PauseRequested | StopRequested

# --- what it decides ---


@dataclass(slots=True)
class AskRow:
    """The decision to ask the row that was just read."""


@dataclass(slots=True)
class RefuseRow:
    """The decision to record that the row which was just read cannot be asked."""

    why: str


@dataclass(slots=True)
class GiveBack:
    """The decision to give the answer on record for the row that was just read, and not to ask it."""

    why: WhyGivenBack


@dataclass(slots=True)
class StopReading:
    """The decision to read no further rows."""


@dataclass(slots=True)
class CancelRows:
    """The decision to cancel the rows that are asked now."""


Decision: TypeAlias = StopReading | CancelRows | RunFinished


class _Done(NamedTuple):
    """A row with an output on record, or with its failure."""

    asked: str
    declaration: int


class RowMachine:
    """Decides for each row, and when the run ends."""

    def __init__(self) -> None:
        """Begin a run, or read one from its facts."""
        self.on_error: OnRowError = "record"
        self.on_changed: OnChanged = "ask"
        self.lets_go = False
        """Whether a pause does not wait for the rows that are asked, because they wait for batches."""
        self._done: dict[int, _Done] = {}
        self._failed: dict[int, _Done] = {}
        self._retried: set[int] = set()
        """Rows that have failed, were read again, and have not ended since."""
        self._rows_read = 0
        self._has_read_all = False
        self._open: set[int] = set()
        """Numbers of the rows that are asked now."""
        self._keys: dict[int, int] = {}
        """Numbers of the rows with keys of the user, by key."""
        self._declarations: list[Mapping[str, str]] = []
        """The declarations of the rows: the first one, and that after each change."""
        self._was_resumed = False
        self._is_reading = True
        self._end: RunFinished | None = None
        """How the run ends when nothing is asked any more."""
        self.waiting: list[str] = []
        """Keys of the rows that wait for a person or an event."""
        self._waits: list[Wait] = []
        self._next: list[Wait] = []
        """The wait of the row that goes on first of those that go on by themselves."""
        self._interrupted: list[str] = []
        """Keys of the rows that an earlier process was asking when it died."""
        self._collected: list[str] = []
        """Keys of the rows whose answers an earlier process has left to be collected."""
        self._asked_anew: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._on_record = 0
        """Rows that were on record when the run was resumed."""

    def handle(self, told: Told) -> Sequence[Decision]:
        """Take in a fact or an event, and return the decisions that follow."""
        match told:
            case RunStarted() | RunResumed():
                return self._begun(told)
            case RowEnded():
                return self._ended(told)
            case RowCut():
                return self._cut(told)
            case RowsEnded():
                self._is_reading = False
                self._has_read_all = told.is_all and told.raised is None
                if told.raised is None:
                    return self._perhaps_finished()
                failed = RunFinished(status="failed", reason_code="error", failure=told.failure)
                self._ending(failed, told.raised)
                return [StopReading(), *self._perhaps_finished()]
            case PauseRequested():
                self._ending(RunFinished(status="paused", reason_code="pause_requested"))
                let_go = [CancelRows()] if self.lets_go else []
                return [StopReading(), *let_go, *self._perhaps_finished()]
            case StopRequested():
                self._ending(RunFinished(status="cancelled", reason=told.reason, reason_code="cancelled"))
                return [StopReading(), CancelRows(), *self._perhaps_finished()]
            case _:
                assert_never(told)

    def read(self, row: ReadRow, begun: Begun | None = None) -> AskRow | RefuseRow | GiveBack:
        """Take in the next row, and return what becomes of it.

        `begun` says how an earlier process left the row, if that process began it and did not end it.
        """
        self._rows_read, key = row.number + 1, number_of_key(row.key)
        if row.is_keyed and key in self._keys:
            self._open.add(row.number)
            if self._was_resumed:
                refused = number_of_key(refused_key(row.number, row.key))
                self._keys[refused] = row.number
                self._counts["failed" if refused in self._failed else "new"] += 1
            same = f"row {row.number} has the key {row.key!r} of row {self._keys[key]}"
            return RefuseRow(f"{same}, so it was left out; set key= to a column that differs in every row")
        if row.is_keyed:
            self._keys[key] = row.number
        if (done := self._done.get(key)) is not None:
            changed = changed_parts(self._declarations[done.declaration], self._declarations[-1])
            if done.asked == row.asked and not changed:
                self._counts["finished"] += 1
                return GiveBack("finished")
            if done.asked == row.asked and self.on_changed == "keep":
                self._counts["kept"] += 1
                return GiveBack("kept")
            what = ", ".join(changed) if done.asked == row.asked else "inputs"
            if not begun:
                self._asked_anew[what] += 1
        elif self._was_resumed and not begun:
            self._counts["failed" if key in self._failed else "new"] += 1
        self._note_begun(row.key, begun, is_on_record=done is not None or key in self._failed)
        if (
            (failed := self._failed.get(key)) is not None
            and failed.asked == row.asked
            and self._holds(failed)
        ):
            self._retried.add(key)
        self._open.add(row.number)
        return AskRow()

    def declared_alike(self) -> Iterator[Mapping[str, str]]:
        """Yield the declaration of the rows, then those before it, newest first, back to the last change."""
        now = self._declarations[-1]
        return takewhile(lambda before: not changed_parts(before, now), reversed(self._declarations))

    def resumption(self) -> Resumption | None:
        """Return what became of the rows on record; `None` for a run that was not resumed."""
        if not self._was_resumed:
            return None
        counts = self._counts
        found = counts["finished"] + counts["kept"] + counts["failed"] + sum(self._asked_anew.values())
        found += counts["begun again"]
        missing = self._on_record - found
        return Resumption(
            finished=counts["finished"],
            kept=counts["kept"],
            changed=dict(self._asked_anew),
            failed=counts["failed"],
            interrupted=tuple(self._interrupted),
            collected=tuple(self._collected),
            stopped=counts["stopped"],
            new=counts["new"],
            unread=0 if self._has_read_all else missing,
            gone=missing if self._has_read_all else 0,
        )

    @property
    def has_answers(self) -> bool:
        """Whether a row has an output on record that answers the question as it is declared now."""
        return any(map(self._holds, self._done.values()))

    def answers(self, key: int) -> bool:
        """Return whether a row has an output on record that answers the question as it is declared now."""
        return (done := self._done.get(key)) is not None and self._holds(done)

    @property
    def leaves_lines(self) -> bool:
        """Whether rows on record may keep their lines although they have not ended again in this process."""
        return not self._has_read_all or bool(self._retried)

    def number_of_line(self, key: int, number: int) -> int | None:
        """Return the number of a row on record that stays in the table without having ended in this process.

        `number` is its number on record. The run has stopped before the row was read again, or before it was
        asked again after a failure. Returns `None` for any other row, and if its question has changed since.
        """
        if key in self._retried:
            return self._keys.get(key, number)
        is_read = key in self._keys if self._keys else number < self._rows_read
        known = self._done.get(key) or self._failed.get(key)
        if is_read or self._has_read_all or known is None or not self._holds(known):
            return None
        return max(number, self._rows_read)

    # --- parts ---

    def _begun(self, fact: RunStarted | RunResumed) -> Sequence[Decision]:
        if (declared := declared_in(fact.definition)) is not None:
            self._declarations.append(declared)
        if isinstance(fact, RunResumed):
            self._was_resumed, self._is_reading, self._end = True, True, None
            self._open.clear()
            self._on_record = len(self._done) + len(self._failed)
        return ()

    def _holds(self, known: _Done) -> bool:
        """Return whether what is on record of a row is kept, as far as its declaration says."""
        changed = changed_parts(self._declarations[known.declaration], self._declarations[-1])
        return not changed or self.on_changed == "keep"

    def _note_begun(self, key: str, begun: Begun | None, *, is_on_record: bool) -> None:
        match begun:
            case None:
                return
            case "asked":
                self._interrupted.append(key)
            case "in batch":
                self._collected.append(key)
            case "stopped":
                self._counts["stopped"] += 1
        self._counts["begun again"] += is_on_record

    def _ended(self, row: RowEnded) -> Sequence[Decision]:
        key = number_of_key(row.key)
        if row.number in self._open:  # it was read in this process, so nobody asks for it again
            self._open.discard(row.number)
            self._retried.discard(key)
        else:
            known, others = (self._done, self._failed) if row.failure is None else (self._failed, self._done)
            known[key] = _Done(row.asked, len(self._declarations) - 1)
            others.pop(key, None)
        if row.failure is not None and self.on_error == "stop" and self._end is None:
            self._ending(RunFinished(status="failed", reason_code="step_failed", failure=row.failure))
            return [StopReading(), CancelRows(), *self._perhaps_finished()]
        return self._perhaps_finished()

    def _cut(self, row: RowCut) -> Sequence[Decision]:
        self._open.discard(row.number)
        match row.why:
            case "waits":
                self._retried.discard(number_of_key(row.key))
                self.waiting.append(row.key)
                self._waits += [wait for wait in row.waits if wait.what != "row"]
                timed = [wait for wait in (*row.waits, *self._next) if wait.what == "row"]
                self._next = [min(timed, key=lambda wait: wait.deadline or 0.0)] if timed else []
                return self._perhaps_finished()
            case "budget":
                self._ending(
                    RunFinished(status="failed", reason_code="budget_exceeded", failure=row.failure),
                    row.raised,
                )
                return [StopReading(), *self._perhaps_finished()]
            case "cancelled":
                return self._perhaps_finished()

    def _ending(self, end: RunFinished, raised: BaseException | None = None) -> None:
        """Read no more. The first reason to end is the reason of the run, unless somebody cancels it."""
        self._is_reading = False
        if self._end is None or end.status == "cancelled":
            if end.failure is not None and not end.reason:
                end.reason = end.failure.message
            end.raised = raised
            self._end = end

    def _perhaps_finished(self) -> Sequence[RunFinished]:
        if self._is_reading or self._open:
            return ()
        if self._end is not None:
            if self._end.status == "paused":
                self._end.waits = tuple(self._waits)
            return [self._end]
        if self.waiting:
            many, waits = len(self.waiting), (*self._waits, *self._next)
            reason = f"{many} {'row waits' if many == 1 else 'rows wait'} for something"
            return [RunFinished(status="paused", reason_code="rows_waiting", reason=reason, waits=waits)]
        return [RunFinished(status="finished", reason_code="completed")]
