"""The state of a driven graph run, rebuilt from its log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs.machine.events import Visit
from fastroai.graphs.machine.replay import LogReader, Replay, replayed
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.questions import answer_to
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.work import decision_as_json, decision_from_json, stored_edges
from fastroai.runs.driving import Reported
from fastroai.runs.machine import Decided, Unit
from fastroai.runs.storing import checked_output
from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    EdgesResolved,
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepStarted,
    StopRequested,
    ValueWritten,
)
from fastroai.store.payloads import PayloadCodec, seal
from fastroai.store.recorded import GraphEntry, RecordedRun
from fastroai.store.values import value_to_json


class RetoldGraph:
    """The state of a run at the end of its log."""

    def __init__(
        self,
        setup: GraphSetup,
        recorded: RecordedRun,
        inputs: Mapping[str, object],
        codec: PayloadCodec | None,
    ) -> None:
        """Replay the log in a new state machine. Raises `RunCorrupt` if the log cannot be replayed."""
        self._setup, self._codec = setup, codec
        self.decided: list[Decided] = []
        self.finish: RunFinished | None = None
        self._seen = 0
        entries, part = recorded.entries, recorded.opened.part
        first = max(
            (number for number, one in enumerate(entries, 1) if isinstance(one, RunResumed)), default=0
        )
        if first:
            before = RecordedRun(recorded.opened.run_id, entries[:first])
            self._replay = replayed(setup, inputs, before, part, codec, forgiving=False)
            self._seen = len(self._replay.decided)
            self._note([*self._replay.untold, *self._replay.starts.values()])
        else:
            self._replay = Replay(setup, inputs, part)
            self._note_new()
        self._reader = _Reader(self._replay, recorded, codec, forgiving=False)
        for self._reader.position, entry in enumerate(entries[first:], first + 1):
            self.read(entry)

    @property
    def due(self) -> Sequence[StepStarted]:
        """See `Retold`."""
        return tuple(self._replay.starts.values())

    @property
    def cancelled(self) -> Collection[Unit]:
        """See `Retold`."""
        return self._replay.cancelled

    @property
    def questions(self) -> Mapping[Unit, object]:
        """See `Retold`."""
        return {(node, number): asked for (node, number), asked in self._replay.machine.questions.items()}

    def known_to(self, started: StepStarted) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """See `Retold`. A decision is given the output of the node after which it is made."""
        machine = self._replay.machine
        decided = machine.decided_after(started)
        branch = machine.branch_of(decided or Visit(started.step_id, started.visit))
        assert branch is not None
        if decided is not None:
            return dict(branch.memory), {decided.node: machine.output_of(decided)}
        needs = {node: branch.outputs[node] for node in branch.sources if node in branch.outputs}
        return dict(branch.memory), needs

    def stored(self, fact: Reported) -> Sequence[AnyFact]:
        """See `Retold`."""
        match fact:
            case AnswerGiven():
                visit = Visit(fact.step_id, fact.visit)
                return (answer_to(self._setup, visit, fact.answer, codec=self._codec),)
            case PauseRequested() | StopRequested():
                return (fact,)
        fact.branch = self._branch_of(fact)
        written = self._written(fact)
        match fact:
            case StepFinished() if self._replay.machine.decided_after(fact) is not None:
                return (replace(fact, output=seal(self._decision(fact), self._codec)),)
            case StepFinished():
                if fact.step_id in self._setup.plan.pauses:
                    raise ConfigurationError(
                        "fact", fact.kind, f"a QuestionAsked, because {fact.step_id!r} is a pause node"
                    )
                output = checked_output(fact.step_id, fact.output, self._setup.declared.get(fact.step_id))
                writes_of(fact.step_id, output, self._setup.writes(fact.step_id), fact.written)
                return (*written, replace(fact, output=self._value(fact, output), written={}))
            case QuestionAsked():
                if fact.step_id not in self._setup.plan.pauses:
                    raise ConfigurationError(
                        "fact", fact.kind, f"a StepFinished, because {fact.step_id!r} is not a pause node"
                    )
                question, schema = self._value(fact, fact.question), self._setup.answer_schema(fact.step_id)
                return (*written, replace(fact, question=question, answer_schema=schema, written={}))
            case StepFailed() | StepCancelled():
                return (*written, replace(fact, written={}))

    def _branch_of(self, fact: StepFact) -> str:
        return self._replay.starts[fact.step_id, fact.visit].branch

    def _written(self, fact: StepFinished | QuestionAsked | StepFailed | StepCancelled) -> list[ValueWritten]:
        place = f"{fact.place}@{fact.attempt}"
        what = f"which node {fact.step_id!r} wrote,"
        return [
            ValueWritten(
                place=place, key=key, value=seal(value_to_json(value, None, f"{key!r}, {what}"), self._codec)
            )
            for key, value in fact.written.items()
        ]

    def _value(self, fact: StepFact, value: object) -> object:
        declared = self._setup.declared.get(fact.step_id)
        return seal(value_to_json(value, declared, f"the output of node {fact.step_id!r}"), self._codec)

    def _decision(self, fact: StepFinished) -> JsonValue:
        """Return the decision that was reported: a target, or an object with `target` and `reasoning`."""
        given = {"target": fact.output} if isinstance(fact.output, str) else fact.output
        visit = self._replay.machine.decided_after(fact)
        assert visit is not None
        known = [one.target for one in self._setup.plan.edges[visit.node] if one.when == "llm_decide"]
        expected = f"a target of the llm_decide edges of {visit.node!r}: {', '.join(map(repr, known))}"
        try:
            decision = decision_from_json(given)
        except ValueError as error:
            raise ConfigurationError("output", fact.output, expected) from error
        if decision.target not in known:
            raise ConfigurationError(
                "output", decision.target, f"{expected}.{nearest_hint(decision.target, known)}"
            )
        return decision_as_json(decision)

    def read(self, entry: AnyFact) -> None:
        """See `Retold`."""
        if isinstance(entry, get_args(GraphEntry)) and not entry.part.place:
            self._reader.read(entry)
            self._note_new()

    def _note_new(self) -> None:
        new = self._replay.decided[self._seen :]
        self._seen = len(self._replay.decided)
        self._note(new)

    def _note(self, decisions: Sequence[Decided]) -> None:
        for decision in decisions:
            if self._codec is not None and isinstance(decision, EdgesResolved):
                self.decided.append(stored_edges(decision))
            else:
                self.decided.append(decision)
        if self._replay.finish is not None and self._replay.finish is not self.finish:
            self.decided.append(self._replay.finish)
        self.finish = self._replay.finish


class _Reader(LogReader):
    """Reads a log without interrupted visits: the driver reports each visit that was cancelled."""

    def read(self, entry: GraphEntry) -> None:
        match entry:
            case PauseRequested() | StopRequested():
                self.replay.tell(entry)
            case StepFailed() | StepCancelled():
                self._read_outcome(entry)
            case _:
                super().read(entry)
