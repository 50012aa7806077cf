"""Callbacks for forked processes, and gates that keep forks away from code that must not be interrupted.

A forked process has one thread, and a copy of all memory: with locks that other threads of the parent held,
with data that they were changing, and without the work that they would have done.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from inspect import ismethod
from types import TracebackType
from typing import Any, Final
from weakref import ref


class _Owner(ref[Any]):
    """The object of a method, which may go: there can be thousands, as each agent has one."""

    __slots__ = ("number",)

    number: int
    """Number of the call."""


class _Calls:
    """Functions to call, in order. Methods are called only while their object is alive elsewhere."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[Callable[..., object], _Owner | None]] = {}
        """Each function, with the object whose method it is, if any."""

        # Not a WeakMethod: when the interpreter exits, its callback can find it half cleared, and raise.
        def forget(owner: _Owner) -> None:
            self._calls.pop(owner.number, None)

        self._forget = forget

    def add(self, call: Callable[[], object]) -> None:
        number = next(self._numbers)
        if ismethod(call):
            owner = _Owner(call.__self__, self._forget)
            owner.number = number
            self._calls[number] = call.__func__, owner
        else:
            self._calls[number] = call, None

    def call_all(self) -> None:
        for call, owner in [*self._calls.values()]:
            if owner is None:
                call()
            elif (found := owner()) is not None:
                call(found)


_in_child: Final = _Calls()


def in_forked_process(call: Callable[[], object]) -> None:
    """Call a function in each process that is forked from this one, before the process goes on.

    A method is called only while its object is alive elsewhere.
    """
    _in_child.add(call)


class ForkGate:
    """`with gate:` around code during which the process must not fork. A fork waits for its end.

    So a forked process never finds the data of that code half changed. Code that comes while a thread forks
    waits, too. A thread may enter a gate twice, and may fork inside.
    """

    def __init__(self) -> None:
        """Make a gate, which stays until the process ends."""
        self._before_fork = _Calls()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}
        """The threads inside, with the number of times that each has entered."""
        self._forking: set[int] = set()
        """Threads that are about to fork."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open)
            in_forked_process(self._renew)

    def before_fork(self, call: Callable[[], object]) -> None:
        """Call a function, as `in_forked_process` does, before each fork, when no other thread is inside."""
        self._before_fork.add(call)

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            while self._forking and thread not in self._inside and thread not in self._forking:
                self._changed.wait()
            self._inside[thread] = self._inside.get(thread, 0) + 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        thread = threading.get_ident()
        with self._lock:
            self._inside[thread] -= 1
            if not self._inside[thread]:
                del self._inside[thread]
                if self._forking:  # else nobody waits
                    self._changed.notify_all()

    def _close(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            self._forking.add(thread)
            while self._inside.keys() - {thread}:
                self._changed.wait()
        self._before_fork.call_all()

    def _open(self) -> None:
        with self._lock:
            self._forking.discard(threading.get_ident())
            self._changed.notify_all()

    def _renew(self) -> None:
        thread = threading.get_ident()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._forking = set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child.call_all)
