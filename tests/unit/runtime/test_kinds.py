"""What every fact is, and how a log is read whose package nobody has imported."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Final

import pytest
from support.declared_facts import FACTS

from fastroai.runtime.fact_base import Begins, Ends, Fact, FailureFacts, Notes, RunFact
from fastroai.runtime.facts import (
    CallEnded,
    OnceFailed,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepHalted,
    StepSkipped,
    ToolEnded,
    Wait,
    WaitEnded,
)
from fastroai.runtime.kinds import DECLARED_IN, fact_class
from fastroai.workflows.facts import SkipRequested

FAILURE: Final = FailureFacts(error_type="ValueError", message="no", failure_class="terminal")


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_is_about_the_run_or_a_beginning_an_end_or_a_note(fact: type[Fact]) -> None:
    assert sum(issubclass(fact, base) for base in (RunFact, Begins, Ends, Notes)) == 1
    assert fact.identity


@pytest.mark.parametrize("fact", FACTS)
def test_every_kind_has_its_own_class_in_the_module_that_is_said_to_declare_it(fact: type[Fact]) -> None:
    assert fact_class(fact.kind) is fact
    homes = [module for module, kinds in DECLARED_IN.items() if fact.kind in kinds]
    assert homes == ([] if fact.__module__ == "fastroai.runtime.facts" else [fact.__module__])


@pytest.mark.parametrize(("module", "kinds"), DECLARED_IN.items())
def test_a_package_is_imported_when_a_log_has_one_of_its_facts(module: str, kinds: tuple[str, ...]) -> None:
    code = (
        "import sys; from fastroai.runtime.kinds import fact_class; "
        f"print({module!r} in sys.modules, *(fact_class(one).__name__ for one in {kinds!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, *names = done.stdout.split()
    assert before == "False"
    assert names == [getattr(import_module(module), name).__name__ for name in names]


def test_two_classes_cannot_declare_the_same_kind() -> None:
    with pytest.raises(TypeError, match=r"Other has the kind 'step_finished' of .*StepFinished"):

        @dataclass(slots=True)
        class Other(StepFact):
            kind: ClassVar[str] = "step_finished"

    assert fact_class("step_finished") is StepFinished


def test_facts_about_one_thing_have_the_same_key() -> None:
    one, other = StepFinished("a", 1, visit=2), StepFinished("a", 2)
    assert one.about == ("step", "a#2") != other.about
    assert fact_class("nothing of this name") is None


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (StepFinished("a", 1), "succeeded"),
        (StepFinished("a", 1, conversation="incomplete"), "incomplete"),
        (StepFailed("a", FAILURE), "failed"),
        (StepHalted("a", ()), "incomplete"),
        (StepCancelled("a", "it was asked to"), "cancelled"),
        (StepSkipped("a", "its condition does not hold"), "skipped"),
        (SkipRequested("a"), "cancelled"),
        (ToolEnded(place="a@1", tool="t", result=1), "succeeded"),
        (ToolEnded(place="a@1", tool="t", retry="again"), "retried"),
        (ToolEnded(place="a@1", tool="t", retry="no", is_final=True), "failed"),
        (ToolEnded(place="a@1", tool="t", deferred="approval"), "incomplete"),
        (WaitEnded("a", Wait(what="sleep", id="1")), "succeeded"),
        (WaitEnded("a", Wait(what="message", id="1", name="paid"), number=3), "succeeded"),
        (WaitEnded("a", Wait(what="message", id="1", name="paid")), "failed"),
        (CallEnded(place="a@1/f#1", call=None, failure=FAILURE), "failed"),
        (OnceFailed(place="a", name="pay"), "failed"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Fact) else given,
)
def test_an_end_says_how_it_ended(end: Ends, outcome: str) -> None:
    assert end.outcome == outcome
