"""The one retry loop of steps and of agent calls in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastroai.runtime import (
    Scope,
    backoff_delay,
    mark_exhausted,
    may_retry,
    retry_after,
)

T = TypeVar("T")

OnRetry = Callable[[int, BaseException, float], Awaitable[None]]


async def retry_calls(
    attempt_call: Callable[[int], Awaitable[T]],
    *,
    retries: int | None,
    delay: float,
    scope: Scope,
    on_retry: OnRetry,
    side_by_side: bool = False,
) -> T:
    """`attempt_call(attempt)` until it succeeds, `retries` extra times at most.

    A failure that remains is marked, so that no outer level repeats it; not where nobody said how often
    this level tries (`None`: once). `delay` is the base of the backoff, in seconds; no wait goes past a
    deadline: then the failure is final at once. What a repeated attempt has paid for is marked as retried;
    where other calls run `side_by_side` in the same scope, only what has failed there.
    """
    attempt = 1
    while True:
        since = scope.charge_count
        try:
            return await attempt_call(attempt)
        except Exception as error:
            if retries is None or not may_retry(error):
                raise
            pause = backoff_delay(attempt, delay, retry_after(error))
            if attempt > retries or not scope.has_time_for(pause):
                mark_exhausted(error)
                raise
            scope.mark("retried", since=since, was="failed" if side_by_side else None)
            await on_retry(attempt, error, pause)
            await asyncio.sleep(pause)
            attempt += 1
