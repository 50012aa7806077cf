"""Values of a store that processes change together: read, changed by rules, replaced by compare-and-set."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from random import random
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeVar

from fastroai.errors import RevisionConflict, StoreUnavailable
from fastroai.runtime.owner import steady_seconds
from fastroai.store.backends.groups import Groups
from fastroai.store.run_store import RunStore, StoredValues

T = TypeVar("T")
NameT = TypeVar("NameT")
OpenedT = TypeVar("OpenedT")

_PAUSE: Final = 0.001
"""Most seconds to wait after the first conflict. Each further conflict adds as many."""
_LONGEST_PAUSE: Final = 0.02
_PATIENCE: Final = 20.0
"""Seconds after which a change is given up if others change the value all the time."""
_STALE: Final = 60.0
"""Seconds after which a value is read again before it is written: this process may have been stopped."""

_Act: TypeAlias = tuple[Callable[[Any], Any], bool]
"""Something to do with a value, and whether the value is written afterwards."""


class SharedValues(ABC, Generic[NameT, OpenedT]):
    """Values in any `RunStore`, each under a name, which all processes with that store change together.

    A value is read, changed by its rules, and written at the revision at which it was read. If somebody else
    has written meanwhile, all of that is done again. What one process asks of a value while that is under
    way is decided together after it, in one write.

    A store that has lost a value, or has a damaged one, counts as unavailable: a limit that starts from zero
    again would not hold.
    """

    lost: str
    """What to do about a value that cannot be read."""

    def __init__(self, runs: RunStore) -> None:
        self.runs = runs
        """The store of runs that keeps the values."""
        self._groups: Groups[NameT, _Act, Any] = Groups(self._decide)

    async def ask(self, name: NameT, act: Callable[[OpenedT], T], *, keeps: bool = True) -> T:
        """Open a value, act on it, and return what the act returns. With `keeps`, keep what has changed.

        The act can be done several times, each time to the value as it is then.

        Raises:
            StoreUnavailable: the store cannot be reached, or the value cannot be read.
        """
        answer: T = await self._groups.ask(name, (act, keeps))
        return answer

    @abstractmethod
    def key_of(self, name: NameT) -> str:
        """Return the key of a value in the store."""

    @abstractmethod
    def _described(self, name: NameT) -> str:
        """Return what errors call a value."""

    @abstractmethod
    def _open(self, name: NameT, value: bytes | None, now: datetime) -> OpenedT:
        """Return a value for acts, at a time of the store's clock; `None` is one that is not there yet.

        Raises:
            ValueError: it is damaged.
        """

    @abstractmethod
    def _encode(self, opened: OpenedT) -> bytes | None:
        """Return the value as it is stored; `None` if it need not be written."""

    def _decided(self, name: NameT, opened: OpenedT, found: StoredValues, *, is_written: bool) -> None:
        """Note that acts were done to a value that was found, and whether it was written afterwards."""

    async def _decide(self, name: NameT, acts: Sequence[_Act]) -> Sequence[Any]:
        """Do all of this with a value, in one write."""
        key, until, pause = self.key_of(name), monotonic() + _PATIENCE, 0.0
        while monotonic() < until:
            asked_at = steady_seconds()
            found = await self.runs.read(key)
            opened, answers = self._after(name, found, acts)
            value = self._encode(opened) if any(keeps for _, keeps in acts) else None
            if value is None:
                self._decided(name, opened, found, is_written=False)
                return answers
            if steady_seconds() - asked_at > _STALE:
                continue
            try:
                await self.runs.compare_and_set(key, value, revision=found.revision)
            except RevisionConflict:
                pause = min(pause + _PAUSE, _LONGEST_PAUSE)
                await asyncio.sleep(pause * random())
            else:
                self._decided(name, opened, found, is_written=True)
                return answers
        reason = f"other processes changed {self._described(name)} at every attempt for {_PATIENCE:g} s"
        raise StoreUnavailable(repr(self.runs), reason, "see how many processes share it")

    def _after(self, name: NameT, found: StoredValues, acts: Sequence[_Act]) -> tuple[OpenedT, Sequence[Any]]:
        """Return the value after these acts, and the answer to each. One that fails leaves no trace."""
        failed: dict[int, Exception] = {}
        while True:
            opened, answers = self._opened(name, found), list[Any]()
            try:
                for act, _ in acts:
                    answers.append(failed.get(len(answers)) or act(opened))
            except Exception as error:
                failed[len(answers)] = error
            else:
                return opened, answers

    def _opened(self, name: NameT, found: StoredValues) -> OpenedT:
        value = (found.values[-1] if found.values else b"") if found.revision else None
        try:
            return self._open(name, value, found.now)
        except ValueError as error:
            what = str(error) if found.values else "its value is gone"
            reason = f"{self._described(name)} cannot be read: {what}"
            raise StoreUnavailable(repr(self.runs), reason, self.lost) from error
