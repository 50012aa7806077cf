"""The replay of a graph: its log, told to a new state machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, assert_never, cast

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, ContractViolation, RunCorrupt
from fastroai.graphs.facts import BranchTimedOut, EdgesResolved, MessagesAdded, ResolvedEdge, ValueWritten
from fastroai.graphs.machine.branches import Branch, Fork, Joined
from fastroai.graphs.machine.events import Visit
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.graphs.work import decision_from_json
from fastroai.places import split_attempt
from fastroai.runs.decoding import OnRecord, output_on_record, value_of
from fastroai.runs.running.machine import Changed, Outcome, Unit, unit_of
from fastroai.runs.running.replay import Replay, divergence_of, other_run, replay_log
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Part, PlanFact
from fastroai.runtime.facts import StepFinished, StepStarted
from fastroai.steps.durability import stored_value, why_unread
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.unsealing import seal_payloads
from fastroai.store.record.values import value_from_json

_BY_OUTPUT: Final = ("conditional", "send")
"""Kinds of edges for which the output of their node decides whether they are taken."""

logger = logging.getLogger("fastroai.graphs")


class _Reader(NamedTuple):
    """Reads the values of the entry at a position of the log."""

    recorded: Memo
    plan: GraphPlan
    codec: PayloadCodec | None
    position: int = 0

    def value(self, stored: JsonValue, declared: object) -> Any:
        """Decode a value on record."""
        try:
            return stored_value(stored, declared, self.codec)
        except ValueError as error:
            reason = f"it is not of the type that is declared: {error}"
            raise self.corrupt(why_unread(error, reason)) from error

    def writes(self, node: str, output: object, written: Mapping[str, object]) -> dict[str, object]:
        """Return the values that an output writes to memory."""
        try:
            return writes_of(self.plan, node, output, written)
        except (ContractViolation, ConfigurationError) as error:
            reason = f"what node {node!r} gave is not what it declares: {error}"
            raise self.corrupt(reason) from error

    def writes_on_record(
        self, node: str, output: OnRecord, written: Mapping[str, object]
    ) -> dict[str, object]:
        """Return the values that an output writes to memory. Each is decoded when it is read."""
        names = self.plan.writes.get(node)
        if names is None:
            return {**written, node: output}
        whole = OnRecord(lambda: self.writes(node, output.value, written))
        return {**written, **{name: OnRecord(partial(_one_of, whole, name)) for name in names}}

    def corrupt(self, reason: str) -> RunCorrupt:
        """Return the error for a log that does not fit the graph."""
        return RunCorrupt(self.recorded.opened.run_id, self.position, reason)


class GraphReplay(Replay):
    """The replay of one graph of a run: its machine, its conversations, and values of open visits."""

    machine: GraphMachine  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        setup: GraphSetup,
        inputs: Mapping[str, object],
        recorded: Memo,
        part: Part,
        codec: PayloadCodec | None,
        *,
        known: Mapping[Unit, bool],
        forgiving: bool = False,
    ) -> None:
        """Begin the replay. `known` has the visits on record, and whether each was skipped."""
        self._setup, self._forgiving = setup, forgiving
        self._reader = _Reader(recorded, setup.plan, codec)
        self.threads = setup.threads()
        self._written: dict[str, tuple[int | None, dict[str, object]]] = {}
        """By place of a visit, the number of an attempt and the values that it wrote."""
        self._messages: dict[str, JsonValue] = {}
        resumptions = [] if part.place else recorded.resumptions
        renewed = {name for _, entry in resumptions for name in entry.inputs}
        kept = {name: value for name, value in inputs.items() if name not in renewed}
        first = {name: value for name, value in recorded.opened.inputs.items() if name in renewed}
        started = facts.RunStarted(inputs={**kept, **self._inputs(first)}, part=part)
        super().__init__(setup.machine(part, known=known), started)

    def follow(self, change: Changed) -> None:
        """Update the conversations after a change of branches."""
        match change.what:
            case Fork() as fork:
                self.threads.fork(fork)
            case Joined(fork):
                self.threads.join(fork)

    def may_start(self, unit: Unit) -> bool:
        """See `Replay`."""
        return self.machine.may_start(unit)

    def resumed(self, entry: facts.RunResumed) -> None:
        """See `Replay`. What ran in the process that died was cut short; values that it wrote are kept."""
        for started in [*self.due.values()]:
            _, written = self._written.pop(started.place, (None, {}))
            self.tell(facts.StepCancelled(started.step_id, "", visit=started.visit, written=written))
        self._written.clear()
        is_nested = self.machine.part.place
        super().resumed(replace(entry, inputs={} if is_nested else self._inputs(entry.inputs)))
        for branch in self.machine.ready:
            self.past.pop(branch.visit, None)

    # --- entry by entry ---

    def _read(self, position: int, entry: PlanFact) -> None:
        self._reader = self._reader._replace(position=position)
        match entry:
            case facts.StepStarted():  # a new attempt does not have the messages of an interrupted one
                self._messages.pop(entry.place, None)
                if (unit := unit_of(entry)) not in self.due and self.may_start(unit):
                    self.note(self.machine.started(unit))
                    self.pending.pop((facts.StepStarted, unit), None)
            case ValueWritten():
                self._read_written(entry)
            case MessagesAdded():
                self._messages[split_attempt(entry.place)[0]] = entry.messages
            case BranchTimedOut():
                self.tell(replace(entry, raised=entry.failure.as_error()))
            case facts.PauseRequested() | facts.StopRequested():
                self.tell(entry)
            case facts.QuestionAsked(name=name) | facts.AnswerGiven(name=name) if name:
                pass  # the step asks anew when the run is resumed, and finds the answer
            case facts.StepSkipped() | EdgesResolved() | facts.RunFinished():
                pass  # the new machine decides this, too
            case facts.SpendingRecorded():
                pass
            case facts.StepFinished() | facts.StepFailed() | facts.StepCancelled() | facts.StepHalted():
                self._read_outcome(entry)
            case facts.QuestionAsked() | facts.AnswerGiven():
                self._read_outcome(entry)
            case _:
                raise self._reader.corrupt(f"{type(entry).__name__} does not belong in the run of a graph")

    def _read_written(self, entry: ValueWritten) -> None:
        place, attempt = split_attempt(entry.place)
        known = self._written.get(place)
        values = {} if known is None or known[0] != attempt else known[1]
        values[entry.key] = OnRecord(partial(self._reader.value, entry.value, None))
        self._written[place] = attempt, values

    def _read_outcome(self, entry: Outcome | facts.AnswerGiven) -> None:
        machine = self.machine
        is_decision = entry.step_id in machine.decisions
        visit, branch = machine.visit_of(entry), machine.branch_of(entry)
        if branch is None:
            if self._forgiving:
                return
            raise self._reader.corrupt(f"the graph does not lead to {entry.place!r} there")
        if isinstance(entry, facts.AnswerGiven):
            try:
                answer = self._reader.value(entry.answer, self._setup.answers.get(visit.node))
                written = self._reader.writes(visit.node, answer, {})
            except RunCorrupt as wrong:  # the inbox has checked only the JSON Schema
                logger.warning("node %r still waits: an answer does not fit: %s", visit.node, wrong.reason)
                return
            self._say(branch, visit, entry, written, None)
            self.tell(replace(entry, answer=answer, written=written))
            return
        fact = self._live_decision(entry) if is_decision else self._live(entry, visit)
        if not is_decision and not isinstance(fact, facts.StepCancelled | facts.StepHalted):
            error = fact.error if isinstance(fact, facts.StepFailed) else None
            self._say(branch, visit, entry, fact.written, error)
        self.over(entry, fact)

    def _say(
        self,
        branch: Branch,
        visit: Visit,
        entry: Outcome | facts.AnswerGiven,
        written: Mapping[str, object],
        error: BaseException | None,
    ) -> None:
        stored = self._messages.pop(entry.place, None)
        phase = None if stored is None else self.threads.phase_from_json(self._reader.value(stored, None))
        self.threads.add(branch, visit, written, error, phase)

    def _live_decision(self, entry: Outcome) -> Outcome:
        match entry:
            case facts.StepFinished():
                try:
                    return replace(entry, output=decision_from_json(self._reader.value(entry.output, None)))
                except ValueError as error:
                    raise self._reader.corrupt(str(error)) from error
            case facts.StepFailed():
                return replace(entry, raised=entry.failure.as_error())
            case facts.StepHalted():
                return entry
            case facts.StepCancelled() | facts.QuestionAsked():
                return facts.StepCancelled(entry.step_id, "", visit=entry.visit)
            case _:
                assert_never(entry)

    def _live(self, entry: Outcome, visit: Visit) -> Outcome:
        """Return an entry with live values, or with values on record that are decoded when they are read."""
        reader, (attempt, written) = self._reader, self._written.pop(entry.place, (None, {}))
        if isinstance(entry, facts.StepCancelled | facts.StepHalted):
            return replace(entry, written=written)
        if isinstance(entry, facts.StepFailed):
            return replace(entry, raised=entry.failure.as_error(), written=written)
        if attempt != entry.attempt:
            written = {}  # it succeeded without the values that an earlier attempt had written
        declared = self._setup.declared.get(visit.node)
        if isinstance(entry, facts.QuestionAsked):
            return replace(entry, question=reader.value(entry.question, declared), written=written)
        output = OnRecord(partial(output_on_record, reader.recorded, entry, declared, reader.codec))
        if visit.node in self._setup.plan.sending:  # the sends decide which nodes come next
            sent = output.value
            return replace(entry, output=sent, written=reader.writes(visit.node, sent, written))
        return replace(entry, output=output, written=reader.writes_on_record(visit.node, output, written))

    def _inputs(self, stored: Mapping[str, JsonValue]) -> dict[str, object]:
        types = self._setup.input_types
        return {name: self._reader.value(value, types.get(name)) for name, value in stored.items()}


def _one_of(written: OnRecord, name: str) -> object:
    values = cast(Mapping[str, object], written.value)
    return value_of(values[name])


def replayed(
    setup: GraphSetup,
    inputs: Mapping[str, object],
    recorded: Memo,
    part: Part,
    codec: PayloadCodec | None,
    *,
    forgiving: bool,
) -> GraphReplay:
    """Return the replay of a graph of a run, from its log.

    Raises:
        RunCorrupt: the log does not fit the graph, unless `forgiving`; or a value that decides which edges
            are taken cannot be decoded.
    """
    known = {
        unit_of(entry): isinstance(entry, facts.StepSkipped)
        for _, entry in recorded.history(part.place)
        if isinstance(entry, facts.StepStarted | facts.StepSkipped)
    }
    replay = GraphReplay(setup, inputs, recorded, part, codec, known=known, forgiving=forgiving)
    replay_log(replay, recorded, part.place)
    if replay.finish is None or replay.finish.status == "paused":
        replay.machine.read_what_decides()
    return replay


class _ComparedReplay(GraphReplay):
    """The replay of a trace. It decodes all outputs, so that they are compared with their types."""

    def over(self, entry: Outcome, fact: Outcome) -> None:
        """See `Replay`."""
        if isinstance(fact, facts.StepFinished):
            for held in (fact.output, *fact.written.values()):
                value_of(held)
        super().over(entry, fact)


def first_divergence(setup: GraphSetup, trace: RunTrace) -> Divergence | None:
    """Return the first divergence in the outermost graph of a trace, if there is one.

    Raises:
        ConfigurationError: the trace is that of a run of a pipeline.
        RunCorrupt: the inputs on record are not what the graph accepts.
    """
    if (other := other_run(trace, "graph", setup.name)) is not None:
        return other
    recorded = Memo(trace.run_id, [seal_payloads(entry, None) for entry in trace.entries])
    try:
        inputs = {
            name: value_from_json(value, setup.input_types.get(name)) for name, value in trace.inputs.items()
        }
    except ValueError as error:
        raise RunCorrupt(trace.run_id, 1, f"the graph does not accept its inputs: {error}") from error
    replay = _ComparedReplay(setup, inputs, recorded, recorded.opened.part, None, known={})
    return divergence_of(replay, recorded, "")


def needed_by_graph(recorded: Memo, definition: JsonValue) -> Iterable[StepFinished]:
    """Return the latest outputs that a graph is sure to read.

    These are outputs of terminals, of nodes whose taken edges lead to nodes that have not finished, and of
    nodes whose output decides which edges are taken.
    """
    latest: dict[str, StepFinished] = {}
    edges: dict[str, Sequence[ResolvedEdge]] = {}
    left: set[str] = set()
    for _, entry in recorded.history(""):
        if isinstance(entry, StepStarted):
            left.add(entry.step_id)
            edges.pop(entry.step_id, None)
        elif isinstance(entry, StepFinished):
            latest[entry.step_id] = entry
            left.discard(entry.step_id)
        elif isinstance(entry, EdgesResolved):
            edges[entry.step_id] = entry.edges
            if any(edge.taken for edge in entry.edges):  # an edge taken after a failure handles the failure
                left.discard(entry.step_id)
    return [
        entry
        for node, entry in latest.items()
        if node not in edges
        or any(
            edge.when in _BY_OUTPUT or (edge.taken and (edge.target in left or edge.target not in latest))
            for edge in edges[node]
        )
    ]
