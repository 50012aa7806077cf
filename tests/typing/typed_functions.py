"""What a type checker knows of typed functions. Checked by mypy and pyright, never run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from decimal import Decimal
from typing import Literal, assert_type

from pydantic import BaseModel

from fastroai import Budget, Graph, Node, Pipeline, StepConfig, StepContext, compute, contract, infer, refine
from fastroai.functions import CompiledPrompt, ComputeFunction, InferFunction, Probabilistic
from fastroai.records import Usage
from fastroai.usage import Quote


@contract
class Sentiment(BaseModel):
    label: Literal["positive", "negative", "neutral"]
    confidence: float


# One text for an empty body passes both checkers, for both kinds of `def`.
@infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, budget=Budget(ms=8000, usd="0.01"), retries=3)
async def classify(text: str, *, brief: bool = True) -> Sentiment:
    raise NotImplementedError


@infer(intent="Count")
def count(text: str) -> int:
    raise NotImplementedError


@infer(intent="Classify", stable=False)
async def sampled(text: str) -> Sentiment:
    raise NotImplementedError


@infer(intent="Count", stable=False)
def counts(text: str) -> list[int]:
    raise NotImplementedError


@infer(intent="Classify", stable=True, quorum=3, agree_on="label", cache="global")
async def voted(text: str) -> Sentiment | None:
    raise NotImplementedError


@compute()
def by_rule_with_parentheses(text: str) -> int:
    return len(text)


@refine(until=lambda r: r.confidence > 0.9, feedback=lambda r: f"Only {r.confidence}", max_iterations=3)
@infer(intent="Classify")
async def refined(text: str) -> Sentiment:
    raise NotImplementedError


@compute
def by_rule(text: str, *, brief: bool = True) -> Sentiment:
    return Sentiment(label="positive" if "good" in text else "neutral", confidence=1)


def has_text(text: str) -> bool:
    return bool(text)


@compute(given=[has_text, lambda text: len(text) < 10, ("is short", lambda text: len(text) < 10)])
async def by_rule_async(text: str) -> Sentiment:
    return await by_rule(text)


async def calls() -> None:
    assert_type(await classify("a"), Sentiment)
    assert_type(await classify(text="a", brief=False), Sentiment)
    assert_type(await count("a"), int)
    assert_type(await sampled("a"), Probabilistic[Sentiment])
    assert_type((await sampled("a")).most_likely(), Sentiment)
    assert_type((await sampled("a")).assert_stable(), Sentiment)
    assert_type((await sampled("a")).sample(), Sentiment)
    assert_type((await sampled("a")).samples, tuple[Sentiment, ...])
    assert_type(await counts("a"), Probabilistic[list[int]])
    assert_type(await voted("a"), Sentiment | None)
    assert_type(await refined("a"), Sentiment)
    assert_type(await by_rule("a"), Sentiment)
    assert_type(await by_rule_async("a"), Sentiment)
    assert_type(await by_rule_with_parentheses("a"), int)
    assert_type(await asyncio.gather(classify("a"), count("b")), tuple[Sentiment, int])
    assert_type(await asyncio.create_task(count("a")), int)
    assert_type(classify.compile("a"), CompiledPrompt)
    assert_type(await classify.estimate("a", brief=False), Quote)
    await classify.estimate("a", breif=False)  # type: ignore[call-overload]
    assert_type(classify.estimate_sync("a", brief=False), Quote)
    assert_type(classify.estimate_sync(rows=["a"], sample=5), Quote)
    classify.estimate_sync("a", breif=False)  # type: ignore[call-overload]
    assert_type(classify.estimate_sync("a", brief=False), Quote)
    assert_type(classify.estimate_sync(rows=["a"], sample=5), Quote)
    classify.estimate_sync("a", breif=False)  # type: ignore[call-overload]
    assert_type((await sampled("a")).usage, Usage)

    # The declared parameters are those of a call.
    await classify()  # type: ignore[call-arg]
    await classify(3)  # type: ignore[arg-type]
    await classify("a", True)  # type: ignore[call-arg]
    await classify("a", short=True)  # type: ignore[call-arg]
    await refined(3)  # type: ignore[arg-type]
    await by_rule(3)  # type: ignore[arg-type]
    classify.compile(3)  # type: ignore[arg-type]

    # A call that is not awaited is not the result.
    print(classify("a").label)  # type: ignore[attr-defined]
    wrong: Sentiment = classify("a")  # type: ignore[assignment]
    later: Awaitable[Sentiment] = classify("a")
    assert_type(await later, Sentiment)
    print(wrong)


def declared() -> None:
    assert_type(classify.as_step().function.name, str)
    either: list[InferFunction[[str], Sentiment] | ComputeFunction[[str], Sentiment]] = []
    either.append(refined)
    either.append(by_rule_async)

    # Options that are misspelt, or not of their types.
    infer(intent="a", retires=3)  # type: ignore[call-overload]
    infer(intent="a", cache="forever")  # type: ignore[call-overload]
    infer(context="a")  # type: ignore[call-overload]
    refine(until=lambda r: True)(by_rule)  # type: ignore[arg-type]
    refine(until=None)  # type: ignore[call-overload]
    refine(until=[lambda r: r.confidence > 0.9, ("is short", lambda r: len(r.label) < 9)])(classify)

    # Decorators that stand without the options that they need.
    refine(classify)  # type: ignore[call-overload]
    infer(by_rule)  # type: ignore[call-overload]
    infer("Classify")  # type: ignore[call-overload]


def steps() -> None:
    async def arguments(ctx: StepContext[object]) -> dict[str, object]:
        return {"text": ctx.get_input("email")}

    Pipeline(
        "support",
        steps={
            "tone": classify,
            "count": count.as_step({"text": "email"}, config=StepConfig(timeout=10)),
            "rule": by_rule.as_step(arguments),
            "more": by_rule_async.as_step(lambda ctx: {"text": ctx.get_input("email")}),
        },
    )
    Graph("support", nodes={"tone": classify, "count": Node(count, writes=["count"])})
    classify.as_step(3)  # type: ignore[arg-type]


def budget_is_one(limit: Decimal) -> None:
    infer(intent="a", budget=Budget(usd=limit))
