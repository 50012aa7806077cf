"""The facts that only graphs make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import PlainSerializer, PlainValidator, TypeAdapter
from typing_extensions import override

from fastroai.data_kinds import Name, Payload, Text
from fastroai.runtime.fact_base import FailureFacts, Notes, PlacedFact, PlanFact, Raised, Telling
from fastroai.runtime.facts import DecidedAfter, UnitDecision


class ResolvedEdge(Protocol):
    """The outcome of an edge of a graph: whether it was taken, and why."""

    @property
    def target(self) -> str:
        """The node to which the edge leads."""
        ...

    @property
    def when(self) -> str:
        """The condition of the edge, as it was declared."""
        ...

    @property
    def taken(self) -> bool:
        """Whether the edge was taken."""
        ...

    @property
    def why(self) -> str:
        """The reason, for people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFacts:
    """The outcome of an edge of a graph, as the log stores it."""

    target: str
    when: str
    taken: bool
    why: Text[str]

    @classmethod
    def of(cls, edge: ResolvedEdge) -> EdgeFacts:
        """Return the outcome in the form that the log stores."""
        return cls(target=edge.target, when=edge.when, taken=edge.taken, why=edge.why)


def _edges_as_json(edges: Sequence[ResolvedEdge]) -> list[dict[str, Any]]:
    return [{"target": one.target, "when": one.when, "taken": one.taken, "why": one.why} for one in edges]


def _edges_from_json(given: object) -> Sequence[ResolvedEdge]:
    return _edge_facts().validate_python(given)


@cache  # when it is first needed: with the first adapter, pydantic imports its plugins
def _edge_facts() -> TypeAdapter[tuple[EdgeFacts, ...]]:
    return TypeAdapter(tuple[EdgeFacts, ...])


@dataclass(slots=True)
class EdgesResolved(DecidedAfter):
    """The event that a graph has decided which edges it takes after a visit to a node.

    `edges` has every edge that leaves the node, taken or not: its `target`, its `when`, whether it was
    `taken`, and `why`. `after` says how the visit ended: `"succeeded"`, `"skipped"` or `"failed"`.
    """

    kind: ClassVar[str] = "edges_resolved"
    noun: ClassVar = "end"
    identity: ClassVar = ("edges", "place")
    edges: Annotated[
        Sequence[ResolvedEdge], PlainValidator(_edges_from_json), PlainSerializer(_edges_as_json)
    ]
    """All edges that leave the node, in the order of their declaration."""
    _: KW_ONLY
    after: Literal["succeeded", "skipped", "failed"] = "succeeded"
    """How the visit ended."""

    @property
    @override
    def ways_taken(self) -> tuple[tuple[str, str], ...]:
        return tuple((edge.target, edge.when) for edge in self.edges if edge.taken)

    @override
    def agrees(self, decided: UnitDecision) -> bool:
        assert isinstance(decided, EdgesResolved)
        outcomes = ([(edge.target, edge.taken) for edge in one.edges] for one in (self, decided))
        return next(outcomes) == next(outcomes)

    @override
    def detached(self) -> Self:
        return replace(self, edges=tuple(map(EdgeFacts.of, self.edges)))

    @override
    def in_short(self) -> str:
        targets = ", ".join(repr(edge.target) for edge in self.edges if edge.taken)
        return f"{self.step_id!r} followed by {targets or 'nothing'}"

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        return tuple(
            f"{self.place}: the {edge.when} edge to {edge.target!r} "
            f"is {'taken' if edge.taken else 'not taken'}: {edge.why}"
            for edge in self.edges
        )


@dataclass(slots=True, kw_only=True)
class BranchTimedOut(Notes, PlanFact):
    """A branch of a graph took longer than `branch_timeout`, so it has failed.

    `branch` says which one: `split#1/draft` is the branch `draft` of the first visit to the fork `split`. For
    a fork inside of a branch, the outer branch comes first: `split#1/draft/check#1/facts`.

    `failure` describes the error, and `error` is the exception. Listeners (`on_event`) get a
    `TimeLimitExceeded`. In traces, `error` is a `RecordedError` with its type and message.
    """

    kind: ClassVar[str] = "branch_timed_out"
    says: ClassVar = "branch {0.branch!r} {0.failure.sentence}"
    identity: ClassVar = ("branch", "part.place", "branch")
    branch: str
    failure: FailureFacts
    raised: Raised = field(default=None, compare=False, repr=False)

    @property
    def error(self) -> BaseException:
        """The exception of the time limit, a `TimeLimitExceeded`.

        If the event was read from a store, it is a `RecordedError` with the type and the message.
        """
        return self.failure.as_error() if self.raised is None else self.raised


@dataclass(slots=True, kw_only=True)
class ValueWritten(PlacedFact, Notes, PlanFact):
    """The event that a node wrote a value into the graph's memory with `ctx.write`, while it was running.

    `key` is the key in memory, and `value` the value; in an event from a store, its JSON. Only the log and
    traces have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "value_written"
    says: ClassVar = None
    holds: ClassVar = "{0.key!r}, which {0.place!r} wrote,"
    identity: ClassVar = ("value", "place", "key")
    place: str
    """Place of the attempt at the node."""
    key: Name[str]
    value: Payload[Any]


@dataclass(slots=True, kw_only=True)
class MessagesAdded(PlacedFact, Notes, PlanFact):
    """A visit to a node added the messages of its agent calls to the conversation of a graph.

    `place` names the attempt at the node that did so. `messages` is a JSON object: its `messages` are those
    of PydanticAI as JSON, and `node`, `visit` and `wrote` say where they come from. Only the log and traces
    have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "messages_added"
    says: ClassVar = None
    makes_values: ClassVar = True
    holds: ClassVar = "the conversation of {0.place!r}"
    identity: ClassVar = ("messages", "place")
    place: str
    """Place of the attempt at the node."""
    messages: Payload[Any]
    """The messages; in a fact from a log, and in a trace, their JSON."""
