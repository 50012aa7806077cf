"""How many Python functions something calls: the same on a busy machine as on an idle one."""

import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType


async def python_calls(run: Callable[[], Awaitable[object]]) -> int:
    """How many functions written in Python one run calls, when caches are warm.

    Each time that a coroutine is resumed counts as a call.
    """
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    for _ in range(2):
        await run()
    profile = sys.getprofile()
    gc.collect()
    gc.disable()  # finalizers of what others left behind would count, too
    sys.setprofile(note)
    try:
        await run()
    finally:
        sys.setprofile(profile)
        gc.enable()
    return count
