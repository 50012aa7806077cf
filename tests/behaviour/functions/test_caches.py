"""Answers that are kept cost nothing, pass the checks, and are copies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models import Model
from support.typed_functions import Sentiment, listed_costs, sentiment

from fastroai import Budget, budget_scope, flow, infer, opaque
from fastroai.errors import FastroAIWarning
from fastroai.functions import configured
from fastroai.functions.errors import PostconditionFailed, PreconditionFailed
from fastroai.functions.kept_calls import kept_records
from fastroai.store import MemoryRunStore, SQLiteRunStore
from fastroai.testing import ModelServer, Reply, Usage
from fastroai.usage import ModelFallback


@pytest.fixture
def reference() -> str:
    """The protocol, of which no cache knows: one is enough."""
    return "openai:gpt-5-mini"


async def test_a_global_cache_outlives_the_process_and_costs_nothing(
    server: ModelServer, model: Model, tmp_path: Path
) -> None:
    def declare() -> object:
        @infer(intent="Classify", model=model, cache="global", ensure=lambda r: r.confidence > 0.5)
        async def classify(text: opaque[str]) -> Sentiment:
            raise NotImplementedError

        return classify

    server.script(sentiment(), sentiment("neutral"))
    outputs = []
    for _ in range(2):  # as two processes do: nothing is shared but the file
        store = SQLiteRunStore(tmp_path / "answers.db")
        with configured(cache_store=store):
            outputs.append(await declare()("never better"))  # type: ignore[operator]
        await store.aclose()

    assert outputs[0] == outputs[1] == Sentiment(label="positive", confidence=0.9)
    assert outputs[0] is not outputs[1]
    assert len(server.ledger.entries) == 1
    paid, free = kept_records()[-2:]
    assert (paid.outcome, free.outcome) == ("success", "cache_hit")
    assert paid.cost_usd == listed_costs(server) > free.cost_usd == 0
    assert (paid.attempts, free.attempts, free.requests) == (1, 0, 0)
    assert b"never better" not in (tmp_path / "answers.db").read_bytes(), "inputs are kept as hashes only"


async def test_a_hit_works_when_the_budget_is_used_up(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(Reply(data={"label": "neutral", "confidence": 1}, usage=Usage(1_000, 100)))
    with configured(cache_store=MemoryRunStore()):
        await classify("fine")
        async with budget_scope(Budget(usd="0.000001")):
            assert (await classify("fine")).label == "neutral"


async def test_given_is_checked_before_the_cache(server: ModelServer, model: Model) -> None:
    allowed = True

    @infer(intent="Classify", model=model, cache="global", given=lambda text: allowed)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment())
    with configured(cache_store=MemoryRunStore()):
        await classify("fine")
        allowed = False
        with pytest.raises(PreconditionFailed):
            await classify("fine")


async def test_a_hit_that_fails_ensure_is_dropped_and_asked_for_anew(
    server: ModelServer, model: Model
) -> None:
    least = 0.5

    @infer(intent="Classify", model=model, cache="global", ensure=lambda r: r.confidence > least, retries=0)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment(confidence=0.6), sentiment(confidence=0.9), sentiment(confidence=0.1))
    with configured(cache_store=MemoryRunStore()):
        await classify("fine")
        least = 0.8
        assert (await classify("fine")).confidence == 0.9
        assert (await classify("fine")).confidence == 0.9
        least = 0.95
        with pytest.raises(PostconditionFailed):
            await classify("fine")
    assert len(server.ledger.entries) == 3


async def test_calls_for_the_same_at_once_ask_once(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(cache_store=MemoryRunStore()):
        results = await asyncio.gather(*(classify("fine") for _ in range(5)))

    assert len(server.ledger.entries) == 1
    assert len({id(one) for one in results}) == 5
    assert sorted(one.outcome for one in kept_records()[-5:]) == ["cache_hit"] * 4 + ["success"]


async def test_a_session_is_that_of_the_outermost_flow(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, cache="session")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @flow
    async def inner(text: str) -> Sentiment:
        return await classify(text)

    @flow
    async def outer(text: str) -> list[Sentiment]:
        return [await classify(text), await inner(text)]

    server.rule(None, sentiment())
    assert len(await outer("fine")) == 2
    assert len(server.ledger.entries) == 1
    await outer("fine")
    assert len(server.ledger.entries) == 2, "another flow is another session"
    await classify("fine")
    await classify("fine")
    assert len(server.ledger.entries) == 4, "outside of flows there is none"


async def test_a_quorum_keeps_the_agreed_result_and_its_members_share_no_answer(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", model=model, cache="global", quorum=2, threshold=2, agree_on="label")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment(confidence=0.2), sentiment(confidence=0.8))
    with configured(cache_store=MemoryRunStore()):
        assert (await classify("fine")).confidence == 0.8
        assert (await classify("fine")).confidence == 0.8
    assert len(server.ledger.entries) == 2


async def test_all_samples_are_kept(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, cache="global", stable=False)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(*(sentiment(label) for label in ("positive", "negative", "neutral", "neutral")))
    with configured(cache_store=MemoryRunStore()):
        with configured(test_mode=True, sample_n=3):
            first, second = await classify("fine"), await classify("fine")
        assert first == second
        assert len(first.samples) == 3
        assert len((await classify("fine")).samples) == 1, "one sample is another question"
    assert len(server.ledger.entries) == 4


async def test_functions_that_ask_otherwise_share_no_answers(server: ModelServer) -> None:
    small, large = server.model("openai:gpt-4o-mini"), server.model("anthropic:claude-haiku-4-5")

    def look_up(word: str) -> str:
        """Look a word up."""
        return word

    options: list[dict[str, object]] = [
        {"intent": "Classify", "model": small},
        {"intent": "Classify!", "model": small},
        {"intent": "Classify", "context": "Briefly.", "model": small},
        {"intent": "Classify", "model": large},
        {"intent": "Classify", "model": small, "temperature": 0.5},
        {"intent": "Classify", "model": small, "tools": [look_up]},
        {"intent": "Classify", "model": small, "quorum": 2, "agree_on": "label"},
        {"intent": "Classify", "agent": Agent(small, instructions="You are a judge.")},
    ]
    server.rule(None, sentiment())
    with configured(cache_store=MemoryRunStore()):
        for one in options * 2:

            @infer(cache="global", **one)  # type: ignore[call-overload, untyped-decorator]
            async def classify(text: str) -> Sentiment:
                raise NotImplementedError

            await classify("fine")

    assert len(server.ledger.entries) == len(options) + 1, "and the same question is asked once"


async def test_what_an_agent_computes_for_each_request_is_part_of_the_key(server: ModelServer) -> None:
    mood = "kind"
    agent = Agent(server.model("openai:gpt-5-mini"), instructions=lambda: f"Be {mood}.")

    @infer(intent="Classify", agent=agent, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(cache_store=MemoryRunStore()):
        await classify("fine")
        await classify("fine")
        assert len(server.ledger.entries) == 1
        mood = "strict"
        await classify("fine")
    assert len(server.ledger.entries) == 2


async def test_a_global_cache_without_a_store_warns_and_lives_as_long_as_the_process(
    server: ModelServer, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    @infer(intent="Classify for once", model=model, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment())
    with pytest.warns(
        FastroAIWarning, match=r"'classify', cache='global', end with this process: configure\("
    ):
        await classify("fine")
    await classify("fine")

    assert len(server.ledger.entries) == 1


@pytest.mark.filterwarnings("ignore:the answers of")
async def test_answers_age_without_a_store_too(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify for a moment", model=model, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(cache_age=0.01):
        await classify("fine")
        await asyncio.sleep(0.02)
        await classify("fine")
    assert len(server.ledger.entries) == 2


async def test_a_budget_that_may_step_down_to_another_model_shares_no_answers(server: ModelServer) -> None:
    large, small = server.model("openai:gpt-5-mini"), server.model("openai-chat:gpt-4o-mini")

    @infer(intent="Classify", model=large, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(cache_store=MemoryRunStore()):
        async with budget_scope(Budget(usd="1", fallback=ModelFallback(at=0.5, use=small))):
            await classify("fine")
            await classify("fine")
        assert len(server.ledger.entries) == 1
        await classify("fine")
    assert len(server.ledger.entries) == 2


async def test_a_budget_that_asks_for_shorter_answers_shares_none(server: ModelServer) -> None:
    @infer(intent="Classify", model=server.model("openai:gpt-5-mini"), cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(cache_store=MemoryRunStore()):
        await classify("fine")
        for _ in range(2):
            async with budget_scope(Budget(usd=1, max_tokens_per_request=50)):
                await classify("fine")
    first, second = server.ledger.entries
    assert "max_output_tokens" not in first.body
    assert second.body["max_output_tokens"] == 50


async def test_answers_are_kept_in_the_store_of_runs_unless_another_is_named(
    server: ModelServer, model: Model, tmp_path: Path
) -> None:
    @infer(intent="Classify", model=model, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    with configured(store=tmp_path / "runs.db"):
        await classify("fine")
    with configured(store=str(tmp_path / "runs.db")):
        await classify("fine")
    assert len(server.ledger.entries) == 1
    with configured(store=tmp_path / "runs.db", cache_store=tmp_path / "answers.db"):
        await classify("fine")
    assert len(server.ledger.entries) == 2


async def test_a_call_is_estimated_with_its_arguments(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, retries=0)
    async def classify(text: str, *, brief: bool = False) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    short, long = await classify.estimate("fine"), await classify.estimate("fine " * 1_000, brief=True)
    assert short.upper_usd is not None
    assert 0 < short.lower_usd < short.expected_usd < long.expected_usd
    assert not server.ledger.entries
    await classify("fine")
    assert short.lower_usd <= kept_records()[-1].cost_usd <= short.upper_usd
    with pytest.raises(TypeError, match="breif"):
        await classify.estimate("fine", breif=True)  # type: ignore[call-overload]


async def test_a_quote_allows_for_an_answer_that_was_kept(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, cache="global")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    quote = await classify.estimate("fine")
    assert (quote.lower_usd, quote.lower_reasons) == (0, ("an answer in the cache costs nothing",))
    assert quote.expected_usd > 0
