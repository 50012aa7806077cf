from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue
from support.run_logs import START, Log, definition, failure, support_desk

from fastroai.errors import ConfigurationError

SHAPE = definition({"a": [], "b": ["a"]})


def texts(first: Log, second: Log) -> list[str]:
    return [str(difference) for difference in first.trace.diff(second.trace)]


def chain(run_id: str = "r1", shape: JsonValue = SHAPE, output: JsonValue = "done") -> Log:
    return Log(shape, run_id=run_id).start("a").output("a").start("b", "a").output("b", output)


def test_two_runs_that_did_the_same_do_not_differ_whatever_their_ids_and_times() -> None:
    later = support_desk("another", start=START + timedelta(days=3))
    later.at += timedelta(seconds=5)
    assert texts(support_desk(), later) == []


def test_a_message_that_has_the_id_of_its_run_is_the_same() -> None:
    runs = [
        Log(SHAPE, run_id=run_id)
        .start("a")
        .fail("a", why=failure(f"no {run_id}"))
        .end("failed", failure(run_id))
        for run_id in ("r1", "r2")
    ]
    assert texts(*runs) == []


def test_outputs_differ() -> None:
    assert texts(chain(), chain(output=["x"])) == ['b: output: done in the first, ["x"] in the second']
    (difference,) = chain().trace.diff(chain(output=["x"]).trace)
    assert (difference.kind, difference.place, difference.first, difference.second) == (
        "output",
        "b",
        "done",
        ["x"],
    )


@pytest.mark.parametrize("other", ["x", None, chain()])
def test_only_traces_are_compared(other: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"other=.*the trace of another run.* result\.trace"):
        chain().trace.diff(other)


def test_one_is_not_true() -> None:
    assert texts(chain(output=1), chain(output=True)) == ["b: output: 1 in the first, true in the second"]
    assert texts(chain(output={"x": 1}), chain(output={"x": True})) != []
    assert texts(chain(output={"x": 1, "y": 2}), chain(output={"y": 2, "x": 1})) == []


def test_a_long_value_is_cut_in_the_sentence() -> None:
    (text,) = texts(chain(), chain(output="x" * 500))
    assert len(text) < 200
    assert text.endswith("xxx… in the second")


def test_a_step_ran_in_one_only() -> None:
    stopped = Log(SHAPE).start("a").output("a").end("cancelled")
    assert texts(chain().end(), stopped) == [
        "b: succeeded in the first, not started in the second",
        "the run: finished in the first, cancelled in the second",
    ]


def test_a_step_that_one_does_not_know() -> None:
    shorter = Log(definition({"a": []})).start("a").output("a")
    found = texts(chain(), shorter)
    assert "b: a step in the first, no step in the second" in found
    assert "output_step: b in the first, a in the second" in found
    assert "b: succeeded in the first, not started in the second" in found


def test_attempts_and_failures_differ() -> None:
    once = Log(SHAPE).start("a").fail("a").end("failed", failure())
    twice = (
        Log(SHAPE).start("a").retry("a").fail("a", attempt=2, why=failure("full")).end("failed", failure())
    )
    assert texts(once, twice) == [
        "a: attempts: 1 in the first, 2 in the second",
        "a: failure: ConnectionError (recoverable): no connection in the first, "
        "ConnectionError (recoverable): full in the second",
    ]


def test_the_failures_of_the_runs_differ() -> None:
    ends = [Log(SHAPE).end("failed", failure(message)) for message in ("this", "that")]
    assert [difference.kind for difference in ends[0].trace.diff(ends[1].trace)] == ["end"]


def test_steps_that_were_skipped_for_another_cause_differ() -> None:
    shape = definition({"a": [], "b": [], "c": ["a", "b"]})
    (text,) = texts(Log(shape).skip("c", "a"), Log(shape).skip("c", "b"))
    assert text.startswith("c: skipped because: it needs 'a', which failed in the first")


def test_requests_differ_in_number_and_in_what_they_are() -> None:
    one = Log(SHAPE).start("a").request("a@1").output("a")
    two = Log(SHAPE).start("a").request("a@1", fingerprint="f9").request("a@1").output("a")
    assert texts(one, two) == [
        "a: requests sent: 1 in the first, 2 in the second",
        "a: request 1: openai:gpt-5-mini f1 in the first, openai:gpt-5-mini f9 in the second",
    ]


def test_inputs_differ() -> None:
    runs = [Log(SHAPE, inputs=inputs) for inputs in ({"x": 1, "y": 2, "z": 0}, {"x": 3, "z": 0, "w": None})]
    assert texts(*runs) == [
        "input 'x': 1 in the first, 3 in the second",
        "input 'y': given in the first, not given in the second",
        "input 'w': not given in the first, given in the second",
    ]


def test_definitions_differ_in_what_a_step_needs_and_in_what_it_runs() -> None:
    inner = definition({"x": []}, name="inner")
    changed = definition({"x": [], "y": []}, name="inner")
    before = Log(definition({"a": [], "b": ["a"]}, runs={"a": inner}))
    assert texts(before, Log(definition({"a": [], "b": ["a"]}, runs={"a": changed}))) == [
        "a: output_step: x in the first, y in the second",
        "a/y: no step in the first, a step in the second",
    ]
    assert texts(before, Log(definition({"a": [], "b": []}, runs={"a": inner}))) == [
        'b: needs: ["a"] in the first, [] in the second'
    ]
    assert "a: runs: inner in the first, null in the second" in texts(before, Log(SHAPE))
    assert texts(Log(SHAPE), Log(SHAPE, pipeline="other")) == [
        "pipeline: desk in the first, other in the second"
    ]


def test_nested_steps_are_compared_whatever_the_attempt_they_are_in() -> None:
    one = Log(definition({"a": []})).start("a").start("a@1/in/x").output("a@1/in/x", 1).output("a")
    two = Log(definition({"a": []})).start("a").retry("a").start("a@2/in/x").output("a@2/in/x", 2)
    found = texts(one, two.output("a", attempt=2))
    assert found == [
        "a: attempts: 1 in the first, 2 in the second",
        "a/in/x: output: 1 in the first, 2 in the second",
    ]


def test_an_output_that_was_taken_over_is_as_good_as_one_that_was_made() -> None:
    fork = Log(SHAPE, run_id="r2", forked_from="r1").output("a").start("b", "a").output("b")
    assert texts(chain(), fork) == []
