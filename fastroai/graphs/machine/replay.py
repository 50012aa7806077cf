"""A run of a graph as its log has it: what that is to the state machine."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, assert_never, cast

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, ContractViolation, RunCorrupt
from fastroai.graphs.machine.branches import Branch, Forked, Joined
from fastroai.graphs.machine.events import Interrupted, Visit, decision_name, visit_place
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.graphs.work import decision_from_json
from fastroai.places import split_attempt, step_name
from fastroai.runs.decoding import OnRecord, output_on_record, value_of
from fastroai.runs.machine import Changed, unit_of
from fastroai.runs.replay import Replay, divergence_of, other_run, retold
from fastroai.runtime import facts
from fastroai.steps.durability import stored_value
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import PartEntry, RecordedRun, Stretch
from fastroai.store.trace import Divergence, RunTrace
from fastroai.store.unsealing import seal_payloads
from fastroai.store.values import value_from_json

Ended: TypeAlias = (
    facts.StepFinished | facts.StepFailed | facts.StepCancelled | facts.StepHalted | facts.QuestionAsked
)
"""What ends a visit, or the decision after one."""

logger = logging.getLogger("fastroai.graphs")

F = TypeVar("F", facts.StepFailed, facts.BranchTimedOut)


class GraphReplay(Replay):
    """A graph of a run: its machine, its conversations, and what its visits have left."""

    machine: GraphMachine  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        setup: GraphSetup,
        inputs: Mapping[str, object],
        recorded: RecordedRun,
        part: facts.Part,
        codec: PayloadCodec | None,
        *,
        known: Mapping[Visit, bool],
        forgiving: bool = False,
    ) -> None:
        """At the beginning; `known` is whether visits on record were skipped."""
        self._setup, self._recorded, self._codec, self._forgiving = setup, recorded, codec, forgiving
        self.threads = setup.threads()
        self._joined: list[str] = []
        """The forks whose branches have come together."""
        self._position = 0
        self._prefix = f"{part.place}/" if part.place else ""
        """Of the places of visits."""
        self._failures: list[BaseException] = []
        self._lost: list[tuple[int, str]] = []
        """Positions of what made branches fail, and of what was cancelled, with the branch."""
        self._unasked: set[int] = set()
        """Positions of what was cancelled for a limit that does not hold any more."""
        self._written: dict[str, tuple[int | None, dict[str, object]]] = {}
        """By visit: what an attempt wrote, and which one."""
        self._messages: dict[str, JsonValue] = {}
        replaced = [] if part.place else [dict(one.inputs) for one in recorded.resumptions]
        self._replaced = iter(replaced)
        """The inputs that each resumption replaced, as they are on record; none of a nested graph."""
        renewed = {name for one in replaced for name in one}
        kept = {name: value for name, value in inputs.items() if name not in renewed}
        first = {name: value for name, value in recorded.opened.inputs.items() if name in renewed}
        started = facts.RunStarted(inputs={**kept, **self._inputs(first)}, part=part)
        super().__init__(setup.machine(part, known=known), started)

    def follow(self, change: Changed) -> None:
        """Bring the conversations along."""
        match change.what:
            case Forked(fork):
                self.threads.fork(fork)
            case Joined(fork):
                self.threads.join(fork)
                self._joined.append(fork.identity)

    # --- from process to process ---

    def undone(self, stretch: Stretch) -> Collection[int]:
        """See `Replay`: what was asked of a run, and what stopped it from outside of the graph.

        What was cancelled for that goes on.
        """
        undone: set[int] = set()
        is_stopping = False
        for position, entry in stretch:
            is_stop = isinstance(entry, facts.StopRequested) or (
                isinstance(entry, facts.StepFailed) and entry.budget == "outer"
            )
            if (
                is_stop
                or isinstance(entry, facts.PauseRequested)
                or (is_stopping and isinstance(entry, facts.StepCancelled))
            ):
                undone.add(position)
            is_stopping |= is_stop
        return undone

    def resumed(self) -> Collection[int]:
        """See `Replay`: whatever was cancelled has ended, failures are tried again, and questions asked."""
        machine = self.machine
        for visit in machine.wake():
            unit = visit.node, visit.number
            self.due[unit] = self.past.pop(unit).started
        while machine.stopped is None and (unwanted := machine.unwanted):
            for visit in unwanted:
                _, written = self._written.pop(f"{self._prefix}{visit_place(visit)}", (None, {}))
                name = visit.node if machine.awaits(visit) == "outcome" else decision_name(visit.node)
                self.due.pop((name, visit.number), None)
                self.tell(facts.StepCancelled(name, "", visit=visit.number, written=written))
        self._keep_partial_work()
        machine.root.memory.write_all(self._inputs(next(self._replaced, {})), "", machine.events)
        if self._unasked:
            return self._unasked
        if machine.stopped is None or not any(one is machine.stopped.error for one in self._failures):
            return ()
        joined = tuple(f"{fork}/" for fork in self._joined)
        return {position for position, branch in self._lost if not branch.startswith(joined)}

    def _keep_partial_work(self) -> None:
        """What visits wrote that had not ended is in memory, as it was when their process told of it."""
        for place, (_, written) in self._written.items():
            visit = _visit_of(place)
            if self.machine.awaits(visit) == "outcome":
                self.machine.handle(Interrupted(visit, written))
        self._written.clear()

    def go_on(self, stretches: Iterable[Stretch]) -> None:
        """See `Replay`."""
        told = {
            unit_of(entry)
            for stretch in stretches
            for _, entry in stretch
            if isinstance(entry, facts.EdgesResolved | facts.StepSkipped)
        }
        self.decided = [
            one
            for one in self.decided
            if isinstance(one, facts.EdgesResolved | facts.StepSkipped) and unit_of(one) not in told
        ]
        goes_on = self.machine.stopped is None and (self.finish is None or self.finish.status == "paused")
        if goes_on:  # then the machine starts visits again, but not decisions
            self.due = {
                unit: start
                for unit, start in self.due.items()
                if self.machine.decided_after(start) is not None
            }
        self.decided += self.due.values()
        if goes_on:
            self.tell(facts.RunResumed(part=self.machine.part))

    # --- entry by entry ---

    def read(self, position: int, entry: PartEntry) -> None:
        """See `Replay`."""
        self._position = position
        match entry:
            case facts.StepStarted():  # a new attempt knows nothing of what an interrupted one said
                self._messages.pop(entry.place, None)
            case facts.ValueWritten():
                self._read_written(entry)
            case facts.MessagesAdded():
                self._messages[split_attempt(entry.place)[0]] = entry.messages
            case facts.BranchTimedOut():
                self.tell(self._raised(entry))
                self._lost.append((position, entry.branch))
            case facts.PauseRequested() | facts.StopRequested():
                self.tell(entry)
            case facts.QuestionAsked(name=name) | facts.AnswerGiven(name=name) if name:
                pass  # the step asks anew when the run is resumed, and finds the answer
            case facts.StepFinished() | facts.StepFailed() | facts.StepCancelled() | facts.StepHalted():
                self._read_outcome(entry)
            case facts.QuestionAsked() | facts.AnswerGiven():
                self._read_outcome(entry)
            case facts.StepSkipped() | facts.EdgesResolved() | facts.RunFinished():
                pass  # decided here, too
            case facts.SpendingRecorded():
                pass
            case (
                facts.SkipRequested()
                | facts.IterationStarted()
                | facts.IterationReported()
                | facts.IterationAborted()
                | facts.CheckpointSet()
                | facts.CheckpointRestored()
            ):
                raise self._corrupt(f"a graph has no {type(entry).__name__}")
            case _:
                assert_never(entry)

    def _read_written(self, entry: facts.ValueWritten) -> None:
        place, attempt = split_attempt(entry.place)
        known = self._written.get(place)
        values = {} if known is None or known[0] != attempt else known[1]
        read = partial(_decoded, self._recorded, self._position, entry.value, None, self._codec)
        values[entry.key] = OnRecord(read)
        self._written[place] = attempt, values

    def _read_outcome(self, entry: Ended | facts.AnswerGiven) -> None:
        machine = self.machine
        decided = machine.decided_after(entry)
        visit = decided or Visit(*unit_of(entry))
        branch = machine.branch_of(visit)
        due = "decision" if decided else "answer" if isinstance(entry, facts.AnswerGiven) else "outcome"
        if branch is None or machine.awaits(visit) != due:
            if self._forgiving:
                return
            raise self._corrupt(f"the graph would not have come to {entry.place!r} there")
        if isinstance(entry, facts.AnswerGiven):
            try:
                answer = self._value(entry.answer, self._setup.answers.get(visit.node))
                written = self._writes(visit, answer, {})
            except RunCorrupt as wrong:  # the inbox has only the JSON Schema
                logger.warning("node %r still waits: an answer does not fit: %s", visit.node, wrong.reason)
                return
            self._say(branch, visit, entry, written, None)
            self.tell(replace(entry, answer=answer, written=written))
            return
        fact = self._live_decision(entry) if decided else self._live(entry, visit)
        if not decided and not isinstance(fact, facts.StepCancelled | facts.StepHalted):
            error = fact.error if isinstance(fact, facts.StepFailed) else None
            self._say(branch, visit, entry, fact.written, error)
        if (
            isinstance(entry, facts.StepCancelled)
            and machine.stopped is None
            and visit not in machine.cancelled_for
        ):
            self._unasked.add(self._position)
        self.over(entry, fact)
        is_over = branch.state in ("failed", "cancelled") or machine.stopped is not None
        if is_over and isinstance(fact, facts.StepFailed | facts.StepCancelled):
            self._lost.append((self._position, branch.identity))

    def _say(
        self,
        branch: Branch,
        visit: Visit,
        entry: Ended | facts.AnswerGiven,
        written: Mapping[str, object],
        error: BaseException | None,
    ) -> None:
        stored = self._messages.pop(entry.place, None)
        phase = None if stored is None else self.threads.phase_from_json(self._value(stored, None))
        self.threads.add(branch, visit, written, error, phase)

    def _live_decision(self, entry: Ended) -> Ended:
        match entry:
            case facts.StepFinished():
                try:
                    return replace(entry, output=decision_from_json(self._value(entry.output, None)))
                except ValueError as error:
                    raise self._corrupt(str(error)) from error
            case facts.StepFailed():
                return self._raised(entry)
            case facts.StepCancelled() | facts.StepHalted() | facts.QuestionAsked():
                return facts.StepCancelled(entry.step_id, "", visit=entry.visit)
            case _:
                assert_never(entry)

    def _live(self, entry: Ended, visit: Visit) -> Ended:
        """An entry with its values as they were."""
        attempt, written = self._written.pop(entry.place, (None, {}))
        if isinstance(entry, facts.StepCancelled | facts.StepHalted):
            return replace(entry, written=written)
        if isinstance(entry, facts.StepFailed):
            return replace(self._raised(entry), written=written)
        if attempt != entry.attempt:
            written = {}  # it succeeded without what an attempt before had written
        declared = self._setup.declared.get(visit.node)
        if isinstance(entry, facts.QuestionAsked):
            return replace(entry, question=self._value(entry.question, declared), written=written)
        output = OnRecord(partial(output_on_record, self._recorded, entry, declared, self._codec))
        if visit.node in self._setup.plan.sending:  # the way goes on with what it has sent
            sent = output.value
            return replace(entry, output=sent, written=self._writes(visit, sent, written))
        return replace(entry, output=output, written=self._writes_on_record(visit.node, output, written))

    def _writes_on_record(
        self, node: str, output: OnRecord, written: Mapping[str, object]
    ) -> dict[str, object]:
        """What an output puts into memory, decoded when it is read: its names are known before."""
        plan, recorded, position = self._setup.plan, self._recorded, self._position
        names = plan.writes.get(node)
        if names is None:
            return {**written, node: output}
        whole = OnRecord(lambda: _written(plan, recorded, position, node, output.value, written))
        return {**written, **{name: OnRecord(partial(_one_of, whole, name)) for name in names}}

    def _raised(self, entry: F) -> F:
        """A failure with an exception, which tells it from others."""
        error = entry.failure.as_error()
        self._failures.append(error)
        return replace(entry, raised=error)

    def _writes(self, visit: Visit, output: object, written: Mapping[str, object]) -> dict[str, object]:
        return _written(self._setup.plan, self._recorded, self._position, visit.node, output, written)

    def _inputs(self, stored: Mapping[str, JsonValue]) -> dict[str, object]:
        return {name: self._value(value, self._setup.input_types.get(name)) for name, value in stored.items()}

    def _value(self, stored: JsonValue, declared: object) -> Any:
        return _decoded(self._recorded, self._position, stored, declared, self._codec)

    def _corrupt(self, reason: str) -> RunCorrupt:
        return RunCorrupt(self._recorded.opened.run_id, self._position, reason)


def _decoded(
    recorded: RecordedRun, position: int, stored: JsonValue, declared: object, codec: PayloadCodec | None
) -> object:
    try:
        return stored_value(stored, declared, codec)
    except ValueError as error:
        reason = f"it is not of the type that is declared: {error}"
        raise RunCorrupt(recorded.opened.run_id, position, reason) from error


def _written(
    plan: GraphPlan,
    recorded: RecordedRun,
    position: int,
    node: str,
    output: object,
    written: Mapping[str, object],
) -> dict[str, object]:
    try:
        return writes_of(plan, node, output, written)
    except (ContractViolation, ConfigurationError) as error:
        reason = f"what node {node!r} gave is not what it declares: {error}"
        raise RunCorrupt(recorded.opened.run_id, position, reason) from error


def _one_of(written: OnRecord, name: str) -> object:
    values = cast(Mapping[str, object], written.value)
    return value_of(values[name])


def _visit_of(place: str) -> Visit:
    """The visit at a place, which may be a decision."""
    _, _, number = place.rpartition("/")[2].rpartition("#")
    return Visit(
        step_name(place), int(number) if number.isdecimal() and "#" in place.rpartition("/")[2] else 1
    )


def replayed(
    setup: GraphSetup,
    inputs: Mapping[str, object],
    recorded: RecordedRun,
    part: facts.Part,
    codec: PayloadCodec | None,
    *,
    forgiving: bool,
) -> GraphReplay:
    """The state of a graph of the run, as the log has it.

    Failures that a run has ended of are tried again when it is resumed, and what was cancelled for them goes
    on: so those do not count.

    Raises:
        RunCorrupt: the log is not that of such a graph; passed over, if `forgiving`. Or a value cannot be
            decoded by which edges are chosen.
    """
    known = {
        Visit(*unit_of(entry)): isinstance(entry, facts.StepSkipped)
        for stretch in recorded.stretches(part.place)
        for _, entry in stretch
        if isinstance(entry, facts.StepStarted | facts.StepSkipped)
    }
    replay = retold(
        lambda: GraphReplay(setup, inputs, recorded, part, codec, known=known, forgiving=forgiving),
        recorded,
        part.place,
    )
    if replay.finish is None or replay.finish.status == "paused":
        replay.machine.read_what_decides()
    return replay


class _ComparedReplay(GraphReplay):
    """A graph of a trace. What nodes gave is compared with their types, so all of it is decoded."""

    def over(self, entry: Ended, fact: Ended) -> None:
        """See `Replay`."""
        if isinstance(fact, facts.StepFinished):
            for held in (fact.output, *fact.written.values()):
                value_of(held)
        super().over(entry, fact)


def first_divergence(setup: GraphSetup, trace: RunTrace) -> Divergence | None:
    """The first one, in the outermost graph.

    Raises:
        ConfigurationError: it is the trace of a run of a pipeline.
        RunCorrupt: the inputs are not what the graph accepts.
    """
    if (other := other_run(trace, "graph", setup.name)) is not None:
        return other
    recorded = RecordedRun(trace.run_id, [seal_payloads(entry, None) for entry in trace.entries])
    try:
        inputs = {
            name: value_from_json(value, setup.input_types.get(name)) for name, value in trace.inputs.items()
        }
    except ValueError as error:
        raise RunCorrupt(trace.run_id, 1, f"its inputs are not what the graph accepts: {error}") from error
    return divergence_of(
        lambda: _ComparedReplay(setup, inputs, recorded, recorded.opened.part, None, known={}), recorded, ""
    )
