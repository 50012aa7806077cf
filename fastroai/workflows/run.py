"""One run of a workflow by FastroAI itself: its machine, its work, its runner and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastroai.runs.execution import OpenRun
from fastroai.runs.request import RunRequest
from fastroai.runs.running.machine import Decision
from fastroai.runs.running.runner import Runner
from fastroai.runtime.facts import Part, RunFinished
from fastroai.steps import PipelineConfig, ResolvedConfig, StepConfig
from fastroai.steps.config import resolve
from fastroai.steps.context import RunData
from fastroai.steps.shared import Shared
from fastroai.store.open_questions import Question
from fastroai.store.record.log import RunLog
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec
from fastroai.workflows.checks import Checks
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.performing import Performers
from fastroai.workflows.plan import WorkflowPlan
from fastroai.workflows.replay import WorkflowReplay, replayed
from fastroai.workflows.result import WorkflowResult, WorkflowStatus, WorkflowUsage
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.work import WorkflowWork

_STATUSES: Final[Mapping[str, WorkflowStatus]] = {
    "finished": "complete",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "paused",
    "running": "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSetup:
    """A workflow, ready to run."""

    plan: WorkflowPlan
    performers: Performers
    checks: Checks
    config: ResolvedConfig
    """The settings that hold for every step."""
    max_concurrency: int | None

    @classmethod
    def of(
        cls,
        plan: WorkflowPlan,
        performers: Performers,
        workspace: Path | str | None,
        config: PipelineConfig,
    ) -> WorkflowSetup:
        """Prepare a workflow for its runs; `workspace` is the folder whose files its checks see."""
        return cls(
            plan=plan,
            performers=performers,
            checks=Checks(plan.spec, None if workspace is None else Workspace(workspace)),
            config=resolve(StepConfig(), pipeline=config),
            max_concurrency=config.max_concurrency,
        )

    def machine(self, part: Part) -> WorkflowMachine:
        """Return the state machine of a new run."""
        return WorkflowMachine(self.plan, width=self.max_concurrency, fits=self.checks.fits, part=part)

    def replayed(
        self, inputs: Mapping[str, Any], recorded: Memo, codec: PayloadCodec | None
    ) -> WorkflowReplay:
        """Return the replay of a run that goes on."""
        return replayed(
            self.plan, inputs, recorded, codec=codec, width=self.max_concurrency, fits=self.checks.fits
        )


class WorkflowRun:
    """A run that has begun."""

    def __init__(self, setup: WorkflowSetup, opened: OpenRun, request: RunRequest[Any]) -> None:
        self.opened = opened
        kept, part, scope = opened.kept, opened.part, opened.scope
        replay = None if kept is None else setup.replayed(opened.inputs, kept.recorded, kept.codec)
        self.machine = setup.machine(part) if replay is None else replay.machine
        data = RunData(setup.plan.entry.flow.name, part.path, Shared.of(request.context))
        work = WorkflowWork(
            setup.plan,
            setup.performers,
            setup.checks,
            self.machine,
            setup.config,
            data=data,
            deps=request.deps,
            scope=scope,
            log=opened.log,
        )
        self.runner = Runner(
            self.machine,
            work,
            scope,
            opened.log,
            began=opened.began,
            deps=request.deps,
            tracer=request.tracer_of(scope.parent),
            scope_around=work.scope_around,
        )
        work.connect(self.runner.tell, self.runner.units)
        self.work = work
        self.decisions: Sequence[Decision]
        """The decisions to perform first."""
        if replay is None:
            self.decisions = self.machine.handle(opened.started)
        else:
            self.decisions = replay.decisions
            for past in replay.past.values():
                self.runner.reopen(past)
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
