"""The values that a node's output writes to the memory of its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fastroai.errors import ContractViolation, ViolationDetail
from fastroai.graphs.machine.fields import fields_of
from fastroai.graphs.machine.sends import Send, check_sends, is_sends
from fastroai.graphs.shape.plan import GraphPlan

_SENT: Final = (list, tuple, Send)
"""Types of outputs that may be sends."""


def writes_of(
    plan: GraphPlan, node: str, output: object, accumulated: Mapping[str, object]
) -> dict[str, object]:
    """Return the values to write: those of the output, over those that the node wrote before its end.

    The names that the node declares are fields of a mapping, a model or a dataclass, or a single name for any
    other output. If the node declares none, the whole output is written under the id of the node. An output
    of sends is not written.

    Raises:
        ContractViolation: the output lacks a value that the node declares.
        ConfigurationError: the node has `send` edges but returns no list of sends, or a send has no edge.
    """
    names: Sequence[str] | None = plan.writes.get(node)
    if node in plan.sending or type(output) in _SENT:
        declared = plan.sending.get(node)
        if declared is not None or is_sends(output):
            check_sends(node, output, declared or ())
            output, names = {}, names or ()
    if names is None:
        return {**accumulated, node: output}
    fields = fields_of(output)
    if fields is None:
        left = [name for name in names if name not in accumulated]
        if len(names) == 1 and (output is not None or left):
            left = list(names)  # an output replaces the value that the node wrote before its end
        if len(left) > 1:
            raise _violation(node, left, output, f"expected an output with these fields, not {_kind(output)}")
        return {**accumulated, **dict.fromkeys(left, output)}
    missing = [name for name in names if name not in fields and name not in accumulated]
    if missing:
        known = ", ".join(map(repr, fields)) or "no fields"
        raise _violation(node, missing, output, f"the node declares to write it; its output has {known}")
    return {**accumulated, **{name: fields[name] for name in names if name in fields}}


def _violation(node: str, names: Sequence[str], output: object, reason: str) -> ContractViolation:
    details: tuple[ViolationDetail, ...] = tuple(
        {"type": "missing", "loc": (name,), "msg": f"Field required: {reason}"} for name in names
    )
    return ContractViolation(node, "output", details, output)


def _kind(output: object) -> str:
    return "None" if output is None else f"a {type(output).__name__}"
