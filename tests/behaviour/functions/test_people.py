"""People decide in flows and in functions: the inbox has the question, and no process waits."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from fastroai import Inbox, flow
from fastroai.errors import ConfigurationError, FastroAIWarning, FlowStopped, ValueNotStorable
from fastroai.functions import HumanDecision, HumanReviewContext, await_human, configured
from fastroai.functions.errors import HumanTimeoutError
from fastroai.functions.flow_runs import people
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.open_questions import Question

REFUND = HumanReviewContext("Refund $80?", trigger="above $50", artifacts={"ticket": 4711})


@flow
async def refund(amount: int) -> list[str]:
    decision = await await_human(REFUND, Literal["yes", "no"], to="finance")
    return [decision.value, decision.reviewer, decision.rationale, decision.review_id]


async def test_a_flow_waits_for_a_person_and_goes_on_with_the_decision() -> None:
    store = MemoryRunStore()
    with pytest.raises(FlowStopped, match="flow 'refund' is paused") as stopped:
        await refund.run(80, run_id="r", store=store)
    (asked,) = await Inbox(store).list()
    assert [one.id for one in stopped.value.questions] == [asked.id]  # type: ignore[attr-defined]
    assert asked.question == {
        "question": "Refund $80?",
        "trigger": "above $50",
        "artifacts": {"ticket": 4711},
    }
    assert (asked.to, asked.pipeline) == ("finance", "refund")
    await Inbox(store).answer(asked.id, "yes", reviewer="Mia", rationale="a good customer")
    assert await refund.wake(store=store) == {"r": ["yes", "Mia", "a good customer", asked.id]}


async def test_the_time_of_the_decision_is_that_of_the_answer_in_utc() -> None:
    @flow
    async def decide() -> datetime:
        return (await await_human(REFUND, bool)).decided_at

    store = MemoryRunStore()
    with pytest.raises(FlowStopped):
        await decide.run(run_id="r", store=store)
    (asked,) = await Inbox(store).list()
    before = datetime.now(UTC)
    await Inbox(store).answer(asked.id, True)
    decided = await decide.resume("r", store=store)
    assert decided.tzinfo is not None
    assert before <= decided <= datetime.now(UTC)


async def test_side_by_side_each_question_gets_its_own_answer_whatever_the_order() -> None:
    order = ["a", "b"]

    @flow
    async def both() -> dict[str, str]:
        async def ask(name: str) -> str:
            return (await await_human(HumanReviewContext(f"Who is {name}?"))).value

        asked = await asyncio.gather(*map(ask, order), return_exceptions=True)
        for one in asked:
            if isinstance(one, BaseException):
                raise one
        return dict(zip(order, map(str, asked), strict=True))

    store = MemoryRunStore()
    with pytest.raises(FlowStopped):
        await both.run(run_id="r", store=store)
    for question in await Inbox(store).list():
        await Inbox(store).answer(question.id, f"answer to {question.question}")
    order.reverse()
    assert await both.resume("r", store=store) == {
        "a": "answer to Who is a?",
        "b": "answer to Who is b?",
    }


async def test_after_its_time_the_flow_goes_on_with_the_value_or_an_error() -> None:
    @flow
    async def decide(on_timeout: str) -> list[str]:
        decision = await await_human(HumanReviewContext("Ship?"), str, timeout=0.01, on_timeout=on_timeout)
        return [decision.value, decision.reviewer]

    store = MemoryRunStore()
    for on_timeout in ("no", "raise"):
        with pytest.raises(FlowStopped):
            await decide.run(on_timeout, run_id=on_timeout, store=store)
    await asyncio.sleep(0.02)
    outcomes: dict[str, Any] = dict(await decide.wake(store=store))
    assert outcomes["no"] == ["no", ""]
    assert isinstance(outcomes["raise"], HumanTimeoutError)
    assert outcomes["raise"].review_id.startswith("raise:")


async def test_a_value_for_when_nobody_answers_is_checked_at_the_call() -> None:
    with pytest.raises(ConfigurationError, match="on_timeout='perhaps': expected 'raise', or a value"):
        await await_human(REFUND, bool, timeout=1, on_timeout="perhaps")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("decision_type", "options", "wrong"),
    [
        (
            int,
            [1, "many"],
            "options='many': expected a value of decision_type, which is int: Input should be",
        ),
        (Literal["yes", "no"], ["yes", "non"], r"options='non': .*which is typing.Literal\['yes', 'no'\]"),
        (str, [1], "options=1: expected a value of decision_type, which is str"),
        (int, "12", "options='12': expected a list of the answers that can be given"),
    ],
)
async def test_an_option_that_is_no_decision_is_refused_by_name(
    decision_type: Any, options: Any, wrong: str
) -> None:
    @flow
    async def decide() -> str:
        return str((await await_human(REFUND, decision_type, options=options)).value)

    with pytest.raises(ConfigurationError, match=wrong):
        await decide.run(store=MemoryRunStore())


async def test_an_artifact_that_cannot_be_shown_is_refused_by_name() -> None:
    with pytest.raises(ValueNotStorable, match="artifact 'ticket' of the question cannot be stored: object"):
        await await_human(HumanReviewContext("Refund?", artifacts={"ticket": object()}))
    with (
        configured(store=MemoryRunStore()),
        pytest.raises(ValueNotStorable, match="an option of the question cannot be stored: object"),
    ):
        await await_human(REFUND, object, options=[object()])


async def test_options_are_values_of_the_decision_type() -> None:
    @flow
    async def decide() -> int:
        return (await await_human(REFUND, int, options=["1", 2])).value  # type: ignore[list-item]

    store = MemoryRunStore()
    with pytest.raises(FlowStopped):
        await decide.run(run_id="r", store=store)
    (asked,) = await Inbox(store).list()
    assert asked.options == (1, 2)
    await Inbox(store).answer(asked.id, 1)
    assert await decide.resume("r", store=store) == 1


async def test_outside_of_runs_the_question_is_in_the_inbox_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(people, "EVERY", 0.01)
    store, told = MemoryRunStore(), asyncio.Queue[Question]()
    with configured(store=store, review_sink=told.put_nowait):
        waiting = asyncio.create_task(await_human(REFUND, bool))
        asked = await told.get()
        await Inbox(store).answer(asked.id, True, reviewer="Mia")
        decision = await waiting
    assert isinstance(decision, HumanDecision)
    assert (decision.value, decision.reviewer, decision.review_id) == (True, "Mia", asked.id)
    assert await Inbox(store).list() == ()


async def test_a_question_outside_of_runs_that_nobody_waits_for_any_more_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(people, "EVERY", 0.01)
    store, told = MemoryRunStore(), asyncio.Queue[Question]()
    with configured(store=store, review_sink=told.put_nowait):
        waiting = asyncio.create_task(await_human(REFUND, bool))
        asked = await told.get()
        while (await RunHistory(store).state(asked.run_id)).status != "paused":
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)  # it waits for the answer now
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await Inbox(store).list() == ()


@pytest.mark.parametrize("in_a_flow", [False, True])
async def test_without_a_store_the_process_waits_and_its_inbox_has_the_question(
    monkeypatch: pytest.MonkeyPatch, in_a_flow: bool
) -> None:
    monkeypatch.setattr(people, "EVERY", 0.01)
    told = asyncio.Queue[Question]()

    @flow
    async def decide() -> bool:
        return (await await_human(REFUND, bool)).value

    async def ask() -> bool:
        return (await await_human(REFUND, bool)).value

    with configured(review_sink=told.put_nowait):
        waiting = asyncio.create_task(decide() if in_a_flow else ask())
        asked = await told.get()
        assert [one.id for one in await Inbox().list()] == [asked.id]
        await Inbox().answer(asked.id, False)
        assert await waiting is False
    assert await Inbox().list() == ()


async def test_a_question_of_which_nobody_is_told_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "EVERY", 0.01)
    with pytest.warns(FastroAIWarning, match=r"configure\(review_sink=\.\.\.\) tells people"):
        waiting = asyncio.create_task(await_human(REFUND, bool))
        while not (questions := await Inbox().list()):
            await asyncio.sleep(0)
    await Inbox().answer(questions[0].id, True)
    assert (await waiting).value is True


@pytest.mark.skipif(os.name != "posix", reason="lines of a Windows console cannot be awaited")
async def test_a_script_asks_at_its_terminal_until_an_answer_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(people, "EVERY", 0.01)
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(keyboard, b"perhaps\nyes\n3\n")
        decision = await await_human(HumanReviewContext("Ship\x1b[2J it?"), Literal["yes", "no"])
        number = await await_human(HumanReviewContext("How many?"), int)
    os.close(keyboard)
    assert (decision.value, number.value) == ("yes", 3)
    shown = capsys.readouterr().err
    assert "question: Ship\\x1b[2J it?" in shown
    assert shown.count("answer: ") == 3
    assert await Inbox().list() == ()


@pytest.mark.skipif(os.name != "posix", reason="lines of a Windows console cannot be awaited")
async def test_questions_at_a_terminal_come_one_after_the_other_and_may_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(people, "EVERY", 0.01)
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        first = asyncio.create_task(await_human(HumanReviewContext("First?"), bool))
        while len(await Inbox().list()) < 1:
            await asyncio.sleep(0)
        second = asyncio.create_task(await_human(HumanReviewContext("Second?"), bool))
        while len(await Inbox().list()) < 2:
            await asyncio.sleep(0)
        assert "Second?" not in capsys.readouterr().err
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        os.write(keyboard, b"true\n")
        assert (await second).value is True
    os.close(keyboard)
    assert await Inbox().list() == ()
