"""What a graph makes of the visits that its machine starts, and of the decisions after them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, TimeLimitExceeded
from fastroai.graphs.branch_times import BranchTimes
from fastroai.graphs.branches import Branch
from fastroai.graphs.copies import Copies, own_copy
from fastroai.graphs.decide_step import DecideStep
from fastroai.graphs.events import Forked, Joined, Visit
from fastroai.graphs.machine import GraphMachine
from fastroai.graphs.outputs import NodeOutputs
from fastroai.graphs.routing import Choice, EdgeOutcome
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.surprises import warn_of
from fastroai.graphs.talk import Talk
from fastroai.graphs.thread import Phase
from fastroai.graphs.threads import Threads
from fastroai.graphs.writes import writes_of
from fastroai.runs.machine import Changed, Told, Unit, unit_of
from fastroai.runs.units import UnitRecord
from fastroai.runs.work import Outcome
from fastroai.runtime import RetriesUsed, Scope
from fastroai.runtime.facts import (
    AnyFact,
    BranchTimedOut,
    EdgeFacts,
    EdgesResolved,
    MessagesAdded,
    Part,
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    ValueWritten,
)
from fastroai.steps import BaseStep, ConversationState, ResolvedConfig
from fastroai.steps.context import RunFacts
from fastroai.steps.durability import failure_facts
from fastroai.steps.execution import run_step
from fastroai.steps.visits import NodeVisit
from fastroai.store.log import Log
from fastroai.store.payloads import seal
from fastroai.store.values import value_to_json


class GraphWork:
    """That of one run."""

    def __init__(
        self,
        setup: GraphSetup,
        machine: GraphMachine,
        threads: Threads,
        *,
        facts: RunFacts,
        deps: Any,
        part: Part,
        log: Log,
    ) -> None:
        """`facts` are what is the same for all visits."""
        self._setup, self._machine, self._threads = setup, machine, threads
        self._run_facts, self._deps, self._part, self._log = facts, deps, part, log
        self._codec = None if log.run is None else log.run.codec
        self._visits: dict[Unit, NodeVisit] = {}
        """What the steps know of visits that go on."""
        self._times: BranchTimes | None = None

    def bound_branches(self, tell: Callable[[Told], None]) -> None:
        """Let the machine know, by `tell`, of branches that have worked for longer than they may."""
        if (seconds := self._setup.branch_timeout) is not None:
            self._times = BranchTimes(seconds, lambda ended: self._time_out(ended, seconds, tell))

    # --- visits ---

    def config(self, started: StepStarted) -> ResolvedConfig:
        """The settings of a visit, or of the decision after one."""
        if self._machine.decided_after(started) is not None:
            return self._setup.decider_config
        return self._setup.configs[started.step_id]

    def perform(self, started: StepStarted, scope: Scope, used: RetriesUsed) -> Coroutine[Any, Any, object]:
        """Run the step of a node, or the decider after it."""
        if (visit := self._machine.decided_after(started)) is not None:
            assert self._setup.decider is not None
            output = self._machine.output_of(visit)
            step: BaseStep[Any, Any] = DecideStep(self._setup.decider, self._setup, visit.node, output)
            config, contract, node_visit = self._setup.decider_config, None, None
        else:
            visit = Visit(started.step_id, started.visit)
            step, config = self._setup.nodes[visit.node].step, self._setup.configs[visit.node]
            contract = self._setup.contracts.get(visit.node)
            node_visit = self._node_visit(started, visit, scope)
        branch = self._machine.branch_of(visit)
        assert branch is not None
        performed = run_step(
            step,
            scope=scope,
            facts=self._facts(visit, branch, scope, node_visit),
            deps=self._deps,
            config=config,
            contract=contract,
            used=used,
        )
        return performed if self._times is None else self._timed(self._times, branch, scope, performed)

    @staticmethod
    async def _timed(
        times: BranchTimes, branch: Branch, scope: Scope, performed: Coroutine[Any, Any, object]
    ) -> object:
        with times.at_work(branch, scope):
            return await performed

    def _node_visit(self, started: StepStarted, visit: Visit, scope: Scope) -> NodeVisit:
        branch = self._machine.branch_of(visit)
        assert branch is not None
        focus = self._setup.nodes[visit.node].focus

        def on_write(key: str, value: object) -> object:
            place = f"{started.place}@{scope.attempt}"
            stored: AnyFact | None = None
            if self._log.run is not None:
                as_stored = value_to_json(value, None, f"{key!r}, which node {visit.node!r} wrote,")
                stored = ValueWritten(
                    place=place, key=key, value=seal(as_stored, self._codec), part=self._part
                )
            own = own_copy(value)
            self._log.note(ValueWritten(place=place, key=key, value=own, part=self._part), stored)
            return own

        node_visit = self._visits[visit] = NodeVisit(
            visit.number,
            goal=self._setup.goal,
            writes=self._setup.writes(visit.node),
            errors=cast("Mapping[str, BaseException]", branch.errors),
            new_talk=lambda: self._threads.talk(branch, visit, focus),
            on_write=on_write,
        )
        return node_visit

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

    # --- what becomes of them ---

    def finished(self, started: StepStarted, record: UnitRecord, output: object) -> Outcome:
        """What an output comes to: an answer, a question, a decision.

        Raises:
            ConfigurationError: it asks for more, which only pause nodes do.
            ContractViolation: it is not what the node writes.
            ValueNotStorable: it cannot be stored.
        """
        if isinstance(output, Choice):
            return self._decided(started, record, output)
        if isinstance(output, ConversationState) and output.is_incomplete:
            expected = "an output: in a graph, a node among pause_nodes asks a person"
            raise ConfigurationError("output", output, expected)
        node, node_visit = started.step_id, self._visits[unit_of(started)]
        is_question = node in self._setup.plan.pauses
        written = (
            dict(node_visit.written)  # its output is a question; the answer is written
            if is_question
            else writes_of(node, output, self._setup.writes(node), node_visit.written)
        )
        phase = _phase(node_visit, written)
        said = () if phase is None else (self._said(started, record, phase),)
        fact = self._result(started, record, output, written, is_question=is_question)
        stored: AnyFact | None = None
        if self._log.run is not None:
            what = f"the {'question' if is_question else 'output'} of node {node!r}"
            as_stored = seal(value_to_json(output, self._setup.declared.get(node), what), self._codec)
            if isinstance(fact, QuestionAsked):
                stored = replace(fact, question=as_stored)
            else:
                stored = replace(fact, output=as_stored)
        self._over(started, written, None, phase)
        return Outcome(fact, stored, said)

    def _result(
        self,
        started: StepStarted,
        record: UnitRecord,
        output: object,
        written: Mapping[str, object],
        *,
        is_question: bool,
    ) -> StepFinished | QuestionAsked:
        scope = record.scope
        if is_question:
            return QuestionAsked(
                started.step_id,
                output,
                visit=started.visit,
                branch=started.branch,
                part=self._part,
                attempt=scope.attempt,
                duration_ms=record.duration_ms,
                written=written,
            )
        return StepFinished(
            started.step_id,
            output,
            visit=started.visit,
            branch=started.branch,
            part=self._part,
            attempt=scope.attempt,
            degraded=scope.degraded,
            duration_ms=record.duration_ms,
            written=written,
            spent_in=scope,
        )

    def _decided(self, started: StepStarted, record: UnitRecord, decision: Choice) -> Outcome:
        fact = self._result(started, record, decision, {}, is_question=False)
        assert isinstance(fact, StepFinished)
        stored = None
        if self._log.run is not None:
            stored = replace(fact, output=seal(decision_as_json(decision), self._codec))
        return Outcome(fact, stored)

    def failed(self, started: StepStarted, record: UnitRecord, fact: StepFailed) -> Outcome:
        """What it wrote before is kept, and what was said, if that cannot be had again."""
        node_visit = self._visits.get(unit_of(started))
        if node_visit is None:  # a decision, or one that failed before it began
            return Outcome(fact)
        fact.written = node_visit.kept
        phase = _phase(node_visit, fact.written, fact.raised)
        self._over(started, fact.written, fact.raised, phase)
        said = (self._said(started, record, phase),) if phase is not None and phase.compaction else ()
        return Outcome(fact, before=said)

    def cancelled(self, started: StepStarted, record: UnitRecord | None, fact: StepCancelled) -> Outcome:
        """What it wrote before is kept."""
        node_visit = self._visits.pop(unit_of(started), None)
        if node_visit is not None:
            fact.written = dict(node_visit.kept)
        return Outcome(fact)

    def _over(
        self,
        started: StepStarted,
        written: Mapping[str, object],
        error: BaseException | None,
        phase: Phase | None,
    ) -> None:
        visit = Visit(started.step_id, started.visit)
        del self._visits[visit]
        branch = self._machine.branch_of(visit)
        assert branch is not None
        self._threads.add(branch, visit, written, error, phase)

    def _said(
        self, started: StepStarted, record: UnitRecord, phase: Phase
    ) -> tuple[MessagesAdded, MessagesAdded | None]:
        """What an attempt has said. Raises `ValueNotStorable`."""
        place = f"{started.place}@{record.scope.attempt}"
        fact = MessagesAdded(place=place, messages=phase, part=self._part)
        if self._log.run is None:
            return fact, None
        return fact, replace(fact, messages=seal(phase.to_json(), self._codec))

    # --- what the machine decides besides ---

    def follow(self, change: Changed | EdgesResolved) -> None:
        """Bring conversations and time limits of branches along; warn of what is hardly meant."""
        if isinstance(change, EdgesResolved):
            warn_of(self._setup.name, change, self._machine.failures)
            return
        match change.what:
            case Forked(fork):
                self._threads.fork(fork)
            case Joined(fork):
                self._threads.join(fork)
                if self._times is not None:
                    self._times.forget(fork)

    def stored(self, decision: AnyFact) -> AnyFact | None:
        """A decision as a store has it: with a codec, without the values that conditions read."""
        if self._codec is None or not isinstance(decision, EdgesResolved):
            return None
        edges = [
            EdgeFacts(target=one.target, when=one.when, taken=one.taken, why=one.why_without_values)
            for one in decision.edges
            if isinstance(one, EdgeOutcome)
        ]
        return replace(decision, edges=edges)

    def _time_out(self, ended: Collection[Branch], seconds: float, tell: Callable[[Told], None]) -> None:
        """Those that go on fail, what is around others before these, in the order of the edges."""
        for identity, branch in tuple(self._machine.open_branches.items()):
            if branch in ended and branch.state == "open":
                error = TimeLimitExceeded(f"branch {identity!r}", seconds)
                failure = failure_facts(error, "ambiguous")
                tell(BranchTimedOut(branch=identity, failure=failure, raised=error))


def _phase(
    node_visit: NodeVisit, written: Mapping[str, object], error: BaseException | None = None
) -> Phase | None:
    """What the last attempt has said, if it asked any agent."""
    talk = node_visit.talk_so_far
    return talk.phase(written, error) if isinstance(talk, Talk) else None


def decision_as_json(decision: Choice) -> JsonValue:
    """A decision as it is stored."""
    stored: dict[str, JsonValue] = {"target": decision.target, "reasoning": decision.reasoning}
    return stored if decision.failure is None else {**stored, "failure": decision.failure}


def decision_from_json(stored: JsonValue) -> Choice:
    """A decision as it was. Raises `ValueError` where that is not one."""
    if not isinstance(stored, dict) or not isinstance(stored.get("target"), str):
        raise ValueError("it is no decision")
    failure = stored.get("failure")
    return Choice(
        str(stored["target"]), str(stored.get("reasoning", "")), None if failure is None else str(failure)
    )
