"""Runs the steps of visits, and of the decisions after them, each in a scope of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextvars import copy_context
from time import perf_counter
from typing import Any, Final, cast

from fastroai.errors import ConfigurationError
from fastroai.graphs.branch_times import BranchTimes
from fastroai.graphs.branches import Branch
from fastroai.graphs.copies import Copies, own_copy
from fastroai.graphs.decide_step import DecideStep
from fastroai.graphs.events import AskDecider, StartNode, Visit
from fastroai.graphs.on_record import VisitsOnRecord
from fastroai.graphs.outputs import NodeOutputs
from fastroai.graphs.replay import PastVisit
from fastroai.graphs.routing import Decision
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.threads import Threads
from fastroai.graphs.visits import VisitRecord, decision_name
from fastroai.graphs.writes import writes_of
from fastroai.runtime import NO_RETRIES_USED, Scope
from fastroai.runtime.isolation import InContext
from fastroai.steps import BaseStep, ConversationState, ResolvedConfig
from fastroai.steps.context import RunFacts
from fastroai.steps.durability import restore_spending
from fastroai.steps.execution import run_step
from fastroai.steps.visits import NodeVisit
from fastroai.tracing import NoOpTracer, Tracer

_NO_TRACER: Final = NoOpTracer()


class VisitRunner:
    """Those of one run. What becomes of their outcomes is not decided here."""

    def __init__(
        self,
        *,
        setup: GraphSetup,
        scope: Scope,
        facts: RunFacts,
        deps: Any,
        tracer: Tracer | None,
        threads: Threads,
        on_record: VisitsOnRecord | None,
        times: BranchTimes | None,
    ) -> None:
        """In `scope`, that of the run; `facts` are what is the same for all."""
        self._setup, self._scope, self._run_facts, self._deps, self._tracer = (
            setup,
            scope,
            facts,
            deps,
            tracer,
        )
        self._threads, self._on_record, self._times = threads, on_record, times
        self.visits: dict[Visit, VisitRecord] = {}
        self.decisions: dict[Visit, VisitRecord] = {}
        self._active: dict[Visit, asyncio.Task[Any]] = {}
        self._origin = perf_counter() - (0.0 if on_record is None else on_record.elapsed)

    # --- scopes and times ---

    def open(self, visit: Visit, branch: str, *, is_decision: bool = False) -> VisitRecord:
        """Begin a visit, or the decision after it, in a branch."""
        config = self._setup.decider_config if is_decision else self._setup.configs[visit.node]
        scope = Scope(
            "step",
            decision_name(visit.node) if is_decision else visit.node,
            parent=self._scope,
            limits=config.limits,
            deps=self._deps,
            tracer=self._tracer if config.trace else _NO_TRACER,
            ordinal=visit.number,
        )
        if self._on_record is not None:
            restore_spending(scope)
        record = VisitRecord(scope, branch, self._now)
        (self.decisions if is_decision else self.visits)[visit] = record
        return record

    def reopen(self, past: PastVisit) -> None:
        """A visit that was over in an earlier process: what it has spent counts here too."""
        record = self.open(past.visit, past.branch, is_decision=past.is_decision)
        record.scope.degraded = past.degraded
        record.scope.close()
        record.error = past.error
        if self._on_record is not None:
            record.finished_ms = self._on_record.milliseconds(past.ended_at)
            record.started_ms = max(0.0, record.finished_ms - past.duration_ms)

    def close(self, record: VisitRecord, error: BaseException | None = None) -> None:
        """It is over."""
        record.error = error
        record.scope.close(error)
        record.finished_ms = self._now

    def milliseconds(self, record: VisitRecord) -> float:
        """How long it has run so far."""
        return self._now - record.started_ms

    @property
    def _now(self) -> float:
        return (perf_counter() - self._origin) * 1000

    # --- nodes ---

    def node_visit(self, start: StartNode, record: VisitRecord) -> NodeVisit:
        """What the step knows of a visit."""
        visit, branch = start.visit, start.branch
        focus = self._setup.nodes[visit.node].focus

        def on_write(key: str, value: object) -> object:
            if self._on_record is not None:
                self._on_record.wrote(visit, record.scope.attempt, key, value)
            return own_copy(value)

        return NodeVisit(
            visit.number,
            goal=self._setup.goal,
            writes=self._setup.writes(visit.node),
            errors=cast("Mapping[str, BaseException]", branch.errors),
            new_talk=lambda: self._threads.talk(branch, visit, focus),
            on_write=on_write,
        )

    async def run_node(self, start: StartNode, record: VisitRecord, node_visit: NodeVisit) -> object:
        """Run the step of a node to its output. Raises whatever it raises."""
        visit = start.visit
        output = await self._run(
            visit,
            start.branch,
            self._setup.nodes[visit.node].step,
            self._setup.configs[visit.node],
            record,
            self._facts(visit, start.branch, record.scope, node_visit),
        )
        if isinstance(output, ConversationState) and output.is_incomplete:
            expected = "an output: in a graph, a node among pause_nodes asks a person"
            raise ConfigurationError("output", output, expected)
        return output

    def writes(self, node: str, output: object, node_visit: NodeVisit) -> dict[str, object]:
        """What a visit puts into memory. Raises `ContractViolation`."""
        if node in self._setup.plan.pauses:
            return dict(node_visit.written)  # its output is a question; the answer is written
        return writes_of(node, output, self._setup.writes(node), node_visit.written)

    async def run_decision(self, ask: AskDecider, record: VisitRecord) -> Decision:
        """Let the decider of the graph decide. Raises what is not its own failure."""
        assert self._setup.decider is not None
        step = DecideStep(self._setup.decider, self._setup, ask.visit.node, ask.output)
        facts = self._facts(ask.visit, ask.branch, record.scope, None)
        decision = await self._run(ask.visit, ask.branch, step, self._setup.decider_config, record, facts)
        assert isinstance(decision, Decision)
        return decision

    def cancel(self, visits: Iterable[Visit]) -> None:
        """Cancel those that run; one that has not begun is not wanted when it would."""
        for visit in visits:
            if (worker := self._active.get(visit)) is not None:
                worker.cancel()

    # --- steps ---

    def _facts(self, visit: Visit, branch: Branch, scope: Scope, node_visit: NodeVisit | None) -> RunFacts:
        of_run, plan = self._run_facts, self._setup.plan
        return RunFacts(  # `replace` takes three times as long
            pipeline=of_run.pipeline,
            path=of_run.path,
            inputs=Copies(branch.memory, scope, plan.reads.get(visit.node)),
            outputs=NodeOutputs(plan.edges.keys(), branch.sources, Copies(branch.outputs, scope)),
            calculator=of_run.calculator,
            shared=of_run.shared,
            declared=of_run.declared,
            once=of_run.once,
            visit=node_visit,
        )

    async def _run(
        self,
        visit: Visit,
        branch: Branch,
        step: BaseStep[Any, Any],
        config: ResolvedConfig,
        record: VisitRecord,
        facts: RunFacts,
    ) -> object:
        is_decision = facts.visit is None
        context = copy_context()
        context.run(record.scope.make_current)
        worker = asyncio.current_task()
        assert worker is not None
        used = NO_RETRIES_USED
        if self._on_record is not None:
            used = self._on_record.retries_used(visit, is_decision=is_decision)
        self._active[visit] = worker
        running = InContext(
            run_step(
                step,
                scope=record.scope,
                facts=facts,
                deps=self._deps,
                config=config,
                contract=None if is_decision else self._setup.contracts.get(visit.node),
                used=used,
            ),
            context,
        )
        try:
            if self._times is None:
                return await running
            with self._times.at_work(branch, record.scope):
                return await running
        finally:
            del self._active[visit]
            if record.scope.is_open_inside:
                await record.scope.end_inside()
