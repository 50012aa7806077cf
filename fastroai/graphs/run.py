"""One run of a graph: its machine, its work and its runner, and the result that they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastroai.graphs.machine.events import Ending, Visit
from fastroai.graphs.machine.merging import salvage
from fastroai.graphs.machine.replay import Replay, replayed
from fastroai.graphs.questions import questions_of
from fastroai.graphs.result import GraphQuality, GraphResult, GraphUsage
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.work import GraphWork
from fastroai.runs.execution import OpenRun
from fastroai.runs.machine import Decision
from fastroai.runs.quality import quality_of
from fastroai.runs.request import RunRequest
from fastroai.runs.runner import Runner
from fastroai.runs.units import UnitRecord
from fastroai.runtime.facts import StepStarted
from fastroai.steps.context import RunFacts
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared
from fastroai.store.log import RunLog
from fastroai.usage import CostCalculator


class GraphRun:
    """A run that has begun."""

    def __init__(
        self,
        setup: GraphSetup,
        opened: OpenRun,
        request: RunRequest[Any],
        calculator: CostCalculator,
        *,
        forgiving: bool,
    ) -> None:
        """`forgiving`: the graph has changed since the run began, and it goes on by force."""
        self._setup, self.opened = setup, opened
        kept, part = opened.kept, opened.part
        if kept is None:
            replay = Replay(setup, opened.inputs, part)
        else:
            replay = replayed(setup, opened.inputs, kept.recorded, part, kept.codec, forgiving=forgiving)
        self.machine = replay.machine
        facts = RunFacts(
            pipeline=setup.name,
            path=part.path,
            inputs={},
            outputs=Outputs({}),
            calculator=calculator,
            shared=Shared.of(request.context),
            declared=setup.declared,
        )
        work = GraphWork(
            setup, self.machine, replay.threads, facts=facts, deps=request.deps, part=part, log=opened.log
        )
        tracer = request.tracer_of(opened.scope.parent)
        self.runner = Runner(self.machine, work, opened.scope, opened.log, deps=request.deps, tracer=tracer)
        work.bound_branches(self.runner.tell)
        for past in replay.past:
            self.runner.reopen(past)
        finish = [] if replay.finish is None else [replay.finish]
        self.decisions: Sequence[Decision] = [*replay.untold, *replay.starts.values(), *finish]
        """What is to be done first."""
        self.log = RunLog(opened.log.facts)

    def result(self, ending: Ending, reason: str, error: BaseException | None) -> GraphResult[Any]:
        """How the run ended, and all that it gave."""
        machine, scope, plan = self.machine, self.opened.scope, self._setup.plan
        salvage(machine.root, plan.on_conflict)
        reached = (node for node in plan.terminals if node in machine.reached)
        is_paused = ending == "paused"
        finish = self.runner.finish
        return GraphResult(
            run_id=scope.run_id,
            status=ending,
            quality=self._quality(ending),
            output=machine.reached[next(reached)] if ending == "finished" else None,
            outputs=dict(machine.root.outputs),
            memory=dict(machine.root.memory),
            path=machine.root.path,
            visits={node: visits for node, visits in machine.visits.items() if visits},
            errors=dict(machine.failures),
            usage=GraphUsage(scope, *self._units()),
            reason=reason,
            error=error,
            resume_at=finish.resume_at if is_paused and finish is not None else (),
            questions=questions_of(self._setup, machine) if is_paused else (),
            log=self.log,
        )

    def _units(self) -> tuple[Mapping[Visit, UnitRecord], Mapping[Visit, UnitRecord]]:
        """The visits, and the decisions after them."""
        visits: dict[Visit, UnitRecord] = {}
        decisions: dict[Visit, UnitRecord] = {}
        for (step_id, number), record in self.runner.units.items():
            decided = self.machine.decided_after(StepStarted(step_id, "", visit=number))
            if decided is None:
                visits[Visit(step_id, number)] = record
            else:
                decisions[decided] = record
        return visits, decisions

    def _quality(self, ending: Ending) -> GraphQuality:
        if ending not in ("finished", "paused"):
            return "failed"
        if self.machine.timed_out:
            return "degraded"
        visits, _ = self._units()
        scopes = (record.scope for record in visits.values())
        return quality_of(self.opened.scope, self.machine.failures, scopes)
