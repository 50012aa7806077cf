"""Which edges are taken after a node, and why: a pure function of its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, assert_never

from fastroai.expressions import Outcome
from fastroai.graphs.machine.evaluating import tested
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.shape.edge import Edge
from fastroai.runs.decoding import value_of

if TYPE_CHECKING:
    from fastroai.graphs.shape.plan import GraphPlan

NodeOutcome: TypeAlias = Literal["succeeded", "skipped", "failed"]

_OPEN: Final = ("conditional", "llm_decide", "send")
"""Kinds of edges that depend on more than the outcome of the visit."""


class EdgeOutcome(NamedTuple):
    """Whether an edge was taken, and why."""

    edge: Edge
    taken: bool
    test: Outcome | None = None
    """Outcome of the edge's condition, if that was evaluated."""
    because: str = ""

    @property
    def target(self) -> str:
        """The node that the edge leads to."""
        return self.edge.target

    @property
    def when(self) -> str:
        """When the edge is taken, as it was declared."""
        return self.edge.when

    @property
    def why(self) -> str:
        """Why the edge was taken, or not, for people."""
        return self.because if self.test is None else self.test.explain()


@dataclass(frozen=True, slots=True)
class Choice:
    """The target that was chosen among the `llm_decide` edges, and why."""

    target: str
    reasoning: str = ""
    failure: str | None = None
    """Why the target is the fallback, if the decider gave no answer."""


@dataclass(frozen=True, slots=True)
class Route:
    """The outcomes of all edges after a visit to a node, and the targets of the taken ones."""

    edges: tuple[EdgeOutcome, ...]
    """Outcomes of all edges of the node, in declaration order."""
    targets: tuple[str, ...]
    """Targets of the taken edges, each once. `send` edges are not among these."""
    cause: str
    """Why the targets run."""
    sends: tuple[Send, ...] = ()
    """The sends in the output of the node."""
    unevaluated: tuple[EdgeOutcome, ...] = ()
    """Edges whose condition could not be evaluated, and so does not hold."""


@dataclass(slots=True)
class Unevaluated:
    """Edges after a visit to a node whose conditions could not be evaluated."""

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
    """Return the route after a visit. `plan.fixed_routes` keeps routes that only the outcome decides."""
    # A skipped visit sends nothing: the sends of its last output have been done.
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
    """Return the outcome of every edge of a node, in declaration order."""
    if outcome == "failed":
        return [_after_failure(edge, node) for edge in plan.edges[node]]
    outcomes: list[EdgeOutcome] = []
    held: Edge | None = None
    sent = Counter(send.target for send in sends)
    for edge in plan.edges[node]:
        taken, test, because = True, None, f"{node!r} {outcome}"
        match edge.when:
            case "on_success":
                pass
            case "on_failure":
                taken = False
            case "conditional" if held is not None:
                taken, because = False, f"the condition of the edge to {held.target!r} held before"
            case "conditional":
                test, because = tested(plan.conditions[edge], output, memory), ""
                taken = test.holds
                held = edge if taken else None
            case "send":
                count = sent[edge.target]
                taken, because = count > 0, f"{node!r} has sent {count or 'nothing'} there"
            case "llm_decide":
                assert decision is not None
                taken, because = edge.target == decision.target, _decided(decision)
            case "always":
                because = "always, unless a condition holds"
            case unknown:
                assert_never(unknown)
        outcomes.append(EdgeOutcome(edge, taken, test, because))
    if held is None and not sends:
        return outcomes
    beside = f"{node!r} has sent" if held is None else f"the condition of the edge to {held.target!r} holds"
    return [
        EdgeOutcome(one.edge, False, None, beside) if one.edge.when == "always" else one for one in outcomes
    ]


def _after_failure(edge: Edge, node: str) -> EdgeOutcome:
    taken = edge.when in ("always", "on_failure")
    return EdgeOutcome(edge, taken, None, f"{node!r} failed" if edge.when != "always" else "always")


def _decided(decision: Choice) -> str:
    if decision.failure is not None:
        return f"{decision.target!r} is the fallback: {decision.failure}"
    return f"{decision.target!r} was decided for: {decision.reasoning}"
