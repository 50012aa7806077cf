"""The log of a run in memory."""

from __future__ import annotations

from time import process_time

from fastroai.runtime import Scope
from fastroai.runtime.facts import QuestionAsked
from fastroai.store.record.log import Log


def test_the_waits_of_a_step_are_found_in_time_that_does_not_grow_with_those_of_others() -> None:
    def seconds(count: int) -> float:
        log = Log(Scope("pipeline", "p", parent=None))
        began = process_time()
        for number in range(count):
            log.keep_open(QuestionAsked(f"s{number}", "ok?", id=str(number)))
            (wait,) = log.waits_in(f"s{number}")
            assert wait.id == str(number)
        return process_time() - began

    assert seconds(8_000) < 40 * seconds(1_000)  # 8 times as many; all pairs would take 64 times as long


def test_a_step_waits_for_what_its_attempts_and_the_runs_inside_wait_for() -> None:
    log = Log(Scope("pipeline", "p", parent=None))
    for place in ("a@1/inner/ask", "ab"):
        around, _, step_id = place.rpartition("/")
        part = log.scope.part if not around else log.scope.part.inside(around)
        log.keep_open(QuestionAsked(step_id, "ok?", id=place, part=part))
    assert [wait.id for wait in log.waits_in("a")] == ["a@1/inner/ask"]
    assert log.waits_in("b") == ()
