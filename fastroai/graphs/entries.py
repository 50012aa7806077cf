"""What happens to a graph, as entries of the log of its run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from pydantic import JsonValue

from fastroai.graphs.events import (
    AskDecider,
    BranchTimedOut,
    Cancelled,
    Command,
    Decided,
    RouteNode,
    SkipNode,
    StartNode,
    Visit,
)
from fastroai.graphs.routing import Decision, EdgeOutcome
from fastroai.graphs.visits import decision_place, visit_place
from fastroai.runtime.facts import (
    AnyFact,
    BranchTimedOut,
    EdgeFacts,
    EdgesResolved,
    FailureFacts,
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from fastroai.steps.durability import failure_facts


class GraphEntries:
    """Makes the entries of one graph of a run, the outermost or a nested one."""

    def __init__(self, place: str, *, shows_values: bool = True) -> None:
        """At a place in the run, empty for the outermost. `shows_values`: in what is said of conditions."""
        self.graph = place
        self._prefix = f"{place}/" if place else ""
        self._shows_values = shows_values

    def place(self, visit: Visit) -> str:
        """Where a visit is, in the run."""
        return f"{self._prefix}{visit_place(visit)}"

    def decision(self, visit: Visit) -> str:
        """Where the decision after a visit is, in the run."""
        return f"{self._prefix}{decision_place(visit)}"

    def of_commands(self, commands: Sequence[Command], at: datetime) -> Iterator[AnyFact]:
        """What was decided."""
        for command in commands:
            match command:
                case StartNode(visit=visit, cause=cause):
                    yield StepStarted(at=at, place=self.place(visit), cause=cause)
                case AskDecider(visit=visit, cause=cause):
                    yield StepStarted(at=at, place=self.decision(visit), cause=cause)
                case SkipNode(visit=visit, cause=cause):
                    yield StepSkipped(at=at, place=self.place(visit), cause=cause)
                case RouteNode(visit=visit, edges=edges) if edges:
                    yield EdgesResolved(at=at, place=self.place(visit), edges=tuple(map(self._edge, edges)))
                case _:
                    pass

    def _edge(self, outcome: EdgeOutcome) -> EdgeFacts:
        edge = outcome.edge
        why = outcome.why if self._shows_values else outcome.why_without_values
        return EdgeFacts(target=edge.target, when=edge.when, taken=outcome.taken, why=why)

    def succeeded(
        self, visit: Visit, attempt: int, output: JsonValue, duration_ms: float, at: datetime
    ) -> StepFinished:
        """A visit gave its output."""
        return StepFinished(
            at=at, place=self.place(visit), attempt=attempt, output=output, duration_ms=duration_ms
        )

    def asked(
        self, visit: Visit, attempt: int, question: JsonValue, duration_ms: float, at: datetime
    ) -> QuestionAsked:
        """A pause node gave its question."""
        return QuestionAsked(
            at=at, place=self.place(visit), attempt=attempt, question=question, duration_ms=duration_ms
        )

    def failed(
        self,
        visit: Visit,
        attempt: int,
        failure: FailureFacts,
        duration_ms: float,
        at: datetime,
        *,
        stopped: bool,
    ) -> StepFailed:
        """A visit failed."""
        return StepFailed(
            at=at,
            place=self.place(visit),
            attempt=attempt,
            failure=failure,
            stopped=stopped,
            duration_ms=duration_ms,
        )

    def cancelled(
        self, event: Cancelled, attempt: int, cause: str, at: datetime, *, is_decision: bool = False
    ) -> StepCancelled:
        """A visit was cancelled, or the decision after it."""
        place = self.decision(event.visit) if is_decision else self.place(event.visit)
        return StepCancelled(at=at, place=place, attempt=attempt, cause=cause)

    def decided(
        self, event: Decided, attempt: int, decision: JsonValue, duration_ms: float, at: datetime
    ) -> StepFinished:
        """A model decided, or its fallback holds."""
        return StepFinished(
            at=at,
            place=self.decision(event.visit),
            attempt=attempt,
            output=decision,
            duration_ms=duration_ms,
        )

    def timed_out(self, event: BranchTimedOut, at: datetime) -> BranchTimedOut:
        """A branch took too long."""
        failure = failure_facts(event.error, "ambiguous")
        return BranchTimedOut(at=at, graph=self.graph, branch=event.branch, failure=failure)


def decision_as_json(decision: Decision) -> JsonValue:
    """A decision as it is stored."""
    stored: dict[str, JsonValue] = {"target": decision.target, "reasoning": decision.reasoning}
    return stored if decision.failure is None else {**stored, "failure": decision.failure}


def decision_from_json(stored: JsonValue) -> Decision:
    """A decision as it was. Raises `ValueError` where that is not one."""
    if not isinstance(stored, dict) or not isinstance(stored.get("target"), str):
        raise ValueError("it is no decision")
    failure = stored.get("failure")
    return Decision(
        str(stored["target"]), str(stored.get("reasoning", "")), None if failure is None else str(failure)
    )
