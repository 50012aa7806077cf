from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from support.run_logs import START, Log, definition, failure, support_desk

from fastroai.errors import ConfigurationError, RunCorrupt, RunFromNewerVersion, RunFromOlderVersion
from fastroai.runtime.facts import FORMAT, RequestEnded, StepFinished, StepStarted, ToolEnded
from fastroai.store import RunTrace, StepAttempt, StepSummary


def attempts_of(trace: RunTrace, place: str) -> list[StepAttempt]:
    return [attempt for attempt in trace.attempts if attempt.place == place]


def step_of(trace: RunTrace, place: str) -> StepSummary:
    return next(step for step in trace.steps if step.place == place)


# --- attempts ---


def test_every_attempt_has_its_times_and_outcome() -> None:
    trace = support_desk().trace
    first, second = attempts_of(trace, "look_up")
    assert (first.attempt, first.status, first.delay) == (1, "retried", 0.5)
    assert first.failure == failure()
    assert (second.attempt, second.status) == (2, "failed")
    assert (second.started_at - START).total_seconds() == 3.0, "it waited for half a second"
    assert first.cause == "it needs no other step"
    (write,) = attempts_of(trace, "write")
    assert (write.output, write.status) == ("Dear …", "succeeded")


def test_the_input_of_a_step_is_that_of_the_run_and_what_it_needs() -> None:
    trace = support_desk().trace
    (write,) = attempts_of(trace, "write")
    assert write.input == {"inputs": {"text": "Where is my parcel?"}, "outputs": {"classify": "parcel"}}


def test_a_nested_step_has_the_outputs_that_it_needs_and_no_inputs_which_are_not_on_record() -> None:
    (check,) = attempts_of(support_desk().trace, "write@1/inner/check")
    assert (check.step, check.input) == ("check", {"outputs": {"draft": "Dear"}})


def test_what_a_nested_step_spends_counts_for_the_steps_around_it_and_once_for_the_run() -> None:
    trace = support_desk().trace
    (draft,) = attempts_of(trace, "write@1/inner/draft")
    (write,) = attempts_of(trace, "write")
    assert draft.usage.cost_usd == write.usage.cost_usd == Decimal("0.002")
    assert [sent.fingerprint for sent in draft.requests] == ["f2"]
    assert write.requests == ()
    assert trace.usage.cost_usd == Decimal("0.003")
    assert len(trace.records) == 2


def test_a_request_that_never_ended_counts_with_its_bound() -> None:
    trace = Log(definition({"a": []})).start("a").request("a@1", None).trace
    usage = trace.attempts[0].usage
    assert (usage.unmeasured_requests, usage.committed_usd) == (1, Decimal("0.05"))


def test_other_spending_counts_too() -> None:
    trace = Log(definition({"a": []})).start("a").spend("a@1", "0.25").output("a").trace
    assert trace.attempts[0].usage.cost_usd == Decimal("0.25")
    assert trace.attempts[0].requests == ()


def test_an_attempt_whose_process_died_is_interrupted_and_made_again_under_its_number() -> None:
    log = Log(definition({"a": []}), inputs={"x": 1}).start("a").request("a@1").resume(x=2).start("a")
    trace = log.request("a@1").output("a").end().trace
    died, again = trace.attempts
    assert (died.attempt, died.status, died.ended_at, died.input["inputs"]) == (
        1,
        "interrupted",
        None,
        {"x": 1},
    )
    assert (again.attempt, again.status, again.input["inputs"]) == (1, "succeeded", {"x": 2})
    assert died.usage.request_count == again.usage.request_count == 1
    assert trace.inputs == {"x": 2}


def test_what_a_step_started_in_is_interrupted_with_it() -> None:
    log = support_desk()
    cut = next(i for i, e in enumerate(log.entries) if getattr(e, "place", "") == "write@1/inner/draft")
    log.entries = log.entries[: cut + 1]
    trace = log.resume().trace
    assert {a.place: a.status for a in trace.attempts if a.status == "interrupted"} == {
        "write": "interrupted",
        "write@1/inner/draft": "interrupted",
    }


def test_a_step_that_waits_for_a_retry_when_its_process_dies_goes_on_with_the_next_attempt() -> None:
    log = Log(definition({"a": []})).start("a").retry("a").resume().start("a").output("a", attempt=2)
    assert [(a.attempt, a.status) for a in log.trace.attempts] == [(1, "retried"), (2, "succeeded")]


def test_a_step_that_is_started_twice_without_a_resume_between_was_cut_off() -> None:
    trace = Log(definition({"a": []})).start("a").start("a").trace
    assert [a.status for a in trace.attempts] == ["interrupted", "running"]


def test_a_failed_step_is_run_again_as_the_next_attempt() -> None:
    log = Log(definition({"a": []})).start("a").fail("a").end("failed", failure()).resume()
    trace = log.start("a").output("a", attempt=2).end().trace
    assert [(a.attempt, a.status) for a in trace.attempts] == [(1, "failed"), (2, "succeeded")]


def test_what_still_ran_when_the_run_finished_was_cancelled() -> None:
    trace = Log(definition({"a": [], "b": []})).start("a").start("b").fail("a").end("failed", failure()).trace
    (b,) = attempts_of(trace, "b")
    assert (b.status, b.ended_at) == ("cancelled", trace.entries[-1].at)


def test_what_still_ran_in_a_step_that_failed_was_cancelled() -> None:
    log = (
        Log(definition({"a": []})).start("a").start("a@1/in/x").start("a@1/in/y").output("a@1/in/x").fail("a")
    )
    assert {a.place: a.status for a in log.trace.attempts} == {
        "a": "failed",
        "a@1/in/x": "succeeded",
        "a@1/in/y": "cancelled",
    }


def test_an_output_without_a_start_is_that_of_the_run_it_was_forked_from() -> None:
    log = (
        Log(definition({"a": [], "b": ["a"]}), forked_from="r0").output("a").start("b", "a").output("b").end()
    )
    assert [a.status for a in log.trace.attempts] == ["reused", "succeeded"]
    assert attempts_of(log.trace, "b")[0].input["outputs"] == {"a": "done"}


def test_an_agent_call_that_was_made_again_is_with_its_attempt() -> None:
    trace = Log(definition({"a": []})).start("a").call_retry("a@1").output("a").trace
    assert [retry.delay for retry in trace.attempts[0].call_retries] == [0.25]


def test_an_attempt_that_waited_has_begun_when_something_happens_in_it() -> None:
    log = Log(definition({"a": []})).start("a").retry("a", delay=0.1)
    log.add(ToolEnded(place="a@2", tool="search"), 0.3)
    second = log.trace.attempts[1]
    assert (second.attempt, second.status) == (2, "running")
    assert (second.started_at - START).total_seconds() == pytest.approx(1.1)


def test_a_request_outside_of_steps_counts_for_the_run_alone() -> None:
    trace = Log(definition({"a": []})).request("").start("a").output("a").trace
    assert trace.usage.request_count == 1
    assert trace.attempts[0].usage.request_count == 0


def test_an_end_of_a_request_that_was_not_sent_is_passed_over() -> None:
    log = support_desk()
    ended = next(entry for entry in log.entries if isinstance(entry, RequestEnded))
    log.add(replace(ended, id="unknown"))
    assert log.trace.usage == support_desk().trace.usage


# --- the run ---


def test_a_trace_says_how_the_run_finished() -> None:
    trace = support_desk().trace
    assert (trace.run_id, trace.pipeline, trace.status, trace.failure) == ("r1", "desk", "finished", None)
    failed = Log(None).end("failed", failure()).trace
    assert (failed.status, failed.failure) == ("failed", failure())
    assert repr(failed) == "<trace of run 'r1': 2 entries, failed>"


def test_a_run_that_was_resumed_has_not_ended() -> None:
    assert Log(None).end("failed", failure()).resume().trace.status == "running"
    assert Log(None).trace.status == "running"


def test_the_output_is_that_of_the_output_step() -> None:
    log = Log(definition({"a": [], "b": ["a"]})).start("a").output("a").start("b", "a").output("b", [1])
    assert log.trace.output == [1]
    assert Log(None).trace.output is None


def test_the_definition_is_the_one_it_was_last_resumed_with() -> None:
    new = definition({"z": []})
    assert Log(definition({"a": []})).resume(new).resume().trace.definition == new


def test_failures_are_all_attempts_that_failed() -> None:
    failures = support_desk().trace.failures()
    assert [(a.place, a.attempt) for a in failures] == [("look_up", 1), ("look_up", 2)]


def test_a_trace_begins_with_the_opening_of_the_run() -> None:
    with pytest.raises(ConfigurationError, match="from RunStarted on"):
        RunTrace([])
    with pytest.raises(ConfigurationError, match="RunFinished"):
        RunTrace(Log(None).end().entries[1:])


# --- steps at a glance ---


def test_steps_come_after_what_they_need_and_nested_ones_after_the_step_around_them() -> None:
    steps = support_desk().trace.steps
    order = [(step.place, step.depth, step.status) for step in steps]
    assert order.index(("write@1/inner/draft", 1, "succeeded")) == order.index(("write", 0, "succeeded")) + 1
    assert order.index(("look_up", 0, "failed")) < order.index(("publish", 0, "skipped"))
    assert step_of(support_desk().trace, "publish").cause == "it needs 'look_up', which failed"
    assert step_of(support_desk().trace, "write@1/inner/check").needs == ("draft",)


def test_a_step_that_has_not_started_is_shown_too() -> None:
    trace = Log(definition({"a": [], "b": ["a"]})).start("a").trace
    assert [(s.step, s.status, s.attempts) for s in trace.steps] == [
        ("a", "running", 1),
        ("b", "not started", 0),
    ]


def test_of_a_step_that_was_made_again_the_last_attempt_that_ran_anything_is_shown() -> None:
    log = Log(definition({"a": []})).start("a").start("a@1/in/x").output("a@1/in/x").retry("a")
    log.start("a@2/in/x").start("a@2/in/y")
    assert [step.place for step in log.trace.steps] == ["a", "a@2/in/x", "a@2/in/y"]
    assert step_of(log.trace, "a").attempts == 2


def test_a_step_on_record_that_no_definition_has_is_shown() -> None:
    trace = Log(None).start("a%2Fb").output("a%2Fb").trace
    assert [(step.step, step.status) for step in trace.steps] == [("a/b", "succeeded")]


def test_steps_of_a_pipeline_behind_a_router_have_its_definition() -> None:
    inner = definition({"x": [], "y": ["x"]}, name="inner")
    router = {"name": "router", "routes": {"inner": inner, "other": definition({"z": []}, name="other")}}
    log = Log(definition({"ask": []}, runs={"ask": router})).start("ask").start("ask@1/router/inner/x")
    assert [step.place for step in log.trace.steps] == ["ask", "ask@1/router/inner/x", "ask@1/router/inner/y"]
    unknown = Log(definition({"ask": []}, runs={"ask": router})).start("ask").start("ask@1/router/third/x")
    assert [step.place for step in unknown.trace.steps] == ["ask", "ask@1/router/third/x"]


def test_a_definition_that_cannot_be_ordered_is_shown_as_it_is() -> None:
    trace = Log(definition({"a": ["b"], "b": ["a"]})).trace
    assert [step.step for step in trace.steps] == ["a", "b"]


# --- events of a step ---


def test_the_events_of_a_step_are_those_of_what_is_nested_in_it_too() -> None:
    trace = support_desk().trace
    events = trace.events_for("write")
    places = {entry.place for entry in events if isinstance(entry, StepStarted)}
    assert places == {"write", "write@1/inner/draft", "write@1/inner/check"}
    assert sum(isinstance(entry, RequestEnded) for entry in events) == 1


def test_the_events_of_a_place_are_those_there() -> None:
    trace = support_desk().trace
    assert trace.events_for("write@1/inner/check") == trace.events_for("check")
    assert trace.events_for("write/inner/check") == trace.events_for("check"), "in all attempts at write"
    assert [type(entry) for entry in trace.events_for("check")] == [StepStarted, StepFinished]
    assert trace.events_for("publish")[0].kind == "step_skipped"


def test_the_events_of_a_step_that_has_not_started_are_none() -> None:
    assert Log(definition({"a": [], "b": ["a"]})).trace.events_for("b") == ()


def test_the_events_of_a_step_that_there_is_not_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"'clasify'.*a step of run 'r1'.*Did you mean 'classify'\?"):
        support_desk().trace.events_for("clasify")


@pytest.mark.parametrize("step", [None, 3, ["classify"]])
def test_a_step_is_named_by_text(step: Any) -> None:
    with pytest.raises(ConfigurationError, match="step=.*expected the id of a step of run 'r1', or its path"):
        support_desk().trace.events_for(step)


def test_a_step_id_may_have_any_character() -> None:
    trace = Log(definition({"a/b@1": []})).start("a%2Fb%401").output("a%2Fb%401").trace
    assert len(trace.events_for("a/b@1")) == 2
    assert trace.steps[0].status == "succeeded"


# --- explanation ---


def test_the_explanation_has_a_line_for_each_decision_with_its_cause() -> None:
    explained = support_desk().trace.explain().splitlines()
    assert explained[0] == "    0.000 s  run 'r1' of pipeline 'desk' began"
    assert "    1.500 s  classify: finished at attempt 1 (1 request, $0.001)" in explained
    assert "    1.500 s  write: started, because 'classify' was the last that it needed" in explained
    assert any(
        line.endswith(
            "attempt 1 failed (recoverable): ConnectionError: no connection; tried again after 0.5 s"
        )
        for line in explained
    )
    assert "    3.500 s  publish: skipped, because it needs 'look_up', which failed" in explained
    assert explained[-1] == "    8.000 s  the run finished"


def test_the_explanation_tells_of_interruptions_and_what_was_given_anew() -> None:
    log = Log(definition({"a": [], "b": []}), forked_from="r0").start("a").start("b").output("b")
    explained = log.resume(definition({"a": []}), text="new").start("a").trace.explain()
    assert "began, forked from 'r0'" in explained
    assert "its process had died or stopped in a;" in explained
    assert "inputs given anew: text" in explained
    assert "; the pipeline had changed\n" in explained


def test_the_explanation_tells_what_was_spent_in_attempts_that_were_interrupted() -> None:
    log = Log(definition({"a": [], "b": []})).start("a").request("a@1").start("b").resume()
    log.start("a").request("a@1", "0.002").request("a@1", None).resume().start("a").resume()
    explained = log.start("a").request("a@1", "0.004").output("a").trace.explain().splitlines()
    assert [line.partition(" in ")[2] for line in explained if "resumed" in line] == [
        "a (1 request, $0.001), b",
        "a (2 requests, $0.002 and what is not known)",
        "a",
    ]
    assert explained[-1].endswith("a: finished at attempt 4 (1 request, $0.004)")


def test_the_explanation_takes_a_step_that_waited_for_its_next_attempt_for_what_it_is() -> None:
    log = Log(definition({"a": []})).start("a").request("a@1").retry("a").resume().start("a")
    explained = log.request("a@2", "0.002").resume().trace.explain()
    assert "attempt 1 failed (recoverable): ConnectionError: no connection (1 request, $0.001);" in explained
    assert "had died or stopped in a\n" in explained, "what it had spent is told already"
    assert explained.endswith("its process had died or stopped in a (1 request, $0.002)")


def test_the_explanation_tells_what_was_spent_in_attempts_that_were_cancelled() -> None:
    log = Log(definition({"a": [], "b": []})).start("a").start("b").request("b@1").fail("a")
    explained = log.end("failed", failure()).trace.explain()
    assert explained.endswith("no connection; cancelled with it: b (1 request, $0.001)")


def test_the_explanation_tells_how_long_requests_waited_for_budgets_and_limits() -> None:
    log = Log(definition({"a": [], "b": []})).start("a").request("a@1", waited_ms=1_500)
    log.request("a@1", waited_ms=750).output("a").start("b").request("b@1", waited_ms=20).output("b")
    explained = log.trace.explain()
    assert (
        "a: finished at attempt 1 (2 requests that waited 2.25 s for budgets and limits, $0.002)" in explained
    )
    assert "b: finished at attempt 1 (1 request, $0.001)" in explained, "not worth a word"


def test_the_explanation_tells_of_everything_that_is_no_plain_sailing() -> None:
    log = Log(definition({"a": [], "b": []})).start("a").start("b").call_retry("a@1").diverge("a@1")
    log.once("a", "mail").retry("a", delay=0).request("a@2", None).output(
        "a", attempt=2, conversation="incomplete"
    )
    explained = log.end("paused").trace.explain()
    assert "a@1: agent call 1, attempt 1, failed (recoverable)" in explained
    assert "a@1: agent call 1 sends another request than the one on record" in explained
    assert "a: does 'mail', once in this run" in explained
    assert "tried again at once" in explained
    assert (
        "a: asked for more from the user at attempt 2 (1 request, $0.00 and what is not known)" in explained
    )
    assert "the run paused; cancelled with it: b" in explained


def test_the_explanation_keeps_a_failure_on_one_line() -> None:
    why = failure("first\n  second", error_type="ValueError")
    explained = Log(definition({"a": []})).start("a").fail("a", why=why).end("failed", why).trace.explain()
    assert "a: attempt 1 failed (recoverable): ValueError: first second" in explained
    assert explained.endswith("the run failed: ValueError: first second")
    assert (
        "ValueError\n" in Log(None).end("failed", failure("", error_type="ValueError")).trace.explain() + "\n"
    )


def test_the_explanation_says_what_was_taken_over_from_another_run() -> None:
    log = Log(definition({"a": []}), forked_from="r0").add(StepFinished("a", 1), -60)
    assert "    0.000 s  a: its output is taken over, and it does not run" in log.trace.explain()


# --- as text ---


def test_a_trace_comes_back_from_json_as_it_was() -> None:
    trace = support_desk().trace
    text = trace.to_json()
    assert RunTrace.from_json(text) == RunTrace.from_json(text.encode()) == trace
    assert json.loads(text)["format"] == FORMAT


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"format": 2}', "", b"\xff", {"entries": []}, None])
def test_text_that_is_no_trace_is_refused(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="the text that RunTrace.to_json returned"):
        RunTrace.from_json(text)


def test_an_entry_that_cannot_be_read_is_named() -> None:
    known = json.loads(support_desk().trace.to_json())
    known["entries"][3] = {"kind": "nothing"}
    with pytest.raises(RunCorrupt, match="entry 4 of run 'r1'"):
        RunTrace.from_json(json.dumps(known))
    with pytest.raises(RunCorrupt, match=r"entry 1 of run '\?'"):
        RunTrace.from_json('{"format": 2, "entries": [7]}')


@pytest.mark.parametrize(("other", "error"), [(1, RunFromOlderVersion), (4, RunFromNewerVersion)])
def test_a_trace_of_another_version_is_refused(other: int, error: type[Exception]) -> None:
    known = json.loads(support_desk().trace.to_json())
    with pytest.raises(error):
        RunTrace.from_json(json.dumps({**known, "format": other}))
    known["entries"][0]["format"] = other
    with pytest.raises(error):
        RunTrace.from_json(json.dumps(known))
