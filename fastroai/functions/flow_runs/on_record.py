"""Calls of typed functions on record: which of them are made again, and which may not come."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from fastroai.functions.errors import FlowDiverged
from fastroai.runtime.facts import (
    AgentCallEnded,
    CallChanged,
    CallEnded,
    FailedAgentCall,
    RunFinished,
    RunResumed,
    StepFailed,
    StepStarted,
)
from fastroai.store.record.memo import Memo

_DIVERGED: Final = f".{FlowDiverged.__qualname__}"  # its package was another one in earlier logs
_Ended: TypeAlias = CallEnded | AgentCallEnded | StepStarted
"""The end of a call, or the start of a step of a nested run."""
_made: Final = WeakKeyDictionary[Memo, "CallsOnRecord"]()


@dataclass(slots=True)
class CallsOnRecord:
    """What the record of a run says about the calls and nested runs that code makes again."""

    attempts: dict[str, int] = field(default_factory=dict)
    """The number of the next attempt, by place, at each call whose failure has ended the run, or that is
    asked anew because it has changed."""
    ended_by: set[str] = field(default_factory=set)
    """The attempts at calls whose failures have ended the run, by place."""
    unsure: set[str] = field(default_factory=set)
    """Calls and nested runs that may not come again: a call before them has ended the run and is made again,
    or the code that made them had diverged from the record."""

    @classmethod
    def of(cls, recorded: Memo) -> CallsOnRecord:
        """Read the record of a run that was taken up. It is read once."""
        if (known := _made.get(recorded)) is None:
            known = _made[recorded] = cls()
            known._read(recorded)
        return known

    def _read(self, recorded: Memo) -> None:
        has_diverged, known = False, set[str]()
        new: list[str] = []  # on record for the first time since the last resumption
        ends: list[_Ended] = []
        for entry in recorded.entries:
            match entry:
                case StepFailed():  # tasks that the code has left behind may go on
                    if entry.failure.error_type.endswith(_DIVERGED):
                        has_diverged = True
                        self.unsure.update(new)
                case CallChanged(call="", answer="asked_anew"):
                    self.attempts[entry.place] = entry.attempt + 1
                case RunResumed():
                    has_diverged = False
                    new.clear()
                case RunFinished(status="failed"):
                    self._ask_anew(ends, entry, recorded)
                case AgentCallEnded():
                    ends.append(entry)
                case CallEnded() | StepStarted():
                    place = _place_of(entry)
                    self.unsure.discard(place)
                    if place:
                        ends.append(entry)
                    if place and place not in known:
                        known.add(place)
                        new.append(place)
                        if has_diverged:
                            self.unsure.add(place)
                case _:
                    pass

    def gives_back(self, ended: CallEnded) -> bool:
        """Return whether the failure of a call was handled by the code that made it, which gets it again."""
        return ended.exception is not None and f"{ended.place}@{ended.attempt}" not in self.ended_by

    def _ask_anew(self, ends: Sequence[_Ended], run: RunFinished, recorded: Memo) -> None:
        """Give another attempt to each call whose failure has ended the run.

        Of calls inside each other, only the innermost gets one. Code in which calls have ended goes on in its
        attempt. What came after such a failure may not come again.
        """
        self.ended_by.update(one.place for one in run.failed_calls if not one.call)
        named = {*run.failed_calls}
        first = next((number for number, one in enumerate(ends) if _is_named(one, named)), len(ends))
        failed = [one for one in ends if isinstance(one, CallEnded) and _is_named(one, named)]
        if not run.failed_calls and (failed := _failed_last(ends)):
            first = ends.index(failed[0])
        self.unsure.update(_place_of(one) for one in ends[first:] if not isinstance(one, AgentCallEnded))
        for ended in failed:
            attempt = f"{ended.place}@{ended.attempt}"
            inner = any(other.place.startswith(f"{attempt}/") for other in failed)
            ended_inside = (one for one in recorded.within(attempt) if isinstance(one, CallEnded))
            calls = bool(recorded.requests.charges(attempt)) or any(ended_inside)
            if not inner and not (ended.is_code and calls):
                self.attempts[ended.place] = ended.attempt + 1
                recorded.requests.mark(ended.about, ended.attempt, "failed")


def _place_of(entry: CallEnded | StepStarted) -> str:
    return entry.place if isinstance(entry, CallEnded) else entry.part.place


def _is_named(entry: _Ended, calls: Set[FailedAgentCall]) -> bool:
    match entry:
        case CallEnded():
            return not entry.goes_on and FailedAgentCall(f"{entry.place}@{entry.attempt}", "", 1) in calls
        case AgentCallEnded():
            return FailedAgentCall(entry.place, entry.call, entry.attempt) in calls
        case _:
            return False


def _failed_last(ends: Sequence[_Ended]) -> list[CallEnded]:
    """Return the calls that failed after the last one that returned, in a log that names no causes.

    Earlier versions wrote such logs.
    """
    found: list[CallEnded] = []
    for one in ends:
        if isinstance(one, CallEnded) and one.failure is None:
            found = []
        elif isinstance(one, CallEnded) and one.exception is None and not one.goes_on:
            found.append(one)
    return found
