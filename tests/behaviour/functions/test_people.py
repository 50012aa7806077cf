"""People decide in flows and in functions: the inbox has the question, and no process waits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from fastroai import Inbox, flow
from fastroai.errors import ConfigurationError, FlowStopped, HumanTimeoutError, ValueNotStorable
from fastroai.functions import HumanDecision, HumanReviewContext, await_human, configured, people
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


async def test_without_a_store_nobody_can_be_asked() -> None:
    with pytest.raises(ConfigurationError, match="store"):
        await await_human(REFUND, bool)
    with pytest.raises(ConfigurationError, match="store"):
        await refund(80)
