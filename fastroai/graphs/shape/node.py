"""Nodes: steps, with the keys of the graph's memory that they read and write."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from fastroai.contracts.annotations import Annotation
from fastroai.other_names import other_names
from fastroai.records import NOT_GIVEN, NotGiven
from fastroai.steps import BaseStep
from fastroai.steps.base import DepsT_contra

StepT_co = TypeVar("StepT_co", bound=BaseStep[Any, Any], covariant=True)


class Nestable(Protocol[StepT_co]):
    """An object that becomes a step without arguments: a pipeline, a router, a graph."""

    def as_step(self) -> StepT_co:
        """Return a step that runs this object."""
        ...


StepLike: TypeAlias = BaseStep[DepsT_contra, Any] | Nestable[BaseStep[DepsT_contra, Any]]
"""A step, or an object that becomes one: a pipeline, a router, a graph."""


@other_names(
    arguments={
        "input_keys": "reads=",
        "output_keys": "writes=",
        "max_node_visits": "max_visits=",
        "max_retries": "retries= of the step",
        "system_prompt": "instructions= of the agent, or focus= for what holds in this node alone",
        "answer": "answer_type=",
        "id": "the key in Graph(nodes={…})",
    }
)
@dataclass(frozen=True, slots=True, init=False)
class Node(Generic[DepsT_contra]):
    """A step in a graph, with the keys of memory that it reads and writes.

        Node(classify, reads=["ticket"], writes=["category", "confidence"], max_visits=3)

    By default, the step sees all of the memory, its output is written under the id of the node, and it runs
    as often as edges lead to it. After `max_visits` runs, the node is skipped: it keeps its last output, and
    its edges are followed.

    A step alone, as the value in `Graph(nodes=...)`, means `Node(step)`. A pipeline, router or graph becomes
    a step. A graph checks its nodes when it is built.
    """

    step: BaseStep[DepsT_contra, Any]
    """The step that runs. Pipelines, routers and graphs become steps here."""
    reads: tuple[str, ...]
    """Keys of memory that `get_input` of the step sees; all keys if none is given."""
    writes: tuple[str, ...]
    """Keys of memory that the node writes: fields of its output, or a single key for the whole output. If no
    key is given, the output is written under the id of the node."""
    max_visits: int | None
    """Maximum number of executions. After that the node is skipped, and keeps its output."""
    focus: str | None
    """What the model should attend to in this node: the last layer of its prompt."""
    answer_type: Annotation | NotGiven = field(hash=False)
    """Type of the answer that a person gives at this node, which must be one of the `pause_nodes`."""

    def __init__(
        self,
        step: StepLike[DepsT_contra],
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        max_visits: int | None = None,
        focus: str | None = None,
        answer_type: Annotation | NotGiven = NOT_GIVEN,
    ) -> None:
        values = {
            "step": _as_step(step),
            "reads": _frozen(reads),
            "writes": _frozen(writes),
            "max_visits": max_visits,
            "focus": focus,
            "answer_type": answer_type,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


NodeLike: TypeAlias = Node[DepsT_contra] | StepLike[DepsT_contra]
"""A value for a node in `Graph(nodes=...)`."""


def nodes_of(nodes: Mapping[str, NodeLike[DepsT_contra]]) -> dict[str, Node[DepsT_contra]]:
    """Return every value as a node. `build_plan` reports invalid steps, with all other problems."""
    return {node_id: node if isinstance(node, Node) else Node(node) for node_id, node in nodes.items()}


def _as_step(step: StepLike[DepsT_contra]) -> BaseStep[DepsT_contra, Any]:
    """Return the step that a value is or becomes. Any other value is unchanged: `build_plan` reports it."""
    if isinstance(step, BaseStep | type) or not _needs_nothing(step):
        return cast("BaseStep[DepsT_contra, Any]", step)
    return step.as_step()


def _needs_nothing(nestable: object) -> bool:
    """Return whether `as_step` can be called without arguments. That of an agent needs a prompt."""
    as_step = getattr(nestable, "as_step", None)
    if not callable(as_step):
        return False
    try:
        inspect.signature(as_step).bind()
    except (TypeError, ValueError):
        return False
    return True


def _frozen(names: Sequence[str]) -> Sequence[str]:
    """Return a list as a tuple. Any other value is unchanged: `build_plan` checks it."""
    return tuple(names) if isinstance(names, list) else names
