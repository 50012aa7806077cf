"""The conversations of the branches of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic import JsonValue

from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.markers import TOLD_AT_ONCE, Done
from fastroai.graphs.machine.branches import Branch, Fork
from fastroai.runs.running.machine import Unit

if TYPE_CHECKING:
    from fastroai.graphs.conversation.talk import Talk
    from fastroai.graphs.conversation.thread import Phase, Thread

# `talk` and `thread` are imported when an agent is called: they load PydanticAI, which takes a second.

MOST_UNTOLD: Final = 500
"""Maximum number of visits of a branch that are kept with their values until the thread is needed."""

_Visit: TypeAlias = tuple[Unit, Mapping[str, object], BaseException | None]
_Untold: TypeAlias = "_Visit | list[tuple[str, _Line]]"
"""A visit; or the branches of a fork that have come together, by name."""


@dataclass(slots=True)
class _Line:
    """The thread of a branch, and the visits to add to it when it is needed: most runs never need it."""

    thread: Thread | None = None
    """The thread so far; `None` if nobody has needed it."""
    around: _Line | None = None
    """The line that had the thread at the fork; `None` for the line of the whole run."""
    conversation: GraphConversation | None = None
    """The conversation that begins with the run; `None` after a fork."""
    untold: list[_Untold] = field(default_factory=list)
    failed: tuple[_Visit, Phase | None] | None = None
    """The last visit, if it failed, and its messages. It is over when the line goes on after it; until then
    it may be made again."""

    def go_on(self, unit: Unit | None = None) -> None:
        """Go on with a visit. If it is the one that has failed, that failure counts no more."""
        if self.failed is not None:
            (visit, phase), self.failed = self.failed, None
            if visit[0] == unit:
                return
            if phase is None:
                self.untold.append(visit)
            else:
                self.thread = self.now().add(phase)

    def now(self, around: Thread | None = None) -> Thread:
        """Return the whole thread. `around` is the thread at the fork, if the line around has gone on."""
        self.go_on()
        thread = self.thread
        if thread is None and self.around is not None:
            thread = (self.around.now() if around is None else around).fork()
        elif thread is None:
            from fastroai.graphs.conversation.thread import Thread

            assert self.conversation is not None
            thread = Thread(self.conversation)
        visits: list[_Visit] = []
        for one in self.untold:
            if isinstance(one, list):
                thread = _with_visits(thread, visits)
                thread = thread.join([(target, line.now(thread)) for target, line in one])
                visits = []
            else:
                visits.append(one)
        self.thread = thread = _with_visits(thread, visits)
        self.untold.clear()
        return thread

    def fold(self) -> None:
        """Add all but the newest visits to the thread, without values, which no text will need."""
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


def _with_visits(thread: Thread, visits: Sequence[_Visit]) -> Thread:
    """Return a thread with more visits, which have no messages. Only the last ones have their values."""
    from fastroai.graphs.conversation.thread import Phase

    for unit, written, error in visits[:-TOLD_AT_ONCE]:
        thread = thread.add(Phase(Done(*unit, dict.fromkeys(written, ""), None if error is None else "")))
    for unit, written, error in visits[-TOLD_AT_ONCE:]:
        thread = thread.add(Phase(Done.of(*unit, written, error)))
    return thread


class Threads:
    """The conversation thread of each branch of a run."""

    def __init__(self, conversation: GraphConversation, goal: str | None) -> None:
        self._goal = goal
        self._lines: dict[str, _Line] = {"": _Line(conversation=conversation)}

    def talk(self, branch: Branch, focus: str | None) -> Talk:
        """Return the conversation of an attempt at a node."""
        from fastroai.graphs.conversation.talk import Talk

        line = self._lines[branch.identity]
        line.go_on(branch.visit)
        return Talk(line.now(), branch.node, branch.number, focus=focus, goal=self._goal)

    def add(
        self,
        branch: Branch,
        unit: Unit,
        written: Mapping[str, object],
        error: BaseException | None = None,
        phase: Phase | None = None,
    ) -> None:
        """Add a visit that is over. `phase` has its messages, if it has any."""
        line = self._lines.get(branch.identity)
        if line is None:
            return  # its branch was cancelled meanwhile
        if line.failed is not None:
            line.go_on(unit)
        if error is not None:
            line.failed = (unit, written, error), phase
        elif phase is not None:
            line.thread = line.now().add(phase)
        else:
            line.untold.append((unit, written, error))
            if len(line.untold) > MOST_UNTOLD:
                line.fold()

    def fork(self, fork: Fork) -> None:
        """Begin the threads of branches, which inherit the conversation before the fork."""
        around = self._lines[fork.branch.identity]
        around.go_on()
        for branch in fork.branches:
            self._lines[branch.identity] = _Line(around=around)

    def join(self, fork: Fork) -> None:
        """Go on with the conversation before the fork, with a text for each branch."""
        line = self._lines[fork.branch.identity]
        line.untold.append([(branch.name, self._lines.pop(branch.identity)) for branch in fork.branches])

    @staticmethod
    def phase_from_json(stored: JsonValue) -> Phase:
        """Return the phase of a visit from its stored form. Raises `ValueError` if it is not a phase."""
        from fastroai.graphs.conversation.thread import Phase

        return Phase.from_json(stored)
