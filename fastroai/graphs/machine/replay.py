"""A run of a graph as its log has it: the state machine, taken to where the log ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from pydantic import JsonValue

from fastroai.errors import ContractViolation, RunCorrupt
from fastroai.graphs.conversation.threads import Threads
from fastroai.graphs.machine.events import Forked, Interrupted, Joined, Visit, decision_name, visit_place
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.work import decision_from_json
from fastroai.places import split_attempt, step_name
from fastroai.runs.machine import Cancel, Changed, Decided, Told, Unit, unit_of
from fastroai.runs.units import Past
from fastroai.runtime.facts import (
    AnswerGiven,
    BranchTimedOut,
    EdgesResolved,
    MessagesAdded,
    Part,
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
    StopRequested,
    ValueWritten,
)
from fastroai.steps.durability import stored_output, stored_value
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import GraphEntry, RecordedRun

Outcome: TypeAlias = StepFinished | StepFailed | StepCancelled | QuestionAsked | AnswerGiven
"""What ends a visit, or the wait for an answer."""

F = TypeVar("F", StepFailed, BranchTimedOut)


class Replay:
    """The state of a run when its log ends, and what is to be run then."""

    def __init__(
        self,
        setup: GraphSetup,
        inputs: Mapping[str, object],
        part: Part,
        known: Mapping[Visit, bool] | None = None,
    ) -> None:
        """At the beginning; `known` is whether visits on record were skipped."""
        self.setup, self.part = setup, part
        self.machine = GraphMachine(setup.plan, part, known=known)
        self.threads = Threads(setup.conversation, setup.goal)
        self.starts: dict[Unit, StepStarted] = {}
        """What has started and is not over."""
        self.cancelled: set[Unit] = set()
        """What was cancelled since it last started."""
        self.past: list[Past] = []
        self.joined: set[str] = set()
        """The forks whose branches have come together."""
        self.decided: list[Decided] = []
        """Everything that was decided, in order."""
        self.untold: list[Decided] = []
        """What was decided, and is not on record: after an answer that came with the resumption."""
        self.finish: RunFinished | None = None
        self.tell(RunStarted(inputs=inputs, part=part))

    def tell(self, fact: Told | Interrupted) -> None:
        """Let the machine take in what happened."""
        self.finish = None
        for decision in self.machine.handle(fact):
            match decision:
                case StepStarted():
                    self.starts[unit_of(decision)] = decision
                    self.cancelled.discard(unit_of(decision))
                    self.decided.append(decision)
                case StepSkipped() | EdgesResolved():
                    self.decided.append(decision)
                case Changed(Forked(fork)):
                    self.threads.fork(fork)
                case Changed(Joined(fork)):
                    self.threads.join(fork)
                    self.joined.add(fork.identity)
                case RunFinished():
                    self.finish = decision
                case Cancel(units):
                    self.cancelled.update(units)
                case _:
                    pass

    def over(self, fact: Outcome) -> None:
        """A visit, or a decision, is over."""
        self.starts.pop(unit_of(fact), None)
        self.tell(fact)

    def take_up(self) -> None:
        """The log ends here: go on with what has started and is not over."""
        if self.machine.stopped is None and self.finish is None:
            # The machine starts visits again; decisions are just made.
            self.starts = {
                unit: start
                for unit, start in self.starts.items()
                if self.machine.decided_after(start) is not None
            }
            self.tell(RunResumed(part=self.part))


def replayed(
    setup: GraphSetup,
    inputs: Mapping[str, object],
    recorded: RecordedRun,
    part: Part,
    codec: PayloadCodec | None,
    *,
    forgiving: bool,
) -> Replay:
    """The state of a graph of the run, as the log has it.

    Failures that a run has ended of are tried again when it is resumed, and what was cancelled for them goes
    on: so those do not count.

    Raises:
        RunCorrupt: the log is not that of such a graph; passed over, if `forgiving`.
    """
    place = part.place
    known = _known(recorded, place)
    dropped: set[int] = set()
    while True:
        reader = LogReader(Replay(setup, inputs, part, known), recorded, codec, forgiving)
        lost = reader.read_all(place, dropped)
        if lost is None:
            reader.replay.take_up()
            reader.replay.untold = _untold(reader.replay, recorded, place)
            return reader.replay
        dropped |= lost


def _known(recorded: RecordedRun, place: str) -> dict[Visit, bool]:
    """The visits that a graph came to, and whether they were skipped."""
    return {
        Visit(*unit_of(entry)): isinstance(entry, StepSkipped)
        for _, entry in recorded.of_graph(place)
        if isinstance(entry, StepStarted | StepSkipped)
    }


def _untold(replay: Replay, recorded: RecordedRun, place: str) -> list[Decided]:
    """Decisions that the log has not."""
    told = {
        unit_of(entry)
        for _, entry in recorded.of_graph(place)
        if isinstance(entry, EdgesResolved | StepSkipped)
    }
    return [
        decision
        for decision in replay.decided
        if isinstance(decision, EdgesResolved | StepSkipped) and unit_of(decision) not in told
    ]


class LogReader:
    """Turns the entries of a graph into events."""

    def __init__(
        self, replay: Replay, recorded: RecordedRun, codec: PayloadCodec | None, forgiving: bool
    ) -> None:
        self.replay, self._recorded, self._codec, self._forgiving = replay, recorded, codec, forgiving
        self._setup = replay.setup
        self.position = 0
        self._prefix = ""
        """Of the places of visits."""
        self._failures: list[BaseException] = []
        self._lost: list[tuple[int, str]] = []
        """Positions of what made branches fail, and of what was cancelled, with the branch."""
        self._is_stopping = False
        """Whether something outside of the graph has stopped it: what is cancelled for that goes on."""
        self._written: dict[str, tuple[int | None, dict[str, object]]] = {}
        """By visit: what an attempt wrote, and which one."""
        self._messages: dict[str, JsonValue] = {}

    def read_all(self, place: str, dropped: Collection[int], *, goes_on: bool = True) -> set[int] | None:
        """Read what the log says of a graph; what must be dropped, if the run was resumed after a failure.

        `goes_on`: it is resumed now, at the end of the log.
        """
        self._prefix = f"{place}/" if place else ""
        resumed = deque(self._recorded.resumed_at)
        for position, entry in self._recorded.of_graph(place):
            while resumed and resumed[0] < position:
                resumed.popleft()
                self._is_stopping = False
                if (lost := self._resume()) is not None:
                    return lost
            if position not in dropped:
                self.position = position
                self.read(entry)
        return self._resume() if goes_on else None

    def _resume(self) -> set[int] | None:
        """Nothing runs any more: whatever was cancelled has ended. What a failed run is to try again."""
        machine = self.replay.machine
        while machine.stopped is None and (unwanted := machine.unwanted):
            for visit in unwanted:
                _, written = self._written.pop(f"{self._prefix}{visit_place(visit)}", (None, {}))
                name = visit.node if machine.awaits(visit) == "outcome" else decision_name(visit.node)
                self.replay.over(StepCancelled(name, "", visit=visit.number, written=written))
        self._keep_partial_work()
        if machine.stopped is None or not any(one is machine.stopped.error for one in self._failures):
            return None
        joined = tuple(f"{fork}/" for fork in self.replay.joined)
        return {position for position, branch in self._lost if not branch.startswith(joined)}

    def _keep_partial_work(self) -> None:
        """What visits wrote that had not ended is in memory, as it was when their process told of it."""
        for place, (_, written) in self._written.items():
            visit = visit_of(place)
            if self.replay.machine.awaits(visit) == "outcome":
                self.replay.tell(Interrupted(visit, written))
        self._written.clear()

    def read(self, entry: GraphEntry) -> None:
        """Take in one entry. Raises `RunCorrupt` if it cannot be what the graph would have done."""
        match entry:
            case StepStarted():  # what an interrupted attempt said is not in the conversation of the next one
                self._messages.pop(entry.place, None)
            case ValueWritten():
                self._read_written(entry)
            case MessagesAdded():
                self._messages[split_attempt(entry.place)[0]] = entry.messages
            case BranchTimedOut():
                self.replay.tell(self._raised(entry))
                self._lost.append((self.position, entry.branch))
            case StepSkipped() | EdgesResolved() | PauseRequested():
                pass  # decided again, and asked once
            case StopRequested() | StepFailed(budget="outer"):
                self._is_stopping = True  # which was no failure of its own
            case StepCancelled() if self._is_stopping:
                pass
            case _:
                self._read_outcome(entry)

    def _read_written(self, entry: ValueWritten) -> None:
        place, attempt = split_attempt(entry.place)
        known = self._written.get(place)
        values = {} if known is None or known[0] != attempt else known[1]
        values[entry.key] = self._value(entry.value, None)
        self._written[place] = attempt, values

    def _read_outcome(self, entry: Outcome) -> None:
        machine = self.replay.machine
        visit, is_decision = self.located(entry)
        branch = machine.branch_of(visit)
        due = "decision" if is_decision else "answer" if isinstance(entry, AnswerGiven) else "outcome"
        if branch is None or machine.awaits(visit) != due:
            if self._forgiving:
                return
            raise self._corrupt(f"the graph would not have come to {entry.place!r} there")
        fact = self._live_decision(entry) if is_decision else self._live(entry, visit)
        error = fact.error if isinstance(fact, StepFailed) else None
        if not isinstance(entry, AnswerGiven):
            self.replay.past.append(
                Past(
                    self.replay.starts[unit_of(entry)],
                    entry.timestamp,
                    0.0 if isinstance(entry, StepCancelled) else entry.duration_ms,
                    error,
                    isinstance(entry, StepFinished) and entry.degraded,
                )
            )
        if not is_decision and not isinstance(fact, StepCancelled):
            stored = self._messages.pop(entry.place, None)
            phase = None if stored is None else self.replay.threads.phase_from_json(self._value(stored, None))
            self.replay.threads.add(branch, visit, fact.written, error, phase)
        self.replay.over(fact)
        is_over = branch.state in ("failed", "cancelled") or machine.stopped is not None
        if is_over and isinstance(fact, StepFailed | StepCancelled):
            self._lost.append((self.position, branch.identity))

    def located(self, entry: StepFact) -> tuple[Visit, bool]:
        """The visit that an entry is of, and whether it is of the decision after it."""
        decided = self.replay.machine.decided_after(entry)
        return (Visit(*unit_of(entry)), False) if decided is None else (decided, True)

    def _live_decision(self, entry: Outcome) -> StepFinished | StepCancelled:
        if not isinstance(entry, StepFinished):
            return StepCancelled(entry.step_id, "", visit=entry.visit)
        try:
            return replace(entry, output=decision_from_json(self._value(entry.output, None)))
        except ValueError as error:
            raise self._corrupt(str(error)) from error

    def _live(self, entry: Outcome, visit: Visit) -> Outcome:
        """An entry with its values as they were."""
        if isinstance(entry, AnswerGiven):
            answer = self._value(entry.answer, self._setup.answers.get(visit.node))
            return replace(entry, answer=answer, written=self._writes(visit, answer, {}))
        attempt, written = self._written.pop(entry.place, (None, {}))
        if isinstance(entry, StepCancelled):
            return replace(entry, written=written)
        if isinstance(entry, StepFailed):
            return replace(self._raised(entry), written=written)
        if attempt != entry.attempt:
            written = {}  # it succeeded without what an attempt before had written
        declared = self._setup.declared.get(visit.node)
        if isinstance(entry, QuestionAsked):
            return replace(entry, question=self._value(entry.question, declared), written=written)
        output = stored_output(self._recorded, entry, declared, self._codec)
        return replace(entry, output=output, written=self._writes(visit, output, written))

    def _raised(self, entry: F) -> F:
        """A failure with an exception, which tells it from others."""
        error = entry.failure.as_error()
        self._failures.append(error)
        return replace(entry, raised=error)

    def _writes(self, visit: Visit, output: object, written: Mapping[str, object]) -> dict[str, object]:
        try:
            return writes_of(visit.node, output, self._setup.writes(visit.node), written)
        except ContractViolation as error:
            raise self._corrupt(f"what node {visit.node!r} gave is not what it declares: {error}") from error

    def _value(self, stored: JsonValue, declared: object) -> Any:
        try:
            return stored_value(stored, declared, self._codec)
        except ValueError as error:
            raise self._corrupt(f"it is not of the type that is declared: {error}") from error

    def _corrupt(self, reason: str) -> RunCorrupt:
        return RunCorrupt(self._recorded.opened.run_id, self.position, reason)


def visit_of(place: str) -> Visit:
    """The visit at a place, which may be a decision."""
    _, _, number = place.rpartition("/")[2].rpartition("#")
    return Visit(
        step_name(place), int(number) if number.isdecimal() and "#" in place.rpartition("/")[2] else 1
    )
