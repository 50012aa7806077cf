"""Whether a stream is read: what its requests have reserved is held up with it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

STALLED_AFTER: Final = 1.0
"""Seconds for which a consumer can leave an item lying before others stop waiting for its stream."""


class Flow:
    """What goes through one pump."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: set[Callable[[bool], None]] = set()

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Have `watcher(stalled)` called when nobody reads any more, and when somebody does again."""
        self._watchers.add(watcher)

    def forget(self, watcher: Callable[[bool], None]) -> None:
        """Stop telling."""
        self._watchers.discard(watcher)

    def stall(self) -> None:
        """Nobody has read for a while."""
        self._tell(True)

    def resume(self) -> None:
        """Somebody reads again."""
        self._tell(False)

    def _tell(self, stalled: bool) -> None:
        for watcher in list(self._watchers):
            watcher(stalled)


current_flow: Final[ContextVar[Flow | None]] = ContextVar("fastroai_flow", default=None)
"""The innermost stream that the running code produces items for."""
