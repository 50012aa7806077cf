"""Clocks of the branches of a run, which `branch_timeout` limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager

from fastroai.graphs.machine.branches import Branch, Fork
from fastroai.runtime import Scope
from fastroai.runtime.concurrency.clock import WorkClock


class BranchTimes:
    """The clocks of the branches of one run.

    The clock of a branch counts while a node in it, or in a fork inside of it, works. It stands still while
    the branch only waits: for a place under `max_concurrency`, for the next attempt, for a person.
    """

    def __init__(self, seconds: float, on_end: Callable[[Collection[Branch]], None]) -> None:
        """Let each branch work for `seconds`. `on_end` is given the branches whose time has run out."""
        self.seconds, self._on_end = seconds, on_end
        self._clocks: dict[Branch, WorkClock] = {}
        self._ended: list[Branch] = []

    @contextmanager
    def at_work(self, branch: Branch, scope: Scope) -> Iterator[None]:
        """Count time while a node of a branch works in a scope. The scope sees how much time is left.

        The clocks of outer branches start first: an outer branch that has worked longer ends first.
        """
        with ExitStack() as stack:
            for one in reversed(tuple(branch.lineage())):
                if one.fork is not None:
                    clock = self._clock(one)
                    stack.enter_context(clock.at_work(scope))
                    stack.enter_context(scope.time.counting(clock))
            yield

    def forget(self, fork: Fork) -> None:
        """Drop the clocks of the branches of a fork that is over."""
        for branch in fork.branches:
            self._clocks.pop(branch, None)

    def _clock(self, branch: Branch) -> WorkClock:
        clock = self._clocks.get(branch)
        if clock is None:
            what = f"branch {branch.identity!r}"
            clock = self._clocks[branch] = WorkClock(self.seconds, what, lambda: self._ring(branch))
        return clock

    def _ring(self, branch: Branch) -> None:
        """Report all branches together whose time runs out at one moment, as their order is chance."""
        self._ended.append(branch)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        ended, self._ended = self._ended, []
        self._on_end(ended)
