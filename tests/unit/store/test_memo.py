"""What a log says to whoever takes the run up."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Literal

import pytest
from support.run_logs import Log, definition, record

from fastroai.errors import RunCorrupt
from fastroai.runtime import RetriesUsed
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import (
    AnyFact,
    OnceDone,
    OnceFailed,
    OnceStarted,
    RequestEnded,
    RunStarted,
    StepFailed,
    StepFinished,
    StepRetried,
)
from fastroai.store.record.entries import decode_entry, encode_entry
from fastroai.store.record.memo import Memo

INNER = definition({"x": [], "y": ["x"]}, name="inner")
ROUTER = {"name": "router", "routes": {"one": INNER}}
SHAPE = definition({"a": [], "b": ["a"], "n": ["b"]}, runs={"n": INNER})


def recorded(log: Log) -> Memo:
    return Memo("r", log.entries)


def test_outputs_are_in_the_order_in_which_steps_finished() -> None:
    run = recorded(Log(SHAPE).start("b").start("a").output("b", 2).output("a", 1))
    assert {place: entry.output for place, entry in run.outputs.items()} == {"b": 2, "a": 1}
    assert list(run.outputs) == ["b", "a"]


def test_inputs_and_definition_are_those_of_the_last_part() -> None:
    other = definition({"z": []})
    run = recorded(Log(SHAPE, inputs={"a": 1, "b": 1}).end("paused").resume(b=2).resume(other, c=3))
    assert (run.inputs, run.definition, run.ended) == ({"a": 1, "b": 2, "c": 3}, other, None)
    ended = recorded(Log(SHAPE).end("failed")).ended
    assert ended is not None
    assert ended.status == "failed"


def retried(log: Log, place: str, attempt: int) -> Log:
    used = RetriesUsed(attempt=attempt + 1, recoverable=attempt)
    facts = next(e for e in Log().fail("x").entries if isinstance(e, StepFailed)).failure
    return log.add(StepRetried(place=place, attempt=attempt, failure=facts, delay=0, used=used))


def test_how_far_the_attempts_at_a_step_have_got() -> None:
    log = Log(SHAPE).start("a")
    assert recorded(log).used(("step", "a")) == RetriesUsed()
    retried(log, "a", 1)
    assert recorded(log).used(("step", "a")) == RetriesUsed(attempt=2, recoverable=1)
    log.fail("a", attempt=2)
    assert recorded(log).used(("step", "a")) == RetriesUsed(attempt=3)
    log.output("a", attempt=3)
    assert recorded(log).used(("step", "a")) == RetriesUsed()


@pytest.mark.parametrize("whose", ["own", "outer"])
def test_a_step_that_a_budget_stopped_goes_on_with_the_same_attempt(whose: Literal["own", "outer"]) -> None:
    """With a larger budget it pays for nothing again."""
    log = retried(Log(SHAPE).start("a"), "a", 1).fail("a", attempt=2)
    failed = log.entries[-1]
    assert isinstance(failed, StepFailed)
    stopped = Memo("r", [*log.entries[:-1], replace(failed, budget=whose)])
    assert stopped.used(("step", "a")) == RetriesUsed(attempt=2, recoverable=1)


@pytest.mark.parametrize("runs", [INNER, ROUTER])
def test_a_step_that_runs_a_pipeline_goes_on_with_the_same_attempt(runs: object) -> None:
    shape = definition({"n": []}, runs={"n": runs})  # type: ignore[dict-item]
    log = Log(shape).start("n").start("n@1/inner/x").fail("n@1/inner/x").fail("n")
    assert recorded(log).used(("step", "n")) == RetriesUsed()
    assert recorded(log).used(("step", "n@1/inner/x")) == RetriesUsed(attempt=2)
    waits = Log(shape).start("n").output("n@1/inner/x", conversation="incomplete")
    waits.output("n", conversation="incomplete")
    assert recorded(waits).used(("step", "n")) == RetriesUsed()
    assert recorded(waits).used(("step", "n@1/inner/x")) == RetriesUsed(attempt=2)


def test_a_conversation_that_waits_is_no_output_and_is_known() -> None:
    log = Log(SHAPE).output("a", "first", conversation="incomplete")
    run = recorded(log)
    assert (run.outputs, run.used(("step", "a"))) == ({}, RetriesUsed(attempt=2))
    assert [one.output for one in run.about(("step", "a")) if isinstance(one, StepFinished)] == ["first"]
    run = recorded(log.output("a", "second", attempt=2, conversation="complete"))
    assert run.outputs["a"].output == "second"


def test_calls_and_side_effects_are_known_by_their_place() -> None:
    log = Log(SHAPE).once("a", "pay")
    facts = next(e for e in Log().fail("x").entries if isinstance(e, StepFailed)).failure
    used = RetriesUsed(attempt=2, ambiguous=1)
    log.add(StepRetried(place="a@1", call="1", unit="call", attempt=1, failure=facts, delay=0, used=used))
    run = recorded(log)
    assert run.used(("agent call", "a@1", "1")) == RetriesUsed(attempt=2, ambiguous=1)
    assert run.used(("agent call", "a@1", "2")) == RetriesUsed()
    assert run.about(("once", "a", "pay"))
    assert not run.about(("once", "b", "pay"))


def test_spending_counts_in_each_step_and_pipeline_around_it() -> None:
    run = recorded(Log(SHAPE).request("n@1/inner/x@1", "0.1").request("a@1", None).spend("n@2", "0.2"))

    def known(place: str) -> Decimal:
        return sum(
            (charge.record.cost_usd or Decimal(0) for charge in run.requests.charges(place)), Decimal(0)
        )

    assert [known(place) for place in ("", "n", "n@1/inner", "n@1/inner/x", "a", "other")] == [
        Decimal("0.3"),
        Decimal("0.3"),
        Decimal("0.1"),
        Decimal("0.1"),
        0,
        0,
    ]
    assert [charge.record.outcome for charge in run.requests.charges("a")] == ["unmeasured"]


def test_the_time_that_a_run_has_taken_is_that_of_its_parts() -> None:
    assert recorded(Log(SHAPE)).seconds == 0
    log = Log(SHAPE).start("a", seconds=2.0).output("a").end("paused")  # 2 + 1 + 1
    log.resume()  # a minute later
    log.start("b", seconds=3.0)
    assert recorded(log).seconds == 7
    copied = replace(log.entries[2], timestamp=log.entries[0].timestamp - 86_400)
    assert Memo("r", [log.entries[0], copied]).seconds == 0, "of a fork, from another run"


# --- what an effect finds of itself ---

ONCE = OnceStarted(place="a", name="pay")


def memo(*entries: Fact) -> Memo:
    return Memo("r", [RunStarted(part=Part("r", "p", ("p",))), *entries])


def test_each_end_is_taken_once_and_only_those_since_the_last_beginning() -> None:
    first, second = (OnceDone(place="a", name="pay", result=number) for number in (1, 2))
    known = memo(first, second)
    assert [known.take(ONCE.about) for _ in range(3)] == [first, second, None]
    failed = OnceFailed(place="a", name="pay")
    known = memo(ONCE, failed, ONCE, first)
    assert [known.take(ONCE.about) for _ in range(2)] == [first, None]
    assert memo(ONCE, failed).take(ONCE.about) is failed


def test_a_beginning_without_an_end_was_interrupted() -> None:
    failed = OnceFailed(place="a", name="pay")
    assert memo(ONCE, failed, ONCE).take(ONCE.about) is ONCE
    assert memo(ONCE).take(("once", "a", "other")) is None


# --- what is no log ---


def entry_without_request() -> AnyFact:
    return RequestEnded(id="never sent", record=record())


@pytest.mark.parametrize(
    ("entries", "position", "why"),
    [
        ([], 1, "begins with run_started"),
        ([StepFinished("a", 1)], 1, "begins with run_started"),
        ([*Log(SHAPE).entries, entry_without_request()], 2, "does not fit the entries before it: KeyError"),
    ],
)
def test_what_does_not_fit_is_corrupt(entries: list[AnyFact], position: int, why: str) -> None:
    with pytest.raises(RunCorrupt, match=why) as caught:
        Memo("r", entries)
    assert caught.value.position == position


@pytest.mark.parametrize("used", [{"attempt": 0}, {"unknown": 1}, {"attempt": -3}])
def test_retries_that_cannot_be_are_corrupt(used: dict[str, int]) -> None:
    entry = json.loads(encode_entry(Log(SHAPE).retry("a").entries[-1]))
    with pytest.raises(RunCorrupt, match="used: ") as caught:
        decode_entry("r", 2, json.dumps({**entry, "used": used}).encode())
    assert caught.value.position == 2
