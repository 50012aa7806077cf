"""Which edges are taken after a node, and why: a pure function of its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from fastroai.expressions import Outcome
from fastroai.graphs.machine.evaluating import tested
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.shape.edge import Edge
from fastroai.runs.decoding import value_of

if TYPE_CHECKING:
    from fastroai.graphs.shape.plan import GraphPlan

NodeOutcome: TypeAlias = Literal["succeeded", "skipped", "failed"]

_OPEN: Final = ("conditional", "llm_decide", "send")
"""Edges whose outcome depends on more than how the visit has ended."""


class EdgeOutcome(NamedTuple):
    """Whether an edge was taken, and why."""

    edge: Edge
    taken: bool
    test: Outcome | None = None
    """Of its condition, if that was evaluated."""
    because: str = ""

    @property
    def target(self) -> str:
        """The node that it leads to."""
        return self.edge.target

    @property
    def when(self) -> str:
        """When it is taken, as it was declared."""
        return self.edge.when

    @property
    def why(self) -> str:
        """For people."""
        return self.because if self.test is None else self.test.explain()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the candidates of `llm_decide` edges it is, and why."""

    target: str
    reasoning: str = ""
    failure: str | None = None
    """Why it is the fallback, if the decider did not answer."""


@dataclass(frozen=True, slots=True)
class Route:
    """What becomes of the edges after a visit to a node."""

    edges: tuple[EdgeOutcome, ...]
    """All of them, in declaration order."""
    targets: tuple[str, ...]
    """Where the taken ones lead, each once, but for `send` edges."""
    cause: str
    """Why these nodes run."""
    sends: tuple[Send, ...] = ()
    """What the node has sent."""
    unevaluated: tuple[EdgeOutcome, ...] = ()
    """Those whose condition could not be evaluated, which then does not hold."""


@dataclass(slots=True)
class Unevaluated:
    """Conditions after a visit to a node could not be evaluated."""

    node: str
    edges: tuple[EdgeOutcome, ...]


def routed(
    plan: GraphPlan,
    node: str,
    outcome: NodeOutcome,
    output: object,
    memory: Mapping[str, object],
    decision: Choice | None,
) -> Route:
    """The route after a visit; `plan.fixed_routes` keeps it if no condition and no model has a say in it."""
    # A visit that is skipped sends nothing: what was sent before has been done.
    sends = _sends(output) if outcome == "succeeded" and node in plan.sending else ()
    edges = tuple(_resolve(plan, node, outcome, output, memory, decision, sends))
    taken = [one.edge.target for one in edges if one.taken and one.edge.when != "send"]
    cause = intern(f"{node!r} {'was skipped' if outcome == 'skipped' else outcome}")  # facts keep it
    unevaluated = tuple(one for one in edges if one.test is not None and one.test.problem is not None)
    route = Route(edges, tuple(dict.fromkeys(taken)), cause, sends, unevaluated)
    if not any(edge.when in _OPEN for edge in plan.edges[node]):
        plan.fixed_routes[node, outcome] = route
    return route


def _sends(output: object) -> tuple[Send, ...]:
    sent = value_of(output)
    assert isinstance(sent, list | tuple)
    return tuple(sent)


def _resolve(
    plan: GraphPlan,
    node: str,
    outcome: NodeOutcome,
    output: object,
    memory: Mapping[str, object],
    decision: Choice | None,
    sends: tuple[Send, ...],
) -> list[EdgeOutcome]:
    """What becomes of every edge of a node, in declaration order."""
    if outcome == "failed":
        return [_after_failure(edge, node) for edge in plan.edges[node]]
    outcomes: list[EdgeOutcome] = []
    held: Edge | None = None
    sent = Counter(send.target for send in sends)
    for edge in plan.edges[node]:
        if edge.when == "conditional":
            outcome_of_edge = _conditional(plan, edge, held, output, memory)
            held = edge if outcome_of_edge.taken else held
            outcomes.append(outcome_of_edge)
        elif edge.when == "send":
            outcomes.append(_sent(edge, node, sent[edge.target]))
        else:
            outcomes.append(_after_success(edge, node, outcome, decision))
    if held is None and not sends:
        return outcomes
    beside = f"{node!r} has sent" if held is None else f"the condition of the edge to {held.target!r} holds"
    return [
        EdgeOutcome(one.edge, False, None, beside) if one.edge.when == "always" else one for one in outcomes
    ]


def _after_failure(edge: Edge, node: str) -> EdgeOutcome:
    taken = edge.when in ("always", "on_failure")
    return EdgeOutcome(edge, taken, None, f"{node!r} failed" if edge.when != "always" else "always")


def _after_success(edge: Edge, node: str, outcome: NodeOutcome, decision: Choice | None) -> EdgeOutcome:
    match edge.when:
        case "on_success":
            return EdgeOutcome(edge, True, None, f"{node!r} {outcome}")
        case "on_failure":
            return EdgeOutcome(edge, False, None, f"{node!r} {outcome}")
        case "llm_decide":
            assert decision is not None
            return EdgeOutcome(edge, edge.target == decision.target, None, _decided(decision))
        case _:
            return EdgeOutcome(edge, True, None, "always, unless a condition holds")


def _sent(edge: Edge, node: str, count: int) -> EdgeOutcome:
    return EdgeOutcome(edge, count > 0, None, f"{node!r} has sent {count or 'nothing'} there")


def _decided(decision: Choice) -> str:
    if decision.failure is not None:
        return f"{decision.target!r} is the fallback: {decision.failure}"
    return f"{decision.target!r} was decided for: {decision.reasoning}"


def _conditional(
    plan: GraphPlan, edge: Edge, held: Edge | None, output: object, memory: Mapping[str, object]
) -> EdgeOutcome:
    if held is not None:
        return EdgeOutcome(edge, False, None, f"the condition of the edge to {held.target!r} held before")
    outcome = tested(plan.conditions[edge], output, memory)
    return EdgeOutcome(edge, outcome.holds, outcome)
