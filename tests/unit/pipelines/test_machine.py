"""What runs next, decided without running anything."""

from collections.abc import Sequence

import pytest
from support.facts import brief, cancelled, failed, finished, made_room

from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.plan import build_plan
from fastroai.runs.running.machine import Decision
from fastroai.runtime.facts import (
    AnswerGiven,
    PauseRequested,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    StopRequested,
)
from fastroai.steps import StepContext, step


@step
async def nothing(ctx: StepContext) -> None: ...


def machine(
    dependencies: dict[str, Sequence[str]],
    *,
    exempt: str = "",
    max_concurrency: int | None = None,
) -> PipelineMachine:
    """A machine for steps that are named by a letter each."""
    needs = {step_id: list(befores) for step_id, befores in dependencies.items()}
    plan = build_plan("p", dict.fromkeys(needs, nothing), needs, next(iter(needs)), None)
    return PipelineMachine(plan, exempt=frozenset(exempt), max_concurrency=max_concurrency)


def starts(decisions: list[Decision]) -> str:
    """The steps that start, in order; nothing else must happen."""
    assert all(isinstance(decision, StepStarted) for decision in decisions), decisions
    return " ".join(decision.step_id for decision in decisions if isinstance(decision, StepStarted))


DIAMOND: dict[str, Sequence[str]] = {"a": "", "b": "a", "c": "a", "d": "bc"}


def test_what_needs_nothing_starts_first_in_declaration_order() -> None:
    assert starts(machine({"c": "", "a": "", "b": "a"}).handle(RunStarted())) == "c a"


def test_a_step_waits_for_all_that_it_needs() -> None:
    run = machine(DIAMOND)
    assert starts(run.handle(RunStarted())) == "a"
    assert starts(run.handle(finished("a"))) == "b c"
    assert run.handle(finished("b")) == []
    assert starts(run.handle(finished("c"))) == "d"
    assert brief(run.handle(finished("d"))) == ["finished: every step has run"]


def test_each_start_says_what_it_was_waiting_for() -> None:
    run = machine(DIAMOND)
    [first] = run.handle(RunStarted())
    [second, _] = run.handle(finished("a"))
    assert isinstance(first, StepStarted)
    assert isinstance(second, StepStarted)
    assert first.cause == "it needs no other step"
    assert second.cause == "'a' was the last that it needed"


def test_no_more_start_than_may_run_at_once_first_come_first_served() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "a"}, max_concurrency=2)
    assert starts(run.handle(RunStarted())) == "a b"
    assert starts(run.handle(finished("a"))) == "c", "c was ready before d"
    assert starts(run.handle(finished("b"))) == "d"


def rooms(decisions: list[Decision]) -> dict[str, str | None]:
    """What each step that starts had to wait for, where all places were taken."""
    return {one.step_id: made_room(one) for one in decisions if isinstance(one, StepStarted)}


def test_a_start_tells_whose_end_it_waited_for_when_all_places_were_taken() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "", "e": "a"}, exempt="b", max_concurrency=2)
    assert rooms(run.handle(RunStarted())) == {"a": None, "b": None}
    assert rooms(run.handle(finished("a"))) == {"c": "a"}
    [late] = run.handle(failed("b"))
    assert rooms([late]) == {"d": "b"}, "one that fails makes room too"
    assert isinstance(late, StepStarted)
    assert late.cause == "it needs no other step; it waited for a place until 'b' ended"
    [last] = run.handle(finished("d"))
    assert isinstance(last, StepStarted)
    assert last.cause == "'a' was the last that it needed; it waited for a place until 'd' ended"


def test_what_becomes_due_when_there_is_a_place_has_not_waited_for_one() -> None:
    run = machine({"a": "", "b": "a", "c": "a", "d": "a"}, max_concurrency=2)
    run.handle(RunStarted())
    assert rooms(run.handle(finished("a"))) == {"b": None, "c": None}, "they waited for a itself"
    assert rooms(run.handle(finished("c"))) == {"d": "c"}


def test_the_one_that_was_first_in_line_gets_the_place_and_not_what_its_end_made_due() -> None:
    run = machine({"a": "", "b": "", "x": "a", "y": "a"}, max_concurrency=1)
    run.handle(RunStarted())
    assert rooms(run.handle(finished("a"))) == {"b": "a"}
    assert rooms(run.handle(finished("b"))) == {"x": "b"}
    assert rooms(run.handle(finished("x"))) == {"y": "x"}


def test_what_an_earlier_process_has_done_takes_no_place_of_a_run_that_is_resumed() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "c", "e": "a"}, max_concurrency=1)
    assert starts(run.handle(RunStarted())) == "a"
    assert run.handle(finished("c")) == [], "the output is of the run that this one is a fork of"
    assert rooms(run.handle(RunResumed())) == {"a": None}, "what had started starts anew, in order"
    assert rooms(run.handle(finished("a"))) == {"b": "a"}
    assert rooms(run.handle(finished("b"))) == {"d": "b"}, "d had started when e became due"
    assert rooms(run.handle(finished("d"))) == {"e": "d"}


def test_a_run_that_is_resumed_when_all_has_run_finishes() -> None:
    run = machine({"a": "", "b": "a"})
    run.handle(RunStarted())
    run.handle(finished("a"))
    run.handle(finished("b"))
    assert brief(run.handle(RunResumed())) == ["finished: every step has run"]


def test_a_failure_cancels_what_runs_and_finishes_when_that_has_ended() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "a"})
    run.handle(RunStarted())
    assert brief(run.handle(failed("a"))) == ["cancel b c: 'a' failed"]
    assert run.handle(cancelled("b")) == []
    assert brief(run.handle(cancelled("c"))) == ["skip d: 'a' failed", "failed: 'a' failed"]


def test_after_a_failure_nothing_starts_whatever_still_succeeds() -> None:
    run = machine({"a": "", "b": "", "c": "b"})
    run.handle(RunStarted())
    run.handle(failed("a"))
    assert brief(run.handle(finished("b"))) == ["skip c: 'a' failed", "failed: 'a' failed"]


def test_only_the_first_failure_cancels() -> None:
    run = machine({"a": "", "b": "", "c": ""})
    run.handle(RunStarted())
    run.handle(failed("a"))
    assert run.handle(failed("b")) == []
    assert brief(run.handle(failed("c"))) == ["failed: 'a' failed"]


def test_the_failure_of_an_exempt_step_skips_what_needs_it_and_the_rest_goes_on() -> None:
    run = machine({"a": "", "b": "", "c": "a", "d": "c", "e": "cb", "f": "b"}, exempt="a")
    run.handle(RunStarted())
    assert brief(run.handle(failed("a"))) == [
        "skip c: it needs 'a', which failed",
        "skip d: it needs 'a', which failed",
        "skip e: it needs 'a', which failed",
    ]
    assert starts(run.handle(finished("b"))) == "f"
    assert brief(run.handle(finished("f"))) == ["finished: every step that could run has run, and 1 failed"]


def test_a_step_that_needs_two_failed_ones_is_skipped_once() -> None:
    run = machine({"a": "", "b": "", "c": "ab"}, exempt="ab")
    run.handle(RunStarted())
    assert brief(run.handle(failed("a"))) == ["skip c: it needs 'a', which failed"]
    assert brief(run.handle(failed("b"))) == ["finished: every step that could run has run, and 2 failed"]


def test_a_fatal_failure_stops_the_run_although_the_step_is_exempt() -> None:
    run = machine({"a": "", "b": ""}, exempt="ab")
    run.handle(RunStarted())
    assert brief(run.handle(failed("a", budget="outer"))) == ["cancel b: no such page"]


def test_an_exempt_failure_after_a_stop_changes_nothing() -> None:
    run = machine({"a": "", "b": "", "c": "b"}, exempt="b")
    run.handle(RunStarted())
    run.handle(failed("a"))
    assert brief(run.handle(failed("b"))) == ["skip c: 'a' failed", "failed: 'a' failed"]


def test_a_step_that_needs_more_from_the_user_stops_the_run_and_what_runs_may_finish() -> None:
    run = machine({"a": "", "b": "", "c": "a", "d": "b"})
    run.handle(RunStarted())
    assert run.handle(finished("a", incomplete=True)) == [], "b is being paid for"
    assert brief(run.handle(finished("b"))) == [
        "skip c: 'a' needs more from the user",
        "skip d: 'a' needs more from the user",
        "paused: 'a' needs more from the user",
    ]


def test_of_two_that_need_more_the_first_to_say_so_is_the_cause() -> None:
    run = machine({"a": "", "b": ""})
    run.handle(RunStarted())
    run.handle(finished("b", incomplete=True))
    assert brief(run.handle(finished("a", incomplete=True))) == ["paused: 'b' needs more from the user"]


def test_a_failure_after_an_early_stop_still_cancels_what_runs() -> None:
    run = machine({"a": "", "b": "", "c": ""})
    run.handle(RunStarted())
    run.handle(finished("a", incomplete=True))
    assert brief(run.handle(failed("b"))) == ["cancel c: 'b' failed"]
    assert brief(run.handle(cancelled("c"))) == ["failed: 'b' failed"]


def test_what_waits_for_a_place_does_not_start_after_a_stop() -> None:
    run = machine({"a": "", "b": ""}, max_concurrency=1)
    run.handle(RunStarted())
    assert brief(run.handle(failed("a"))) == ["skip b: 'a' failed", "failed: 'a' failed"]


# --- asked for from outside ---


def test_after_a_pause_what_runs_may_finish_and_nothing_starts() -> None:
    run = machine({"a": "", "b": "a"})
    run.handle(RunStarted())
    assert run.handle(PauseRequested()) == []
    [finish] = run.handle(finished("a"))
    assert isinstance(finish, RunFinished)
    assert (finish.status, finish.resume_at) == ("paused", ("b",))


def test_a_pause_when_all_has_started_changes_nothing() -> None:
    run = machine({"a": "", "b": ""})
    run.handle(RunStarted())
    run.handle(PauseRequested())
    run.handle(finished("a"))
    assert brief(run.handle(finished("b"))) == ["finished: every step has run"]


def test_a_stop_cancels_what_runs_and_skips_the_rest() -> None:
    run = machine({"a": "", "b": "a"})
    run.handle(RunStarted())
    assert brief(run.handle(StopRequested(reason="no time"))) == ["cancel a: no time"]
    assert brief(run.handle(cancelled("a"))) == ["skip b: no time", "cancelled: no time"]


def test_a_fact_of_graphs_is_refused() -> None:
    with pytest.raises(TypeError, match="AnswerGiven does not belong in the run of a pipeline"):
        machine(DIAMOND).handle(AnswerGiven("a", "yes"))
