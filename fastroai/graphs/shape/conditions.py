"""The conditions of edges: parsed, and checked to name only values that can exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ExpressionError, nearest_hint
from fastroai.expressions import Expression
from fastroai.graphs.errors import GraphProblem
from fastroai.graphs.machine.fields import declared_fields
from fastroai.graphs.shape.edge import WHEN, Edge
from fastroai.graphs.shape.node import Node
from fastroai.records import NotGiven
from fastroai.steps import BaseStep
from fastroai.steps.contracts import declared_output

_WHOLES: Final = {"output": "Fields of the output", "memory": "Keys of memory"}
"""Names under which other libraries give conditions all that they can read."""


class Conditions:
    """Parses the conditions of a graph, and finds their problems."""

    def __init__(self, nodes: Mapping[str, Node[Any]], pauses: Set[str], accepts: Accepted | None) -> None:
        self.parsed: dict[Edge, Expression] = {}
        self._nodes, self._pauses = nodes, pauses
        self._memory = frozenset(_in_memory(nodes)) | frozenset(() if accepts is None else accepts.names)
        self._has_sends = False

    def problems(self, edges: Sequence[tuple[int, Edge]]) -> Iterator[GraphProblem]:
        """Parse the conditions of these edges, and yield each problem with them."""
        self._has_sends = any(edge.when == "send" for _, edge in edges)
        for index, edge in edges:
            about = ("edges", index, "condition")
            if edge.when != "conditional":
                if edge.condition is not None:
                    word = f"when={edge.condition!r}" if edge.condition in WHEN else "when='conditional'"
                    yield GraphProblem(f"edge {edge} has a condition; set {word}", about)
            elif edge.condition is None:
                message = f"edge {edge} has when='conditional' and no condition; give it: condition='...'"
                yield GraphProblem(message, ("edges", index))
            else:
                for message in self._problems_of(edge, edge.condition):
                    yield GraphProblem(f"the condition of edge {edge} {message}", about)

    def _problems_of(self, edge: Edge, condition: str) -> Iterator[str]:
        try:
            expression = Expression(condition)
        except ExpressionError as error:
            yield f"is not valid: {error}"
            return
        ends = (edge.source, edge.target)
        if not all(isinstance(end, str) and end in self._nodes for end in ends):
            return  # the unknown node is reported as a problem of its own
        self.parsed[edge] = expression
        fields = self._fields_of(edge.source)
        if fields is None:
            return
        for name in sorted(expression.names - fields - self._memory):
            remedy = " Put it in writes= of the node that gives it, or in accepts= if it is an input"
            remedy += ", or in reads= of the node that it is sent to" if self._has_sends else ""
            whole = _WHOLES.get(name)
            told = None if whole is None else f" {whole} need no prefix: `score`, not `{name}.score`"
            hint = told or nearest_hint(name, fields | self._memory) or remedy
            yield f"names {name!r}, which no node writes.{hint}"

    def _fields_of(self, source: str) -> frozenset[str] | None:
        """Return the names that a node's output is known to have; `None` if it may have any."""
        node = self._nodes[source]
        written = frozenset(_names(node.writes))
        fields = declared_fields(self._output_type(source))
        if fields is None:
            return written or None
        return fields | written

    def _output_type(self, source: str) -> object:
        node = self._nodes[source]
        if source in self._pauses:  # its output is the answer of the person
            return None if isinstance(node.answer_type, NotGiven) else node.answer_type
        return declared_output(node.step) if isinstance(node.step, BaseStep) else None


def _in_memory(nodes: Mapping[str, Node[Any]]) -> Iterator[str]:
    """Yield the keys that memory can have: those that nodes write, and those that nodes read."""
    for node_id, node in nodes.items():
        yield from _names(node.reads)
        yield from _names(node.writes) or (node_id,)


def _names(names: object) -> tuple[str, ...]:
    """Return the valid names in `reads` or `writes`. Invalid ones are reported elsewhere."""
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, tuple) else ()
