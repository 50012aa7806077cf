"""The states of machines: plain data, copied and compared at each fact that a machine takes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import deepcopy
from decimal import Decimal
from typing import Any
from unittest.mock import patch

from fastroai.graphs.machine.branches import Branch, Fork
from fastroai.graphs.machine.machine import GraphMachine
from fastroai.graphs.machine.memory import Memory
from fastroai.pipelines.machine import PipelineMachine
from fastroai.runs.decoding import OnRecord
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.plan import FlowPlan

SHAPE = ("plan", "exempt", "_fits", "_orders", "_keys")
"""What machines are made with: it says how they decide, and never changes."""
NOTES = ("journal", "options", "known")
"""What machines of the tests note besides."""
PLAIN = (str, int, float, bool, bytes, Decimal, type(None))
VALUES = (
    "fastroai.graphs.machine.",
    "fastroai.pipelines.machine",
    "fastroai.workflows.machine.",
    "fastroai.runtime.fact_base",
    "fastroai.runtime.facts",
    "fastroai.runs.running.machine",
    "fastroai.graphs.shape.edge",
    "fastroai.expressions",
    "fastroai.steps.visits",
    "fastroai.runtime.retrying.classification",
    "fastroai.store.",
    "fastroai.records",
)
"""Where the classes of plain values are."""
NO_VALUES = ("fastroai.graphs.visit", "fastroai.graphs.machine.branch_times")


def state_of(machine: Any) -> dict[str, Any]:
    """All that a machine remembers."""
    return {name: value for name, value in vars(machine).items() if name not in (*SHAPE, *NOTES)}


def fields_of(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    held |= getattr(value, "__dict__", {})
    held.pop("timestamp", None)  # when a decision was made is nothing that a machine knows
    return held


def shown(value: Any, seen: dict[int, int] | None = None) -> object:
    """A state as nested tuples, to compare. Fails for whatever is no plain data.

    Exceptions, values that are on record and plans of flows are references.
    """
    seen = {} if seen is None else seen
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, BaseException):
        return type(value).__name__, str(value)
    if isinstance(value, OnRecord | FlowPlan):
        return "reference", id(value)
    if isinstance(value, Branch | Fork):  # which know each other
        if id(value) in seen:
            return "again", seen[id(value)]
        seen[id(value)] = len(seen)
    if isinstance(value, Mapping) and not isinstance(value, Memory):
        items = [(shown(key, seen), shown(each, seen)) for key, each in value.items()]
        return "mapping", items
    if isinstance(value, Set):
        return "set", sorted(map(repr, value))
    if isinstance(value, Sequence) or type(value).__name__ == "deque":
        return "sequence", [shown(each, seen) for each in value]
    place = f"{type(value).__module__}."
    assert place.startswith(VALUES), f"{value!r} is no plain data"
    assert not place.startswith(NO_VALUES), f"{value!r} is no plain data"
    return type(value).__name__, {name: shown(one, seen) for name, one in fields_of(value).items()}


def references(value: Any, seen: dict[int, Any]) -> None:
    """Collect the exceptions in a state, by id."""
    if isinstance(value, BaseException):
        seen[id(value)] = value
    if isinstance(value, PLAIN) or id(value) in seen:
        return
    seen[id(value)] = value
    inside: Any = ()
    if isinstance(value, Mapping) and not isinstance(value, Memory):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, Set | Sequence) or type(value).__name__ == "deque":
        inside = value
    elif type(value).__module__.startswith("fastroai") and not isinstance(value, OnRecord):
        inside = fields_of(value).values()
    for one in inside:
        references(one, seen)


def copy_of(machine: Any) -> Any:
    """A machine with a copy of the state: it shares only its shape, exceptions, and values on record.

    The plan of a flow is of its shape, too.
    """
    found: dict[int, Any] = {}
    references(state_of(machine), found)
    shared = {number: one for number, one in found.items() if isinstance(one, BaseException | FlowPlan)}
    shared |= {id(value): value for name, value in vars(machine).items() if name in (*SHAPE, *NOTES)}
    return deepcopy(machine, shared)


@contextmanager
def copied_at_each_fact() -> Iterator[None]:
    """Copy each machine before each fact. The copy does not change with it, and decides what it decides."""

    def told(kind: type[Any], name: str) -> Any:
        original = getattr(kind, name)

        def take_in(machine: Any, fact: Any) -> Any:
            copied, before = copy_of(machine), shown(state_of(machine))
            assert shown(state_of(copied)) == before
            decided = original(machine, fact)
            assert shown(state_of(copied)) == before, "it shares something with its copy"
            original(copied, fact)
            assert shown(state_of(copied)) == shown(state_of(machine)), f"a copy is another after {fact}"
            return decided

        return patch.object(kind, name, take_in)

    with (
        told(GraphMachine, "handle"),
        told(GraphMachine, "started"),
        told(PipelineMachine, "handle"),
        told(WorkflowMachine, "handle"),
    ):
        yield
