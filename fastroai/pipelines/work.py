"""How a pipeline runs the steps that its machine starts."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from fastroai.pipelines.setup import PipelineSetup
from fastroai.runs.nesting import NestedStep
from fastroai.runs.running.machine import Changed
from fastroai.runs.running.units import BegunUnit
from fastroai.runs.running.work import Kept
from fastroai.runs.storing import stored_finish
from fastroai.runtime import RetriesUsed
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import (
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepStarted,
)
from fastroai.steps import ConversationState
from fastroai.steps.context import StepData
from fastroai.steps.execution import run_step
from fastroai.store.record.runs import DurableRun


class PipelineWork:
    """The work of one run of a pipeline: it runs steps, and makes facts of their outcomes."""

    def __init__(
        self,
        setup: PipelineSetup,
        data: StepData,
        deps: Any,
        part: Part,
        run: DurableRun | None,
    ) -> None:
        """`run` is the run on record, if there is one."""
        self._steps, self.configs, self._contracts = setup.steps, setup.configs, setup.contracts
        self._data, self._deps, self._part, self._run = data, deps, part, run

    def perform(
        self, started: StepStarted, begun: BegunUnit, used: RetriesUsed
    ) -> Coroutine[Any, Any, object]:
        """Run a step, and return its output."""
        step_id = started.step_id
        return run_step(
            self._steps[step_id],
            scoped=begun,
            data=self._data,
            deps=self._deps,
            config=self.configs[step_id],
            contract=self._contracts.get(step_id),
            used=used,
        )

    def finished(self, started: StepStarted, begun: BegunUnit, output: object) -> StepFinished:
        """Return the fact that a step has finished with this output."""
        fact = StepFinished(started.step_id, output, self._part)
        fact.attempt, fact.degraded = begun.attempt, begun.degraded
        fact.duration_ms, fact.spent_in = begun.duration_ms, begun
        if isinstance(output, ConversationState):
            fact.conversation = "incomplete" if output.is_incomplete else "complete"
        return fact

    def failed(self, started: StepStarted, fact: StepFailed) -> None:
        """Note whether the attempt goes on when the run is resumed."""
        fact.goes_on = self._steps[started.step_id].goes_on

    def cut_short(self, started: StepStarted, fact: StepCancelled | StepHalted) -> None:
        """Do nothing: a pipeline has nothing to follow."""

    def settled(self, fact: StepFinished | QuestionAsked) -> None:
        """Make the output available to steps that need it."""
        if isinstance(fact, StepFinished):
            self._data.outputs.values[fact.step_id] = fact.output

    def follow(self, change: Changed) -> None:
        """Do nothing: a pipeline has no forks."""

    def stored(self, fact: Kept) -> Kept | None:
        """Return the stored form of a step's output; `None` for another fact. Raises `ValueNotStorable`."""
        if self._run is None or not isinstance(fact, StepFinished):
            return None
        step_id, codec = fact.step_id, self._run.codec
        nested = fact.conversation == "incomplete" and isinstance(self._steps[step_id], NestedStep)
        return stored_finish(fact, self._data.run.declared.get(step_id), codec, nested=nested)
