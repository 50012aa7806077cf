"""Embedding models whose requests are reserved and charged like other spending."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.embeddings import (
    EmbeddingModel,
    EmbeddingResult,
    EmbeddingSettings,
    WrapperEmbeddingModel,
    infer_embedding_model,
)
from pydantic_ai.embeddings.result import EmbedInputType
from pydantic_ai.embeddings.settings import merge_embedding_settings

from fastroai.agent.models import build_provider, naming_our_extra
from fastroai.agent.other_models.purchases import buy
from fastroai.agent.other_models.unmetered import FollowedMethods
from fastroai.steps.reserving import SpendTerms
from fastroai.steps.spend_price import SpendPrice, Units, tokens_of
from fastroai.usage import CostCalculator
from fastroai.usage.bounding.tokenizers import bytes_of
from fastroai.usage.facts.allowances import EMBEDDED_TEXT
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS


class MeteredEmbeddingModel(FollowedMethods, WrapperEmbeddingModel):
    """An embedding model whose requests are reserved and charged; made by `Metered.embedding_model`.

    A request reserves a token for each byte of its texts, which no tokenizer exceeds, and is charged the
    bill that the provider or a gateway states, else the tokens that its result reports. Like other spending
    outside of model requests, it does not count in `Budget(requests=)`.
    """

    def __init__(self, wrapped: EmbeddingModel | str, calculator: CostCalculator, retries: int) -> None:
        with naming_our_extra(str(wrapped)):
            super().__init__(infer_embedding_model(wrapped, provider_factory=build_provider))
        self.calculator, self._retries = calculator, retries

    async def embed(
        self,
        inputs: str | Sequence[str],
        *,
        input_type: EmbedInputType,
        settings: EmbeddingSettings | None = None,
    ) -> EmbeddingResult:
        """Embed texts, as PydanticAI does.

        Raises:
            BudgetExceeded: a budget or a spend limit cannot pay for it; nothing is sent.
            UnpricedModelError: there is a budget of money, and no price for the model.
        """
        if self.system in LOCAL_PROVIDERS:
            return await self.wrapped.embed(inputs, input_type=input_type, settings=settings)
        texts = [inputs] if isinstance(inputs, str) else inputs
        merged = merge_embedding_settings(self.settings, settings) or {}
        # PydanticAI puts the title before each text.
        around = EMBEDDED_TEXT.tokens + bytes_of(str(merged.get("google_title", "")))
        most = {"input_tokens": sum(bytes_of(text) + around for text in texts)}
        price = SpendPrice(self.calculator, self.model_name, self.system, None, self.base_url)
        terms = SpendTerms(
            model=self.model_name, provider=self.system, most=price.of(most), tokens=tokens_of(most)
        )
        return await buy(
            terms,
            price,
            most,
            send=lambda: self.wrapped.embed(inputs, input_type=input_type, settings=settings),
            used=_used,
            retries=self._retries,
        )


def _used(result: EmbeddingResult) -> Units:
    """Return the units that a result reports; none if the provider reported nothing, so the bound counts."""
    tokens = result.usage.input_tokens
    return {"input_tokens": tokens} if tokens else {}
