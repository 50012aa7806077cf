"""Members of a quorum vote under one budget; samples of one answer say how stable it is."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from support.patience import PATIENCE
from support.typed_functions import Sentiment, listed_costs, sentiment

from fastroai import Budget, BudgetExceeded, infer
from fastroai.functions import Probabilistic, configured
from fastroai.functions.errors import (
    CompileError,
    ConsensusFailure,
    PostconditionFailed,
    StabilityAssertionError,
)
from fastroai.functions.kept_calls import kept_records
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest


async def test_members_answer_side_by_side_and_the_agreed_result_has_the_best_confidence(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", model=model, quorum=3, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment("positive", 0.6), sentiment("negative", 1), sentiment("positive", 0.8))

    assert await classify("fine") == Sentiment(label="positive", confidence=0.8)

    record = kept_records()[-1]
    assert record.cost_usd == listed_costs(server)
    assert (record.attempts, record.requests, len(server.ledger.entries)) == (3, 3, 3)
    told = sorted(member["output"]["confidence"] for member in record.members)
    assert told == [0.6, 0.8, 1.0]
    assert sum(1 for one in kept_records() if one is record) == 1, "one call is one record"


async def test_too_few_that_agree_is_a_consensus_failure_with_all_outputs(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", model=model, quorum=3, threshold=2, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(*(sentiment(label) for label in ("positive", "negative", "neutral")))

    with pytest.raises(ConsensusFailure, match="1 of 3 outputs agree, and 2 must") as raised:
        await classify("fine")

    assert sorted(output.label for output in raised.value.outputs) == ["negative", "neutral", "positive"]  # type: ignore[attr-defined]
    assert raised.value.usage.cost_usd == listed_costs(server)
    assert kept_records()[-1].outcome == "consensus_failure"
    assert len(kept_records()[-1].members) == 3


async def test_members_that_cannot_help_any_more_are_cancelled(server: ModelServer, model: Model) -> None:
    class AllAsked(WrapperModel):
        """Returns an answer when all three members have asked."""

        async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
            response = await super().request(*args, **kwargs)
            await server.ledger.wait_for(3)
            return response

    @infer(intent="Classify", model=AllAsked(model), quorum=3, threshold=3, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    served = 0

    @server.rule()
    def answer(request: ServedRequest) -> Reply:
        nonlocal served
        served += 1
        if served == 3:
            return Reply(data={"label": "positive", "confidence": 1}, latency=60)
        return sentiment("positive" if served == 1 else "negative")

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConsensusFailure) as raised:
            await classify("fine")

    assert len(raised.value.outputs) == 2
    assert len(server.ledger.entries) == 3
    assert not raised.value.usage.cost_complete, "the one that was cancelled counts at its bound"


async def test_each_member_has_attempts_and_checks_of_its_own(server: ModelServer, model: Model) -> None:
    @infer(
        intent="Classify",
        model=model,
        quorum=2,
        threshold=1,
        retries=1,
        ensure=lambda r: r.confidence > 0.5,
    )
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @server.rule()
    def answer(request: ServedRequest) -> Reply:
        return sentiment(confidence=0.9 if "Previous attempt failed" in request.prompt else 0.1)

    assert (await classify("fine")).confidence == 0.9

    assert kept_records()[-1].attempts == len(server.ledger.entries) == 4
    assert len(kept_records()[-1].retry_reasons) == 2


async def test_a_member_that_fails_is_a_vote_without_output(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(
        intent="Classify",
        model=model,
        quorum=3,
        threshold=2,
        agree_on="label",
        retries=0,
        ensure=lambda r: r.confidence > 0.5,
    )
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment(confidence=0.1), sentiment(), sentiment())
    assert (await classify("fine")).label == "positive"
    [failed] = [member for member in kept_records()[-1].members if "error" in member]
    assert failed["error_type"] == "fastroai.functions.PostconditionFailed"

    server.script(sentiment(confidence=0.1), sentiment(confidence=0.1), sentiment())
    with pytest.raises(ConsensusFailure) as raised:
        await classify("fine")
    assert isinstance(raised.value.errors[0], PostconditionFailed)


async def test_a_condition_at_fault_is_raised_as_it_is_by_a_quorum_too(server: ModelServer) -> None:
    table = {"negative": 1}

    @infer(
        intent="Classify",
        model=server.model("openai:gpt-5-mini"),
        quorum=3,
        agree_on="label",
        ensure=lambda r: table[r.label] > 0,
    )
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with pytest.raises(KeyError) as raised:
        await classify("fine")
    assert raised.value.__notes__ == ["Raised by ensure: table[result.label] > 0"]
    assert kept_records()[-1].outcome == "failed"


async def test_members_draw_on_one_budget_which_ends_all_of_them(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")
    budget = Budget(usd="0.001")

    @infer(intent="Classify", model=model, quorum=20, threshold=1, budget=budget)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())

    with pytest.raises(BudgetExceeded) as raised:
        await classify("a")

    assert 0 < len(server.ledger.entries) < 20
    assert listed_costs(server) <= raised.value.usage.committed_usd <= Decimal("0.001")


async def test_a_transport_failure_of_a_member_is_repeated_like_any_other(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model, quorum=2, threshold=2, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.fail_next(1, Fault.status(503))
    server.script(sentiment(), sentiment())

    assert (await classify("fine")).label == "positive"
    assert kept_records()[-1].attempts == 2


async def test_one_sample_is_taken_in_production_and_several_in_test_mode(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", model=model, stable=False)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    one = await classify("fine")
    assert isinstance(one, Probabilistic)
    assert len(one.samples) == len(server.ledger.entries) == 1

    server.reset()
    server.script(*(sentiment(label) for label in ("positive", "negative", "positive", "positive")))
    with configured(test_mode=True, sample_n=4):
        several = await classify("fine")

    assert several.most_likely().label == "positive"
    assert several.sample() in several.samples
    assert several.assert_stable(0.75, on="label").label == "positive"
    with pytest.raises(
        StabilityAssertionError, match="75% of 4 samples agree on 'label', and 90% must"
    ) as raised:
        several.assert_stable(on=["label"])
    record = kept_records()[-1]
    assert raised.value.usage.cost_usd == several.usage.cost_usd == record.cost_usd
    assert raised.value.usage.request_count == 4
    assert len(record.members) == 4
    assert record.cost_usd == listed_costs(server)


async def test_test_mode_is_for_samples_alone(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment())
    with configured(test_mode=True):
        assert (await classify("fine")).label == "positive"


async def test_each_sample_can_be_the_result_of_a_quorum(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, stable=False, quorum=2, threshold=2, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(test_mode=True, sample_n=2):
        assert len((await classify("fine")).samples) == 2
    assert len(server.ledger.entries) == 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"quorum": 3}, "quorum= needs agree_on="),
        ({"quorum": 2, "threshold": 3}, "can never agree"),
        ({"quorum": 0, "threshold": 1}, "quorum=0"),
        ({"agree_on": "label"}, "needs quorum="),
        ({"quorum": 2, "agree_on": "lable"}, "Did you mean 'label'"),
    ],
)
def test_a_quorum_that_cannot_vote_is_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(CompileError, match=problem):

        @infer(intent="Classify", **options)  # type: ignore[call-overload, untyped-decorator]
        async def classify(text: str) -> Sentiment:
            raise NotImplementedError
