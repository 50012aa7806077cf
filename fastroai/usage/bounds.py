"""The most that one request can use and cost, told before it is sent.

A bound must hold, so what is not known to be harmless has none. It stands on this:

- A token is at least one byte of text; for OpenAI's models, it is counted by their own encodings
  (`tokenizers`). Around texts, providers add tokens of their own (`allowances`, `definitions`, `images`).
- `max_tokens` limits everything that is billed as output, thinking included (`output_bounds`).
- No request is larger than the model's context window, for providers refuse it.
- Of all prices that can apply to a token, the highest is taken (`upper_prices`): of all service tiers,
  unless the request names a standard one; for cache writes, if the request can make any.

It does not hold for a model that is answered by a more expensive one under the same name, nor for a
provider or gateway that bills more than the prices that are known here, or other than it documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from pydantic_ai.messages import CachePoint, ModelRequest, UserPromptPart
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import WebSearchTool

from fastroai.usage.endpoints import base_url_of, is_first_party
from fastroai.usage.input_bounds import InputRules, most_input_tokens
from fastroai.usage.list_prices import is_local
from fastroai.usage.output_bounds import output_limit
from fastroai.usage.settings import HARMLESS_SETTINGS, SERVER_SIDE_INPUT_SETTINGS
from fastroai.usage.tokenizers import (
    Count,
    Tokenizer,
    bytes_of,
    encoding_of,
    in_tokenizer_thread,
    is_loaded,
    tokenizer_of,
)
from fastroai.usage.upper_prices import PriceConditions, UpperPrices

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from fastroai.usage.pricing import CostCalculator

__all__ = ["RequestBound", "base_url_of", "prepare_bound", "request_bound"]

_SEARCH_ROUNDS: Final = 10
"""How often, at most, Anthropic asks the model in one request with tools of its own. Each time it may read a
full context window: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons#pause-turn
"""
_STANDARD_TIERS: Final = frozenset({"default", "flex"})
"""Service tiers that are never billed as a faster one. Without any, OpenAI takes that of the project:
https://developers.openai.com/api/docs/api-reference/responses/create#service_tier
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBound:
    """What one request can use and cost at most; `None` where nothing bounds it."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    """In US dollars."""
    prices: UpperPrices | None = None
    """What a token costs at most; `None` if that is not known."""
    least_output_tokens: int | None = None
    """The smallest `max_tokens` that the provider accepts for it; `None` where it cannot be lowered."""

    @property
    def tokens(self) -> int | None:
        """Input and output together; `None` if one of them is not known."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> RequestBound | None:
        """The same request with the longest answer that costs at most `usd`, and is in all at most `tokens`.

        `None` limits nothing. The `output_tokens` of the answer are the `max_tokens` to send; it is this
        bound itself where that fits, and nothing needs to be sent. `None` if there is none: the input alone
        is too much, the answer would be shorter than the provider accepts, or it cannot be limited.
        """
        if (usd is None or (self.cost_usd is not None and self.cost_usd <= usd)) and (
            tokens is None or (self.tokens is not None and self.tokens <= tokens)
        ):
            return self
        if self.least_output_tokens is None:
            return None
        limits = [self.output_tokens]
        if tokens is not None:
            limits.append(0 if self.input_tokens is None else tokens - self.input_tokens)
        if usd is not None:
            limits.append(_affordable(self.prices, self.input_tokens, usd))
        output = min((limit for limit in limits if limit is not None), default=0)
        if output < self.least_output_tokens:
            return None
        cost = self.prices.cost(self.input_tokens, output) if self.prices is not None else None
        return replace(self, output_tokens=output, cost_usd=cost)


def _affordable(prices: UpperPrices | None, input_tokens: int | None, usd: Decimal) -> int | None:
    """The most output that so much pays for, besides the input; `None` if output is free."""
    with localcontext(prec=100):  # exact: a difference of amounts can have more than 28 digits
        rest = None if prices is None else prices.cost(input_tokens, 0)
        if prices is None or rest is None or rest > usd:
            return 0
        return int((usd - rest) * 1_000_000 // prices.output_per_mtok) if prices.output_per_mtok else None


def request_bound(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> RequestBound:
    """The most that a request can use and cost. Takes what `Model.request` takes, of a model of one provider.

    Most native tools are billed in ways that tokens do not bound, and so may be what `extra_body`, beta
    headers and unusual settings ask for: no bound. Where the input is not only text and images that are in
    the body, the model's context window bounds it, if that is known. `prepare_bound` makes it tight.
    """
    model = _leaf(model)
    name, provider, url = model.model_name, model.system, base_url_of(model)
    if is_local(name, provider) and calculator.upper_prices(name, provider) == UpperPrices():
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=Decimal(0))
    prepared, parameters = model.prepare_request(settings, parameters)
    given = {setting: value for setting, value in (prepared or {}).items() if value is not None}
    if not _only_tokens_are_billed(given):
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=None)
    if parameters.native_tools:
        return _bound_of_searches(calculator, model, given, parameters)
    rules = InputRules.of(provider, url, name, _count_of(model))
    window = model.context_window
    input_tokens = _least(most_input_tokens(rules, messages, given, parameters), window)
    limit = output_limit(model, given, parameters)
    conditions = _price_conditions(provider, url, messages, given)
    prices = calculator.upper_prices(name, provider, url, input_tokens, conditions)
    return RequestBound(
        input_tokens=input_tokens,
        output_tokens=limit.tokens,
        cost_usd=prices.cost(input_tokens, limit.tokens) if prices is not None else None,
        prices=prices,
        least_output_tokens=limit.floor,
    )


async def prepare_bound(
    model: Model, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> None:
    """Do beforehand, in a thread, what would hold up the event loop in `request_bound`.

    Loads the tokenizer of the model, and tokenizes long texts. Without it the bound holds as well, but texts
    count as bytes: all of them before the tokenizer is loaded, then the long ones that it has not seen.
    """
    model = _leaf(model)
    if not _has_tokenizer(model):
        return
    name = model.model_name
    tokenizer = (
        tokenizer_of(name) if is_loaded(name) else await in_tokenizer_thread(partial(tokenizer_of, name))
    )
    if tokenizer is None:
        return
    texts: list[str] = []

    def collect(text: str) -> int:
        texts.append(text)
        return 0

    rules = InputRules.of(model.system, base_url_of(model), name, collect)
    most_input_tokens(rules, messages, {}, parameters)
    if tokenizer.is_long(texts):
        await in_tokenizer_thread(partial(tokenizer.prepare, texts))


def _leaf(model: Model) -> Model:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _has_tokenizer(model: Model) -> bool:
    """Whether it is one of OpenAI's models, asked through OpenAI or Azure, with a known encoding."""
    return (
        model.system in ("azure", "openai")
        and is_first_party(model.system, base_url_of(model))
        and encoding_of(model.model_name) is not None
    )


def _count_of(model: Model) -> Count:
    """How to count: loading a tokenizer takes a second, which `prepare_bound` waits for in a thread."""
    name = model.model_name
    tokenizer: Tokenizer | None = tokenizer_of(name) if _has_tokenizer(model) and is_loaded(name) else None
    return bytes_of if tokenizer is None else tokenizer.count


def _only_tokens_are_billed(settings: Mapping[str, object]) -> bool:
    headers = settings.get("extra_headers", {})
    beta = isinstance(headers, Mapping) and any("beta" in str(header).lower() for header in headers)
    return not beta and settings.keys() <= HARMLESS_SETTINGS | SERVER_SIDE_INPUT_SETTINGS


def _bound_of_searches(
    calculator: CostCalculator,
    model: Model,
    settings: Mapping[str, object],
    parameters: ModelRequestParameters,
) -> RequestBound:
    """Of a request with native tools: there is one for Anthropic's web search with `max_uses`, no other."""
    unbounded = RequestBound(input_tokens=None, output_tokens=None, cost_usd=None)
    provider, url, window = model.system, base_url_of(model), model.context_window
    if provider != "anthropic" or window is None or not is_first_party(provider, url):
        return unbounded
    searches = 0
    for tool in parameters.native_tools:
        if not isinstance(tool, WebSearchTool) or tool.max_uses is None:
            return unbounded
        searches += tool.max_uses
    output = output_limit(model, settings, parameters).tokens
    input_tokens = _SEARCH_ROUNDS * window
    output_tokens = None if output is None else _SEARCH_ROUNDS * output
    prices = calculator.upper_prices(model.model_name, provider, url, input_tokens)
    if prices is None or prices.per_web_search is None:
        return replace(unbounded, input_tokens=input_tokens, output_tokens=output_tokens)
    tokens_usd = prices.cost(input_tokens, output_tokens)
    cost = None if tokens_usd is None else tokens_usd + searches * prices.per_web_search
    return RequestBound(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost)


def _price_conditions(
    provider: str, url: str | None, messages: Sequence[ModelMessage], settings: Mapping[str, object]
) -> PriceConditions:
    """What the request rules out of the prices of its model, at the provider's own address."""
    if not is_first_party(provider, url):
        return PriceConditions()
    if provider == "anthropic":
        # Nothing is written to the cache unasked, and for 5 minutes where an hour is not asked for.
        # https://platform.claude.com/docs/en/build-with-claude/prompt-caching
        cached = list(_cached_for(messages, settings))
        write: Literal["no", "5m", "1h"] = "1h" if "1h" in cached else "5m" if cached else "no"
        return PriceConditions(fast=settings.get("anthropic_speed") == "fast", cache_write=write)
    tier = settings.get("openai_service_tier") or settings.get("service_tier")
    if provider == "openai" and tier in _STANDARD_TIERS:
        return PriceConditions(service_tiers=_STANDARD_TIERS)
    return PriceConditions()


def _cached_for(
    messages: Sequence[ModelMessage], settings: Mapping[str, object]
) -> Iterator[Literal["5m", "1h"]]:
    """For how long each thing is cached that a request to Anthropic asks to cache.

    PydanticAI has translated its own `cache` setting into these.
    """
    for setting, value in settings.items():
        if setting.startswith("anthropic_cache") and setting != "anthropic_cache_diagnostics" and value:
            yield "1h" if value == "1h" else "5m"
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
                    yield from (item.ttl for item in part.content if isinstance(item, CachePoint))


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
