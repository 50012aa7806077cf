"""The replay of a workflow: its state machine is told the log of a run; times and spending are summed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import JsonValue

from fastroai.data_kinds import DataKind, changed
from fastroai.errors import RunCorrupt
from fastroai.records import Usage
from fastroai.runs.running.machine import Changed, Unit, unit_of
from fastroai.runs.running.replay import Replay, divergence_of, other_run
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Part, PlanFact
from fastroai.steps.durability import stored_value
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.unsealing import seal_payloads
from fastroai.workflows.facts import (
    CheckpointRestored,
    CheckpointSet,
    IterationAborted,
    IterationReported,
    IterationStarted,
    SkipRequested,
)
from fastroai.workflows.machine.machine import Fits, WorkflowMachine
from fastroai.workflows.machine.state import FlowKey
from fastroai.workflows.machine.step_inputs import GateAnswer
from fastroai.workflows.plan import WorkflowPlan

StepFactT = TypeVar("StepFactT", bound=facts.StepFact)

logger: Final = logging.getLogger("fastroai.workflows")


@dataclass(slots=True)
class Clock:
    """When a flow began, in seconds since 1970, and how many seconds its gates have waited."""

    began: float
    waited: float = 0.0


@dataclass(slots=True)
class Took:
    """When a unit began and ended, and when it asked a person, in seconds since 1970."""

    began: float
    ended: float | None = None
    asked: float | None = None


class WorkflowReplay(Replay):
    """The replay of a workflow."""

    machine: WorkflowMachine  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        plan: WorkflowPlan,
        inputs: Mapping[str, JsonValue],
        part: Part,
        *,
        codec: PayloadCodec | None = None,
        width: int | None = None,
        fits: Fits | None = None,
    ) -> None:
        """Begin the replay with a new machine, which gets `width` and `fits`."""
        self._codec = codec
        self.took: dict[Unit, Took] = {}
        self.spent: defaultdict[FlowKey | tuple[str, int], Usage] = defaultdict(Usage)
        """Reported spending by flow, and by entry of a step, including work that was reverted since."""
        self.clocks: dict[FlowKey, Clock] = {}
        self.asked: dict[Unit, facts.QuestionAsked] = {}
        """Questions that gates have asked, whether FastroAI ran the flow or it was driven from outside."""
        self.answered: dict[Unit, GateAnswer] = {}
        """Decisions of people at gates, made while FastroAI ran the flow."""
        super().__init__(
            WorkflowMachine(plan, width=width, fits=fits, part=part),
            facts.RunStarted(inputs=inputs, part=part),
        )

    def _read(self, position: int, entry: PlanFact) -> None:
        match entry:
            case facts.StepStarted():
                self._begin(entry)
            case facts.StepSkipped():
                pass
            case facts.StepFinished() | facts.StepFailed() | facts.StepCancelled() | facts.StepHalted():
                self._check_due(position, entry)
                self._end(entry)
                self.over(entry, self._live(position, entry))
            case facts.QuestionAsked(name=name) | facts.AnswerGiven(name=name) if name:
                # When FastroAI itself resumes the run, the step asks again, and finds the answer.
                self._note(position, entry)
            case facts.QuestionAsked():
                self._check_due(position, entry)
                self.took[unit_of(entry)].asked = entry.timestamp
                self.asked[unit_of(entry)] = entry
                self.over(entry, entry)
            case facts.AnswerGiven():
                self._read_answer(position, entry)
            case SkipRequested():
                self._check_due(position, entry)
                self._end(entry)
                self.due.pop(unit_of(entry))
                self.tell(entry)
            case IterationStarted() | IterationReported() | IterationAborted():
                self._check_due(position, entry)
                self.tell(self._live(position, entry))
            case CheckpointSet():
                self.note(self.machine.handle(entry))  # a run that has ended is as it was before
            case CheckpointRestored(label=label):
                if label not in self.machine.checkpoints:
                    raise self._corrupt(position, f"there is no checkpoint {label!r}")
                self.due.clear()
                self.pending.clear()
                self.tell(entry)
            case facts.SpendingRecorded():
                self._spend(entry)
            case facts.PauseRequested() | facts.StopRequested():
                self.tell(entry)
            case facts.RunFinished():
                pass  # the machine decides the end itself
            case _:
                reason = f"{type(entry).__name__} does not belong in the run of a workflow"
                raise self._corrupt(position, reason)

    def follow(self, change: Changed) -> None:
        """Do nothing: a workflow has no forks."""

    # --- entry by entry ---

    def _check_due(self, position: int, entry: facts.StepFact) -> None:
        if unit_of(entry) not in self.due:
            raise self._corrupt(position, f"the workflow does not lead to {entry.place!r} there")

    def _live(self, position: int, entry: StepFactT) -> StepFactT:
        """Return an entry with its values as they were."""
        return changed(entry, {DataKind.PAYLOAD: partial(self._value, position)})

    def _note(self, position: int, entry: facts.QuestionAsked | facts.AnswerGiven) -> None:
        if self.machine.plan.steps[entry.step_id][1].gate is None:
            return
        unit = unit_of(entry)
        if isinstance(entry, facts.QuestionAsked):
            self.asked[unit] = entry
        elif (decided := self._decision(entry, self._value(position, entry.answer))) is not None:
            self.answered[unit] = decided

    def _decision(self, entry: facts.AnswerGiven, answer: JsonValue) -> GateAnswer | None:
        try:
            decided = GateAnswer.of(answer, entry.rationale)
            if decided.decision == "revise" and self.machine.revisions_left(entry.step_id) == 0:
                raise ValueError("it cannot revise")
        except ValueError as wrong:
            logger.warning("gate %r still waits: %s", entry.step_id, wrong)
            return None
        return decided

    def _read_answer(self, position: int, entry: facts.AnswerGiven) -> None:
        unit, answer = unit_of(entry), self._value(position, entry.answer)
        if unit not in self.due and unit not in self.machine.state.asking:
            raise self._corrupt(position, f"no gate waits for the answer of {entry.place!r}")
        if self._decision(entry, answer) is None:
            return
        took = self.took[unit]
        took.ended = entry.timestamp
        if took.asked is not None:
            for flow in self.machine.around(self.machine.flow_of(entry.step_id)):
                if (clock := self.clocks.get(flow.key)) is not None:
                    clock.waited += entry.timestamp - took.asked
        self.due.pop(unit, None)
        self.tell(replace(entry, answer=answer))

    # --- times and money ---

    def _begin(self, entry: facts.StepStarted) -> None:
        self.took[unit_of(entry)] = Took(entry.timestamp)
        for flow in self.machine.around(self.machine.flow_of(entry.step_id)):
            self.clocks.setdefault(flow.key, Clock(entry.timestamp))

    def _end(self, entry: facts.StepFact) -> None:
        if (took := self.took.get(unit_of(entry))) is not None:
            took.ended = entry.timestamp

    def _spend(self, entry: facts.SpendingRecorded) -> None:
        """Count usage that was reported for a step. In runs by FastroAI itself, the scopes count."""
        unit = next((one for one, due in self.due.items() if due.place == entry.place), None)
        if unit is None:
            return
        step_id = unit[0]
        self.spent[step_id, self.machine.step(step_id).entry].add(entry.record)
        for flow in self.machine.around(self.machine.flow_of(step_id)):
            self.spent[flow.key].add(entry.record)

    # --- values ---

    def _value(self, position: int, stored: JsonValue) -> JsonValue:
        try:
            value: Any = stored_value(stored, None, self._codec)
        except ValueError as error:
            raise self._corrupt(position, f"a value cannot be read: {error}") from error
        json: JsonValue = value
        return json

    def _corrupt(self, position: int, reason: str) -> RunCorrupt:
        return RunCorrupt(self.machine.part.run_id, position, reason)


def first_divergence(
    plan: WorkflowPlan, name: str, trace: RunTrace, *, width: int | None, fits: Fits | None
) -> Divergence | None:
    """Return the first entry that a machine would not have decided, or the place where an entry is missing.

    Raises:
        ConfigurationError: the trace is one of a pipeline or graph.
    """
    if (other := other_run(trace, "workflow", name)) is not None:
        return other
    recorded = Memo(trace.run_id, [seal_payloads(entry, None) for entry in trace.entries])
    replay = WorkflowReplay(plan, trace.inputs, recorded.opened.part, width=width, fits=fits)
    return divergence_of(replay, recorded, "")
