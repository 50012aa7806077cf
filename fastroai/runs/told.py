"""Runs that are driven call by call: read from a log, told to a machine, put on record with new facts.

Nothing holds a run between two calls. The states of the last runs are kept, so that the next call reads only
the new facts of the log: its cost does not grow with the history of the run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import time
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from fastroai.errors import RevisionConflict, RunConflict
from fastroai.runs.openings import RunKeeper
from fastroai.runs.replay import Replay
from fastroai.runtime import classify
from fastroai.runtime.facts import (
    Fact,
    PlanFact,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    Wait,
)
from fastroai.runtime.labels import Labels
from fastroai.steps.durability import failure_facts
from fastroai.store.entries import RunHeader, locate
from fastroai.store.entry_sizes import entry_for
from fastroai.store.headers import FoundHeader, log_key, read_header, read_log_from
from fastroai.store.memo import Memo
from fastroai.store.payloads import seal_text
from fastroai.store.run_store import largest_value
from fastroai.store.runs import append_own, begin_record, change_header, halted_no_longer, new_header
from fastroai.store.unsealing import entries_to_go_on

_TRIES: Final = 10
MOST_KEPT: Final = 64
"""Number of runs whose states are kept between calls."""


class ToldState(Protocol):
    """The state of a run whose log was told to a new state machine."""

    @property
    def replay(self) -> Replay:
        """The machine, with its decisions and the units that are due."""
        ...

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The waits of the run, if it is paused."""
        ...


T = TypeVar("T", bound=ToldState)

Rebuild: TypeAlias = Callable[[Memo, RunKeeper], T]
"""Function that builds the state of a run from its log."""


class ToldRun(Generic[T]):
    """A run as one call sees it: the facts of its log, and the facts that the call adds."""

    def __init__(
        self, recorded: Memo, found: FoundHeader | None, driven: T, clock: Callable[[], float] = time
    ) -> None:
        """Make a run from its log. `found` is its header, `None` if new. `clock` gives Unix time."""
        self.recorded, self.found, self.driven, self.clock = recorded, found, driven, clock
        self.revision = 0 if found is None else len(recorded.entries)
        """Number of entries that the store has."""
        self.decided: list[Fact] = []
        """Decisions that the call has added."""
        self._parts = {"": recorded.opened.part}
        self._asked: dict[str, int] = {}
        """Position in the log at which each question was last asked, by question id."""
        self._note(1, recorded.entries)

    @property
    def new(self) -> Sequence[Fact]:
        """The entries that the store does not have yet."""
        return self.recorded.entries[self.revision :]

    @property
    def finish(self) -> RunFinished | None:
        """The fact that says how the run ended, or why it is paused; `None` while something is due."""
        return self.driven.replay.finish

    @property
    def questions(self) -> tuple[int, ...]:
        """Positions in the log of the questions that wait for an answer."""
        return tuple(self._asked[one.id] for one in self.driven.waits if one.what == "question")

    def add(self, entries: Iterable[PlanFact]) -> None:
        """Add facts, in the form that the log stores, and the decisions that follow from them."""
        replay, part = self.driven.replay, self.recorded.opened.part
        for one in entries:
            entry = replace(one, part=part, timestamp=self.clock())
            self._append([entry])
            replay.read(len(self.recorded.entries), entry)
        self.decide()

    def decide(self) -> None:
        """Add the decisions of the machine, except the end of the run, which later facts may undo."""
        replay, part, at = self.driven.replay, self.recorded.opened.part, self.clock()
        while pending := [*replay.pending.values()]:
            for one in pending:
                entry = replace(one, part=part, timestamp=at)
                self.decided.append(entry)
                self._append([entry])
                replay.read(len(self.recorded.entries), entry)

    def end(self) -> None:
        """Add the end of the run, if the machine has decided one that is not on record."""
        finish = self.finish
        if finish is not None and finish is not self.recorded.ended:
            part, at = self.recorded.opened.part, self.clock()
            ended = _with_failure(replace(finish, part=part, timestamp=at))
            self.decided.append(ended)
            self._append([ended])
            self.driven.replay.finish = ended

    def resumed(self, entry: RunResumed) -> None:
        """Add that the run is taken up."""
        self._append([entry])
        self.driven.replay.resumed(entry)

    def _append(self, entries: Sequence[Fact]) -> None:
        first = len(self.recorded.entries) + 1
        self.recorded.add(entries)
        self._note(first, entries)

    def _note(self, first: int, entries: Sequence[Fact]) -> None:
        for position, entry in enumerate(entries, first):
            if isinstance(entry, QuestionAsked):
                self._asked[entry.id] = position

    def take_in(self, entries: Sequence[Fact]) -> None:
        """Take in new entries of the log."""
        locate(entries, self._parts)
        replay, part = self.driven.replay, self.recorded.opened.part
        for entry in entries:
            if isinstance(entry, RunResumed):
                self.resumed(entry)
                continue
            self._append([entry])
            if isinstance(entry, PlanFact) and entry.part == part:
                replay.read(len(self.recorded.entries), entry)
        if self.recorded.ended is not None:
            replay.finish = self.recorded.ended  # the machine is not told of time limits
        self.revision = len(self.recorded.entries)


class ToldRuns(Generic[T]):
    """The driven runs of a store: opened, resumed and saved for one call each."""

    def __init__(self, keeper: RunKeeper, rebuild: Rebuild[T], clock: Callable[[], float] = time) -> None:
        """Use the store and the codec of `keeper`. `clock` gives the seconds since 1970."""
        self.keeper, self._rebuild, self._clock = keeper, rebuild, clock
        self._kept: OrderedDict[str, ToldRun[T]] = OrderedDict()

    def begun(self, opened: RunStarted) -> ToldRun[T]:
        """Return a new run, which is not on record yet."""
        recorded = Memo(opened.run_id, [opened])
        told = ToldRun(recorded, None, self._told(recorded), self._clock)
        told.decide()
        return told

    async def put_on_record(self, told: ToldRun[T], labels: Labels) -> None:
        """Put a new run on record, as a whole or not at all. Raises `RunExists`."""
        told.end()
        store, questions = self.keeper.store, told.questions
        header, _ = await new_header(store, told.recorded.opened, tags=labels.tags, tenant=labels.tenant)
        header = replace(header, questions=questions)
        await begin_record(store, header, told.recorded.entries, self.keeper.codec)
        told.revision = len(told.recorded.entries)
        if told.recorded.ended is not None:
            await self.write_header(told, await read_header(store, header.run_id))

    @asynccontextmanager
    async def opened(self, run_id: str, *, running_too: bool = False) -> AsyncIterator[ToldRun[T]]:
        """Open a run for one call, in the state of its log. The state is kept unless the call fails midway.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process has the run, unless `running_too`.
            RunCorrupt: the record of the run cannot be read.
        """
        found = await read_header(self.keeper.store, run_id)
        if not running_too:
            found.check_not_running()
        told = await self._current(found)
        try:
            yield told
        finally:
            if not told.new:
                told.decided.clear()
                self._kept[run_id] = told
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)

    async def _current(self, found: FoundHeader) -> ToldRun[T]:
        run_id, keeper = found.header.run_id, self.keeper
        known = self._kept.pop(run_id, None)  # two calls at once do not share it
        if known is not None and known.found is not None and known.found.header.epoch == found.header.epoch:
            first = known.revision + 1
            added = await read_log_from(keeper.store, found.header, first)
            known.found = found
            known.take_in(entries_to_go_on(run_id, added.values(), keeper.codec, first=first))
            return known
        recorded, found = await keeper.read(run_id, running_too=True)
        return ToldRun(recorded, found, self._told(recorded), self._clock)

    def _told(self, recorded: Memo) -> T:
        driven = self._rebuild(recorded, self.keeper)
        if recorded.ended is not None:
            driven.replay.finish = recorded.ended  # the machine is not told of time limits
        return driven

    def resume(self, told: ToldRun[T]) -> None:
        """Take a run up that has ended or is paused."""
        told.resumed(RunResumed(part=told.recorded.opened.part, timestamp=self._clock()))
        told.decide()

    async def save(self, told: ToldRun[T]) -> None:
        """Put the facts that a call has added on record, as a whole or not at all.

        Raises:
            RunConflict: the run has gone on since it was read.
            ValueNotStorable: a value is larger than the store takes.
        """
        told.end()
        found, store, run_id = told.found, self.keeper.store, told.recorded.opened.run_id
        assert found is not None
        if not told.new:
            return
        largest, codec = largest_value(store), self.keeper.codec
        stored = [entry_for(largest, one, codec) for one in told.new]
        announced = await self._announced(found, told.questions)
        try:
            await append_own(store, log_key(found.header), stored, told.revision)
        except RevisionConflict:
            if announced is not found:
                await self._settle_header(run_id)
            raise RunConflict(run_id, told.revision) from None
        told.revision = len(told.recorded.entries)
        await self.write_header(told, announced)

    async def _announced(self, found: FoundHeader, questions: Sequence[int]) -> FoundHeader:
        """Write new questions into the header before the log has them, so that the header never lacks one."""
        owner = found.header.owner
        for _ in range(_TRIES):
            header = found.header
            if header.owner != owner or set(questions) <= set(header.questions):
                break
            header = replace(header, questions=tuple(sorted({*header.questions, *questions})))
            with suppress(RevisionConflict):
                await change_header(self.keeper.store, found, header)
                return replace(found, header=header, revision=found.revision + 1)
            found = await read_header(self.keeper.store, header.run_id)
        return found

    async def see_header(self, told: ToldRun[T]) -> None:
        """Bring the header up to date if a driver or process died before it could do so.

        If the process of the run died while it ran, the header stays as it is until somebody resumes the run.
        """
        found = told.found
        assert found is not None
        held, header = found.header, self._header(told, found)
        if held.status != header.status or (held.owner is None and held.questions != header.questions):
            await self.write_header(told, found)

    async def write_header(self, told: ToldRun[T], found: FoundHeader) -> None:
        """Bring the header up to date. If this fails, the next look at the run repairs it from the log."""
        header = self._header(told, found)
        try:
            await change_header(self.keeper.store, found, header)
        except RevisionConflict:
            await self._settle_header(header.run_id)
        else:
            told.found = replace(found, header=header, revision=found.revision + 1)

    async def _settle_header(self, run_id: str) -> None:
        """Write the header from the log again, after another driver has changed it at the same time."""
        for _ in range(_TRIES):
            recorded, found = await self.keeper.read(run_id, running_too=True)
            if found.header.owner is not None:
                return  # a process has taken the run up
            told = ToldRun(recorded, found, self._told(recorded))
            with suppress(RevisionConflict):
                await change_header(self.keeper.store, found, self._header(told, found))
                return

    def _header(self, told: ToldRun[T], found: FoundHeader) -> RunHeader:
        ended = told.recorded.ended
        why = None if ended is None else ended.failure
        is_paused = ended is not None and ended.status == "paused"
        return replace(
            found.header if is_paused else halted_no_longer(found.header),
            status="running" if ended is None else ended.status,
            owner=None,
            lease_until=None,
            error=None if why is None else f"{why.error_type}: {seal_text(why.message, self.keeper.codec)}",
            questions=told.questions if ended is None or is_paused else (),
            log_revision=told.revision,
            updated_at=found.now,
        )


def _with_failure(fact: RunFinished) -> RunFinished:
    """Return the end of a run with its error in the form that the log stores."""
    if fact.failure is None and fact.raised is not None:
        return replace(fact, failure=failure_facts(fact.raised, classify(fact.raised)))
    return fact
