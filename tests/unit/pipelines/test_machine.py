"""What runs next, decided without running anything."""

from collections.abc import Sequence

import pytest

from fastroai.pipelines.machine import (
    Cancelled,
    CancelSteps,
    Command,
    Failed,
    Finish,
    PipelineMachine,
    SkipStep,
    Started,
    StartStep,
    Succeeded,
)
from fastroai.pipelines.plan import build_plan
from fastroai.steps import StepContext, step


@step
async def nothing(ctx: StepContext) -> None: ...


def machine(
    dependencies: dict[str, Sequence[str]], *, exempt: str = "", max_concurrency: int | None = None
) -> PipelineMachine:
    """A machine for steps that are named by a letter each."""
    needs = {step_id: list(befores) for step_id, befores in dependencies.items()}
    plan = build_plan("p", dict.fromkeys(needs, nothing), needs, next(iter(needs)), None)
    return PipelineMachine(plan, exempt=frozenset(exempt), max_concurrency=max_concurrency)


def starts(commands: list[Command]) -> str:
    """The steps that start, in order; nothing else must happen."""
    assert all(isinstance(command, StartStep) for command in commands), commands
    return " ".join(command.step_id for command in commands if isinstance(command, StartStep))


DIAMOND: dict[str, Sequence[str]] = {"a": "", "b": "a", "c": "a", "d": "bc"}


def test_what_needs_nothing_starts_first_in_declaration_order() -> None:
    assert starts(machine({"c": "", "a": "", "b": "a"}).handle(Started())) == "c a"


def test_a_step_starts_the_moment_its_own_dependencies_are_done() -> None:
    run = machine({"a": "", "b": "", "x": "a", "y": "b"})
    run.handle(Started())
    assert starts(run.handle(Succeeded("b"))) == "y", "it does not wait for a, which is a level below"


def test_a_step_waits_for_all_that_it_needs() -> None:
    run = machine(DIAMOND)
    assert starts(run.handle(Started())) == "a"
    assert starts(run.handle(Succeeded("a"))) == "b c"
    assert run.handle(Succeeded("b")) == []
    assert starts(run.handle(Succeeded("c"))) == "d"
    assert run.handle(Succeeded("d")) == [Finish("every step has run")]


def test_each_start_says_what_it_was_waiting_for() -> None:
    run = machine(DIAMOND)
    [first] = run.handle(Started())
    [second, _] = run.handle(Succeeded("a"))
    assert isinstance(first, StartStep)
    assert isinstance(second, StartStep)
    assert first.cause == "it needs no other step"
    assert second.cause == "'a' was the last that it needed"


def test_no_more_start_than_may_run_at_once_first_come_first_served() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "a"}, max_concurrency=2)
    assert starts(run.handle(Started())) == "a b"
    assert starts(run.handle(Succeeded("a"))) == "c", "c was ready before d"
    assert starts(run.handle(Succeeded("b"))) == "d"


def rooms(commands: list[Command]) -> dict[str, str | None]:
    """What each step that starts had to wait for, where all places were taken."""
    return {command.step_id: command.made_room for command in commands if isinstance(command, StartStep)}


def test_a_start_tells_whose_end_it_waited_for_when_all_places_were_taken() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "", "e": "a"}, exempt="b", max_concurrency=2)
    assert rooms(run.handle(Started())) == {"a": None, "b": None}
    assert rooms(run.handle(Succeeded("a"))) == {"c": "a"}
    [late] = run.handle(Failed("b"))
    assert rooms([late]) == {"d": "b"}, "one that fails makes room too"
    assert isinstance(late, StartStep)
    assert late.cause == "it needs no other step; it waited for a place until 'b' ended"
    [last] = run.handle(Succeeded("d"))
    assert isinstance(last, StartStep)
    assert last.cause == "'a' was the last that it needed; it waited for a place until 'd' ended"


def test_what_becomes_due_when_there_is_a_place_has_not_waited_for_one() -> None:
    run = machine({"a": "", "b": "a", "c": "a", "d": "a"}, max_concurrency=2)
    run.handle(Started())
    assert rooms(run.handle(Succeeded("a"))) == {"b": None, "c": None}, "they waited for a itself"
    assert rooms(run.handle(Succeeded("c"))) == {"d": "c"}


def test_the_one_that_was_first_in_line_gets_the_place_and_not_what_its_end_made_due() -> None:
    run = machine({"a": "", "b": "", "x": "a", "y": "a"}, max_concurrency=1)
    run.handle(Started())
    assert rooms(run.handle(Succeeded("a"))) == {"b": "a"}
    assert rooms(run.handle(Succeeded("b"))) == {"x": "b"}
    assert rooms(run.handle(Succeeded("x"))) == {"y": "x"}


def test_without_a_limit_nothing_waits_for_a_place() -> None:
    run = machine(DIAMOND)
    assert rooms([*run.handle(Started()), *run.handle(Succeeded("a"))]) == {"a": None, "b": None, "c": None}


def test_nothing_waits_for_the_place_of_a_step_that_is_reused() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "c"}, max_concurrency=1)
    assert rooms(run.handle(Started())) == {"a": None}
    assert rooms(run.handle(Succeeded("a", reused=True))) == {"b": None}
    assert rooms(run.handle(Succeeded("b"))) == {"c": "b"}
    assert rooms(run.handle(Succeeded("c", reused=True))) == {"d": None}


def test_a_step_that_is_reused_hands_on_the_place_that_it_was_given() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "a", "e": "a"}, max_concurrency=1)
    run.handle(Started())
    assert rooms(run.handle(Succeeded("a"))) == {"b": "a"}
    assert rooms(run.handle(Succeeded("b", reused=True))) == {"c": "a"}
    assert rooms(run.handle(Succeeded("c", reused=True))) == {"d": None}, "a was what it needed"


def test_a_failure_cancels_what_runs_and_finishes_when_that_has_ended() -> None:
    run = machine({"a": "", "b": "", "c": "", "d": "a"})
    run.handle(Started())
    assert run.handle(Failed("a")) == [CancelSteps("'a' failed")]
    assert run.handle(Cancelled("b")) == []
    assert run.handle(Cancelled("c")) == [Finish("'a' failed")]


def test_a_failure_when_nothing_else_runs_finishes_at_once() -> None:
    run = machine({"a": "", "b": "a"})
    run.handle(Started())
    assert run.handle(Failed("a")) == [Finish("'a' failed")]


def test_after_a_failure_nothing_starts_whatever_still_succeeds() -> None:
    run = machine({"a": "", "b": "", "c": "b"})
    run.handle(Started())
    run.handle(Failed("a"))
    assert run.handle(Succeeded("b")) == [Finish("'a' failed")]


def test_only_the_first_failure_cancels() -> None:
    run = machine({"a": "", "b": "", "c": ""})
    run.handle(Started())
    run.handle(Failed("a"))
    assert run.handle(Failed("b")) == []
    assert run.handle(Failed("c")) == [Finish("'a' failed")]


def test_the_failure_of_an_exempt_step_skips_what_needs_it_and_the_rest_goes_on() -> None:
    run = machine({"a": "", "b": "", "c": "a", "d": "c", "e": "cb", "f": "b"}, exempt="a")
    run.handle(Started())
    assert run.handle(Failed("a")) == [
        SkipStep("c", "it needs 'a', which failed"),
        SkipStep("d", "it needs 'a', which failed"),
        SkipStep("e", "it needs 'a', which failed"),
    ]
    assert starts(run.handle(Succeeded("b"))) == "f"
    assert run.handle(Succeeded("f")) == [Finish("every step has run")]


def test_a_step_that_needs_two_failed_ones_is_skipped_once() -> None:
    run = machine({"a": "", "b": "", "c": "ab"}, exempt="ab")
    run.handle(Started())
    assert run.handle(Failed("a")) == [SkipStep("c", "it needs 'a', which failed")]
    assert run.handle(Failed("b")) == [Finish("every step has run")]


def test_a_fatal_failure_stops_the_run_although_the_step_is_exempt() -> None:
    run = machine({"a": "", "b": ""}, exempt="ab")
    run.handle(Started())
    assert run.handle(Failed("a", fatal=True)) == [CancelSteps("'a' failed")]


def test_an_exempt_failure_after_a_stop_changes_nothing() -> None:
    run = machine({"a": "", "b": "", "c": "b"}, exempt="b")
    run.handle(Started())
    run.handle(Failed("a"))
    assert run.handle(Failed("b")) == [Finish("'a' failed")]


def test_a_step_that_needs_more_from_the_user_stops_the_run_and_what_runs_may_finish() -> None:
    run = machine({"a": "", "b": "", "c": "a", "d": "b"})
    run.handle(Started())
    assert run.handle(Succeeded("a", incomplete=True)) == [], "b is being paid for"
    assert run.handle(Succeeded("b")) == [Finish("'a' needs more from the user")]


def test_of_two_that_need_more_the_first_to_say_so_is_the_cause() -> None:
    run = machine({"a": "", "b": ""})
    run.handle(Started())
    run.handle(Succeeded("b", incomplete=True))
    assert run.handle(Succeeded("a", incomplete=True)) == [Finish("'b' needs more from the user")]


def test_a_failure_after_an_early_stop_still_cancels_what_runs() -> None:
    run = machine({"a": "", "b": "", "c": ""})
    run.handle(Started())
    run.handle(Succeeded("a", incomplete=True))
    assert run.handle(Failed("b")) == [CancelSteps("'b' failed")]
    assert run.handle(Cancelled("c")) == [Finish("'b' failed")]


def test_what_waits_for_a_place_does_not_start_after_a_stop() -> None:
    run = machine({"a": "", "b": ""}, max_concurrency=1)
    run.handle(Started())
    assert run.handle(Failed("a")) == [Finish("'a' failed")]


def test_the_journal_has_every_event_with_its_commands() -> None:
    run = machine(DIAMOND)
    first = run.handle(Started())
    second = run.handle(Failed("a"))
    assert run.journal == [(Started(), first), (Failed("a"), second)]


@pytest.mark.parametrize("width", [1, 3])
def test_a_long_chain_is_decided_step_by_step(width: int) -> None:
    length = 2_000
    names = [f"s{number}" for number in range(length)]
    run = machine(
        {name: [names[number - 1]] if number else [] for number, name in enumerate(names)},
        max_concurrency=width,
    )
    commands = run.handle(Started())
    for _ in range(length):
        [command] = commands
        assert isinstance(command, StartStep)
        commands = run.handle(Succeeded(command.step_id))
    assert commands == [Finish("every step has run")]
