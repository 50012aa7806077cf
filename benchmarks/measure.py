"""Medians and ratios of things that are measured in turns, so that a noisy machine is noisy for all."""

from __future__ import annotations

import gc
import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import FrameType

Run = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    what: str
    measured: str
    bare: str = ""
    ratio: float | None = None
    aim: str = ""
    met: bool | None = None


async def seconds(run: Run, in_a_row: int = 1) -> float:
    """Wall time of one run, on average over as many as follow each other."""
    started = perf_counter()
    for _ in range(in_a_row):
        await run()
    return (perf_counter() - started) / in_a_row


async def function_calls(run: Run, rounds: int = 20, warm_up: int = 5) -> float:
    """How many functions one run calls, in Python and in C: the same on a busy machine as on an idle one.

    Each time that a coroutine is resumed counts as a call.
    """
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    for _ in range(warm_up):
        await run()
    sys.setprofile(note)
    try:
        for _ in range(rounds):
            await run()
    finally:
        sys.setprofile(None)
    return count / rounds


async def medians(
    runs: Mapping[str, Run], rounds: int, warm_up: int = 2, in_a_row: int = 1
) -> dict[str, float]:
    """Median wall time of each, in seconds. They take turns; the collector waits until the end.

    The collection before each turn empties the processor's caches, and filling them again takes longer than
    a run of some microseconds does. Such runs are measured `in_a_row`.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    names, order = list(runs), random.Random(1)
    for turn in range(warm_up + rounds):
        gc.collect()
        gc.disable()
        # Whoever follows a larger one, or a collection, finds cold caches: so nobody always does.
        for name in order.sample(names, len(names)):
            taken = await seconds(runs[name], in_a_row)
            if turn >= warm_up:
                samples[name].append(taken)
        gc.enable()
    return {name: statistics.median(taken) for name, taken in samples.items()}
