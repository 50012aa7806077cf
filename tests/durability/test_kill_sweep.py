"""Runs are killed, with SIGKILL, and go on: nothing is lost, nothing is paid for or done twice.

Over a hundred kills here. `make kill-sweep` kills a run at each write of each shape, before one write and
after the next, and more runs at any time; with `TIMES=2` it kills both before and after each write. A test
ends with the first run that breaks a promise.
"""

from __future__ import annotations

import random
from typing import Literal

import pytest
from durability.flow_shapes import FLOWS
from durability.graph_shapes import GRAPHS
from durability.shapes import SHAPES
from durability.sweep import TIMES, Kill, Lane, all_kills, passes, some
from durability.workflow_shapes import WORKFLOWS
from support.examples import seed_of_choices

pytestmark = [pytest.mark.timeout(0)] if TIMES else []
"""A shape with many writes takes longer than the time limit of a test, if it is killed at each."""
SEED = seed_of_choices("FASTROAI_KILL_SEED", searches=bool(TIMES))
AT_A_WRITE, AT_RANDOM = 1, 1
"""How many runs of each shape, unless everything is swept."""
AT_ANY_TIME_EACH = 20
"""How many runs of each shape are killed at any time, in one pass of a sweep."""
EVERY = (*SHAPES, *GRAPHS, *FLOWS, *WORKFLOWS)
ON_SERVERS = EVERY if TIMES else ("diamond", "effects", "graph_fork_waits")
UNWAITED = EVERY if TIMES else ("diamond", "streamed", "graph_loop")

CASES = [("sqlite", shape) for shape in EVERY]
CASES += [(kind, shape) for kind in ("redis", "postgres") for shape in ON_SERVERS]
FEW = ("diamond", "tool_loop", "graph_nested_fork", "flow_of_all", "workflow_of_all")
"""Each kind of run: of those that are killed at a write, a third of the later kills are at any time, too."""
AT_ANY_TIME = [(kind, shape) for kind, shape in CASES if TIMES or kind != "sqlite" or shape in FEW]


def sweep(
    lane: Lane, shape: str, kill: Kill, seed: str, durability: Literal["sync", "async"] = "sync"
) -> None:
    try:
        lane.sweep(shape, kill, random.Random(seed), durability)
    except AssertionError as error:
        lane.violations += 1
        error.add_note(f"{shape} killed at {kill}, seed {seed!r}: set FASTROAI_KILL_SEED={SEED}")
        raise


@pytest.mark.parametrize(("lane", "shape"), CASES, indirect=["lane"])
def test_a_run_that_is_killed_at_a_write_goes_on_and_repeats_nothing(lane: Lane, shape: str) -> None:
    seed = f"{SEED} {lane.place[0]} {shape}"
    kills, before = all_kills(lane.calm(shape)), lane.kills
    for number, kill in enumerate(passes(kills) or some(kills, AT_A_WRITE, random.Random(seed))):
        sweep(lane, shape, kill, f"{seed} {number}")
    if lane.kills == before:  # with fewer, larger writes than the run before had, it came to none of these
        sweep(lane, shape, kills[0], f"{seed} first")
    assert lane.kills > before, "nothing was killed"


@pytest.mark.parametrize(("lane", "shape"), AT_ANY_TIME, indirect=["lane"])
def test_a_run_that_is_killed_at_any_time_goes_on_and_repeats_nothing(lane: Lane, shape: str) -> None:
    seconds = lane.calm(shape).seconds
    for number in range(AT_ANY_TIME_EACH * TIMES or AT_RANDOM):
        seed = f"{SEED} {lane.place[0]} {shape} any {number}"
        sweep(lane, shape, Kill(after=random.Random(seed).random() * seconds), seed)


@pytest.mark.parametrize(("lane", "shape"), [("sqlite", shape) for shape in UNWAITED], indirect=["lane"])
def test_a_run_that_does_not_wait_for_its_store_ends_right_and_its_account_agrees_with_its_log(
    lane: Lane, shape: str
) -> None:
    seed = f"{SEED} {shape} async"
    kills = all_kills(lane.calm(shape, "async"))
    for number, kill in enumerate(passes(kills) or some(kills, AT_A_WRITE, random.Random(seed))):
        sweep(lane, shape, kill, f"{seed} {number}", "async")
