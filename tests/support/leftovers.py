"""No task outlives its run."""

from __future__ import annotations

import asyncio


def assert_no_task_is_left() -> None:
    """Nothing but the test itself is running."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"still running: {left}"
