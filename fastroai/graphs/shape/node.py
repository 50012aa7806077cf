"""Nodes: a step, and what it reads and writes of the graph's memory."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from fastroai.contracts.annotations import Annotation
from fastroai.records import NOT_GIVEN, NotGiven
from fastroai.steps import BaseStep
from fastroai.steps.base import DepsT_contra

StepT_co = TypeVar("StepT_co", bound=BaseStep[Any, Any], covariant=True)


class Nestable(Protocol[StepT_co]):
    """What can be made a step without saying more: pipelines, routers, graphs."""

    def as_step(self) -> StepT_co:
        """A step that runs it."""
        ...


StepLike: TypeAlias = BaseStep[DepsT_contra, Any] | Nestable[BaseStep[DepsT_contra, Any]]
"""A step, or what becomes one: a pipeline, a router, a graph."""


@dataclass(frozen=True, slots=True, init=False)
class Node(Generic[DepsT_contra]):
    """A step in a graph, with what it reads and writes.

        Node(classify, reads=["ticket"], writes=["category", "confidence"], max_visits=3)

    A step alone, as the value in `Graph(nodes=...)`, means `Node(step)`. A graph checks its nodes when it is
    built.
    """

    step: BaseStep[DepsT_contra, Any]
    """What runs. Pipelines, routers and graphs become steps here."""
    reads: tuple[str, ...]
    """The keys of memory that its `get_input` sees; all of them where none is given."""
    writes: tuple[str, ...]
    """The keys of memory that it writes: fields of its output, or the one key for all of it. Where none is
    given, its output is written under its id."""
    max_visits: int | None
    """How often it is executed at most; then it is skipped, and keeps its output."""
    focus: str | None
    """What the model is to attend to here: the last layer of its prompt."""
    answer: Annotation | NotGiven = field(hash=False)
    """The type of the answer that a person gives at this node, which is then among the pause nodes."""

    def __init__(
        self,
        step: StepLike[DepsT_contra],
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        max_visits: int | None = None,
        focus: str | None = None,
        answer: Annotation | NotGiven = NOT_GIVEN,
    ) -> None:
        values = {
            "step": _as_step(step),
            "reads": _frozen(reads),
            "writes": _frozen(writes),
            "max_visits": max_visits,
            "focus": focus,
            "answer": answer,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


NodeLike: TypeAlias = Node[DepsT_contra] | StepLike[DepsT_contra]
"""What can stand for a node in `Graph(nodes=...)`."""


def nodes_of(nodes: Mapping[str, NodeLike[DepsT_contra]]) -> dict[str, Node[DepsT_contra]]:
    """Every value as a node. What can be none stays in one, for `build_plan` to refuse with all the rest."""
    return {node_id: node if isinstance(node, Node) else Node(node) for node_id, node in nodes.items()}


def _as_step(step: StepLike[DepsT_contra]) -> BaseStep[DepsT_contra, Any]:
    """The step that it is or becomes; anything else as it is, for `build_plan` to say what is wrong."""
    if isinstance(step, BaseStep | type) or not _needs_nothing(step):
        return cast("BaseStep[DepsT_contra, Any]", step)
    return step.as_step()


def _needs_nothing(nestable: object) -> bool:
    """Whether its `as_step` can be called without arguments, which an agent's cannot: it takes a prompt."""
    as_step = getattr(nestable, "as_step", None)
    if not callable(as_step):
        return False
    try:
        inspect.signature(as_step).bind()
    except (TypeError, ValueError):
        return False
    return True


def _frozen(names: Sequence[str]) -> Sequence[str]:
    """Lists as tuples; what is no list as it is, for `build_plan` to refuse."""
    return tuple(names) if isinstance(names, list) else names
