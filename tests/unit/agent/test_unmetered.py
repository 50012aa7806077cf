"""Methods of models that the account does not know: refused under budgets, told elsewhere."""

from __future__ import annotations

import asyncio
import warnings
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from support.later import Provider, with_method
from support.patience import PATIENCE

from fastroai import Budget, Metered, budget_scope, spend
from fastroai.errors import UnmeteredRequestError
from fastroai.usage import UnpricedModelWarning

OF_PYDANTIC_AI = "pydantic_ai.models.later"
OF_A_USER = "app.models"


def model_of(module: str, provider: Provider) -> Any:
    return Metered().model(provider.model(with_method(module)))


@pytest.mark.parametrize("budget", [Budget(usd=1), Budget(tokens=10_000), Budget(requests=5)], ids=repr)
async def test_a_new_method_of_pydantic_ai_is_refused_where_a_budget_would_count_it(budget: Budget) -> None:
    provider = Provider()
    async with budget_scope(budget) as scope:
        with pytest.raises(UnmeteredRequestError, match=r"LaterModel\.research\(\) cannot be counted"):
            await model_of(OF_PYDANTIC_AI, provider).research("x")
    assert provider.billed_usd == 0
    assert scope.usage.cost_complete


async def test_without_a_limit_it_runs_and_the_cost_is_incomplete() -> None:
    provider = Provider()
    async with budget_scope(Budget(ms=60_000)) as scope:
        with pytest.warns(UnpricedModelWarning, match=r"LaterModel\.research\(\)") as told:
            model = model_of(OF_PYDANTIC_AI, provider)
            await model.research("x")
            await model.research("x")
    assert len(told) == 1
    assert len(provider.ledger) == 2
    assert not scope.usage.cost_complete
    assert scope.usage.unpriced_units == ("LaterModel.research()",)
    assert scope.usage.request_count == 2


async def test_inside_of_spend_it_is_the_spending_of_the_user() -> None:
    provider = Provider()
    async with budget_scope(Budget(usd=1)) as scope, spend("0.10") as purchase:
        await model_of(OF_PYDANTIC_AI, provider).research("x")
        purchase.settle("0.02")
    assert (scope.usage.cost_usd, scope.usage.cost_complete) == (Decimal("0.02"), True)


async def test_outside_of_runs_it_is_nobodys_business() -> None:
    provider = Provider()
    await model_of(OF_PYDANTIC_AI, provider).research("x")
    assert len(provider.ledger) == 1


async def test_a_method_that_pydantic_ai_adds_to_all_models_is_refused_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def research(self: Any) -> None:
        raise AssertionError("sent")

    monkeypatch.setattr("pydantic_ai.models.Model.research", research, raising=False)
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnmeteredRequestError):
            await model_of(OF_A_USER, Provider()).research("x")
        model: Any = Metered().model(Provider().model())
        with pytest.raises(UnmeteredRequestError):
            await model.research()


@pytest.mark.parametrize("kind", ["embedding_model", "image_model"])
async def test_models_of_embeddings_and_images_are_watched_as_well(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def research(self: Any) -> None:
        raise AssertionError("sent")

    base = {
        "embedding_model": "pydantic_ai.embeddings.EmbeddingModel",
        "image_model": "pydantic_ai.images.ImageGenerationModel",
    }
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(f"{base[kind]}.research", research, raising=False)
    name = {"embedding_model": "openai:text-embedding-3-small", "image_model": "openai:gpt-image-2"}[kind]
    model = getattr(Metered(), kind)(name)
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnmeteredRequestError):
            await model.research()


class TestAMethodOfAUser:
    @pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning")
    async def test_passes_and_is_told_and_stops_nothing(self) -> None:
        provider = Provider()
        async with budget_scope(Budget(usd="0.01")) as scope:
            model = model_of(OF_A_USER, provider)
            completion = await model.research("x")
            await ask(model)
        assert completion.usage.prompt_tokens == 20
        assert len(provider.ledger) == 2
        assert scope.usage.cost_usd == provider.ledger[1]
        assert not scope.usage.cost_complete
        assert scope.usage.request_count == 1

    async def test_that_awaits_nothing_is_as_it_was(self) -> None:
        class Mine(OpenAIChatModel):
            motto = "mine"

            def named(self) -> str:
                return self.motto

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with budget_scope(Budget(usd=1)) as scope:
                model: Any = Metered().model(Provider().model(Mine))
                assert (model.named(), model.motto, model.client) == ("mine", "mine", model.wrapped.client)
        assert scope.usage.cost_complete


async def ask(model: Any) -> None:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest

    await model_request(model, [ModelRequest.user_text_prompt("x")])


async def test_a_warning_that_is_an_error_comes_after_the_call_is_on_record() -> None:
    async with budget_scope(Budget(ms=60_000)) as scope:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UnpricedModelWarning):
                await asyncio.wait_for(model_of(OF_A_USER, Provider()).research("x"), PATIENCE)
    assert not scope.usage.cost_complete
