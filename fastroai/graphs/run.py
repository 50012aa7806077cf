"""One run of a graph: its machine, its work, its runner, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from fastroai.errors import ConfigurationError
from fastroai.graphs.machine.events import Ending
from fastroai.graphs.machine.merging import salvage
from fastroai.graphs.machine.replay import replayed
from fastroai.graphs.questions import question_as_json
from fastroai.graphs.result import GraphQuality, GraphResult, GraphUsage
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.work import GraphWork
from fastroai.runs.decoding import value_of, values_of
from fastroai.runs.execution import OpenRun
from fastroai.runs.request import RunRequest
from fastroai.runs.result import filled, quality_of
from fastroai.runs.running.machine import Decision
from fastroai.runs.running.runner import Runner
from fastroai.runs.running.units import Past
from fastroai.runtime.facts import RunFinished
from fastroai.steps.context import RunData
from fastroai.steps.shared import Shared
from fastroai.store.open_questions import Question
from fastroai.store.record.log import RunLog

_result_of: Final = filled(GraphResult)


class GraphRun:
    """A run that has begun."""

    def __init__(self, setup: GraphSetup, opened: OpenRun, request: RunRequest[Any]) -> None:
        self._setup, self.opened = setup, opened
        kept, part = opened.kept, opened.part
        past: Iterable[Past] = ()
        self.decisions: Sequence[Decision]
        """The decisions to perform first."""
        if kept is None:
            self.machine, threads = setup.machine(part), setup.threads()
            self.decisions = self.machine.handle(opened.started)
        else:
            # By force, a run goes on although the graph has changed since it began.
            is_forced = request.opening is not None and request.opening.is_forced
            replay = replayed(setup, opened.inputs, kept.recorded, part, kept.codec, forgiving=is_forced)
            self.machine, threads, past = replay.machine, replay.threads, replay.past.values()
            self.decisions = replay.decisions
        data = RunData(setup.name, part.path, Shared.of(request.context), setup.declared)
        work = GraphWork(
            setup, self.machine, threads, data=data, deps=request.deps, part=part, log=opened.log
        )
        self.runner = Runner(self.machine, work, opened, request)
        work.bound_branches(self.runner.tell)
        for one in past:
            self.runner.reopen(one)
        self.log = RunLog(opened.log.facts)

    def result(self, ending: Ending, last: RunFinished, error: BaseException | None) -> GraphResult[Any]:
        """Return the result of the run."""
        machine, scope, plan = self.machine, self.opened.scope, self._setup.plan
        salvage(machine.root, plan)
        reached = (node for node in plan.terminals if node in machine.reached)
        is_paused = ending == "paused"
        return _result_of(
            run_id=scope.run_id,
            status=ending,
            quality=self._quality(ending),
            output=value_of(machine.reached[next(reached)]) if ending == "finished" else None,
            outputs=values_of(machine.root.outputs.held_now()),
            memory=values_of(machine.root.memory.held_now()),
            path=machine.root.path,
            visits={node: visits for node, visits in machine.visits.items() if visits},
            errors=dict(machine.failures),
            usage=GraphUsage(scope, self.runner.units, machine.decisions),
            reason=last.reason,
            reason_code=last.reason_code,
            error=error,
            resume_at=machine.resume_at,
            waits=last.waits if is_paused else (),
            questions=self._questions() if is_paused else (),
            log=self.log,
        )

    def ask_around(self) -> None:
        """Tell the run around this one the questions of pause nodes, since that run waits for the answers.

        Raises:
            ConfigurationError: no store keeps the run around.
        """
        log, questions = self.opened.log, self.machine.questions
        if log.scope is self.opened.scope or not questions:
            return
        if log.run is None:
            expected = "a store that keeps the run, which waits for the answer: execute(..., store=...)"
            raise ConfigurationError("store", None, expected)
        for asked in questions.values():
            log.keep_open(question_as_json(self._setup, asked))

    def _questions(self) -> tuple[Question, ...]:
        """Return the questions of pause nodes, then those of steps, in the order in which they were asked."""
        machine, log, finish = self.machine, self.opened.log, self.runner.finish
        asked = {one.id: one for one in machine.questions.values()}
        asked |= log.asked
        run = machine.part if log.run is None else log.run.header
        return () if finish is None else tuple(Question.of(asked[one], run) for one in finish.questions)

    def _quality(self, ending: Ending) -> GraphQuality:
        if ending not in ("finished", "paused"):
            return "failed"
        if self.machine.timeouts:
            return "degraded"
        return quality_of(self.opened.scope, self.machine.failures, self.runner.units.open.values())
