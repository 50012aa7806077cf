"""One request, and what admission wants to know of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    RetryFeedbackPart,
    ToolReturnPart,
)
from pydantic_ai.models import (
    Model,
    ModelRequestParameters,
)
from pydantic_ai.settings import ModelSettings

from fastroai.agent.answers import LOCAL_SYSTEMS
from fastroai.usage import (
    ModelFallback,
    RequestBound,
    base_url_of,
    request_bound,
)

if TYPE_CHECKING:
    from fastroai.agent.metering import Metered

_STANDARD: Final[Mapping[str, str]] = {}


@dataclass
class Terms:
    """One request, and what admission wants to know of it, computed when it is asked for."""

    meter: Metered
    wrapped: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters
    streamed: bool
    known_bound: RequestBound | None = None

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.wrapped.model_name

    @property
    def provider(self) -> str:
        """Its provider, as PydanticAI names it."""
        return self.wrapped.system

    @property
    def is_local(self) -> bool:
        """Whether it is a model for tests, which sends nothing anywhere."""
        return self.provider in LOCAL_SYSTEMS

    @cached_property
    def priced(self) -> bool:
        """Whether a price is known."""
        return self.meter.calculator.has_price(self.model, self.provider, base_url_of(self.wrapped))

    @cached_property
    def bound(self) -> RequestBound:
        """What it can use and cost at most."""
        return self.known_bound or request_bound(
            self.meter.calculator, self.wrapped, self.messages, self.settings, self.parameters
        )

    @property
    def conditions(self) -> Mapping[str, str]:
        """What it asks for that prices depend on, and that no response of PydanticAI's says."""
        if self.provider == "anthropic" and self.wrapped.profile.get("anthropic_supports_fast_speed"):
            speed = self._given("anthropic_speed")
            return {"speed": "fast"} if speed == "fast" else _STANDARD
        if self.provider == "bedrock":
            performance = self._given("bedrock_performance_configuration")
            if isinstance(performance, Mapping) and isinstance(latency := performance.get("latency"), str):
                return {"latency": latency}
        return _STANDARD

    def _given(self, setting: str) -> object:
        return {**(self.wrapped.settings or {}), **(self.settings or {})}.get(setting)

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Terms | None:
        """The same with the longest answer that so much pays for; `None` if there is none."""
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        if bound is self.bound:
            return self
        if bound is None or bound.output_tokens is None:
            return None
        settings: ModelSettings = {**(self.settings or {}), "max_tokens": bound.output_tokens}
        return replace(self, settings=settings, known_bound=bound)

    def stepped_down(self, fallback: ModelFallback) -> Terms:
        """The same to another model."""
        model = self.meter.fallback_model(fallback)
        return self if model is self.wrapped else replace(self, wrapped=model, known_bound=None)

    def returned_tools(self, output_tools: Collection[str]) -> tuple[str, ...]:
        """The tools whose returns this request brings to the model."""
        names = (part.tool_name for part in news_in(self.messages) if isinstance(part, ToolReturnPart))
        return tuple(dict.fromkeys(name for name in names if name not in output_tools))


def news_in(messages: Sequence[ModelMessage]) -> Sequence[ModelRequestPart]:
    """What the model has not been told before."""
    last = messages[-1] if messages else None
    return last.parts if isinstance(last, ModelRequest) else ()


def rejects_answer(messages: Sequence[ModelMessage]) -> bool:
    """Whether the model is told nothing but that its answer, or each of its calls, is to be made again."""
    news = news_in(messages)
    outcomes = {part.outcome for part in news if isinstance(part, ToolReturnPart)}
    told_again = any(isinstance(part, RetryFeedbackPart) for part in news)
    return outcomes == {"retried"} or (not outcomes and told_again)
