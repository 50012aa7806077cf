"""Processes that fork while their threads work: what the child makes anew, and what no fork comes between.

A forked process has one thread, and a copy of all memory: of locks that other threads of its parent held, of
what these threads were in the middle of, and of the work that they would have done.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from inspect import ismethod
from types import TracebackType
from typing import Final
from weakref import WeakMethod


class _Calls:
    """Functions to be called, and methods of objects, while these are alive, which this does not keep so."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._calls: dict[int, Callable[[], Callable[[], object] | None]] = {}
        """In order. Each returns the function; `None` if its object is gone."""

    def add(self, call: Callable[[], object]) -> None:
        number = next(self._numbers)
        if ismethod(call):
            self._calls[number] = WeakMethod(call, lambda _: self._calls.pop(number, None))
        else:
            self._calls[number] = lambda: call

    def call_all(self) -> None:
        for found in [*self._calls.values()]:
            if (call := found()) is not None:
                call()


_in_child: Final = _Calls()


def in_forked_process(call: Callable[[], object]) -> None:
    """Have a function called in each process that is forked from this one, before that goes on.

    A method is called while its object is alive, which this does not keep so.
    """
    _in_child.add(call)


class ForkGate:
    """`with gate:` around code during which the process must not fork. Each waits for the end of the other.

    So a forked process finds whole what that code changes. A thread may enter again, and may fork inside.
    """

    def __init__(self) -> None:
        """Make a gate for the whole life of the process."""
        self._before_fork = _Calls()
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        """How many times each thread is."""
        self._forking: set[int] = set()
        """Threads that are about to fork."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open)
            in_forked_process(self._renew)

    def before_fork(self, call: Callable[[], object]) -> None:
        """Have a function called before each fork, with nobody inside. Of methods as `in_forked_process`."""
        self._before_fork.add(call)

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._changed:
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
        with self._changed:
            self._inside[thread] -= 1
            if not self._inside[thread]:
                del self._inside[thread]
                self._changed.notify_all()

    def _close(self) -> None:
        thread = threading.get_ident()
        with self._changed:
            self._forking.add(thread)
            while self._inside.keys() - {thread}:
                self._changed.wait()
        self._before_fork.call_all()

    def _open(self) -> None:
        with self._changed:
            self._forking.discard(threading.get_ident())
            self._changed.notify_all()

    def _renew(self) -> None:
        thread = threading.get_ident()
        self._changed = threading.Condition()
        self._inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._forking = set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child.call_all)
