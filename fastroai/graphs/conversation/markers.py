"""What stands in a conversation between the nodes: who has done what, and what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic_core import PydanticSerializationError, to_json

from fastroai.errors import RecordedError
from fastroai.runs.decoding import value_of
from fastroai.tracing.attributes import error_summary

VALUE_LENGTH: Final = 200
"""Characters of a value that are told."""
FOCUS_LENGTH: Final = 500
"""Characters of a focus that are told."""
TOLD_AT_ONCE: Final = 20
"""Visits that are told between two phases, and of a branch; the earlier ones are counted."""
TOLD_LENGTH: Final = 4_000
"""Characters of all that is told of them."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one visit of a node, shortened."""

    node: str
    visit: int
    wrote: Mapping[str, str] = field(default_factory=dict)
    """JSON by key of memory, shortened."""
    failure: str | None = None

    @classmethod
    def of(
        cls, node: str, visit: int, wrote: Mapping[str, object], failure: BaseException | None = None
    ) -> Done:
        """Of the values that were written, and the exception that the visit failed with."""
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
    """The newest of many visits; how many there were before is counted."""

    visits: tuple[Done, ...] = ()
    earlier: int = 0

    def add(self, done: Done) -> Recent:
        """With one more."""
        return self.extend(Recent((done,)))

    def extend(self, later: Recent) -> Recent:
        """With those that came later."""
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
    """What a branch did from its fork to the join."""

    target: str
    """The node that it began with."""
    done: Recent

    def __str__(self) -> str:
        return f"Done in the branch {self.target!r}, beside others: {self.done or 'nothing'}."


@dataclass(frozen=True, slots=True)
class Untold:
    """What has been done and does not stand in the history yet."""

    visits: Recent = Recent()
    branches: tuple[BranchDone, ...] = ()
    """Those that were joined last, all of them, and some of earlier forks."""

    def __bool__(self) -> bool:
        return bool(self.visits or self.branches)

    def add(self, done: Done) -> Untold:
        """With one more visit."""
        return replace(self, visits=self.visits.add(done))

    def join(self, branches: Iterable[BranchDone]) -> Untold:
        """With the branches of a fork."""
        return replace(self, branches=(*self.branches[-TOLD_AT_ONCE:], *branches))

    def transition(self, node: str, focus: str | None) -> list[str]:
        """What is said where a node begins: a text for each branch that was joined, then one for the rest."""
        done = f"Done: {self.visits}.\n" if self.visits else ""
        focused = "" if focus is None else f" Focus: {cut(focus, FOCUS_LENGTH)}"
        return [*map(str, self.branches), f"{done}Next: node {node!r}.{focused}"]


def shortened(value: object) -> str:
    """A value as JSON in one line, shortened."""
    if isinstance(value, str) and len(value) > VALUE_LENGTH:
        value = value[: VALUE_LENGTH + 1]
    return cut(_as_json(value))


def told_in_full(value: object, length: int) -> str:
    """A value for a model to read: text as it is, anything else as JSON; without what is beyond `length`."""
    text = value if isinstance(value, str) else _as_json(value, indent=2)
    more = len(text) - length
    return text if more <= 0 else f"{text[:length]}\n[and {more:,} characters]"


def cut(text: str, length: int = VALUE_LENGTH) -> str:
    """A text in one line, with `…` where it was cut."""
    text = " ".join(text[: 4 * length].split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def cut_texts(texts: Sequence[str], most: int) -> str:
    """Texts with commas between; of those above `most`, the number."""
    more = len(texts) - most
    return ", ".join(map(cut, texts[:most])) + (f" and {more} more" if more > 0 else "")


def _as_json(value: object, indent: int | None = None) -> str:
    try:
        return to_json(value, fallback=_kind, inf_nan_mode="constants", indent=indent).decode()
    except (PydanticSerializationError, ValueError, RecursionError):
        return _kind(value)


def _kind(value: object) -> str:
    """Not its text: that has an address in it, which differs in the process that resumes."""
    return f"<{type(value).__qualname__}>"


def _told(error: BaseException) -> str:
    """The same in the process where it was raised and in one that resumes the run."""
    if isinstance(error, RecordedError):
        kind = error.error_type.rpartition(".")[2]
        return f"{kind}: {error.message}" if error.message else kind
    try:
        return error_summary(error)
    except Exception:  # its text is somebody else's code
        return type(error).__name__
