"""Calls of typed functions on record: which of them are made again, and which may not come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from fastroai.functions.errors import FlowDiverged
from fastroai.runtime.facts import CallChanged, CallEnded, RunFinished, RunResumed, StepFailed, StepStarted
from fastroai.store.record.memo import Memo

_DIVERGED: Final = f".{FlowDiverged.__qualname__}"  # its package was another one in earlier logs
_made: Final = WeakKeyDictionary[Memo, "CallsOnRecord"]()


@dataclass(slots=True)
class CallsOnRecord:
    """What the record of a run says about the calls and nested runs that code makes again."""

    attempts: dict[str, int] = field(default_factory=dict)
    """The number of the next attempt, by place, at each call whose failure has ended the run, or that is
    asked anew because it has changed."""
    unsure: set[str] = field(default_factory=set)
    """Calls and nested runs that may not come again: a call before them is made again, or the code that made
    them had diverged from the record."""

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
        failed: list[CallEnded] = []  # since the last call that returned
        runs: list[str] = []  # nested runs in which a step has started since the first of these failed
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
                    self._ask_anew(failed, recorded)
                    self.unsure.update(runs, (one.place for one in failed))
                    failed, runs = [], []
                case CallEnded() | StepStarted():
                    place = entry.place if isinstance(entry, CallEnded) else entry.part.place
                    self.unsure.discard(place)
                    if place and place not in known:
                        known.add(place)
                        new.append(place)
                        if has_diverged:
                            self.unsure.add(place)
                    if isinstance(entry, StepStarted):
                        runs += [place] if place and failed else []
                    elif entry.failure is None:
                        failed, runs = [], []
                    elif not entry.goes_on:
                        failed.append(entry)
                case _:
                    pass

    def _ask_anew(self, failed: Sequence[CallEnded], recorded: Memo) -> None:
        """Give another attempt to each call whose failure has ended the run, because the run has failed.

        Of calls inside each other, only the innermost gets one. Code in which calls have ended goes on in its
        attempt.
        """
        for ended in failed:
            attempt = f"{ended.place}@{ended.attempt}"
            inner = any(other.place.startswith(f"{attempt}/") for other in failed)
            calls = any(isinstance(one, CallEnded) for one in recorded.within(attempt))
            if not inner and not (ended.is_code and calls):
                self.attempts[ended.place] = ended.attempt + 1
                recorded.mark(ended.about, ended.attempt, "failed")
