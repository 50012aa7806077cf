"""One run of a pipeline: its machine, its work, its runner, and its result."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from fastroai.pipelines.replay import replayed
from fastroai.pipelines.result import PipelineResult, PipelineUsage, routes_of
from fastroai.pipelines.setup import PipelineSetup
from fastroai.pipelines.work import PipelineWork
from fastroai.runs.decoding import ValuesOnRecord
from fastroai.runs.execution import OpenRun
from fastroai.runs.request import RunRequest
from fastroai.runs.result import filled, quality_of
from fastroai.runs.running.machine import Decision
from fastroai.runs.running.runner import Runner
from fastroai.runtime import Scope
from fastroai.runtime.facts import StepStarted
from fastroai.steps import ConversationState
from fastroai.steps.context import RunData, StepData
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared
from fastroai.store.open_questions import Question
from fastroai.store.record.log import RunLog

_result_of: Final = filled(PipelineResult)


class PipelineRun:
    """A run that has begun."""

    def __init__(self, setup: PipelineSetup, opened: OpenRun, request: RunRequest[Any]) -> None:
        self._setup, self._opened = setup, opened
        kept, part, plan = opened.kept, opened.part, setup.plan
        declared = {} if kept is None else setup.declared
        shared = RunData(setup.name, part.path, Shared.of(request.context), declared)
        outputs = Outputs(plan.dependencies, plan.ancestry)
        self.log = RunLog(opened.log.facts)
        data = StepData(shared, MappingProxyType(dict(opened.inputs)), outputs)
        work = PipelineWork(setup, data, request.deps, part, kept)
        replay = None if kept is None else replayed(setup, kept.recorded, part)
        machine = setup.machine(part) if replay is None else replay.machine
        self.runner = Runner(machine, work, opened, request)
        self.decisions: Sequence[Decision]
        """The decisions to perform first."""
        if kept is None or replay is None:
            self.decisions = machine.handle(opened.started)
        else:
            outputs.values = replay.outputs(setup, kept.recorded, kept.codec)
            self.decisions = replay.decisions
            for past in replay.past.values():
                self.runner.reopen(past)
        if request.in_line:
            for decision in self.decisions:
                if isinstance(decision, StepStarted):
                    decision.in_line = True
        self.outputs: Mapping[str, object] = outputs.values
        """Outputs of the steps that have finished, by step id."""

    @property
    def scope(self) -> Scope:
        """The scope of the run."""
        return self._opened.scope

    def result(self) -> PipelineResult[Any]:
        """Return the result of a run that was not stopped by a failure."""
        setup, runner, scope, outputs = self._setup, self.runner, self._opened.scope, self.outputs
        plan, units = setup.plan, runner.units
        finish = runner.finish
        assert finish is not None
        # An incomplete conversation keeps a run from finishing.
        stopping = None if finish.status == "finished" else _first_incomplete(outputs, plan.dependencies)
        output = None if stopping is not None else outputs.get(plan.output_step)
        state = stopping if stopping is not None else output
        errors = {
            step: unit.error
            for (step, _), unit in units.open.items()
            if unit.error is not None and not isinstance(unit.error, CancelledError)
        }
        return _result_of(
            output=output,
            output_step=plan.output_step,
            step_outputs=outputs,
            usage=PipelineUsage(scope, units, runner.origin),
            status=finish.status,
            reason=finish.reason,
            reason_code=finish.reason_code,
            resume_at=finish.resume_at,
            errors=errors,
            skipped=runner.skipped,
            conversation_state=state if isinstance(state, ConversationState) else None,
            stopped_early=stopping is not None,
            run_id=scope.run_id,
            log=self.log,
            plan=plan,
            quality=quality_of(scope, errors, units.open.values()),
            waits=finish.waits,
            questions=self._questions(),
            routes=routes_of(scope),
        )

    def _questions(self) -> tuple[Question, ...]:
        log, finish = self._opened.log, self.runner.finish
        if finish is None or log.run is None:
            return ()
        header = log.run.header
        return tuple(Question.of(log.asked[one], header) for one in finish.questions)


def _first_incomplete(
    outputs: Mapping[str, object], order: Mapping[str, object]
) -> ConversationState[Any] | None:
    """Return the first incomplete conversation, in declaration order of the steps."""
    decoded = outputs.decoded if isinstance(outputs, ValuesOnRecord) else outputs
    for step_id in order:
        output = decoded.get(step_id)
        if isinstance(output, ConversationState) and output.is_incomplete:
            return output
    return None
