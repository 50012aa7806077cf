"""One request, and what admission wants to know of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from math import ceil
from typing import ClassVar, Final, Literal, Self

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

from fastroai.agent.learned import PastRequest, UsualRequest
from fastroai.agent.meter import Meter
from fastroai.records import EXACT, RequestRecord
from fastroai.usage import (
    ModelFallback,
    RequestBound,
    base_url_of,
    prepare_bound,
    request_bound,
)
from fastroai.usage.bounds import note_input
from fastroai.usage.facts.allowances import COMPACTION_PROMPT
from fastroai.usage.facts.billing import FREE_COUNTS
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS
from fastroai.usage.facts.regions import asked_geography

logger = logging.getLogger("fastroai.agent")

RequestKind = Literal["answer", "batch", "compaction"]

SHORTEST_SHARE: Final = 200
"""Tokens of an answer that is worth asking for, of an agent of which no answer is known yet."""
LONGER: Final = 4
"""How many times as long an answer may be that is asked for after one was cut; or where none is asked for
again, or there is room, as the longest known one is expected to be."""
USUAL_ANSWER: Final = 1_000
"""Tokens that are expected of an answer that may have more, of an agent of which none is known yet."""
COUNTED_WITHIN: Final = 5.0
"""Seconds for which a provider may take to count the input of a request."""
MARGIN: Final = Decimal("1.25")
"""What is expected of a request, by the mean of those before it."""


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
    cut_at: int | None = None
    """The `max_tokens` of an earlier answer that was cut there, as budgets could pay for no more."""
    is_share: bool = False
    """Whether its `max_tokens` are a part of a budget that we set, and not a limit of the agent."""
    counted_input: int | None = None
    """Tokens of its input, by the provider, which may count a little less than it bills."""
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
    def asks_for(self) -> Literal["request"]:
        """Budgets of requests count it."""
        return "request"

    @property
    def waits_for_others(self) -> bool:
        """It waits for its turn, and for what others have reserved."""
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

    def counted_again(self) -> Self:
        """The same with a lower bound, if what was reported meanwhile gives one; else itself."""
        again = replace(self, known_bound=None)
        now, before = again.bound.input_tokens, self.bound.input_tokens
        return again if now is not None and (before is None or now < before) else self

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """The same with the longest answer that so much pays for; `None` if there is none.

        There is none either that is no longer than an answer which was cut.
        """
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        if bound is self.bound:
            return self
        if bound is None or bound.output_tokens is None or bound.output_tokens <= (self.cut_at or 0):
            return None
        return self._bounded_by(bound)

    def shortened(self, output_tokens: int) -> Self:
        """The same with an answer of at most so many tokens, as far as the provider lets one say that."""
        return self._bounded_by(self.bound.shortened(output_tokens))

    def _bounded_by(self, bound: RequestBound) -> Self:
        if bound is self.bound:
            return self
        settings: ModelSettings = {**(self.settings or {}), "max_tokens": bound.output_tokens or 0}
        return replace(self, settings=settings, known_bound=bound)

    @property
    def is_asked_again(self) -> bool:
        """Whether its answer is asked for once more, if it is cut where a budget could pay for no more.

        A consumer has read what a stream has brought, and batches and background responses take their time.
        """
        return (
            self.kind == "answer"
            and not self.streamed
            and self.cut_at is None
            and not self._given("openai_background")
        )

    def longer_than(self, output_tokens: int) -> Self:
        """The same, for an answer that was cut at so many tokens."""
        return replace(self, cut_at=output_tokens)

    @property
    def is_flexible(self) -> bool:
        """Whether its answer can be limited."""
        return self.kind != "compaction" and self.bound.least_output_tokens is not None

    @property
    def enough(self) -> int | None:
        """Tokens of an answer with which it can do, if others need the rest; `None` if it needs all of it.

        It is what the agent's last answers say. If none is known, it is what the request says, and where it
        says nothing, a little, if an answer that is cut is asked for again.
        """
        if self.bound.least_output_tokens is None or not self.is_flexible:
            return None
        if self.cut_at is not None:
            return LONGER * self.cut_at
        if (usual := self.usual) is not None:
            return usual.longest_answer * (1 if self.is_asked_again else LONGER)
        says_nothing = (self.is_share or not self._given("max_tokens")) and self.is_asked_again
        return self.bound.least_output_tokens + SHORTEST_SHARE if says_nothing else None

    @property
    def usual(self) -> UsualRequest | None:
        """What the last requests of the agent to this model were like; `None` if there was none."""
        return self.meter.past_requests.usual(self._asked_model)

    @property
    def _asked_model(self) -> str:
        return f"{self.provider}:{self.model}"

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Self:
        """The same with as long an answer as so much pays for, or `enough` of one if that is more.

        Where there is plenty for answers like those before, it leaves the rest to others.
        """
        bound, enough = self.bound, self.enough
        fair = bound.lowered(
            usd=None if bound.cost_usd is None else usd, tokens=None if bound.tokens is None else tokens
        )
        if fair is bound or enough is None:
            return self
        output = enough if fair is None else max(enough, fair.output_tokens or 0)
        if self.cut_at is None and self.usual is not None:
            output = min(output, LONGER * enough)
        shorter = self.shortened(output)
        return self if shorter is self else replace(shorter, is_share=True)

    async def prepare_expectation(self) -> None:
        """Have the provider count the input, if that is free and no request of the agent is known."""
        if self.usual is not None or self.provider not in FREE_COUNTS.names:
            return
        try:
            async with asyncio.timeout(COUNTED_WITHIN):
                counted = await self.wrapped.count_tokens(self.messages, self.settings, self.parameters)
        except Exception as error:  # an expectation need not be exact
            logger.info("%s:%s has not counted the input of a request: %s", self.provider, self.model, error)
        else:
            self.counted_input = counted.input_tokens

    @property
    def expected_usd(self) -> Decimal | None:
        """US dollars that it is expected to cost; `None` if nothing bounds them."""
        bound, usual = self.bound, self.usual
        if bound.cost_usd is None or bound.prices is None:
            return bound.cost_usd
        if usual is None:
            likely = bound.prices.cost(self.counted_input or bound.input_tokens, self._usual_answer)
        else:
            likely = bound.prices.cost(bound.input_tokens, usual.output_tokens)
            if likely is not None:
                likely = EXACT.multiply(likely, EXACT.multiply(usual.share_of_usd, MARGIN))
        return bound.cost_usd if likely is None else min(bound.cost_usd, likely)

    @property
    def expected_tokens(self) -> int | None:
        """Tokens that it is expected to use; `None` if nothing bounds them."""
        bound, usual = self.bound, self.usual
        if bound.tokens is None or bound.input_tokens is None:
            return None
        if usual is None:
            return min(bound.tokens, (self.counted_input or bound.input_tokens) + (self._usual_answer or 0))
        likely = EXACT.multiply(bound.input_tokens + usual.output_tokens, usual.share_of_tokens)
        return min(bound.tokens, ceil(EXACT.multiply(likely, MARGIN)))

    @property
    def _usual_answer(self) -> int | None:
        most = self.bound.output_tokens
        return None if most is None else min(most, USUAL_ANSWER)

    def learn(self, record: RequestRecord) -> None:
        """Remember its usage, from which later requests are expected."""
        tokens, bound = record.tokens, self.bound
        note_input(
            self.meter.calculator,
            self.wrapped,
            self.messages,
            self.settings,
            self.parameters,
            tokens.input_tokens,
        )
        if record.cost_usd is None or bound.prices is None or bound.input_tokens is None:
            return
        past = PastRequest(
            output_tokens=tokens.output_tokens * (LONGER if record.was_cut_short else 1),
            tokens=tokens.total_tokens,
            cost_usd=record.cost_usd,
            bound_tokens=bound.input_tokens + tokens.output_tokens,
            bound_usd=bound.prices.cost(bound.input_tokens, tokens.output_tokens),
        )
        self.meter.past_requests.add(self._asked_model, past)

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
