"""What all scopes of a tree share, and this process: a scope counts only in the process that opened it."""

from __future__ import annotations

import os
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Final

from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.events import Listener
from fastroai.runtime.fact_base import RunEvent

if TYPE_CHECKING:
    from fastroai.usage.shared.spend_store import SpendAccount, SpendStore


class _Process:
    """This process, which may have been forked from another one."""

    __slots__ = ("__weakref__", "id")

    id: int

    def __init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Ask the operating system for the id."""
        self.id = os.getpid()


THIS_PROCESS: Final = _Process()
"""This process. Its `id` is kept here, without a system call, as each lookup of a scope compares it."""

in_forked_process(THIS_PROCESS.look)


class Tree:
    """The process, the event loop and the lock of a tree of scopes, and the events to tell its listeners."""

    __slots__ = ("events", "lock", "loop", "process", "unsure")

    def __init__(self) -> None:
        """Begin a tree in this process, on the loop that runs here, if any."""
        self.process = THIS_PROCESS.id
        self.loop = running_loop()
        self.lock = Lock()
        """Guards the spending in all scopes of the tree."""
        self.events: deque[tuple[Listener, RunEvent]] = deque()
        """Events that are not told yet, each with its listener."""
        self.unsure: set[tuple[SpendStore, SpendAccount]] = set()
        """Accounts of spend limits that may be crossed: their stores said so, or the run was resumed."""

    def locked(self) -> AbstractContextManager[object]:
        """Return the lock; in a process that was forked from that of the tree, a context that locks nothing.

        There, the thread that may have held the lock does not exist.
        """
        return self.lock if self.process == THIS_PROCESS.id else nullcontext()

    async def tell(self) -> None:
        """Tell listeners the events that were noted anywhere in the tree."""
        while self.events:
            listener, event = self.events.popleft()
            await listener(event)
