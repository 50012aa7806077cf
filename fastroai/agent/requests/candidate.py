"""One model that a request may go to, and the cost of the request there."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

from fastroai.agent.quotes.input_tokens import InputTokens, input_tokens
from fastroai.agent.quotes.probe import FirstRequest
from fastroai.agent.requests.metering import MeteredModel, OwnedModel
from fastroai.records import Tokens
from fastroai.usage import CostCalculator, RequestBound
from fastroai.usage.bounding.bounds import AskedRequest


@dataclass(frozen=True)
class Candidate:
    """A model of one provider, for the first request of a call and those that may follow."""

    asked: AskedRequest
    first: FirstRequest
    tokens: InputTokens

    @classmethod
    async def of(
        cls, model: Model, first: FirstRequest, calculator: CostCalculator, *, prepare: bool = False
    ) -> Candidate:
        """Return the candidate for a model. `prepare` its messages if it belongs to a fallback model."""
        messages = model.prepare_messages(first.messages, first.parameters) if prepare else first.messages
        asked = AskedRequest(calculator, model, messages, first.settings, first.parameters)
        await asked.prepare()
        return cls(asked, first, input_tokens(asked.host, messages, first.parameters))

    @property
    def name(self) -> str:
        """The model's name."""
        return self.asked.model.model_name

    @cached_property
    def bound(self) -> RequestBound:
        """The upper bound of the first request."""
        return self.asked.bound()

    @cached_property
    def full_window_usd(self) -> Decimal | None:
        """The highest cost of a request that fills the context window; `None` where nothing bounds it."""
        if self.bound.cost_usd is None or self.first.parameters.native_tools:
            return self.bound.cost_usd  # with tools of the provider, this is the cost of full windows already
        host = self.asked.host
        prices = self.asked.calculator.upper_prices(self.name, host.provider, host.url, host.window)
        return None if prices is None else prices.cost(host.window, self.bound.output_tokens)

    @cached_property
    def priced(self) -> bool:
        """Whether a price is known."""
        host = self.asked.host
        return self.asked.calculator.has_price(self.name, host.provider, host.url)

    def least_usd(self, input_tokens: int) -> Decimal:
        """Return the lowest cost of a request with so many input tokens; zero if no price is known."""
        host = self.asked.host
        prices = self.asked.calculator.lower_prices(self.name, host.provider, host.url)
        return Decimal(0) if prices is None else prices.cost(input_tokens, self.first.shortest_answer)

    def usd(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the cost of a request with so many tokens; zero if no price is known."""
        host, tokens = self.asked.host, Tokens(input_tokens=input_tokens, output_tokens=output_tokens)
        cost = self.asked.calculator.cost_of_usage(
            tokens, model=self.name, provider=host.provider, provider_url=host.url
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
