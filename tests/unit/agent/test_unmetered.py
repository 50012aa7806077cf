"""Methods of models that the account does not know: refused under budgets, told elsewhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
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


LATER_PYDANTIC_AI = """
import asyncio

from pydantic_ai.embeddings import EmbeddingModel
from pydantic_ai.images import ImageGenerationModel
from pydantic_ai.models import Model


async def research(self):
    raise AssertionError("sent")


for kind in (Model, EmbeddingModel, ImageGenerationModel):
    kind.research = research

from fastroai import Budget, Metered, budget_scope
from fastroai.errors import UnmeteredRequestError
from support.later import Provider, with_method


async def main():
    meter = Metered()
    refused = []
    async with budget_scope(Budget(usd=1)):
        for model in (
            meter.model(Provider().model()),
            meter.model(Provider().model(with_method("app.models"))),
            meter.embedding_model("openai:text-embedding-3-small"),
            meter.image_model("openai:gpt-image-2"),
        ):
            try:
                await model.research()
            except UnmeteredRequestError as error:
                refused.append(str(error).split(" cannot")[0])
    print(*refused, sep=", ")


asyncio.run(main())
"""


def test_methods_that_pydantic_ai_adds_to_all_models_are_refused_too() -> None:
    """In a process of its own, because they are there before FastroAI is imported."""
    environment = os.environ | {"OPENAI_API_KEY": "none", "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", LATER_PYDANTIC_AI],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert answer.stdout.strip() == (
        "OpenAIChatModel.research(), LaterModel.research(), "
        "OpenAIEmbeddingModel.research(), OpenAIImageGenerationModel.research()"
    ), answer.stderr


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
