"""The conversations of the branches of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydantic import JsonValue

from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.markers import TOLD_AT_ONCE, Done
from fastroai.graphs.conversation.talk import Talk
from fastroai.graphs.conversation.thread import Phase, Thread
from fastroai.graphs.machine.branches import Branch, Fork
from fastroai.runs.machine import Unit

MOST_UNTOLD: Final = 500
"""Visits of a branch that are kept as they were, with what they wrote, until somebody asks for the thread."""

_Visit: TypeAlias = tuple[Unit, Mapping[str, object], BaseException | None]
_Untold: TypeAlias = "_Visit | list[tuple[str, _Line]]"
"""A visit, or branches that have come together, by their names."""


@dataclass(slots=True)
class _Line:
    """The thread of a branch, and what it has yet to hear of: most runs never ask."""

    thread: Thread | None
    """`None`: that of the line around it when it forked."""
    around: _Line | None = None
    untold: list[_Untold] = field(default_factory=list)

    def now(self, around: Thread | None = None) -> Thread:
        """The thread; `around` is that of the line around it when it forked, if that may have gone on."""
        thread = self.thread
        if thread is None:
            assert self.around is not None
            thread = (self.around.now() if around is None else around).fork()
        visits: list[_Visit] = []
        for one in self.untold:
            if isinstance(one, list):
                thread = thread.add_quiet(_done(visits))
                thread = thread.join([(target, line.now(thread)) for target, line in one])
                visits = []
            else:
                visits.append(one)
        self.thread = thread = thread.add_quiet(_done(visits))
        self.untold.clear()
        return thread

    def fold(self) -> None:
        """Keep the newest visits alone, and of those before only what will be told: not what they wrote."""
        earlier, newest = self.untold[:-TOLD_AT_ONCE], self.untold[-TOLD_AT_ONCE:]
        if not any(isinstance(one, list) for one in newest):
            self.untold = [
                one if isinstance(one, list) else (one[0], dict.fromkeys(one[1], ""), one[2])
                for one in earlier
            ]
            self.now()
            self.untold = newest
        else:
            self.now()


def _done(visits: Sequence[_Visit]) -> list[Done]:
    """Say what became of visits that follow each other. Only of the last ones are values told."""
    told_by_name = [
        Done(*unit, dict.fromkeys(written, ""), None if error is None else "")
        for unit, written, error in visits[:-TOLD_AT_ONCE]
    ]
    return told_by_name + [Done.of(*unit, written, error) for unit, written, error in visits[-TOLD_AT_ONCE:]]


class Threads:
    """Who has heard what, by branch."""

    def __init__(self, conversation: GraphConversation, goal: str | None) -> None:
        self._goal = goal
        self._lines: dict[str, _Line] = {"": _Line(Thread(conversation))}

    def talk(self, branch: Branch, focus: str | None) -> Talk:
        """The conversation of an attempt at a node."""
        thread = self._lines[branch.identity].now()
        return Talk(thread, branch.node, branch.number, focus=focus, goal=self._goal)

    def add(
        self,
        branch: Branch,
        unit: Unit,
        written: Mapping[str, object],
        error: BaseException | None = None,
        phase: Phase | None = None,
    ) -> None:
        """A visit is over; `phase` is what it has said, if anything."""
        line = self._lines.get(branch.identity)
        if line is None:
            return  # its branch was cancelled meanwhile
        if phase is None:
            line.untold.append((unit, written, error))
            if len(line.untold) > MOST_UNTOLD:
                line.fold()
        else:
            line.thread = line.now().add(phase)

    def fork(self, fork: Fork) -> None:
        """Branches inherit what was said before the fork."""
        around = self._lines[fork.branch.identity]
        for branch in fork.branches:
            self._lines[branch.identity] = _Line(None, around)

    def join(self, fork: Fork) -> None:
        """The conversation before the fork, with a mark for each branch."""
        line = self._lines[fork.branch.identity]
        line.untold.append([(branch.name, self._lines.pop(branch.identity)) for branch in fork.branches])

    @staticmethod
    def phase_from_json(stored: JsonValue) -> Phase:
        """What a visit has said, from the record. Raises `ValueError` where it is not that."""
        return Phase.from_json(stored)
