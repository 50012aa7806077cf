"""What all scopes of one tree share."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING

from fastroai.runtime.concurrency.process import THIS_PROCESS
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.events import Listener
from fastroai.runtime.fact import RunEvent

if TYPE_CHECKING:
    from fastroai.usage.shared.spend_store import SpendAccount, SpendStore


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
