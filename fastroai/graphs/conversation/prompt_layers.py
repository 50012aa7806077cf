"""Layers of a prompt: after the agent's own instructions, the narrative of the run and the node's focus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastroai.graphs.conversation.markers import Done, cut_texts

NODES_TOLD: Final = 30
"""Maximum number of nodes in the narrative: those visited last."""
KEYS_TOLD: Final = 10
"""Maximum number of keys that the narrative names for each node."""


@dataclass(frozen=True, slots=True)
class Narrative:
    """The nodes that have been visited so far, with a line for each.

    It has names only. Values may come from anywhere, and text in instructions has the authority of their
    author. So values are in the transitions, which are user messages.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    """Line of each node, in the order of the latest visits."""
    left_out: int = 0

    def add(self, done: Done) -> Narrative:
        """Return the narrative with one more visit."""
        lines = {node: line for node, line in self.lines.items() if node != done.node}
        lines[done.node] = _line(done)
        if len(lines) <= NODES_TOLD:
            return Narrative(lines, self.left_out)
        del lines[next(iter(lines))]
        return Narrative(lines, self.left_out + 1)

    def __str__(self) -> str:
        lines = [f"- {line}" for line in self.lines.values()]
        if self.left_out:
            lines.insert(0, f"- and {self.left_out} before")
        return "\n".join(lines)


def layers(goal: str | None, narrative: Narrative, focus: str | None) -> list[str]:
    """Return the instructions that come after the agent's own. Empty layers are left out."""
    told = []
    if goal is not None:
        told.append(f"You work on one part of a larger task. Its goal: {goal}")
    if narrative.lines:
        told.append(f"Done so far:\n{narrative}")
    if focus is not None:
        told.append(f"Your focus now: {focus}")
    return told


def _line(done: Done) -> str:
    node = done.node if done.visit == 1 else f"{done.node} ({done.visit} visits)"
    if done.failure is not None:
        return f"{node}: failed"
    return f"{node}: wrote {cut_texts(list(done.wrote), KEYS_TOLD)}" if done.wrote else node
