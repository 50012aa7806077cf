"""Visits that a node asks for when it runs: as many as it likes, each with inputs of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.other_names import other_names


@other_names(arguments={"node": "target=", "arg": "inputs=, a mapping"})
@dataclass(frozen=True, slots=True)
class Send:
    """A new branch that begins at the node `target`, with `inputs` in its memory.

    A node with edges `when="send"` returns a list or tuple of sends, and each becomes a branch. An edge
    `when="send"` must lead from the node to the target, otherwise the node fails. An empty list starts no
    branch:

        @step
        async def split(ctx: StepContext) -> list[Send]:
            return [Send("summarize", {"page": page}) for page in ctx.get_input("pages")]

    Raises:
        ConfigurationError: `target` is not text, or `inputs` is not a mapping of texts to values.
    """

    target: str
    """The node to visit, to which a `send` edge leads."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Values that the nodes of the branch find with `ctx.get_input`, before those in the memory of the fork.
    In a run that a store keeps, they must be plain JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.target, str):
            raise ConfigurationError("target", self.target, "the id of a node")
        inputs: object = self.inputs
        if not isinstance(inputs, Mapping) or not all(isinstance(key, str) for key in inputs):
            raise ConfigurationError("inputs", inputs, "a mapping of names to values")


def is_sends(output: object) -> bool:
    """Return whether an output is a `Send`, or a list or tuple that begins with one."""
    first = output[0] if isinstance(output, list | tuple) and output else output
    return isinstance(first, Send)


def check_sends(node: str, output: object, declared: Sequence[str]) -> None:
    """Check the output of a node that has `send` edges to the `declared` nodes, or of one that has none.

    Raises:
        ConfigurationError: the output is not a list of `Send`, or a target has no `send` edge to it.
    """
    if not isinstance(output, list | tuple) or not all(isinstance(one, Send) for one in output):
        expected = f"a list of Send(...), as node {node!r} has send edges; ctx.write(...) keeps other values"
        raise ConfigurationError("output", output, expected)
    for send in output:
        if send.target not in declared:
            known = ", ".join(map(repr, declared)) or "none"
            expected = (
                f"a target of the send edges of node {node!r}, which are declared to: {known}; "
                f"add Edge({node!r}, {send.target!r}, when='send').{nearest_hint(send.target, declared)}"
            )
            raise ConfigurationError("target", send.target, expected)
