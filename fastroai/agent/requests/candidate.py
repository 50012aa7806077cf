"""One model that a request may go to, and the cost of the request there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

from fastroai.agent.quotes.input_tokens import InputTokens, input_tokens
from fastroai.agent.quotes.probe import FirstRequest
from fastroai.agent.requests.metering import MeteredModel, OwnedModel
from fastroai.records import Tokens
from fastroai.usage import CostCalculator, RequestBound, base_url_of, request_bound
from fastroai.usage.bounding.bounds import prepare_bound


@dataclass(frozen=True)
class Candidate:
    """A model of one provider, for the first request of a call and those that may follow."""

    model: Model
    messages: Sequence[ModelMessage]
    """The messages as this model gets them."""
    first: FirstRequest
    tokens: InputTokens
    calculator: CostCalculator

    @classmethod
    async def of(
        cls, model: Model, first: FirstRequest, calculator: CostCalculator, *, prepare: bool = False
    ) -> Candidate:
        """Return the candidate for a model. `prepare` its messages if it belongs to a fallback model."""
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
        """The upper bound of the first request."""
        return request_bound(
            self.calculator, self.model, self.messages, self.first.settings, self.first.parameters
        )

    @cached_property
    def full_window_usd(self) -> Decimal | None:
        """The highest cost of a request that fills the context window; `None` where nothing bounds it."""
        if self.bound.cost_usd is None or self.first.parameters.native_tools:
            return self.bound.cost_usd  # with tools of the provider, this is the cost of full windows already
        window = self.calculator.host(self.model).window
        prices = self.calculator.upper_prices(self.name, self.model.system, base_url_of(self.model), window)
        return None if prices is None else prices.cost(window, self.bound.output_tokens)

    @cached_property
    def priced(self) -> bool:
        """Whether a price is known."""
        return self.calculator.has_price(self.name, self.model.system, base_url_of(self.model))

    def least_usd(self, input_tokens: int) -> Decimal:
        """Return the lowest cost of a request with so many input tokens; zero if no price is known."""
        prices = self.calculator.lower_prices(self.name, self.model.system, base_url_of(self.model))
        return Decimal(0) if prices is None else prices.cost(input_tokens, self.first.shortest_answer)

    def usd(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the cost of a request with so many tokens; zero if no price is known."""
        tokens = Tokens(input_tokens=input_tokens, output_tokens=output_tokens)
        cost = self.calculator.cost_of_usage(
            tokens, model=self.name, provider=self.model.system, provider_url=base_url_of(self.model)
        )
        return cost.cost_usd or Decimal(0)

    @property
    def why_unpriced(self) -> str:
        """Why its cost is not known, if it has no price."""
        return f"no price is known for {self.name}; CostCalculator(pricing_overrides=...) adds one"

    @property
    def why_unbounded(self) -> str:
        """Why the first request has no bound, if it has none."""
        if not self.priced:
            return self.why_unpriced
        return f"{self.name}: {self.bound.why}"


def own_wrappers(model: Model) -> list[str]:
    """Return the names of the user's own wrappers around a model, which may ask it any number of times."""
    if isinstance(model, FallbackModel):
        return [name for candidate in model.models for name in own_wrappers(candidate)]
    if not isinstance(model, WrapperModel):
        return []
    kind = type(model)
    known = kind in (MeteredModel, OwnedModel) or kind.__module__.startswith("pydantic_ai.")
    return [*([] if known else [kind.__name__]), *own_wrappers(model.wrapped)]
