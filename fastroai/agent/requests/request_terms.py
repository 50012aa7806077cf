"""One request, with the values that admission asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, Self

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
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from fastroai import usage
from fastroai.agent.models import repeats_by_itself
from fastroai.agent.one_time import load_tokenizer
from fastroai.agent.quotes.learned import PastRequest, PastRequests, UsualRequest
from fastroai.agent.requests.wire import is_in_sight
from fastroai.records import EXACT, RequestRecord
from fastroai.usage.facts.allowances import COMPACTION_PROMPT, OTHER
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS
from fastroai.usage.facts.priors import TOKENS_OF_SEARCH, USUAL_ANSWER
from fastroai.usage.facts.regions import asked_geography
from fastroai.usage.prices.advisor import ADVISOR_MODEL
from fastroai.usage.prices.asked_prices import asked_tier, caches_half_a_day

if TYPE_CHECKING:
    from fastroai.usage import AskedRequest, CostCalculator, InputPart, ModelFallback, RequestBound

logger = logging.getLogger("fastroai.agent")

RequestKind = Literal["answer", "batch", "compaction"]

SHORTEST_SHARE: Final = 200
"""Tokens of the shortest answer that is worth asking for, while no answer of the agent is known."""
LONGER: Final = 4
"""How many times as long as an answer that was cut the next one may be. Where a cut answer is not asked for
again, or money is left over, also how many times as long as the longest of the agent's last answers."""
USUAL_SEARCHES: Final = 1
"""Web searches expected of a request with a tool for them, while no request of the agent is known."""
COUNTED_WITHIN: Final = 5.0
"""Seconds that a provider may take to count the input of a request."""
MARGIN: Final = Decimal("1.25")
"""Factor on the mean of past requests, which gives the expectation of the next one."""


class Meter(Protocol):
    """A `Metered`, as its runs and requests see it."""

    calculator: CostCalculator
    past_requests: PastRequests
    """The past requests of its agent."""

    def fallback_model(self, fallback: ModelFallback) -> Model:
        """Return the model to step down to when the budget runs low."""
        ...


@dataclass
class Terms:
    """One request, with the values that admission asks for, which are computed when they are needed."""

    meter: Meter
    wrapped: Model
    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters
    streamed: bool
    known_bound: RequestBound | None = None
    cut_at: int | None = None
    """The `max_tokens` at which an earlier answer was cut, as budgets could pay for no more."""
    is_share: bool = False
    """Whether FastroAI set its `max_tokens`, to a part of a budget; else they are a limit of the agent."""
    most_counted: int | None = None
    """The most input tokens by the provider's own count, with a margin; `None` if it has not counted."""
    was_asked_to_count: bool = False
    """Whether the provider was asked to count the input: it is asked once."""
    besides: int = 0
    """Input tokens that the model was seen to add to the request before it is sent."""
    besides_in: tuple[str, ...] = ()
    """The places in the body where it was seen to add them."""
    model: str = field(init=False)
    """The name of the model that is asked."""
    provider: str = field(init=False)
    """The model's provider, as PydanticAI names it."""

    kind: ClassVar[RequestKind] = "answer"
    """The kind of the request."""

    def __post_init__(self) -> None:
        self.model, self.provider = self.wrapped.model_name, self.wrapped.system

    @property
    def asked_for(self) -> str:
        """Text that tells the request from others with the same messages; the same in every process."""
        return ""

    def send(self) -> Awaitable[ModelResponse]:
        """Send the request; await the result for the response."""
        return self.wrapped.request(self.messages, self.sent_settings, self.parameters)

    @property
    def sent_settings(self) -> ModelSettings | None:
        """The settings to send: those of the request, but an SDK that repeats requests is told not to.

        FastroAI repeats them instead. The request on record is without this, as it asks the same.
        """
        if not repeats_by_itself(self.wrapped):
            return self.settings
        return {**(self.settings or {}), "max_retries": 0}

    def sending(self, body: object) -> Self:
        """Return these terms; if the decoded body has input that they do not count, a copy that counts it."""
        unseen = self.asked.input_besides(body)
        if unseen.tokens <= self.besides:
            return self
        return replace(self, besides=unseen.tokens, besides_in=unseen.places, known_bound=None)

    @property
    def is_local(self) -> bool:
        """Whether the model is one for tests, which sends nothing anywhere."""
        return self.provider in LOCAL_PROVIDERS

    @property
    def asks_for(self) -> Literal["request"]:
        """The measure in which it counts: budgets of requests count it."""
        return "request"

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for its turn, and for the reservations of others: always."""
        return True

    @cached_property
    def asked(self) -> AskedRequest:
        """The request as its bounds see it."""
        return usage.AskedRequest(
            self.meter.calculator, self.wrapped, self.messages, self.settings, self.parameters
        )

    @cached_property
    def priced(self) -> bool:
        """Whether a price is known."""
        return self.meter.calculator.has_price(self.model, self.provider, self.asked.host.url)

    @cached_property
    def bound(self) -> RequestBound:
        """The most that the request can use and cost."""
        return self.known_bound or self.asked.bound(
            besides=max(self.besides, self._out_of_sight), most_counted=self.most_counted
        )

    @property
    def is_in_sight(self) -> bool:
        """Whether the request can be seen before it leaves, or has no provider that it leaves for.

        The bound of a request that cannot be seen has a margin: the allowance for an unknown host.
        """
        if self.wrapped.provider is None:
            return True
        return is_in_sight(self.wrapped.provider) and self._given("openai_transport") != "websocket"

    @property
    def _out_of_sight(self) -> int:
        return 0 if self.is_in_sight else OTHER.request

    @property
    def input_parts(self) -> Sequence[InputPart]:
        """What the input consists of: what is asked, largest first, and what is added."""
        added = usage.InputPart(kind="added", tokens=self.besides, added_by="SDK", places=self.besides_in)
        if self._out_of_sight > self.besides:
            added = usage.InputPart(kind="added", tokens=self._out_of_sight, added_by="unseen client")
        return *self.asked.input_parts, added

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of everything in the request that the account does not understand."""
        return () if self.is_local else self.asked.unknown

    async def prepare_bound(self) -> None:
        """Do beforehand, in a thread, the work that would block the event loop in `bound`."""
        await load_tokenizer(self.asked.host)
        await self.asked.prepare()

    @property
    def conditions(self) -> Mapping[str, str]:
        """Conditions of the price that the request asks for, and that no response of PydanticAI states."""
        conditions = {}
        given: Mapping[str, object] = {**(self.wrapped.settings or {}), **(self.settings or {})}
        if self.provider == "anthropic":
            has_fast_mode = self.wrapped.profile.get("anthropic_supports_fast_speed")
            if has_fast_mode and given.get("anthropic_speed") == "fast":
                conditions["speed"] = "fast"
            if (region := asked_geography(given)) is not None:
                conditions["inference_geo"] = region
        elif self.provider == "bedrock":
            performance = given.get("bedrock_performance_configuration")
            if isinstance(performance, Mapping) and isinstance(latency := performance.get("latency"), str):
                conditions["latency"] = latency
        for tool in self.parameters.native_tools:
            if tool.kind == "advisor":
                conditions[ADVISOR_MODEL] = getattr(tool, "model", "")
        if (tier := asked_tier(self.provider, given)) is not None:
            conditions["asked_tier"] = tier
        if given.get("cache") or given.get("openai_prompt_cache_options"):
            prepared, _ = self.wrapped.prepare_request(self.settings, self.parameters)
            if caches_half_a_day(prepared or {}):
                conditions["cache_ttl"] = "12h"
        return conditions

    def _given(self, setting: str) -> object:
        return {**(self.wrapped.settings or {}), **(self.settings or {})}.get(setting)

    def counted_again(self) -> Self:
        """Return the terms with a lower bound, if usage reported meanwhile gives one; else these terms."""
        again = replace(self, known_bound=None)
        now, before = again.bound.input_tokens, self.bound.input_tokens
        return again if now is not None and (before is None or now < before) else self

    async def counted_by_provider(self) -> Self:
        """Return the terms with a lower bound by the provider's own count of the input; else these terms.

        It asks only where that is free, and once. A count that fails, or takes too long, changes nothing.
        """
        endpoint = self.asked.host.count_endpoint
        if endpoint is None or self.was_asked_to_count or self.parameters.native_tools:
            return self
        self.was_asked_to_count = True
        try:
            async with asyncio.timeout(COUNTED_WITHIN):
                counted = await self.wrapped.count_tokens(self.messages, self.settings, self.parameters)
        # Any SDK, PydanticAI, or the time limit may raise it. The bound holds without a count.
        except Exception as error:
            logger.info("%s:%s has not counted the input of a request: %s", self.provider, self.model, error)
            return self
        if not isinstance(counted.input_tokens, int) or counted.input_tokens <= 0:
            logger.info("%s:%s counted the input of a request: %r", self.provider, self.model, counted)
            return self
        most = self.asked.most_by_count(counted.input_tokens, self.input_parts)
        now = self.bound.input_tokens
        if most is None or (now is not None and now <= most):
            return self
        return replace(self, known_bound=None, most_counted=most)

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """Return the terms with the longest answer that `usd` and `tokens` pay for; `None` if there is none.

        An answer must be longer than the one that was cut before, if any was.
        """
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        if bound is self.bound:
            return self
        if bound is None or bound.output_tokens is None or bound.output_tokens <= (self.cut_at or 0):
            return None
        return self._bounded_by(bound)

    def shortened(self, output_tokens: int) -> Self:
        """Return the terms with an answer of at most `output_tokens`, if the provider accepts a limit."""
        return self._bounded_by(self.bound.shortened(output_tokens))

    def _bounded_by(self, bound: RequestBound) -> Self:
        if bound is self.bound:
            return self
        settings: ModelSettings = {**(self.settings or {}), "max_tokens": bound.output_tokens or 0}
        return replace(self, settings=settings, known_bound=bound)

    @property
    def is_asked_again(self) -> bool:
        """Whether the answer is asked for again, if it is cut because a budget could pay for no more.

        Streams are not, as their consumer has read the beginning; nor batches and background responses, which
        take their time.
        """
        return (
            self.kind == "answer"
            and not self.streamed
            and self.cut_at is None
            and not self._given("openai_background")
        )

    def longer_than(self, output_tokens: int) -> Self:
        """Return the terms for asking again for an answer that was cut at `output_tokens`."""
        return replace(self, cut_at=output_tokens)

    @property
    def is_flexible(self) -> bool:
        """Whether the length of its answer can be limited."""
        return self.kind != "compaction" and self.bound.least_output_tokens is not None

    @property
    def enough(self) -> int | None:
        """Tokens of an answer that are enough, if others need the rest; `None` if it needs all of it.

        The number comes from the agent's last answers. If none is known, it is small if the request sets no
        limit and an answer that is cut is asked for again, else `None`.
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
        """The usual figures of the agent's last requests to this model; `None` if there was none."""
        return self.meter.past_requests.usual(self._asked_model)

    @property
    def _asked_model(self) -> str:
        return f"{self.provider}:{self.model}"

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Self:
        """Return the terms with the longest answer that a share pays for, or with `enough` if that is more.

        If there is plenty for answers like those before, the rest is left to other requests.
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

    @property
    def expected_usd(self) -> Decimal | None:
        """The expected cost in US dollars; `None` if nothing tells it."""
        bound, usual = self.bound, self.usual
        if bound.cost_usd is None and not bound.lacks_only_searches:
            return None
        likely = self._usual_usd
        if usual is not None:
            if bound.prices is not None:
                likely = bound.prices.cost(bound.input_tokens, usual.output_tokens)
            if likely is not None:
                likely = EXACT.multiply(likely, EXACT.multiply(usual.share_of_usd, MARGIN))
        return min((usd for usd in (bound.cost_usd, likely) if usd is not None), default=None)

    @property
    def expected_tokens(self) -> int | None:
        """The expected number of tokens; `None` if nothing tells it."""
        bound, usual = self.bound, self.usual
        if bound.tokens is None and not bound.lacks_only_searches:
            return None
        likely = self._usual_input + self._usual_answer
        if usual is not None:
            if bound.prices is not None and bound.input_tokens is not None:
                likely = bound.input_tokens + usual.output_tokens
            likely = ceil(EXACT.multiply(EXACT.multiply(likely, usual.share_of_tokens), MARGIN))
        return likely if bound.tokens is None else min(bound.tokens, likely)

    @cached_property
    def _usual_usd(self) -> Decimal | None:
        """What a request like this one usually costs, at list prices; `None` if no price is known."""
        expected = RequestUsage(
            input_tokens=self._usual_input,
            output_tokens=self._usual_answer,
            web_searches=self._usual_searches,
        )
        return self.meter.calculator.cost_of_usage(
            expected, model=self.model, provider=self.provider, provider_url=self.asked.host.url
        ).cost_usd

    @cached_property
    def _usual_input(self) -> int:
        if self.most_counted is not None:
            return self.most_counted
        from fastroai.agent.quotes.input_tokens import input_tokens  # late: only budgets expect anything

        likely = input_tokens(self.asked.host, self.messages, self.parameters).likely
        return likely + self._usual_searches * TOKENS_OF_SEARCH.tokens

    @property
    def _usual_answer(self) -> int:
        most = self.bound.output_tokens
        return USUAL_ANSWER.tokens if most is None else min(most, USUAL_ANSWER.tokens)

    @property
    def _usual_searches(self) -> int:
        searches = any(isinstance(tool, WebSearchTool) for tool in self.parameters.native_tools)
        return USUAL_SEARCHES if searches else 0

    def learn(self, record: RequestRecord) -> None:
        """Remember the usage of the request, from which later requests are expected."""
        tokens, bound = record.tokens, self.bound
        self.asked.note_input(tokens.input_tokens)
        if record.cost_usd is None:
            return
        bound_tokens, bound_usd = self._usual_input + self._usual_answer, self._usual_usd
        if bound.prices is not None and bound.input_tokens is not None:
            bound_tokens = bound.input_tokens + tokens.output_tokens
            bound_usd = bound.prices.cost(bound.input_tokens, tokens.output_tokens)
        if bound_usd is None:
            return
        past = PastRequest(
            output_tokens=tokens.output_tokens * (LONGER if record.was_cut_short else 1),
            tokens=tokens.total_tokens,
            cost_usd=record.cost_usd,
            bound_tokens=bound_tokens,
            bound_usd=bound_usd,
        )
        self.meter.past_requests.add(self._asked_model, past)

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """Return the terms of the same request to the model of the fallback."""
        model = self.meter.fallback_model(fallback)
        return (
            self
            if model is self.wrapped
            else replace(self, wrapped=model, known_bound=None, besides=0, besides_in=())
        )

    def returned_tools(self, output_tools: Collection[str]) -> tuple[str, ...]:
        """Return the tools whose returns this request brings to the model."""
        names: dict[str, None] = {}
        for part in news_in(self.messages):
            if part.part_kind == "tool-return" and part.tool_name not in output_tools:
                names[part.tool_name] = None
        return tuple(names)


class BatchTerms(Terms):
    """A request that goes out in a batch with others, to one model."""

    kind: ClassVar[RequestKind] = "batch"

    @property
    def asked_for(self) -> str:
        """Text that tells the request from others with the same messages."""
        return "batch"

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """Return these terms: the batch that the request joins is for this model."""
        return self


@dataclass(kw_only=True)
class CompactionTerms(Terms):
    """A request to replace messages by a shorter form, which only this model can read."""

    context: ModelRequestContext
    instructions: str | None

    kind: ClassVar[RequestKind] = "compaction"

    @property
    def asked_for(self) -> str:
        """Text that tells the request from others with the same messages."""
        return f"compaction: {self.instructions or ''}"

    def send(self) -> Awaitable[ModelResponse]:
        """Send the request; await the result for the response."""
        context = replace(self.context, model_settings=self.sent_settings)
        return self.wrapped.compact_messages(context, instructions=self.instructions)

    @cached_property
    def bound(self) -> RequestBound:
        """The most that the request can use and cost."""
        honours_limit = self.provider == "anthropic"
        settings: ModelSettings = {**(self.settings or {})}
        if not honours_limit:
            settings["max_tokens"] = None  # type: ignore[typeddict-item]  # the endpoint takes none
        return usage.request_bound(
            self.meter.calculator,
            self.wrapped,
            self.messages,
            settings,
            self.parameters,
            added_input=self._prompt,
            besides=self.besides,
        )

    @property
    def input_parts(self) -> Sequence[InputPart]:
        """What the input consists of, and the prompt for the compaction."""
        return *super().input_parts, usage.InputPart(kind="added", tokens=self._prompt, added_by="provider")

    @property
    def _prompt(self) -> int:
        """The most tokens of the prompt for the compaction."""
        return COMPACTION_PROMPT.tokens + len((self.instructions or "").encode())

    def sending(self, body: object) -> Self:
        """Return the terms of the request as its decoded body shows it.

        The prompt for the compaction is in the body, and is counted by an allowance.
        """
        seen = super().sending(body)
        unseen = seen.besides - self._prompt
        return self if unseen <= self.besides else replace(seen, besides=unseen)

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """Return these terms if they can be paid for in full: the beginning of a compaction is of no use."""
        return self if self.bound.lowered(usd=usd, tokens=tokens) is self.bound else None

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """Return these terms: only this model can read the result."""
        return self


def news_in(messages: Sequence[ModelMessage]) -> Sequence[ModelRequestPart]:
    """Return the parts that the model has not been told before."""
    last = messages[-1] if messages else None
    return last.parts if last is not None and last.kind == "request" else ()


def rejects_answer(messages: Sequence[ModelMessage]) -> bool:
    """Return whether the model is only told to make its answer, or each of its calls, again."""
    returned = told_again = False
    for part in news_in(messages):
        if part.part_kind == "tool-return":
            if part.outcome != "retried":
                return False
            returned = True
        elif part.part_kind == "retry-feedback":
            told_again = True
    return returned or told_again
