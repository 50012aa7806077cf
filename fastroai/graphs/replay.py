"""A run of a graph as its log has it: the state machine, taken to where the log ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from pydantic import JsonValue

from fastroai.errors import ContractViolation, RecordedError, RunCorrupt
from fastroai.graphs.entries import decision_from_json
from fastroai.graphs.events import (
    Answered,
    AskDecider,
    BranchTimedOut,
    Cancelled,
    Command,
    Decided,
    Event,
    Failed,
    Finish,
    Forked,
    Interrupted,
    Joined,
    RouteNode,
    SkipNode,
    Started,
    StartNode,
    Succeeded,
    TakenUp,
    Visit,
)
from fastroai.graphs.machine import GraphMachine
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.threads import Threads
from fastroai.graphs.visits import decision_name, visit_place
from fastroai.graphs.writes import writes_of
from fastroai.places import split_attempt, step_name
from fastroai.steps.durability import stored_output, stored_value
from fastroai.store.entries import (
    AnswerGiven,
    BranchFailed,
    EdgesResolved,
    FailureFacts,
    MessagesAdded,
    QuestionAsked,
    StepCancelled,
    StepFailure,
    StepOutput,
    StepSkip,
    StepStart,
    ValueWritten,
)
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import GraphEntry, RecordedRun

Start: TypeAlias = StartNode | AskDecider
"""What is to be run: a node, or the decision after it."""


@dataclass(frozen=True, slots=True)
class PastVisit:
    """A visit, or a decision, that was over in an earlier process."""

    visit: Visit
    is_decision: bool
    branch: str
    ended_at: datetime
    duration_ms: float
    error: BaseException | None = None
    degraded: bool = False


class Replay:
    """The state of a run when its log ends, and what is to be run then."""

    def __init__(
        self, setup: GraphSetup, inputs: Mapping[str, object], known: Mapping[Visit, bool] | None = None
    ) -> None:
        """At the beginning; `known` is whether visits on record were skipped."""
        self.setup = setup
        self.machine = GraphMachine(setup.plan)
        self.threads = Threads(setup.conversation, setup.goal)
        self.starts: dict[tuple[type[Start], Visit], Start] = {}
        """What has started and is not over."""
        self.past: list[PastVisit] = []
        self.joined: set[str] = set()
        """The forks whose branches have come together."""
        self.untold: list[Command] = []
        """What was decided, and is not on record: after an answer that came with the resumption."""
        self.finish: Finish | None = None
        self._handle(Started(inputs, known))

    def _handle(self, event: Event) -> None:
        self.finish = None
        for command in self.machine.handle(event):
            match command:
                case StartNode() | AskDecider():
                    self.starts[type(command), command.visit] = command
                case Forked(fork):
                    self.threads.fork(fork)
                case Joined(fork):
                    self.threads.join(fork)
                    self.joined.add(fork.identity)
                case Finish():
                    self.finish = command
                case _:
                    pass

    def over(self, event: Succeeded | Failed | Cancelled | Decided | Answered) -> None:
        """A visit, or a decision, is over."""
        kind = AskDecider if isinstance(event, Decided) else StartNode
        if isinstance(event, Cancelled) and (StartNode, event.visit) not in self.starts:
            kind = AskDecider
        self.starts.pop((kind, event.visit), None)
        self._handle(event)

    def timed_out(self, event: BranchTimedOut) -> None:
        """A branch took too long."""
        self._handle(event)

    def interrupted(self, visit: Visit, written: Mapping[str, object]) -> None:
        """A process ended while a visit went on."""
        self._handle(Interrupted(visit, written))

    def take_up(self) -> None:
        """The log ends here: go on with what has started and is not over."""
        if self.machine.stopped is None and self.finish is None:
            self.starts = {key: start for key, start in self.starts.items() if isinstance(start, AskDecider)}
            self._handle(TakenUp())


def replayed(
    setup: GraphSetup,
    inputs: Mapping[str, object],
    recorded: RecordedRun,
    place: str,
    codec: PayloadCodec | None,
    *,
    forgiving: bool,
) -> Replay:
    """The state of the graph at a place, as the log has it.

    Failures that a run has ended of are tried again when it is resumed, and what was cancelled for them goes
    on: so those do not count.

    Raises:
        RunCorrupt: the log is not that of such a graph; passed over, if `forgiving`.
    """
    known = _known(recorded, place)
    dropped: set[int] = set()
    while True:
        reader = LogReader(Replay(setup, inputs, known), recorded, codec, forgiving)
        lost = reader.read_all(place, dropped)
        if lost is None:
            reader.replay.take_up()
            reader.replay.untold = _untold(reader.replay, recorded, place)
            return reader.replay
        dropped |= lost


def _known(recorded: RecordedRun, place: str) -> dict[Visit, bool]:
    """The visits that a graph came to, and whether they were skipped."""
    return {
        visit_of(entry.place): isinstance(entry, StepSkip)
        for _, entry in recorded.of_graph(place)
        if isinstance(entry, StepStart | StepSkip)
    }


def _untold(replay: Replay, recorded: RecordedRun, place: str) -> list[Command]:
    """Decisions that the log has not."""
    told = {
        visit_of(entry.place)
        for _, entry in recorded.of_graph(place)
        if isinstance(entry, EdgesResolved | StepSkip)
    }
    return [
        command
        for _, commands in replay.machine.journal
        for command in commands
        if isinstance(command, RouteNode | SkipNode) and command.visit not in told
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
        self._failures: list[RecordedError] = []
        self._lost: list[tuple[int, str]] = []
        """Positions of what made branches fail, and of what was cancelled, with the branch."""
        self._decisions = {decision_name(node): node for node in self._setup.plan.nodes}
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
                self.replay.over(Cancelled(visit, written))
        self._keep_partial_work()
        if machine.stopped is None or not any(one is machine.stopped.error for one in self._failures):
            return None
        joined = tuple(f"{fork}/" for fork in self.replay.joined)
        return {position for position, branch in self._lost if not branch.startswith(joined)}

    def _keep_partial_work(self) -> None:
        """What visits wrote that had not ended is in memory, as it was when their process told of it."""
        for place, (_, written) in self._written.items():
            visit, _ = self.located(place)
            if self.replay.machine.awaits(visit) == "outcome":
                self.replay.interrupted(visit, written)
        self._written.clear()

    def read(self, entry: GraphEntry) -> None:
        """Take in one entry. Raises `RunCorrupt` if it cannot be what the graph would have done."""
        match entry:
            case StepStart():  # what an interrupted attempt said is not in the conversation of the next one
                self._messages.pop(entry.place, None)
            case ValueWritten():
                self._read_written(entry)
            case MessagesAdded():
                self._messages[split_attempt(entry.place)[0]] = entry.messages
            case BranchFailed():
                self.replay.timed_out(BranchTimedOut(entry.branch, self._error(entry.failure)))
                self._lost.append((self.position, entry.branch))
            case StepSkip() | EdgesResolved():
                pass  # decided again
            case StepFailure(stopped=True):
                pass  # what stopped it was no failure of its own
            case _:
                self._read_outcome(entry)

    def _read_written(self, entry: ValueWritten) -> None:
        place, attempt = split_attempt(entry.place)
        known = self._written.get(place)
        values = {} if known is None or known[0] != attempt else known[1]
        values[entry.key] = self._value(entry.value, None)
        self._written[place] = attempt, values

    def _read_outcome(
        self, entry: StepOutput | StepFailure | StepCancelled | QuestionAsked | AnswerGiven
    ) -> None:
        visit, is_decision = self.located(entry.place)
        branch = self.replay.machine.branch_of(visit)
        due = "decision" if is_decision else "answer" if isinstance(entry, AnswerGiven) else "outcome"
        if branch is None or self.replay.machine.awaits(visit) != due:
            if self._forgiving:
                return
            raise self._corrupt(f"the graph would not have come to {entry.place!r} there")
        event = self._decided(entry, visit) if is_decision else self._event(entry, visit)
        duration_ms = 0.0 if isinstance(entry, StepCancelled | AnswerGiven) else entry.duration_ms
        error = event.error if isinstance(event, Failed) else None
        if not isinstance(entry, AnswerGiven):
            degraded = isinstance(entry, StepOutput) and entry.degraded
            past = PastVisit(visit, is_decision, branch.identity, entry.at, duration_ms, error, degraded)
            self.replay.past.append(past)
        if isinstance(event, Succeeded | Answered | Failed):
            stored = self._messages.pop(entry.place, None)
            phase = None if stored is None else self.replay.threads.phase_from_json(self._value(stored, None))
            self.replay.threads.add(branch, visit, event.written, error, phase)
        self.replay.over(event)
        is_over = branch.state in ("failed", "cancelled") or self.replay.machine.stopped is not None
        if is_over and isinstance(event, Failed | Cancelled):
            self._lost.append((self.position, branch.identity))

    def located(self, place: str) -> tuple[Visit, bool]:
        """The visit that a place is of, and whether it is the decision after it."""
        visit = visit_of(place)
        if visit.node in self._decisions and visit.node not in self._setup.nodes:
            return Visit(self._decisions[visit.node], visit.number), True
        return visit, False

    def _decided(
        self, entry: StepOutput | StepFailure | StepCancelled | QuestionAsked | AnswerGiven, visit: Visit
    ) -> Decided | Cancelled:
        if not isinstance(entry, StepOutput):
            return Cancelled(visit)
        try:
            return Decided(visit, decision_from_json(self._value(entry.output, None)))
        except ValueError as error:
            raise self._corrupt(str(error)) from error

    def _event(
        self, entry: StepOutput | StepFailure | StepCancelled | QuestionAsked | AnswerGiven, visit: Visit
    ) -> Succeeded | Failed | Cancelled | Answered:
        if isinstance(entry, AnswerGiven):
            answer = self._value(entry.answer, self._setup.answers.get(visit.node))
            return Answered(visit, answer, self._writes(visit, answer, {}))
        attempt, written = self._written.pop(entry.place, (None, {}))
        match entry:
            case StepCancelled():
                return Cancelled(visit, written)
            case StepFailure():
                return Failed(visit, self._error(entry.failure), written)
        if attempt != entry.attempt:
            written = {}  # it succeeded without what an attempt before had written
        match entry:
            case StepOutput():
                declared = self._setup.declared.get(visit.node)
                output = stored_output(self._recorded, entry, declared, self._codec)
                return Succeeded(visit, output, self._writes(visit, output, written))
            case QuestionAsked():
                question = self._value(entry.question, self._setup.declared.get(visit.node))
                return Succeeded(visit, question, written)

    def _error(self, failure: FailureFacts) -> RecordedError:
        error = RecordedError(failure.error_type, failure.message)
        self._failures.append(error)
        return error

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
