"""One request, and what admission wants to know of it."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
)
from pydantic_ai.models import (
    Model,
    ModelRequestContext,
    ModelRequestParameters,
)
from pydantic_ai.settings import ModelSettings

from fastroai.agent.meter import Meter
from fastroai.usage import (
    ModelFallback,
    RequestBound,
    base_url_of,
    prepare_bound,
    request_bound,
)
from fastroai.usage.bounds import note_input
from fastroai.usage.facts.allowances import COMPACTION_PROMPT
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS
from fastroai.usage.facts.regions import asked_geography

RequestKind = Literal["answer", "batch", "compaction"]


@dataclass
class Terms:
    """One request, and what admission wants to know of it, computed when it is asked for."""

    meter: Meter
    wrapped: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters
    streamed: bool
    known_bound: RequestBound | None = None
    model: str = field(init=False)
    """The model that is asked."""
    provider: str = field(init=False)
    """Its provider, as PydanticAI names it."""

    kind: ClassVar[RequestKind] = "answer"
    """What it asks the model for."""

    def __post_init__(self) -> None:
        self.model, self.provider = self.wrapped.model_name, self.wrapped.system

    @property
    def asked_for(self) -> str:
        """What it asks for besides what its messages say; the same in every process."""
        return ""

    def send(self) -> Awaitable[ModelResponse]:
        """Send it; to be awaited for the response."""
        return self.wrapped.request(self.messages, self.settings, self.parameters)

    @property
    def is_local(self) -> bool:
        """Whether it is a model for tests, which sends nothing anywhere."""
        return self.provider in LOCAL_PROVIDERS

    @property
    def is_request(self) -> bool:
        """Whether budgets of requests count it."""
        return True

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

    async def prepare_bound(self) -> None:
        """Do beforehand, in a thread, what would hold up the event loop in `bound`."""
        await prepare_bound(self.meter.calculator, self.wrapped, self.messages, self.parameters)

    @property
    def conditions(self) -> Mapping[str, str]:
        """What it asks for that prices depend on, and that no response of PydanticAI's says."""
        conditions = {}
        if self.provider == "anthropic":
            has_fast_mode = self.wrapped.profile.get("anthropic_supports_fast_speed")
            if has_fast_mode and self._given("anthropic_speed") == "fast":
                conditions["speed"] = "fast"
            if (region := asked_geography({"extra_body": self._given("extra_body")})) is not None:
                conditions["inference_geo"] = region
        elif self.provider == "bedrock":
            performance = self._given("bedrock_performance_configuration")
            if isinstance(performance, Mapping) and isinstance(latency := performance.get("latency"), str):
                conditions["latency"] = latency
        return conditions

    def _given(self, setting: str) -> object:
        return {**(self.wrapped.settings or {}), **(self.settings or {})}.get(setting)

    def note_input(self, input_tokens: int) -> None:
        """Remember what was reported for its input, which bounds requests that begin alike."""
        note_input(
            self.meter.calculator, self.wrapped, self.messages, self.settings, self.parameters, input_tokens
        )

    def counted_again(self) -> Self:
        """The same with a lower bound, if what was reported meanwhile gives one; else itself."""
        again = replace(self, known_bound=None)
        now, before = again.bound.input_tokens, self.bound.input_tokens
        return again if now is not None and (before is None or now < before) else self

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """The same with the longest answer that so much pays for; `None` if there is none."""
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        if bound is self.bound:
            return self
        if bound is None or bound.output_tokens is None:
            return None
        settings: ModelSettings = {**(self.settings or {}), "max_tokens": bound.output_tokens}
        return replace(self, settings=settings, known_bound=bound)

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """The same to another model."""
        model = self.meter.fallback_model(fallback)
        return self if model is self.wrapped else replace(self, wrapped=model, known_bound=None)

    def returned_tools(self, output_tools: Collection[str]) -> tuple[str, ...]:
        """The tools whose returns this request brings to the model."""
        names: dict[str, None] = {}
        for part in news_in(self.messages):
            if part.part_kind == "tool-return" and part.tool_name not in output_tools:
                names[part.tool_name] = None
        return tuple(names)


@dataclass
class BatchTerms(Terms):
    """A request that goes out in a batch with others, to one model."""

    kind: ClassVar[RequestKind] = "batch"

    @property
    def asked_for(self) -> str:
        """What it asks for besides what its messages say."""
        return "batch"

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """The same: the batch that it joins is one of this model."""
        return self


@dataclass(kw_only=True)
class CompactionTerms(Terms):
    """A request that replaces messages by something shorter, which only this model can read."""

    context: ModelRequestContext
    instructions: str | None

    kind: ClassVar[RequestKind] = "compaction"

    @property
    def asked_for(self) -> str:
        """What it asks for besides what its messages say."""
        return f"compaction: {self.instructions or ''}"

    def send(self) -> Awaitable[ModelResponse]:
        """Send it; to be awaited for the response."""
        return self.wrapped.compact_messages(self.context, instructions=self.instructions)

    @cached_property
    def bound(self) -> RequestBound:
        """What it can use and cost at most."""
        honours_limit = self.provider == "anthropic"
        settings: ModelSettings = {**(self.settings or {})}
        if not honours_limit:
            settings["max_tokens"] = None  # type: ignore[typeddict-item]  # the endpoint takes none
        added = COMPACTION_PROMPT.tokens + len((self.instructions or "").encode())
        return request_bound(
            self.meter.calculator, self.wrapped, self.messages, settings, self.parameters, added_input=added
        )

    def note_input(self, input_tokens: int) -> None:
        """Remember nothing: what is sent is not what requests for an answer begin with."""

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """The same, if so much pays for all of it: the beginning of a compaction is of no use."""
        return self if self.bound.lowered(usd=usd, tokens=tokens) is self.bound else None

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """The same."""
        return self


def news_in(messages: Sequence[ModelMessage]) -> Sequence[ModelRequestPart]:
    """What the model has not been told before."""
    last = messages[-1] if messages else None
    return last.parts if last is not None and last.kind == "request" else ()


def rejects_answer(messages: Sequence[ModelMessage]) -> bool:
    """Whether the model is told nothing but that its answer, or each of its calls, is to be made again."""
    returned = told_again = False
    for part in news_in(messages):
        if part.part_kind == "tool-return":
            if part.outcome != "retried":
                return False
            returned = True
        elif part.part_kind == "retry-feedback":
            told_again = True
    return returned or told_again
