"""The one retry loop of steps and of agent calls in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastroai.runtime import NO_RETRIES_USED, RetriesUsed, Retry, RetryRules
from fastroai.runtime.scope import Scoped

T = TypeVar("T")

OnRetry = Callable[[Retry], Awaitable[None]]


async def retry_calls(
    attempt_call: Callable[[int], Awaitable[T]],
    *,
    rules: RetryRules | None,
    scoped: Scoped,
    on_retry: OnRetry,
    side_by_side: bool = False,
    used: RetriesUsed = NO_RETRIES_USED,
) -> T:
    """Call `attempt_call(attempt)` until it succeeds, or until `rules` say that it is not tried again.

    The last failure is marked, so that no outer level repeats it, unless `rules` is `None`: then there is one
    attempt. Charges of a repeated attempt are marked as retried; if other calls run `side_by_side` in the
    same scope, only failed charges are. The first attempt is the one in `used`. Before each wait, `on_retry`
    is told what is used then.
    """
    while True:
        before = scoped.opened
        since = 0 if before is None or not before.has_spent else len(before.spending.charges)
        try:
            return await attempt_call(used.attempt)
        except Exception as error:
            scope = scoped.scope
            retry = None if rules is None else rules.next(error, used, scope)
            if retry is None:
                raise
            if scope.has_spent:
                with scope.tree.lock:
                    scope.spending.mark("retried", since, "failed" if side_by_side else None)
            await on_retry(retry)
            with scope.time.at_rest():
                await asyncio.sleep(retry.delay)
            used = retry.used
