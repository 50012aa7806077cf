"""The panel of one step or call: what it was given and gave, what was said, and why it went as it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final, Literal

from pydantic import JsonValue

from fastroai.errors import ConfigurationError
from fastroai.places import attempt_around, split_attempt, without_attempts, without_visit
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact, FailureFacts
from fastroai.store.reading.timeline_rows import TimelineRow
from fastroai.store.reading.timeline_scale import worked
from fastroai.store.record.attempts import StepAttempt
from fastroai.store.record.conversations import AgentConversation
from fastroai.viewer.run_actions import editable
from fastroai.viewer.run_view import RunView

MOST_MESSAGES: Final = 60
"""Messages of a conversation on the page. The last ones are left out."""
MOST_CONVERSATIONS: Final = 12
MOST_ATTEMPTS: Final = 50
MOST_LINES: Final = 200
"""Lines of an explanation."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation as the page shows it."""

    conversation: AgentConversation
    said: Sequence[tuple[str, str]]
    left: int
    """Number of messages that are not shown."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a person, and the answer, if there is one."""

    asked: facts.QuestionAsked
    answer: facts.AnswerGiven | None


class StepPanel:
    """A row of the timeline in full."""

    def __init__(self, view: RunView, row: TimelineRow) -> None:
        self.row, self._trace, self._rows = row, view.trace, view.trace.timeline

    @property
    def kind(self) -> str:
        """What it is, for people."""
        return {"step": "Step", "function": "Function", "agent": "Agent call"}[self.row.kind]

    @property
    def node(self) -> str:
        """The id of its node in the drawing."""
        return without_visit(self.row.id) if self.row.kind == "step" else self.row.id

    @property
    def has_inside(self) -> bool:
        """Whether something ran inside of it, which the drawing can show."""
        return any(
            one.place != self.row.place and one.place.startswith(f"{self.row.place}@") for one in self._rows
        )

    @property
    def took(self) -> timedelta | None:
        """How long its attempts took together; `None` while it goes on."""
        return None if self.row.ended_at is None else worked(self.row, self.row.ended_at)

    @property
    def around(self) -> TimelineRow | None:
        """The row that it is inside of."""
        position = next(index for index, one in enumerate(self._rows) if one.key == self.row.key)
        before = reversed(self._rows[:position])
        return next((one for one in before if one.depth < self.row.depth), None)

    @property
    def visits(self) -> Sequence[TimelineRow]:
        """All visits to the node, if there were several."""
        if self.row.kind != "step":
            return ()
        found = [one for one in self._rows if one.kind == "step" and without_visit(one.place) == self.node]
        return found if len(found) > 1 else ()

    @cached_property
    def attempts(self) -> Sequence[StepAttempt]:
        """The attempts at the step, the last ones if there were many."""
        return self._all_attempts[-MOST_ATTEMPTS:]

    @property
    def attempts_before(self) -> int:
        """Number of earlier attempts, which are left out."""
        return len(self._all_attempts) - len(self.attempts)

    @cached_property
    def _all_attempts(self) -> Sequence[StepAttempt]:
        if self.row.kind != "step":
            return ()
        return [one for one in self._trace.attempts if one.place == self.row.place]

    @property
    def inputs(self) -> Mapping[str, JsonValue]:
        """What it was given, by a title for people."""
        if self.row.kind == "function":
            return {"Arguments": self._call.get("inputs")} if self._call else {}
        if not self.attempts:
            return {}
        given = self.attempts[-1].input
        titles = {"inputs": "Inputs of the run", "outputs": "Outputs of the steps that it needs"}
        return {titles[name]: value for name, value in given.items() if value}

    @property
    def has_output(self) -> bool:
        """Whether it gave an output."""
        return self.row.kind != "agent" and self.row.status in ("succeeded", "reused", "incomplete")

    @property
    def output(self) -> JsonValue:
        """The last output."""
        if self.row.kind == "function":
            return self._ended.output if self._ended is not None else None
        return self.attempts[-1].output if self.attempts else None

    @property
    def questions(self) -> Iterator[Asked]:
        """The questions that it asked people, with their answers."""
        answers = {one.id: one for one in self._trace.entries if isinstance(one, facts.AnswerGiven)}
        for one in self._trace.entries:
            if isinstance(one, facts.QuestionAsked) and one.place == self.row.place:
                yield Asked(one, answers.get(one.id))

    @property
    def failures(self) -> Iterator[tuple[int, FailureFacts]]:
        """The failures of its attempts, with their numbers."""
        for number, attempt in enumerate(self.attempts, self.attempts_before + 1):
            if attempt.failure is not None:
                yield number, attempt.failure
        if self._ended is not None and self._ended.failure is not None:
            yield self._ended.attempt, self._ended.failure

    @cached_property
    def _ended(self) -> facts.CallEnded | None:
        """The last end of a call of a function."""
        if self.row.kind != "function":
            return None
        ends = (one for one in reversed(self._trace.entries) if isinstance(one, facts.CallEnded))
        return next((one for one in ends if one.place == self.row.place), None)

    @property
    def _call(self) -> Mapping[str, JsonValue]:
        call = None if self._ended is None else self._ended.call
        return call if isinstance(call, dict) else {}

    @cached_property
    def _talks(self) -> Sequence[AgentConversation]:
        try:
            found = self._trace.conversations(self.row.place)
        except ConfigurationError:  # nothing is on record of it yet
            return ()
        if self.row.kind == "agent":
            return [one for one in found if one.place == self.row.place and one.call == self.row.call]
        # What is said in steps inside of it is in their panels.
        return [one for one in found if split_attempt(one.place)[0] == self.row.place]

    @property
    def talks(self) -> Sequence[Talk]:
        """The conversations, bounded."""
        return [
            Talk(one, one.said[:MOST_MESSAGES], max(len(one.said) - MOST_MESSAGES, 0))
            for one in self._talks[:MOST_CONVERSATIONS]
        ]

    @property
    def more_talks(self) -> int:
        """Number of conversations that are not shown."""
        return max(len(self._talks) - MOST_CONVERSATIONS, 0)

    @property
    def told(self) -> Sequence[str]:
        """Why it started, waited, was tried again and ended, line by line."""
        try:
            lines = self._trace.explain(self.row.place).splitlines()
        except ConfigurationError:
            return ()
        return (
            lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES} more"]
        )

    @property
    def kept(self) -> Iterator[str]:
        """What of it is from an earlier process or another run, and what was asked anew."""
        if self.row.status == "reused":
            yield f"Its output is that of run {self._trace.opened.forked_from!r}, and cost nothing here."
        resumed = [one.at for one in self._trace.entries if isinstance(one, facts.RunResumed)]
        started, ended = self.row.started_at, self.row.ended_at
        if resumed and started is not None and started < resumed[-1]:
            if ended is not None and ended < resumed[-1]:
                yield "An earlier process did this. Its result was kept, and not paid for again."
            else:
                yield "An earlier process began this. What it has on record was not paid for again."
        for entry in self._trace.entries:
            if split_attempt(entry.where)[0] == self.row.place:
                yield from _anew(entry)

    @property
    def editable_output(self) -> str:
        """The output for a form: text as it is, else JSON; empty if it is too long to be changed there."""
        return editable(self.output, as_text=self.output_form == "text")

    @property
    def output_form(self) -> Literal["text", "output"]:
        """How the form of the output has it: as `text`, or as JSON."""
        return "text" if isinstance(self.output, str) and self.output else "output"

    @property
    def fork_at(self) -> str | None:
        """The place at which a new run can begin with this step; `None` for calls."""
        if self.row.kind != "step":
            return None
        return self.row.place if attempt_around(self.row.place) is None else without_attempts(self.row.place)

    @property
    def is_outermost(self) -> bool:
        """Whether it is a step of the run itself, whose output a new run can replace."""
        return self.row.kind == "step" and attempt_around(self.row.place) is None


def _anew(entry: Fact) -> Iterator[str]:
    """Yield what became of an answer on record, if the fact is about that."""
    match entry:
        case facts.CallChanged(answer="kept"):
            yield f"Its answer on record was kept, although {' and '.join(entry.changed)} changed since."
        case facts.CallChanged():
            yield f"It was asked anew, because {' and '.join(entry.changed)} changed since."
        case facts.CallLeftOver():
            yield "A call on record was not made again, because an answer before it was asked anew."
        case facts.ReplayDiverged():
            yield "It sent another request than the one on record, which stays paid."
        case _:
            pass
