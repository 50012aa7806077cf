# mypy: disable-error-code="empty-body"
"""A program with all parts of typed functions, as users of Stratum write it, runs as it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

import pytest
from pydantic import Field

from fastroai import Budget, compute, contract, flow, infer, opaque, refine
from fastroai.functions import HumanReviewContext, await_human, configured, debate, parallel, race
from fastroai.testing import ModelServer, Reply

REPLIES = {
    "Tell the tone": Reply(data={"label": "negative", "confidence": 0.8}),
    "Name the topic": Reply("billing"),
    "Translate": Reply("I was charged twice."),
    "Argue": Reply(data={"refund": True, "reason": "It was charged twice."}),
    "Write an answer": Reply(data={"text": "We refund the second charge.", "words": 5}),
}


@contract
class Tone:
    label: Literal["positive", "negative", "neutral"]
    confidence: Annotated[float, Field(ge=0.0, le=1.0)]


@contract
class Answer:
    text: str
    words: int


@contract
class Position:
    refund: bool
    reason: str


@infer(
    intent="Tell the tone of a letter",
    context=["Sarcasm is negative.", "In doubt, it is neutral."],
    ensure=lambda r: r.confidence > 0.7,
    budget=Budget(ms=20_000, usd=0.003),
    quorum=3,
    agree_on="label",
    threshold=2,
)
def tone_of(letter: opaque[str]) -> Tone: ...


@infer(intent="Name the topic of a letter", budget=Budget(ms=20_000, usd=0.001))
def topic_of(letter: opaque[str]) -> str: ...


@infer(intent="Translate a letter into English", budget=Budget(ms=20_000, usd=0.001))
def translate(letter: opaque[str]) -> str: ...


@compute
def is_serious(tone: Tone, topic: str) -> bool:
    return tone.label == "negative" and topic == "billing"


@infer(intent="Argue whether we refund", budget=Budget(ms=20_000, usd=0.002))
def advise(topic: str, arguments: tuple[Position, ...] = ()) -> Position: ...


def verdict(topic: str, rounds: tuple[tuple[Position, ...], ...], converged: bool) -> bool:
    return converged and all(position.refund for position in rounds[-1])


@refine(until=lambda r: r.words < 20, feedback=lambda r: f"{r.words} words are too many", max_iterations=3)
@infer(intent="Write an answer", budget=Budget(ms=20_000, usd=0.005))
def answer(letter: opaque[str], refunded: bool) -> Answer: ...


@flow(budget=Budget(ms=60_000, usd=0.05))
async def triage(letter: str) -> str:
    english = await race(translate(letter), translate(letter))
    tone, topic = await parallel(tone_of(english), topic_of(english), require="all")
    refunded = False
    if is_serious(tone, topic):
        agreed = await debate(agents=[advise, advise], topic=english, rounds=2, synthesize=verdict)
        decision = await await_human(
            HumanReviewContext("Refund?", trigger="debate", artifacts={"letter": english, "agreed": agreed}),
            bool,
            timeout=timedelta(milliseconds=10),  # nobody is there
            on_timeout=agreed,
        )
        refunded = decision.value
    return (await answer(english, refunded)).text


async def test_a_program_with_all_parts_runs(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in model_server.environment().items():
        monkeypatch.setenv(name, value)
    for intent, reply in REPLIES.items():
        model_server.rule(lambda request, intent=intent: intent in str(request.body), reply)  # type: ignore[misc]
    asked: list[object] = []
    with configured(default_model="openai:gpt-5-mini", review_sink=asked.append):
        assert await triage("Ich wurde zweimal belastet.") == "We refund the second charge."
    assert len(asked) == 1
    made = {record.function for record in triage.records}
    assert made == {"translate", "tone_of", "topic_of", "advise", "answer"}
