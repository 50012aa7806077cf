"""How a graph runs the visits that its machine starts, and the decisions after them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, TimeLimitExceeded
from fastroai.graphs.conversation.threads import Threads
from fastroai.graphs.facts import BranchTimedOut, MessagesAdded, ValueWritten
from fastroai.graphs.machine.branch_times import BranchTimes
from fastroai.graphs.machine.branches import Branch, Fork, Joined
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.machine.routing import Choice, Unevaluated
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.visit import OpenVisit, data_of_visit
from fastroai.runs.running.machine import Changed, Told, Unit, unit_of
from fastroai.runs.running.units import BegunUnit
from fastroai.runs.running.work import Kept
from fastroai.runtime import RetriesUsed, Scope, facts
from fastroai.runtime.fact_base import Fact, Part
from fastroai.steps import BaseStep, ConversationState
from fastroai.steps.context import RunData
from fastroai.steps.copies import own_copy
from fastroai.steps.durability import failure_facts
from fastroai.steps.execution import run_step
from fastroai.store.record.log import Log
from fastroai.store.record.payloads import seal
from fastroai.store.record.unsealing import seal_payloads
from fastroai.store.record.values import value_to_json

if TYPE_CHECKING:
    from fastroai.graphs.conversation.thread import Phase

logger = logging.getLogger("fastroai.graphs")


class GraphWork:
    """The work of one run of a graph: it runs visits and decisions, and makes facts of their outcomes."""

    def __init__(
        self,
        setup: GraphSetup,
        machine: GraphMachine,
        threads: Threads,
        *,
        data: RunData,
        deps: Any,
        part: Part,
        log: Log,
    ) -> None:
        """Set up the work of a run; all visits share `data`."""
        self._setup, self._machine, self._threads = setup, machine, threads
        self._data, self._deps, self._part, self._log = data, deps, part, log
        self.configs = setup.configs
        self._codec = None if log.run is None else log.run.codec
        self._visits: dict[Unit, OpenVisit] = {}
        """Visits that go on, by unit."""
        self._as_stored: dict[Unit, MessagesAdded | None] = {}
        """Messages of visits that are about to end, in their stored form."""
        self._times: BranchTimes | None = None

    def bound_branches(self, tell: Callable[[Told], None]) -> None:
        """Limit the time of branches. `tell` tells the machine of branches that have worked too long."""
        if (seconds := self._setup.branch_timeout) is not None:
            self._times = BranchTimes(seconds, lambda ended: self._time_out(ended, seconds, tell))

    # --- visits ---

    def perform(
        self, started: facts.StepStarted, begun: BegunUnit, used: RetriesUsed
    ) -> Coroutine[Any, Any, object]:
        """Run the step of a node, or the decider after it."""
        setup, machine, node = self._setup, self._machine, started.step_id
        unit, visit = (node, started.visit), None
        step: BaseStep[Any, Any]
        if node in machine.decisions:
            from fastroai.graphs.agents.decider import DecideStep  # loads PydanticAI, which takes a second

            after, branch = machine.visit_of(started), machine.branch_of(started)
            assert branch is not None
            step = DecideStep(setup, after.node, machine.output_of(after))
        else:
            branch, step = machine.running[unit], setup.nodes[node].step
            visit = OpenVisit(setup, self._threads, self._write, started, branch, begun)
            self._visits[unit] = visit
        performed = run_step(
            step,
            scoped=begun,
            data=data_of_visit(self._data, setup.plan, branch, begun, visit),
            deps=self._deps,
            config=setup.configs[node],
            contract=setup.contracts.get(node),
            used=used,
        )
        return performed if self._times is None else self._timed(self._times, branch, begun.scope, performed)

    @staticmethod
    async def _timed(
        times: BranchTimes, branch: Branch, scope: Scope, performed: Coroutine[Any, Any, object]
    ) -> object:
        with times.at_work(branch, scope):
            return await performed

    def _write(self, visit: OpenVisit, key: str, value: object) -> object:
        """Put a value that a node has written on record, and return the copy that is kept."""
        place = f"{visit.started.place}@{visit.step.attempt}"
        stored: Fact | None = None
        if self._log.run is not None:
            as_stored = value_to_json(value, None, f"{key!r}, which node {visit.started.step_id!r} wrote,")
            stored = ValueWritten(place=place, key=key, value=seal(as_stored, self._codec), part=self._part)
        own = own_copy(value)
        self._log.note(ValueWritten(place=place, key=key, value=own, part=self._part), stored)
        return own

    # --- outcomes ---

    def finished(
        self, started: facts.StepStarted, begun: BegunUnit, output: object
    ) -> facts.StepFinished | facts.QuestionAsked:
        """Return the fact for an output, which is the output of a node, a question, or a decision.

        Raises:
            ConfigurationError: the output is incomplete, and the node is no pause node; or a send is invalid.
            ContractViolation: the output lacks a value that the node writes.
        """
        if isinstance(output, ConversationState) and output.is_incomplete:
            expected = (
                "a complete output, because a graph does not stop for a ConversationState that is "
                f"incomplete. To ask a person, call ctx.ask in node {started.step_id!r}, or list it in "
                "pause_nodes and return the question"
            )
            raise ConfigurationError("output", output, expected)
        node = started.step_id
        written: Mapping[str, object] = {}
        if not isinstance(output, Choice):
            visit = self._visits[node, started.visit]
            if node in self._setup.plan.pauses:
                return facts.QuestionAsked(
                    node,
                    output,
                    visit=started.visit,
                    branch=started.branch,
                    part=self._part,
                    id=facts.question_id(started.place),
                    answer_schema=self._setup.answer_schema(node),
                    attempt=begun.attempt,
                    duration_ms=begun.duration_ms,
                    written=dict(visit.written),  # the question is not written; its answer will be
                )
            written = writes_of(self._setup.plan, node, output, visit.written)
        fact = facts.StepFinished(node, output, self._part, started.visit, started.branch)
        fact.attempt, fact.degraded = begun.attempt, begun.degraded
        fact.duration_ms, fact.written, fact.spent_in = begun.duration_ms, written, begun
        return fact

    def settled(self, fact: facts.StepFinished | facts.QuestionAsked | facts.StepFailed) -> None:
        """Add the messages and writes of a visit that has ended to the conversation."""
        unit = fact.step_id, fact.visit
        visit = self._visits.pop(unit, None)
        if visit is None:
            return  # a decision, or a visit that failed before it began
        error = fact.raised if isinstance(fact, facts.StepFailed) else None
        phase = None if visit.talk_so_far is None else visit.phase(fact.written, error)
        if phase is not None and (error is None or phase.compaction):
            said = self._said(fact, phase)
            self._log.note(said, self._as_stored.pop(unit, None) or self._stored_messages(said))
        self._threads.add(visit.branch, unit, fact.written, error, phase)

    def failed(self, started: facts.StepStarted, fact: facts.StepFailed) -> None:
        """Keep the values that a failed visit wrote, and the compaction that happened in it."""
        visit = self._visits.get(unit_of(started))
        if visit is not None:
            fact.written = visit.kept
        self.settled(fact)

    def cut_short(self, started: facts.StepStarted, fact: facts.StepCancelled | facts.StepHalted) -> None:
        """Keep the values that a cancelled or halted visit wrote."""
        visit = self._visits.pop(unit_of(started), None)
        if visit is not None:
            fact.written = dict(visit.kept)

    def _said(
        self, fact: facts.StepFinished | facts.QuestionAsked | facts.StepFailed, phase: Phase
    ) -> MessagesAdded:
        return MessagesAdded(place=f"{fact.place}@{fact.attempt}", messages=phase, part=self._part)

    # --- stored form ---

    def stored(self, fact: Kept) -> Kept | None:
        """Return the stored form of a fact; `None` if there is no store, or if the fact is stored as it is.

        Raises:
            ValueNotStorable: an output or a message cannot be stored.
        """
        if self._log.run is None:
            return None
        match fact:
            case facts.StepFinished(step_id=step_id) if step_id in self._machine.decisions:
                return replace(fact, output=seal(decision_as_json(fact.output), self._codec))
            case facts.StepFinished():
                output = self._as_json(fact, fact.output, "output")
                self._store_messages(fact)
                return replace(fact, output=seal(output, self._codec))
            case facts.QuestionAsked():
                question = self._as_json(fact, fact.question, "question")
                self._store_messages(fact)
                return seal_payloads(replace(fact, question=question), self._codec)
            case _:
                return None

    def _as_json(self, fact: facts.StepFact, value: object, what: str) -> JsonValue:
        declared = self._setup.declared.get(fact.step_id)
        return value_to_json(value, declared, f"the {what} of node {fact.step_id!r}")

    def _store_messages(self, fact: facts.StepFinished | facts.QuestionAsked) -> None:
        """Prepare the messages of a visit for the store before its end is noted, as that can fail."""
        phase = self._visits[unit_of(fact)].phase(fact.written)
        if phase is not None:
            self._as_stored[unit_of(fact)] = said = self._stored_messages(self._said(fact, phase))
            if said is not None and self._log.run is not None:
                self._log.run.journal.check(said)

    def _stored_messages(self, said: MessagesAdded) -> MessagesAdded | None:
        if self._log.run is None:
            return None
        return replace(said, messages=seal(said.messages.to_json(), self._codec))

    # --- changes of branches ---

    def follow(self, change: Changed) -> None:
        """Update the conversations and time limits of branches after a change; log likely mistakes."""
        match change.what:
            case Unevaluated():
                warn_of_unevaluated(self._setup.name, change.what)
            case Fork() as fork:
                self._threads.fork(fork)
            case Joined(fork):
                warn_of_overwritten(self._setup.name, change.what)
                self._threads.join(fork)
                if self._times is not None:
                    self._times.forget(fork)

    def _time_out(self, ended: Collection[Branch], seconds: float, tell: Callable[[Told], None]) -> None:
        """Fail the branches that still go on: outer ones before inner ones, in the order of the edges."""
        for identity, branch in tuple(self._machine.open_branches.items()):
            if branch in ended and branch.state == "open":
                error = TimeLimitExceeded(f"branch {identity!r}", seconds)
                failure = failure_facts(error, "ambiguous")
                tell(BranchTimedOut(branch=identity, failure=failure, raised=error))


def decision_as_json(decision: Choice) -> JsonValue:
    """Return a decision as it is stored."""
    stored: dict[str, JsonValue] = {"target": decision.target, "reasoning": decision.reasoning}
    return stored if decision.failure is None else {**stored, "failure": decision.failure}


def decision_from_json(stored: JsonValue) -> Choice:
    """Return the decision that was stored. Raises `ValueError` if the JSON is not a decision."""
    if not isinstance(stored, dict) or not isinstance(stored.get("target"), str):
        raise ValueError("it is not a decision: a JSON object with a text as its 'target'")
    failure = stored.get("failure")
    return Choice(
        str(stored["target"]), str(stored.get("reasoning", "")), None if failure is None else str(failure)
    )


def warn_of_unevaluated(graph: str, conditions: Unevaluated) -> None:
    """Warn of each edge whose condition cannot be evaluated."""
    for one in conditions.edges:
        logger.warning(
            "graph %r: the condition of the edge from %r to %r cannot be evaluated, so it does not hold: %s",
            graph,
            conditions.node,
            one.target,
            one.why,
        )


def warn_of_overwritten(graph: str, joined: Joined) -> None:
    """Warn of each value that a branch wrote and another one overwrote, if no reducer says so."""
    for key, nodes in joined.overwritten.items():
        *others, last = nodes
        lost = [
            f"{node!r} ({count} times)" if count > 1 else repr(node)
            for node, count in Counter(others).items()
        ]
        logger.warning(
            "graph %r: branches after %r wrote %r. The value of %r was the last, that of %s is overwritten. "
            "Keep all by reducers={%r: 'append'} or 'merge', 'add', a function; 'last_wins' if it is meant",
            graph,
            joined.fork.node,
            key,
            last,
            ", ".join(lost),
            key,
        )
