"""Worker threads for steps that are not `async`."""

from __future__ import annotations

from typing import Final

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from fastroai.runtime import Scope

STEPS_IN_THREADS: Final = 40
"""How many steps may be in worker threads at once at each depth of nesting; anyio's own number for all."""

_limiters: Final[RunVar[dict[int, CapacityLimiter]]] = RunVar("fastroai_step_threads")


def thread_limiter(scope: Scope) -> CapacityLimiter:
    """What bounds the threads of steps as deep as this one, on the running loop.

    A step in a thread waits: for agents, whose tools need threads, and for pipelines, whose steps do. If they
    all shared anyio's default limiter, enough steps that wait would leave no thread for what they wait for.
    What a step waits for is always deeper than itself, or no step.
    """
    limiters = _limiters.get(None)
    if limiters is None:
        _limiters.set(limiters := {})
    depth = sum(1 for _ in scope.lineage())
    if depth not in limiters:
        limiters[depth] = CapacityLimiter(STEPS_IN_THREADS)
    return limiters[depth]
