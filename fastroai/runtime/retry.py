"""How long to wait between attempts."""

from __future__ import annotations

import random
from typing import Final

MAX_BACKOFF_SECONDS: Final = 60.0


def backoff_delay(attempt: int, base: float, retry_after: float | None = None) -> float:
    """Seconds to wait after the failed attempt number `attempt`, from 1.

    Exponential with full jitter: uniform between 0 and `base * 2 ** (attempt - 1)`, at most a minute
    ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015). A `Retry-After` is a floor under it.
    """
    ceiling = min(MAX_BACKOFF_SECONDS, base * 2.0 ** min(attempt - 1, 32))
    delay = random.uniform(0.0, ceiling)
    return delay if retry_after is None else max(delay, retry_after)
