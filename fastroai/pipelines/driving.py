"""The state of a driven pipeline run, rebuilt from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastroai.errors import ConfigurationError
from fastroai.pipelines.resuming import take_up
from fastroai.pipelines.setup import PipelineSetup
from fastroai.runs.driving import Reported
from fastroai.runs.machine import Cancel as CancelUnits
from fastroai.runs.machine import Changed, Decided, Decision, Told, Unit
from fastroai.runs.storing import checked_output, stored_finish
from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    StopRequested,
)
from fastroai.steps import ConversationState
from fastroai.steps.durability import stored_output
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import RecordedRun


class RetoldPipeline:
    """The state of a run at the end of its log."""

    questions: Mapping[Unit, object] = {}

    def __init__(
        self,
        setup: PipelineSetup,
        recorded: RecordedRun,
        inputs: Mapping[str, object],
        codec: PayloadCodec | None,
    ) -> None:
        """Replay the log in a new state machine. Raises `RunCorrupt` if the log cannot be replayed."""
        self._setup, self._recorded, self._inputs, self._codec = setup, recorded, inputs, codec
        self.decided: list[Decided] = []
        self.finish: RunFinished | None = None
        self.cancelled: set[Unit] = set()
        self._outputs: dict[str, object] = {}
        before, after = _stretches(recorded.entries)
        part = recorded.opened.part
        self._machine = setup.machine(part, resumes=len(before) > 1)
        if len(before) > 1:
            known = RecordedRun(recorded.opened.run_id, before)
            taken = take_up(self._machine, known, part, setup.declared, codec)
            self._outputs.update(taken.outputs)
            self._note(taken.decisions)
        else:
            self._tell(RunStarted(part=part))
        for entry in after:
            self.read(entry)

    @property
    def due(self) -> Sequence[StepStarted]:
        """See `Retold`."""
        return tuple(self._machine.running.values())

    def known_to(self, started: StepStarted) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """See `Retold`."""
        needs = self._setup.plan.dependencies[started.step_id]
        return self._inputs, {step_id: self._outputs[step_id] for step_id in needs}

    def stored(self, fact: Reported) -> Sequence[AnyFact]:
        """See `Retold`."""
        if isinstance(fact, QuestionAsked | AnswerGiven):
            raise ConfigurationError(
                "fact",
                fact.kind,
                "the outcome of a step: a pipeline has no pause nodes, so it asks no questions",
            )
        if not isinstance(fact, StepFinished):
            return (fact,)
        declared = self._setup.declared.get(fact.step_id)
        fact = replace(fact, output=checked_output(fact.step_id, fact.output, declared))
        if isinstance(fact.output, ConversationState):
            fact.conversation = "incomplete" if fact.output.is_incomplete else "complete"
        return (stored_finish(fact, declared, self._codec),)

    def read(self, entry: AnyFact) -> None:
        """See `Retold`."""
        if entry.part.place:
            return  # of something nested
        match entry:
            case StepFinished(step_id=step_id):
                declared = self._setup.declared.get(step_id)
                output = stored_output(self._recorded, entry, declared, self._codec)
                self._outputs[step_id] = output
                self._tell(replace(entry, output=output))
            case StepFailed() | StepCancelled() | PauseRequested() | StopRequested():
                self._tell(entry)
            case _:
                pass  # decided here, too

    def _tell(self, fact: Told) -> None:
        self._note(self._machine.handle(fact))

    def _note(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, CancelUnits):
                self.cancelled.update(decision.units)
            if isinstance(decision, CancelUnits | Changed):
                continue  # nothing runs here
            self.decided.append(decision)
            if isinstance(decision, RunFinished):
                self.finish = decision


def _stretches(entries: Sequence[AnyFact]) -> tuple[Sequence[AnyFact], Sequence[AnyFact]]:
    """What the last state machine knew when it began, and what it was told since."""
    first = max(
        (number for number, entry in enumerate(entries, 1) if isinstance(entry, RunResumed)), default=1
    )
    while first < len(entries) and isinstance(entries[first], StepFinished):
        first += 1  # of the run that it is a fork of
    return entries[:first], entries[first:]
