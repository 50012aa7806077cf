"""Random graphs against a reference that knows nothing of FastroAI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.graph_reference import Design, Outcome, interpret
from support.graph_simulation import Simulation, assert_replays, graph_machines
from support.graph_worlds import run_killed, run_live
from support.random_graphs import designs
from support.virtual_time import VirtualTimeLoop

__all__ = ["graph_machines"]
"""A fixture for all tests here: live runs replay."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stores and deciders that fail are what this is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def assert_same(outcome: Outcome, expected: Outcome) -> None:
    """What the reference says is what happened, and when."""
    assert outcome.seen == expected.seen
    assert_same_end(outcome, expected)
    assert outcome.at == expected.at


def assert_same_end(outcome: Outcome, expected: Outcome) -> None:
    """The run came to what the reference says."""
    assert (outcome.status, outcome.reason) == (expected.status, expected.reason)
    assert outcome.path == expected.path
    assert outcome.quality == expected.quality
    assert outcome.output == expected.output
    assert outcome.visits == {node: count for node, count in expected.visits.items() if count}
    assert outcome.errors == expected.errors
    assert bool(outcome.conflicts) == bool(expected.conflicts)
    assert outcome.conflicts <= expected.conflicts
    assert outcome.memory == expected.memory


@given(designs())
@settings(max_examples=examples(30))
def test_the_state_machine_decides_what_the_reference_says(design: Design) -> None:
    expected = interpret(design)
    assume(not expected.is_tied)
    simulation = Simulation(design)
    assert_same(simulation.run(), expected)
    assert_replays(simulation.machine)


@given(designs())
@settings(max_examples=examples(13))
def test_a_live_run_does_what_the_reference_says(design: Design) -> None:
    expected = interpret(design)
    assume(not expected.is_tied)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        outcome = runner.run(run_live(design))
    assert_same(outcome, expected)


@given(designs(timed=False), st.lists(st.integers(1, 20), min_size=1, max_size=3))
@settings(max_examples=examples(13))
def test_a_run_whose_processes_die_comes_to_what_it_would_have_come_to(
    design: Design, deaths: list[int]
) -> None:
    expected = interpret(design)
    assume(not expected.is_tied)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        outcome = runner.run(run_killed(design, expected.endings, deaths))
    if expected.has_cut and outcome.memory.keys() == expected.memory.keys():
        outcome.memory = expected.memory  # visits that are cancelled at one moment write in any order
    assert_same_end(outcome, expected)
