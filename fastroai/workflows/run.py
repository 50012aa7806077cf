"""One run of a workflow by FastroAI itself: its machine, its work, its runner and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from pydantic import JsonValue

from fastroai.runs.execution import OpenRun
from fastroai.runs.request import RunRequest
from fastroai.runs.running.machine import Decision
from fastroai.runs.running.replay import replay_log
from fastroai.runs.running.runner import Runner
from fastroai.runs.running.units import Past
from fastroai.runtime.facts import RunFinished
from fastroai.steps.context import RunData
from fastroai.steps.shared import Shared
from fastroai.store.open_questions import Question
from fastroai.store.record.log import RunLog
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.replay import WorkflowReplay
from fastroai.workflows.result import WorkflowResult, WorkflowStatus, WorkflowUsage
from fastroai.workflows.work import WorkflowSetup, WorkflowWork

_STATUSES: Final[Mapping[str, WorkflowStatus]] = {
    "finished": "complete",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "paused",
    "running": "failed",
}


class WorkflowRun:
    """A run that has begun."""

    def __init__(self, setup: WorkflowSetup, opened: OpenRun, request: RunRequest[Any]) -> None:
        self.opened = opened
        kept, part, scope = opened.kept, opened.part, opened.scope
        past: Iterable[Past] = ()
        self.decisions: Sequence[Decision]
        """The decisions to perform first."""
        plan, width, fits = setup.plan, setup.max_concurrency, setup.checks.fits
        if kept is None:
            self.machine = WorkflowMachine(plan, width=width, fits=fits, part=part)
            self.decisions = self.machine.handle(opened.started)
        else:
            given, at = cast("Mapping[str, JsonValue]", opened.inputs), kept.recorded.opened.part
            replay = WorkflowReplay(plan, given, at, codec=kept.codec, width=width, fits=fits)
            replay_log(replay, kept.recorded, "")
            self.machine, self.decisions, past = replay.machine, replay.decisions, replay.past.values()
        data = RunData(plan.entry.flow.name, part.path, Shared.of(request.context))
        work = WorkflowWork(setup, self.machine, data=data, deps=request.deps, scope=scope, log=opened.log)
        self.runner = Runner(self.machine, work, opened, request, scope_around=work.scope_around)
        work.connect(self.runner.tell, self.runner.units)
        for one in past:
            self.runner.reopen(one)
        self.log = RunLog(opened.log.facts)

    def result(self, finish: RunFinished, error: BaseException | None) -> WorkflowResult:
        """Return how the run ended, with its outputs and its usage."""
        machine = self.machine
        status = "killed" if finish.reason_code == "killed" else _STATUSES[finish.status]
        is_paused = status == "paused"
        return WorkflowResult(
            run_id=self.opened.scope.run_id,
            status=status,
            output=machine.output if status == "complete" else None,
            outputs={
                flow.plan.step_id(name): given["output"]
                for flow in machine.state.flows.values()
                for name, given in flow.outputs.items()
            },
            violations={
                flow.plan.step_id(record.step): record.violations[-1]
                for flow in machine.state.flows.values()
                for record in flow.records
                if record.outcome == "failed" and record.violations
            },
            round=machine.state.flows[""].round,
            usage=WorkflowUsage(self.opened.scope, self.runner.units),
            reason=finish.reason,
            reason_code=finish.reason_code,
            error=error,
            waits=finish.waits if is_paused else (),
            questions=self._questions(finish) if is_paused else (),
            log=self.log,
        )

    def _questions(self, finish: RunFinished) -> tuple[Question, ...]:
        log = self.opened.log
        if log.run is None:
            return ()
        return tuple(Question.of(log.asked[one], log.run.header) for one in finish.questions)
