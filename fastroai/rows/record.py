"""The record of a run of rows: read page by page, and kept only as far as it is needed."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from fastroai.errors import RunCorrupt
from fastroai.records import Usage
from fastroai.rows.facts import RowEnded, RowStarted
from fastroai.rows.machine import RowMachine, number_of_key
from fastroai.runtime import Charge
from fastroai.runtime.budgets.in_flight import AgentCharges
from fastroai.runtime.fact_base import Fact, Key
from fastroai.runtime.facts import (
    AnswerGiven,
    QuestionAsked,
    RequestEnded,
    RequestInBatch,
    RunFinished,
    RunResumed,
    RunStarted,
    WaitEnded,
    WaitStarted,
)
from fastroai.store.paging import PAGE, pages, read_page
from fastroai.store.reading.run_spending import SpendingOnRecord
from fastroai.store.record.entries import RunHeader, entry_in_store, locate
from fastroai.store.record.headers import log_key
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.unsealing import entries_to_go_on, unseal_entry, unseal_one
from fastroai.store.run_store import RunStore

ROW: Final = "row"
"""Name of the scope of each row."""


def row_of(place: str) -> str:
    """Return the key of the scope of the row that a place is in; empty for a place in no row."""
    name, _, key = place.partition("/")[0].partition("@")[0].partition("#")
    return key if name == ROW else ""


def scope_key(key: str) -> str:
    """Return the key of the scope of a row."""
    return f"{number_of_key(key):016x}"


async def facts_of(
    store: RunStore, header: RunHeader, codec: PayloadCodec | None
) -> AsyncIterator[tuple[int, Fact]]:
    """Yield the facts of a run with their positions, a page at a time. Raises as `read_log`."""
    parts = None
    async for before, values, revision in pages(store, log_key(header)):
        if lost := min(PAGE, revision - before) - len(values):
            raise RunCorrupt(header.run_id, before + 1, f"the store has lost {lost} of its entries")
        facts = [
            entry_in_store(header.run_id, position, value)
            for position, value in enumerate(values, before + 1)
        ]
        if parts is None and isinstance(first := facts[0], RunStarted):
            parts = {"": first.part}
        locate(facts, parts or {})
        for position, fact in enumerate(entries_to_go_on(header.run_id, facts, codec), before + 1):
            yield position, fact


class RowsOnRecord:
    """The facts that a process needs to continue a run of rows: only those of rows that have not ended."""

    def __init__(self, machine: RowMachine, lines: LinesInStore) -> None:
        self.machine, self.lines = machine, lines
        self.failed: RowEnded | None = None
        """The end of the row that failed last."""
        self.usage = Usage()
        """The spending of all rows that have ended."""
        self.in_children = Usage()
        """The usage of rows that were runs: their requests are not in this log."""
        self.spending = SpendingOnRecord()
        """The same for the header of the run, with all other spending."""
        self.positions: dict[int, int] = {}
        """Position in the log of the last end of each row, by the number of its key."""
        self.begun: dict[str, RowStarted] = {}
        """The first starts of runs of rows that have not ended since then, by the id of the run."""
        self.children: dict[str, tuple[Sequence[Charge], Sequence[AgentCharges]]] = {}
        """The spending of those runs, which the process that goes on with them reads."""
        self.open: dict[str, dict[int, Fact]] = {}
        """Facts of rows that were in flight when the process died, by the key of the scope of the row."""
        self.in_batches: dict[str, str] = {}
        """The ids of the requests that are in batches, by the key of the scope of the row."""
        self.stopped: set[str] = set()
        """Keys of the scopes of rows that had begun when a budget ended the run, or when it was paused."""
        self._kept: dict[int, Fact] = {}
        self._rows: dict[Key, str] = {}
        """The rows that these facts are of, by what a fact is about: not every end names its place."""
        self._last: tuple[int, Fact] | None = None

    def read(self, position: int, fact: Fact) -> None:
        """Take in the next fact."""
        self._last = position, fact
        match fact:
            case RunStarted() | RunResumed():
                self._kept[position] = fact
                self.machine.handle(fact)
            case QuestionAsked() | AnswerGiven() | WaitStarted() | WaitEnded():
                self._kept[position] = fact  # they do not say of which row they are
            case RowStarted():
                self.begun.setdefault(fact.child, fact)  # its run goes on in each process that asks it
                self.stopped.discard(scope_key(fact.key))
            case RowEnded():
                self.begun.pop(fact.child, None)
                self.machine.handle(fact)
                self.usage.include(fact.usage)
                self.in_children.include(fact.child_usage)
                self.positions[number_of_key(fact.key)] = position
                self.lines.add(fact.number, position, is_failed=fact.failure is not None)
                self.failed = self.failed if fact.failure is None else fact
                for known in self.open.pop(scope_key(fact.key), {}).values():
                    self.spending.read(known)
                    self._rows.pop(known.about, None)
                self.spending.fold()
            case _ if row := row_of(fact.where) or self._rows.get(fact.about, ""):
                self.open.setdefault(row, {})[position] = fact
                self.stopped.discard(row)
                self._rows[fact.about] = row
                if isinstance(fact, RequestInBatch):
                    self.in_batches[row] = fact.id
                elif isinstance(fact, RequestEnded) and fact.id == self.in_batches.get(row):
                    del self.in_batches[row]
            case RunFinished():
                if fact.status == "paused" or fact.reason_code == "budget_exceeded":
                    self.stopped = {*self.open, *(scope_key(each.key) for each in self.begun.values())}
                self.spending.read(fact)
            case _:
                self.spending.read(fact)

    def left_over(self) -> Iterator[tuple[int, int, bool]]:
        """Yield the rows that keep their lines although they have not ended again, by number on record.

        Each comes as its number now, the position of its end in the log, and whether it has failed.
        """
        keys = {position: key for key, position in self.positions.items()}
        for before, position in self.lines.positions():
            if (key := keys.get(abs(position))) is not None:
                number = self.machine.number_of_line(key, before)
                if number is not None:
                    yield number, abs(position), position < 0

    async def answers(self) -> AsyncIterator[RowEnded]:
        """Yield the ends on record that are answers to the question as it is declared now, by number."""
        keys = {position: key for key, position in self.positions.items()}
        numbers = [
            number
            for number, position in self.lines.positions()
            if self.machine.answers(keys.get(position, -1))
        ]
        for start in range(0, len(numbers), PAGE):
            for end in await self.lines.read(numbers[start : start + PAGE]):
                yield end

    def memo(self, run_id: str) -> RowMemo:
        """Return the record for the process that takes the run up."""
        facts = dict(self._kept)
        for known in self.open.values():
            facts |= known
            for fact in known.values():
                self.spending.read(fact)
        if self._last is not None:
            facts[self._last[0]] = self._last[1]
        ordered = dict(sorted(facts.items()))
        return RowMemo(run_id, ordered, self)


class RowMemo(Memo):
    """The record of a run of rows, of which only what has not ended is in memory."""

    def __init__(self, run_id: str, facts: Mapping[int, Fact], record: RowsOnRecord) -> None:
        """Read facts by their positions in the log."""
        super().__init__(run_id, [*facts.values()], [*facts])
        self.record = record


class LinesInMemory:
    """The ends of rows that no store keeps."""

    def __init__(self) -> None:
        self._ends: dict[int, RowEnded] = {}

    def add(self, end: RowEnded) -> None:
        """Keep the end of a row."""
        self._ends[end.number] = end

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the rows that have ended, in order."""
        return sorted(self._ends)

    async def read(self, numbers: Sequence[int]) -> list[RowEnded]:
        """Return the ends of some rows."""
        return [self._ends[number] for number in numbers]


class LinesInStore:
    """The ends of rows in the log of their run: eight bytes are kept for each."""

    def __init__(self, store: RunStore, header: RunHeader, codec: PayloadCodec | None) -> None:
        self._store, self._header, self._codec = store, header, codec
        self._positions = array("q")
        """Position in the log by number, negative if the row has failed; 0 for a row without an end."""
        self.failed = 0
        """Rows that have failed."""

    def add(self, number: int, position: int, *, is_failed: bool = False) -> None:
        """Note where the end of a row is."""
        if number >= len(self._positions):
            self._positions.extend([0] * (number + 1 - len(self._positions)))
        self.failed += is_failed - (self._positions[number] < 0)
        self._positions[number] = -position if is_failed else position

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the rows that have ended, in order."""
        return [number for number, _ in self.positions()]

    def positions(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each row that has ended, and the position of its end, negative if it failed."""
        return ((number, position) for number, position in enumerate(self._positions) if position)

    def __len__(self) -> int:
        return len(self._positions) - self._positions.count(0)

    async def read(self, numbers: Sequence[int]) -> list[RowEnded]:
        """Return the ends of some rows. Raises as `read_log`."""
        wanted = {abs(self._positions[number]): number for number in numbers}
        found: dict[int, RowEnded] = {}
        for span in _spans(sorted(wanted)):
            after = span[0] - 1
            values, _ = await read_page(
                self._store, log_key(self._header), after=after, limit=span[-1] - after
            )
            for position in span:
                fact = entry_in_store(self._header.run_id, position, values[position - after - 1])
                fact = unseal_one(
                    self._header.run_id, position, fact, lambda one: unseal_entry(one, self._codec)
                )
                assert isinstance(fact, RowEnded)
                number = wanted[position]
                fact.number = number
                found[number] = fact
        return [found[number] for number in numbers]


Lines: TypeAlias = LinesInMemory | LinesInStore
"""The ends of the rows of a run, by number."""


def _spans(positions: Iterable[int]) -> list[list[int]]:
    """Return positions in groups, each of which is read at once."""
    spans: list[list[int]] = []
    for position in positions:
        if spans and position - spans[-1][0] < PAGE:
            spans[-1].append(position)
        else:
            spans.append([position])
    return spans
