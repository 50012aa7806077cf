"""Medians and ratios of things that are measured in turns, so that a noisy machine is noisy for all."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
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


@dataclass(frozen=True)
class Timing:
    """Seconds that something took, in all its rounds: median and minimum, of the clock and of the CPU."""

    wall: float
    least_wall: float
    cpu: float
    least_cpu: float

    @classmethod
    def of(cls, samples: Sequence[tuple[float, float]]) -> Timing:
        """Sum up rounds, each with its seconds of the clock and of the CPU."""
        walls, cpus = [wall for wall, _ in samples], [cpu for _, cpu in samples]
        return cls(statistics.median(walls), min(walls), statistics.median(cpus), min(cpus))

    def each(self, units: int) -> str:
        """Write the time of one of so many units, in µs: median (minimum), and the same of the CPU."""
        wall, least, cpu, least_cpu = (
            f"{taken / units * 1e6:,.1f}" for taken in (self.wall, self.least_wall, self.cpu, self.least_cpu)
        )
        return f"{wall} ({least}) µs, CPU {cpu} ({least_cpu})"


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


async def timings(
    runs: Mapping[str, Run], rounds: int, warm_up: int = 2, in_a_row: int = 1
) -> dict[str, Timing]:
    """How long each takes. They take turns, in another order each time, and the collector stays on.

    Runs of some microseconds are measured `in_a_row`: reading the clocks would count.
    """
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    names, order = list(runs), random.Random(1)
    for turn in range(warm_up + rounds):
        for name in order.sample(names, len(names)):
            started, used = perf_counter(), process_time()
            for _ in range(in_a_row):
                await runs[name]()
            taken = ((perf_counter() - started) / in_a_row, (process_time() - used) / in_a_row)
            if turn >= warm_up:
                samples[name].append(taken)
    return {name: Timing.of(taken) for name, taken in samples.items()}


async def medians(
    runs: Mapping[str, Run], rounds: int, warm_up: int = 2, in_a_row: int = 1
) -> dict[str, float]:
    """Median wall time of each, in seconds, measured as `timings` does."""
    taken = await timings(runs, rounds, warm_up, in_a_row)
    return {name: timing.wall for name, timing in taken.items()}
