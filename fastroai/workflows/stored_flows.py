"""Flows between calls: read from a log, told to a machine, put on record with new facts.

Nothing holds a flow between two calls. The states of the last flows are kept, so that the next call reads
only the new facts of the log: its cost does not grow with the history of the run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import time
from typing import Final, TypeVar, cast

from pydantic import JsonValue

from fastroai.errors import RevisionConflict, RunConflict
from fastroai.records import Usage
from fastroai.runs.openings import RunKeeper
from fastroai.runs.running.replay import replay_log
from fastroai.runtime import classify
from fastroai.runtime.fact_base import Fact, PlanFact
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, RunFinished, RunResumed, RunStarted
from fastroai.runtime.labels import Labels
from fastroai.steps.durability import failure_facts
from fastroai.store.reading.run_quality import QualityOnRecord
from fastroai.store.reading.run_spending import SpendingOnRecord
from fastroai.store.record.entries import RunHeader, locate
from fastroai.store.record.entry_sizes import entry_for
from fastroai.store.record.headers import (
    FoundHeader,
    log_key,
    read_header,
    read_log_from,
    spending_of,
    totals_of,
)
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import seal_text
from fastroai.store.record.runs import append_own, begin_record, change_header, halted_no_longer, new_header
from fastroai.store.record.unsealing import entries_to_go_on, seal_payloads
from fastroai.store.run_store import largest_value
from fastroai.workflows.definition import width_in
from fastroai.workflows.loading import Loaded, Specs
from fastroai.workflows.replay import WorkflowReplay

PlanFactT = TypeVar("PlanFactT", bound=PlanFact)

_TRIES: Final = 10
MOST_KEPT: Final = 64
"""Number of flows whose states are kept between calls."""


class StoredFlow:
    """A flow as one call sees it: the facts of its log, and the facts that the call adds."""

    def __init__(
        self,
        recorded: Memo,
        found: FoundHeader | None,
        loaded: Loaded,
        keeper: RunKeeper,
        clock: Callable[[], float],
    ) -> None:
        """Replay the log of a run in a new state machine.

        `found` is its header, `None` if new. `clock` gives Unix time.

        Raises:
            RunCorrupt: the log cannot be replayed.
        """
        self.recorded, self.found, self.clock = recorded, found, clock
        self.plan, self.checks, self._codec = loaded.plan, loaded.checks, keeper.codec
        inputs = keeper.restored(recorded.opened.run_id, recorded.inputs)
        self.replay = WorkflowReplay(
            loaded.plan,
            cast("Mapping[str, JsonValue]", inputs),
            recorded.opened.part,
            codec=keeper.codec,
            width=width_in(recorded.definition),
            fits=loaded.checks.fits,
        )
        replay_log(self.replay, recorded, "")
        if recorded.ended is not None:
            self.replay.finish = recorded.ended  # the machine is not told of time limits
        self.revision = 0 if found is None else len(recorded.entries)
        """Number of entries that the store has."""
        self.decided: list[Fact] = []
        """Decisions that the call has added."""
        self._parts = {"": recorded.opened.part}
        self._asked: dict[str, int] = {}
        """Position in the log at which each question was last asked, by question id."""
        for position, entry in enumerate(recorded.entries, 1):
            self._note(position, entry)

    @property
    def new(self) -> Sequence[Fact]:
        """The entries that the store does not have yet."""
        return self.recorded.entries[self.revision :]

    @property
    def finish(self) -> RunFinished | None:
        """The fact that says how the run ended, or why it is paused; `None` while something is due."""
        return self.replay.finish

    @property
    def goes_on(self) -> bool:
        """Whether a call takes the run up: a person has answered, or the process that ran it has died."""
        ended, found = self.recorded.ended, self.found
        is_paused = ended is not None and ended.status == "paused"
        is_answered = is_paused and isinstance(self.recorded.entries[-1], AnswerGiven)
        return is_answered or (found is not None and found.is_interrupted)

    @property
    def questions(self) -> tuple[int, ...]:
        """Positions in the log of the questions that wait for an answer."""
        return tuple(self._asked[wait.id] for wait in self.replay.machine.waits if wait.what == "question")

    def add(self, fact: PlanFact) -> None:
        """Tell the machine a fact. It goes on record with the call, and so do the decisions that follow."""
        self._tell(seal_payloads(fact, self._codec))
        self.decide()

    def decide(self) -> None:
        """Add the decisions of the machine, except the end of the run, which later facts may undo."""
        while pending := [*self.replay.pending.values()]:
            self.decided += [self._tell(decision) for decision in pending]

    def end(self) -> None:
        """Add the end of the run, if the machine has decided one that is not on record."""
        finish = self.finish
        if finish is not None and finish is not self.recorded.ended:
            self.replay.finish = ended = _with_failure(self._dated(finish))
            self.decided.append(ended)
            self._append(ended)

    def resumed(self, entry: RunResumed) -> None:
        """Add that the run is taken up."""
        self._append(entry)
        self.replay.resumed(entry)

    def _tell(self, fact: PlanFact) -> PlanFact:
        entry = self._dated(fact)
        self._append(entry)
        self.replay.read(len(self.recorded.entries), entry)
        return entry

    def _dated(self, fact: PlanFactT) -> PlanFactT:
        return replace(fact, part=self.recorded.opened.part, timestamp=self.clock())

    def _append(self, entry: Fact) -> None:
        self.recorded.add([entry])
        self._note(len(self.recorded.entries), entry)

    def _note(self, position: int, entry: Fact) -> None:
        if isinstance(entry, QuestionAsked):
            self._asked[entry.id] = position

    def take_in(self, entries: Sequence[Fact]) -> None:
        """Take in new entries of the log."""
        locate(entries, self._parts)
        for entry in entries:
            if isinstance(entry, RunResumed):
                self.resumed(entry)
                continue
            self._append(entry)
            if isinstance(entry, PlanFact) and entry.part == self.recorded.opened.part:
                self.replay.read(len(self.recorded.entries), entry)
        if self.recorded.ended is not None:
            self.replay.finish = self.recorded.ended  # the machine is not told of time limits
        self.revision = len(self.recorded.entries)


class StoredFlows:
    """The flows of a store: opened, resumed and saved for one call each."""

    def __init__(self, keeper: RunKeeper, specs: Specs, clock: Callable[[], float] = time) -> None:
        """Use the store and the codec of `keeper`. `clock` gives the seconds since 1970."""
        self.keeper, self._specs, self._clock = keeper, specs, clock
        self._kept: OrderedDict[str, StoredFlow] = OrderedDict()

    def begun(self, opened: RunStarted) -> StoredFlow:
        """Return a new run, which is not on record yet."""
        recorded = Memo(opened.run_id, [opened])
        flow = self._flow(recorded, None)
        flow.decide()
        return flow

    async def put_on_record(self, flow: StoredFlow, labels: Labels) -> None:
        """Put a new run on record, as a whole or not at all. Raises `RunExists`."""
        flow.end()
        store, questions = self.keeper.store, flow.questions
        header, _ = await new_header(replace(self.keeper, labels=labels), flow.recorded.opened)
        header = replace(header, questions=questions)
        await begin_record(self.keeper, header, flow.recorded.entries)
        flow.revision = len(flow.recorded.entries)
        if flow.recorded.ended is not None:
            await self.write_header(flow, await read_header(store, header.run_id))

    @asynccontextmanager
    async def opened(self, run_id: str, *, running_too: bool = False) -> AsyncIterator[StoredFlow]:
        """Open a run for one call, in the state of its log. The state is kept unless the call fails midway.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process has the run, unless `running_too`.
            RunCorrupt: the record of the run cannot be read.
        """
        found = await read_header(self.keeper.store, run_id)
        if not running_too:
            found.check_not_running()
        flow = await self._current(found)
        try:
            yield flow
        finally:
            if not flow.new:
                flow.decided.clear()
                self._kept[run_id] = flow
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)

    async def _current(self, found: FoundHeader) -> StoredFlow:
        run_id, keeper = found.header.run_id, self.keeper
        flow = self._kept.pop(run_id, None)  # two calls at once do not share it
        if flow is not None and flow.found is not None and flow.found.header.epoch == found.header.epoch:
            first = flow.revision + 1
            added = await read_log_from(keeper.store, found.header, first)
            flow.found = found
            flow.take_in(entries_to_go_on(run_id, added.values(), keeper.codec, first=first))
            return flow
        recorded, found = await keeper.read(run_id, running_too=True)
        return self._flow(recorded, found)

    def _flow(self, recorded: Memo, found: FoundHeader | None) -> StoredFlow:
        return StoredFlow(recorded, found, self._specs.of_run(recorded), self.keeper, self._clock)

    def resume(self, flow: StoredFlow) -> None:
        """Take a run up that has ended or is paused."""
        flow.resumed(RunResumed(part=flow.recorded.opened.part, timestamp=self._clock()))
        flow.decide()

    async def save(self, flow: StoredFlow) -> None:
        """Put the facts that a call has added on record, as a whole or not at all.

        Raises:
            RunConflict: the run has gone on since it was read.
            ValueNotStorable: a value is larger than the store takes.
        """
        flow.end()
        found, store, run_id = flow.found, self.keeper.store, flow.recorded.opened.run_id
        assert found is not None
        if not flow.new:
            return
        largest, codec = largest_value(store), self.keeper.codec
        stored = [entry_for(largest, fact, codec) for fact in flow.new]
        announced = await self._announced(found, flow.questions)
        try:
            await append_own(store, log_key(found.header), stored, flow.revision)
        except RevisionConflict:
            if announced is not found:
                await self._settle_header(run_id)
            raise RunConflict(run_id, flow.revision) from None
        flow.revision = len(flow.recorded.entries)
        await self.write_header(flow, announced)

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

    async def see_header(self, flow: StoredFlow) -> None:
        """Bring the header up to date if a driver or process died before it could do so.

        If the process of the run died while it ran, the header stays as it is until somebody resumes the run.
        """
        found = flow.found
        assert found is not None
        held, header = found.header, self._header(flow, found)
        if held.status != header.status or (held.owner is None and held.questions != header.questions):
            await self.write_header(flow, found)

    async def write_header(self, flow: StoredFlow, found: FoundHeader) -> None:
        """Bring the header up to date. If this fails, the next look at the run repairs it from the log."""
        header = self._header(flow, found)
        try:
            await change_header(self.keeper.store, found, header)
        except RevisionConflict:
            await self._settle_header(header.run_id)
        else:
            flow.found = replace(found, header=header, revision=found.revision + 1)

    async def _settle_header(self, run_id: str) -> None:
        """Write the header from the log again, after another driver has changed it at the same time."""
        for _ in range(_TRIES):
            recorded, found = await self.keeper.read(run_id, running_too=True)
            if found.header.owner is not None:
                return  # a process has taken the run up
            flow = self._flow(recorded, found)
            with suppress(RevisionConflict):
                await change_header(self.keeper.store, found, self._header(flow, found))
                return

    def _header(self, flow: StoredFlow, found: FoundHeader) -> RunHeader:
        ended = flow.recorded.ended
        why = None if ended is None else ended.failure
        is_paused = ended is not None and ended.status == "paused"
        header = replace(
            found.header if is_paused else halted_no_longer(found.header),
            status="running" if ended is None else ended.status,
            owner=None,
            lease_until=None,
            error=None if why is None else f"{why.error_type}: {seal_text(why.message, self.keeper.codec)}",
            questions=flow.questions if ended is None or is_paused else (),
            log_revision=flow.revision,
            updated_at=found.now,
        )
        if ended is None:
            return header
        facts = flow.recorded.entries
        spending = SpendingOnRecord(facts)
        header = replace(header, **spending_of(Usage.of(spending.records)))
        if is_paused:
            return header
        return replace(header, **totals_of(header, ended, spending, QualityOnRecord(facts)))


def _with_failure(fact: RunFinished) -> RunFinished:
    """Return the end of a run with its error in the form that the log stores."""
    if fact.failure is None and fact.raised is not None:
        return replace(fact, failure=failure_facts(fact.raised, classify(fact.raised)))
    return fact
