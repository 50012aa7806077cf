"""The texts of a conversation about its nodes: between them, and in the layers of a prompt.

The layers come after the instructions of an agent: the narrative of the run, and the focus of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic_core import PydanticSerializationError, to_json

from fastroai.errors import RecordedError
from fastroai.runs.decoding import value_of
from fastroai.tracing.attributes import error_summary

NODES_TOLD: Final = 30
"""Maximum number of nodes in the narrative: those visited last."""
KEYS_TOLD: Final = 10
"""Maximum number of keys that the narrative names for each node."""

VALUE_LENGTH: Final = 200
"""Maximum number of characters of a value in these texts."""
FOCUS_LENGTH: Final = 500
"""Maximum number of characters of a focus in these texts."""
TOLD_AT_ONCE: Final = 20
"""Maximum number of visits in the text between two phases, or of a branch. Earlier ones are counted."""
TOLD_LENGTH: Final = 4_000
"""Maximum number of characters of the text on these visits."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one visit to a node, shortened."""

    node: str
    visit: int
    wrote: Mapping[str, str] = field(default_factory=dict)
    """Values that the visit wrote, as shortened JSON, by key of memory."""
    failure: str | None = None

    @classmethod
    def of(
        cls, node: str, visit: int, wrote: Mapping[str, object], failure: BaseException | None = None
    ) -> Done:
        """Make the result from the values that a visit wrote, and from the exception that it failed with."""
        told = None if failure is None else cut(_told(failure))
        return cls(node, visit, {key: shortened(value_of(value)) for key, value in wrote.items()}, told)

    def __str__(self) -> str:
        visit = "" if self.visit == 1 else f" (visit {self.visit})"
        wrote = "; ".join(f"{key} = {value}" for key, value in self.wrote.items())
        if self.failure is not None:
            failed = f"node {self.node!r}{visit} failed: {self.failure}"
            return f"{failed}; it wrote {wrote}" if wrote else failed
        return f"node {self.node!r}{visit} wrote {wrote}" if wrote else f"node {self.node!r}{visit}"


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest of many visits, and the number of earlier ones."""

    visits: tuple[Done, ...] = ()
    earlier: int = 0

    def add(self, done: Done) -> Recent:
        """Return these visits with one more."""
        return self.extend(Recent((done,)))

    def extend(self, later: Recent) -> Recent:
        """Return these visits with later ones."""
        visits = (*self.visits, *later.visits)
        more = max(0, len(visits) - TOLD_AT_ONCE)
        return Recent(visits[more:], self.earlier + later.earlier + more)

    def __bool__(self) -> bool:
        return bool(self.visits)

    def __str__(self) -> str:
        earlier = [f"{self.earlier} earlier visits"] if self.earlier else []
        return cut("; ".join([*earlier, *map(str, self.visits)]), TOLD_LENGTH)


@dataclass(frozen=True, slots=True)
class BranchDone:
    """The visits of a branch from its fork to the join."""

    target: str
    """The name of the branch, from the node that it began with."""
    done: Recent

    def __str__(self) -> str:
        return f"Done in the branch {self.target!r}, beside others: {self.done or 'nothing'}."


@dataclass(frozen=True, slots=True)
class Untold:
    """Visits and branches that the history does not tell of yet."""

    visits: Recent = Recent()
    branches: tuple[BranchDone, ...] = ()
    """All branches that were joined last, and some of earlier forks."""

    def __bool__(self) -> bool:
        return bool(self.visits or self.branches)

    def add(self, done: Done) -> Untold:
        """Return these visits and branches, with one more visit."""
        return replace(self, visits=self.visits.add(done))

    def join(self, branches: Iterable[BranchDone]) -> Untold:
        """Return these visits and branches, with the branches of a fork."""
        return replace(self, branches=(*self.branches[-TOLD_AT_ONCE:], *branches))

    def transition(self, node: str, focus: str | None) -> list[str]:
        """Return the texts before a node: one for each branch that was joined, then one for the rest."""
        done = f"Done: {self.visits}.\n" if self.visits else ""
        focused = "" if focus is None else f" Focus: {cut(focus, FOCUS_LENGTH)}"
        return [*map(str, self.branches), f"{done}Next: node {node!r}.{focused}"]


def shortened(value: object) -> str:
    """Return a value as JSON in one line, shortened."""
    if isinstance(value, str) and len(value) > VALUE_LENGTH:
        value = value[: VALUE_LENGTH + 1]
    return cut(_as_json(value))


def told_in_full(value: object, length: int) -> str:
    """Return a value for a model to read, up to `length` characters: text as it is, other values as JSON."""
    text = value if isinstance(value, str) else _as_json(value, indent=2)
    more = len(text) - length
    return text if more <= 0 else f"{text[:length]}\n[and {more:,} characters]"


def cut(text: str, length: int = VALUE_LENGTH) -> str:
    """Return a text in one line, with `…` where it was cut."""
    text = " ".join(text[: 4 * length].split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def cut_texts(texts: Sequence[str], most: int) -> str:
    """Return the first `most` texts with commas between them, and the number of the others."""
    more = len(texts) - most
    return ", ".join(map(cut, texts[:most])) + (f" and {more} more" if more > 0 else "")


def _as_json(value: object, indent: int | None = None) -> str:
    try:
        return to_json(value, fallback=_kind, inf_nan_mode="constants", indent=indent).decode()
    except (PydanticSerializationError, ValueError, RecursionError):
        return _kind(value)


def _kind(value: object) -> str:
    """Return the type of a value. Its `repr` may have an address, which differs in another process."""
    return f"<{type(value).__qualname__}>"


def _told(error: BaseException) -> str:
    """Return the text of a failure. It is the same where it was raised and where the run is resumed."""
    if isinstance(error, RecordedError):
        kind = error.error_type.rpartition(".")[2]
        return f"{kind}: {error.message}" if error.message else kind
    try:
        return error_summary(error)
    except Exception:  # the `str` of an exception can be anyone's code
        return type(error).__name__


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
