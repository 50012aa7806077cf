"""One model that a request may go to, and what the request costs there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

from fastroai.agent.input_tokens import InputTokens, input_tokens
from fastroai.agent.metering import MeteredModel, OwnedModel
from fastroai.agent.probe import FirstRequest
from fastroai.records import Tokens
from fastroai.usage import CostCalculator, RequestBound, base_url_of, request_bound
from fastroai.usage.bounds import prepare_bound


@dataclass(frozen=True)
class Candidate:
    """A model of one provider, for the first request of a call and those that may follow."""

    model: Model
    messages: Sequence[ModelMessage]
    """As this model gets them."""
    first: FirstRequest
    tokens: InputTokens
    calculator: CostCalculator

    @classmethod
    async def of(
        cls, model: Model, first: FirstRequest, calculator: CostCalculator, *, prepare: bool = False
    ) -> Candidate:
        """The candidate `model`; fallback models `prepare` the messages for each of theirs."""
        messages = model.prepare_messages(first.messages, first.parameters) if prepare else first.messages
        await prepare_bound(calculator, model, messages, first.parameters)
        tokens = input_tokens(calculator.host(model), messages, first.parameters)
        return cls(model, messages, first, tokens, calculator)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.model_name

    @cached_property
    def bound(self) -> RequestBound:
        """The most of the first request."""
        return request_bound(
            self.calculator, self.model, self.messages, self.first.settings, self.first.parameters
        )

    @cached_property
    def full_window_usd(self) -> Decimal | None:
        """The most of a request whose input is whatever the model takes; `None` where nothing bounds that."""
        if self.bound.cost_usd is None or self.first.parameters.native_tools:
            return self.bound.cost_usd  # with tools of the provider, it is that of full windows already
        window = self.calculator.host(self.model).window
        prices = self.calculator.upper_prices(self.name, self.model.system, base_url_of(self.model), window)
        return None if prices is None else prices.cost(window, self.bound.output_tokens)

    @cached_property
    def priced(self) -> bool:
        """Whether a price is known."""
        return self.calculator.has_price(self.name, self.model.system, base_url_of(self.model))

    def least_usd(self, input_tokens: int) -> Decimal:
        """The least of a request with so much input; nothing, where no price is known."""
        prices = self.calculator.lower_prices(self.name, self.model.system, base_url_of(self.model))
        return Decimal(0) if prices is None else prices.cost(input_tokens, self.first.shortest_answer)

    def usd(self, input_tokens: int, output_tokens: int) -> Decimal:
        """What a request with so many tokens costs; nothing, where no price is known."""
        tokens = Tokens(input_tokens=input_tokens, output_tokens=output_tokens)
        cost = self.calculator.cost_of_usage(
            tokens, model=self.name, provider=self.model.system, provider_url=base_url_of(self.model)
        )
        return cost.cost_usd or Decimal(0)

    @property
    def why_unbounded(self) -> str:
        """Why the first request has no bound, where it has none."""
        if not self.priced:
            return f"no price is known for {self.name}"
        return f"{self.name}: {self.bound.why}"


def own_wrappers(model: Model) -> list[str]:
    """Names of the wrappers around a model that are the user's own, and may ask it any number of times."""
    if isinstance(model, FallbackModel):
        return [name for candidate in model.models for name in own_wrappers(candidate)]
    if not isinstance(model, WrapperModel):
        return []
    kind = type(model)
    known = kind in (MeteredModel, OwnedModel) or kind.__module__.startswith("pydantic_ai.")
    return [*([] if known else [kind.__name__]), *own_wrappers(model.wrapped)]
