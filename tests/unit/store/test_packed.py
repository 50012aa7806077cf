"""Facts in memory: however many there are, they read as traces show them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from pydantic import BaseModel

from fastroai.graphs.facts import EdgesResolved
from fastroai.graphs.machine.routing import EdgeOutcome
from fastroai.graphs.shape.edge import Edge
from fastroai.runtime.fact_base import FailureFacts, Part
from fastroai.runtime.facts import AnyFact, StepFailed, StepFinished, StepStarted
from fastroai.store.reading.as_json import as_told
from fastroai.store.record.entries import encode_entry, locate
from fastroai.store.record.packed import MOST_UNPACKED, PACKED_AT_ONCE, PackedFacts

ROOT = Part("run-1", "loop", ("loop",))
INSIDE = ROOT.inside("a@1/inner")


class Reply(BaseModel):
    text: str = "a default is told too"


@dataclass
class Line:
    amount: Decimal
    tags: list[str] = field(default_factory=list)


def cyclic() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


VALUES = [
    1,
    "two\nlines",
    "\u2028",
    None,
    2.5,
    float("nan"),
    float("inf"),
    {"n": [1, {"m": None}]},
    Reply(),
    {"reply": Reply(), 3: Line(Decimal("0.1"))},
    b"bytes",
    b"\xff",
    {1, 2},
    object,
    cyclic(),
    [[]] * 3,
]


def long_log(value: object = 1) -> list[AnyFact]:
    edge = EdgeOutcome(Edge("a", "b"), True, None, "'a' succeeded")
    made: list[AnyFact] = []
    for visit in range(1, MOST_UNPACKED // 3 + PACKED_AT_ONCE):
        part = INSIDE if visit % 7 == 0 else ROOT
        made.append(StepStarted("a", "'b' succeeded", visit=visit, part=part))
        made.append(StepFinished("a", value, visit=visit, part=part, written={"n": visit}))
        made.append(EdgesResolved("a", (edge,), visit=visit, part=part))
        if visit % 50 == 0:
            failure = FailureFacts(error_type="ValueError", message="no", failure_class="terminal")
            made.append(StepFailed("a", failure, visit=visit, part=part, raised=ValueError("no")))
    return made


def packed(made: list[AnyFact]) -> PackedFacts:
    facts = PackedFacts()
    for fact in made:
        facts.append(fact)
    return facts


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_facts_that_are_packed_read_as_they_are_told(value: object) -> None:
    made = long_log(value)
    facts = packed(made)
    expected = [*map(as_told, made)]
    locate(expected, {"": ROOT})
    told = facts.told(ROOT)
    assert len(facts) == len(told) == len(made)
    assert len(facts.newest) <= MOST_UNPACKED
    # As texts: not every number is equal to itself.
    assert [*map(encode_entry, told)] == [*map(encode_entry, expected)]
    assert [fact.part for fact in told] == [fact.part for fact in expected]
    assert {fact.part.path for fact in told} == {ROOT.path, INSIDE.path}


def test_few_facts_stay_as_they_were_made() -> None:
    made = long_log()[:MOST_UNPACKED]
    assert packed(made).newest == made
    assert packed(made).told(ROOT) == [*map(as_told, made)]


def test_facts_that_threads_add_are_all_kept_in_the_order_of_each_thread() -> None:
    facts, each = PackedFacts(), MOST_UNPACKED

    def add(name: str) -> None:
        for visit in range(each):
            facts.append(StepStarted(name, "", visit=visit))

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [fact for fact in facts.told(ROOT) if isinstance(fact, StepStarted)]
    for name in "abc":
        assert [fact.visit for fact in told if fact.step_id == name] == [*range(each)]
