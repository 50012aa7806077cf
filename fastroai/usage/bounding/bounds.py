"""An upper bound on the tokens and the cost of one request, computed before the request is sent.

A bound must hold, so a request with a part that is not known to be harmless has none. The rules:

- A token is at least one byte of text; for OpenAI's models, it is counted by their own encodings
  (`tokenizers`). Around texts, providers add tokens of their own (`allowances`, `definitions`, `images`).
- `max_tokens` limits everything that is billed as output, thinking included (`output_bounds`).
- No request is larger than the model's context window, for providers refuse it.
- The price of a token is the highest that can apply to it (`upper_prices`): of all service tiers, unless
  the request names a standard one; with the price of cache writes, if the request can make any.

A bound does not hold for a model that is answered by a more expensive one under the same name, nor for
a provider or gateway that charges more than the known prices, or bills in an undocumented way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from pydantic_ai.messages import BinaryContent, CachePoint, FileUrl
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import WebSearchTool

from fastroai.pydantic_ai_private import sent_instructions
from fastroai.records import EXACT
from fastroai.usage.bounding.input_bounds import InputBound, InputRules, hears, most_input
from fastroai.usage.bounding.input_parts import InputPart, input_parts
from fastroai.usage.bounding.known_inputs import KNOWN_INPUTS, separated
from fastroai.usage.bounding.output_bounds import output_limit, thinks_besides
from fastroai.usage.bounding.pdf_sizes import PDF_SIZES
from fastroai.usage.bounding.pieces import Piece, pieces
from fastroai.usage.bounding.request_bounds import RequestBound
from fastroai.usage.bounding.sent_input import NOTHING_UNSEEN, Unseen, unseen_input
from fastroai.usage.bounding.tokenizers import (
    Count,
    Tokenizer,
    bytes_of,
    encoding_of,
    in_bounding_thread,
    is_loaded,
    tokenizer_of,
)
from fastroai.usage.facts.allowances import OTHER
from fastroai.usage.facts.provider import service_tiers
from fastroai.usage.facts.regions import asked_geography
from fastroai.usage.facts.settings import (
    HARMLESS_IN_BODY,
    HARMLESS_SETTINGS,
    HARMLESS_VALUES,
    SERVER_SIDE_INPUT_SETTINGS,
)
from fastroai.usage.prices.asked_prices import asked_tier, caches_half_a_day
from fastroai.usage.prices.flat_prices import FlatPrices
from fastroai.usage.prices.hosts import base_url_of
from fastroai.usage.prices.list_prices import is_local
from fastroai.usage.prices.tested_version import refusal, untested_version
from fastroai.usage.prices.upper_prices import PriceConditions

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from fastroai.usage.prices.hosts import Host
    from fastroai.usage.prices.pricing import CostCalculator

__all__ = [
    "base_url_of",
    "input_besides",
    "most_by_count",
    "note_input",
    "parts_of_input",
    "prepare_bound",
    "request_bound",
]


def request_bound(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    *,
    added_input: int = 0,
    besides: int = 0,
    most_counted: int | None = None,
) -> RequestBound:
    """Return the bound of a request to a model of one provider. Takes the arguments of `Model.request`.

    `added_input` is the most tokens that are sent or added to the input besides these arguments, and makes it
    another request. `besides` is the most tokens that the model adds to the same request. `most_counted` is
    the most input tokens by the provider's own count (`most_by_count`).

    Most native tools, `extra_body`, beta headers and unusual settings have no bound: their bill can exceed
    any count of tokens. If the input has more than text and images in the body, the model's context window
    bounds it, if that is known. `prepare_bound` makes the bound tight.
    """
    model = _leaf(model)
    host = calculator.host(model)
    name, provider, url = model.model_name, host.provider, host.url
    if is_local(name, provider) and calculator.upper_prices(name, provider) == FlatPrices():
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=Decimal(0))
    if (refused := refusal()) is not None:
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=None, why=refused)
    asked_settings, asked_parameters = settings, parameters
    given, parameters = _as_sent(model, messages, settings, parameters)
    more = _more_than_tokens(provider, given)
    if more is not None:
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=None, why=more)
    rules, window = InputRules.of(host, _count_of(host), PDF_SIZES.size, given), host.window
    counted = most_input(rules, messages, given, parameters)
    conditions = _price_conditions(host, messages, given)
    if parameters.native_tools:
        asked = replace(conditions, cache_write="1h" if conditions.cache_write == "1h" else "5m")
        return _bound_of_searches(
            calculator, host, model, given, parameters, _least(_sum(counted.tokens, besides), window), asked
        )
    known = KNOWN_INPUTS.longest(host, model, messages, asked_settings, asked_parameters)
    if known is not None and not added_input:
        continued = most_input(rules, separated(messages), given, parameters, known)
        if counted.tokens is None or (continued.tokens or counted.tokens) < counted.tokens:
            counted = continued
    if most_counted is not None and (counted.tokens is None or most_counted < counted.tokens):
        counted = InputBound(most_counted)
    most = counted.tokens
    input_tokens = _least(_sum(most, added_input + besides), window)
    limit = output_limit(host, model, given, parameters)
    prices = calculator.upper_prices(name, provider, url, input_tokens, conditions)
    cost = prices.cost(input_tokens, limit.tokens) if prices is not None else None
    return RequestBound(
        input_tokens=input_tokens,
        output_tokens=limit.tokens,
        cost_usd=cost,
        prices=prices,
        least_output_tokens=limit.floor,
        most_output_tokens=host.longest_answer_by_name,
        why=_why(host, model, given, parameters, counted, limit.tokens, prices),
    )


def _as_sent(
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> tuple[dict[str, object], ModelRequestParameters]:
    """Return the settings and parameters that PydanticAI makes of those of a request before it sends it."""
    prepared, parameters = model.prepare_request(settings, parameters)
    if (instructions := sent_instructions(model, messages, parameters)) is not None:
        parameters = replace(parameters, instruction_parts=instructions)
    return {name: value for name, value in (prepared or {}).items() if value is not None}, parameters


def input_besides(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    body: object,
) -> Unseen:
    """Return the input in the decoded body of a request that `request_bound` has not counted.

    If the context window bounds the request, all that fits into it is counted.
    """
    model = _leaf(model)
    host = calculator.host(model)
    given, parameters = _as_sent(model, messages, settings, parameters)
    texts, rendered = _Collected(), _Collected()
    rules = replace(InputRules.of(host, texts.add, PDF_SIZES.size, given), render=rendered.add)
    if most_input(rules, messages, given, parameters).tokens is None:
        return NOTHING_UNSEEN
    sizes: list[int | None] = []
    for piece in pieces(messages):
        if isinstance(piece.item, BinaryContent):
            sizes.append(len(piece.item.data))
        elif isinstance(piece.item, FileUrl):
            sizes.append(None)
            texts.append(piece.item.url)
    return unseen_input(body, texts, rendered, sizes, _count_of(host), rules.allowances.message)


class _Collected(list[str]):
    """Texts that were to be counted."""

    def add(self, text: str) -> int:
        """Collect a text in place of counting it."""
        self.append(text)
        return 0


def parts_of_input(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> tuple[InputPart, ...]:
    """Return what the input of a request consists of: what is asked, largest first, and what is added.

    Takes the arguments of a request.
    """
    model = _leaf(model)
    host = calculator.host(model)
    given, parameters = _as_sent(model, messages, settings, parameters)
    rules = InputRules.of(host, _count_of(host), PDF_SIZES.size, given)
    parts = input_parts(rules, messages, parameters)
    return *parts, *_additions(host), *_searches(parameters)


def _additions(host: Host) -> Iterator[InputPart]:
    """Yield the most that may be added to each request, apart by who adds it."""
    most = host.allowances.request
    if untested_version() is not None:
        yield InputPart(kind="added", tokens=OTHER.request, added_by="untested version")
        most -= OTHER.request
    is_known = host.rules is not None or host.allowance is not None
    yield InputPart(kind="added", tokens=most, added_by="provider" if is_known else "host")


def _searches(parameters: ModelRequestParameters) -> Iterator[InputPart]:
    if parameters.native_tools:
        yield InputPart(kind="searches", tokens=None)


def most_by_count(
    calculator: CostCalculator, model: Model, counted: int, parts: Sequence[InputPart]
) -> int | None:
    """Return the most input tokens of a request whose input the provider has counted, with a margin.

    The count is an estimate by some providers' own words, so a margin is added (`CountEndpoint.margin`), and
    the bounds of those parts that the endpoint does not count. `None` if such a part has no bound, or if the
    host has no endpoint whose counts are documented.
    """
    host = calculator.host(_leaf(model))
    endpoint = host.count_endpoint
    if endpoint is None:
        return None
    most = ceil(EXACT.multiply(counted, endpoint.margin)) + host.allowances.request
    for part in parts:
        if part.kind in endpoint.leaves_out:
            if part.tokens is None:
                return None
            most += part.tokens
    return most


def note_input(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    input_tokens: int,
) -> None:
    """Remember the input tokens that a provider reported: they bound later requests that begin alike.

    The other arguments are those of `request_bound`.
    """
    model = _leaf(model)
    KNOWN_INPUTS.note(calculator.host(model), model, messages, settings, parameters, input_tokens)


def _why(
    host: Host,
    model: Model,
    settings: Mapping[str, object],
    parameters: ModelRequestParameters,
    counted: InputBound,
    output_tokens: int | None,
    prices: FlatPrices | None,
) -> str | None:
    """Return why a bound is large, or missing, and how to lower it; `None` if it is neither."""
    reasons = []
    if prices is None and (tier := asked_tier(host.provider, settings)) is not None:
        reasons.append(
            f"no price is known for service tier {tier!r}: add it to service_tiers in pricing_overrides, "
            "or ask for another tier"
        )
    elif prices is None:
        reasons.append("more than tokens is billed, or no price is known, perhaps of a region")
    if counted.why is not None:
        size = "which is not known" if host.window is None else f"of {host.window:,} tokens"
        reasons.append(f"{counted.why}, so its input counts as a whole context window, {size}")
    if thinks_besides(model, settings, parameters):
        limit = "without a limit" if output_tokens is None else f"up to {output_tokens:,} tokens"
        reasons.append(
            f"{model.model_name} thinks beyond max_tokens, {limit}: set thinking=False if it can be told so"
        )
    elif output_tokens is None:
        reasons.append("nothing limits the answer: set max_tokens")
    return "; ".join(reasons) or None


async def prepare_bound(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters,
) -> None:
    """Do in a thread, beforehand, the work that would block the event loop in `request_bound`.

    Loads the tokenizer of the model, tokenizes long texts, and reads PDFs. Without this call, bounds hold as
    well, but are larger: texts count as bytes (all of them before the tokenizer is loaded, then the long ones
    that it has not seen), and a PDF counts as the largest that the provider takes.
    """
    host = calculator.host(_leaf(model))
    if host.facts is not None and host.facts.pdf is not None:
        for piece in pieces(messages):
            if isinstance(piece.item, BinaryContent) and piece.item.media_type == "application/pdf":
                await _read(piece.item.data)
    tokenizer = await _tokenizer_of(host)
    if tokenizer is None:
        return
    texts = _Collected()
    most_input(InputRules.of(host, texts.add, PDF_SIZES.size), messages, {}, parameters)
    if tokenizer.is_long(texts):
        await in_bounding_thread(partial(tokenizer.prepare, texts))


async def _read(pdf: bytes) -> None:
    if not PDF_SIZES.is_read(pdf):
        await in_bounding_thread(partial(PDF_SIZES.prepare, pdf))


async def _tokenizer_of(host: Host) -> Tokenizer | None:
    name = host.encoded_model
    if name is None or encoding_of(name) is None:
        return None
    return tokenizer_of(name) if is_loaded(name) else await in_bounding_thread(partial(tokenizer_of, name))


def _leaf(model: Model) -> Model:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _count_of(host: Host) -> Count:
    """Return the tokenizer's `count` if it is loaded (`prepare_bound` does that), else `bytes_of`."""
    name = host.encoded_model
    tokenizer: Tokenizer | None = tokenizer_of(name) if name is not None and is_loaded(name) else None
    return bytes_of if tokenizer is None else tokenizer.count


def _more_than_tokens(provider: str, settings: Mapping[str, object]) -> str | None:
    """Name the settings that may cost more than the tokens of request and answer; `None` if none does."""
    headers, body = settings.get("extra_headers"), settings.get("extra_body")
    unknown = [
        f"{name}={value!r}" if name in HARMLESS_VALUES else name
        for name, value in settings.items()
        if name not in HARMLESS_SETTINGS | SERVER_SIDE_INPUT_SETTINGS
        and (name not in HARMLESS_VALUES or value not in HARMLESS_VALUES[name].names)
    ]
    if isinstance(headers, Mapping):
        unknown += [f"extra_headers[{name!r}]" for name in headers if "beta" in str(name).lower()]
    if isinstance(body, Mapping):
        unknown.remove("extra_body")
        harmless = HARMLESS_IN_BODY.get(provider)
        unknown += [f"extra_body[{key!r}]" for key in body if harmless is None or key not in harmless.names]
    if not unknown:
        return None
    names = ", ".join(unknown)
    return f"{names} may ask for more than the tokens of the request and its answer: leave it out"


def _bound_of_searches(
    calculator: CostCalculator,
    host: Host,
    model: Model,
    settings: Mapping[str, object],
    parameters: ModelRequestParameters,
    input_tokens: int | None,
    conditions: PriceConditions,
) -> RequestBound:
    """Return the bound of a request with native tools: only Anthropic's web search with `max_uses` has it."""
    window, rounds = host.window, None if host.rules is None else host.rules.search_rounds
    searches = _most_searches(parameters) if rounds is not None else None
    if rounds is None or window is None or searches is None:
        tools = ", ".join(tool.kind for tool in parameters.native_tools)
        return RequestBound(
            input_tokens=None,
            output_tokens=None,
            cost_usd=None,
            lacks_only_searches=all(isinstance(tool, WebSearchTool) for tool in parameters.native_tools),
            why=_UNBOUNDED_TOOLS % tools,
        )
    # In the first round the model reads the request, and in later rounds the search results as well. Prices
    # for large inputs depend on the input of one round.
    output = output_limit(host, model, settings, parameters).tokens
    prices = calculator.upper_prices(model.model_name, host.provider, host.url, window, conditions)
    total = (input_tokens or window) + (rounds - 1) * window
    output_tokens = None if output is None else rounds * output
    cost = None if prices is None else prices.cost(total, output_tokens)
    if cost is not None and prices is not None:
        cost = None if prices.per_web_search is None else cost + searches * prices.per_web_search
    return RequestBound(
        input_tokens=total,
        output_tokens=output_tokens,
        cost_usd=cost,
        why=f"with web search, the model may be asked {rounds} times in one request, and may read a whole "
        f"context window of {window:,} tokens each time",
    )


_UNBOUNDED_TOOLS: Final = (
    "tools of the provider (%s) are billed by how often it uses them, which nothing limits, but for "
    "WebSearchTool(max_uses=...) at Anthropic: search with a tool of your own, or, for web searches, reserve "
    'what requests are expected to use, with admission="expected" of the budget'
)


def _most_searches(parameters: ModelRequestParameters) -> int | None:
    """Return the most searches that a request allows; `None` if it has other tools, or no limit."""
    searches = 0
    for tool in parameters.native_tools:
        if not isinstance(tool, WebSearchTool) or tool.max_uses is None:
            return None
        searches += tool.max_uses
    return searches


def _price_conditions(
    host: Host, messages: Sequence[ModelMessage], settings: Mapping[str, object]
) -> PriceConditions:
    """Return the conditions with which the request and the owner of the host rule out prices of the model."""
    given = list(pieces(messages))
    audio, tiers = hears(given, settings), _possible_tiers(host, settings)
    if host.rules is None or host.rules.cache_writes is None:
        return PriceConditions(
            service_tiers=tiers,
            asked_tier=asked_tier(host.provider, settings),
            cache_write="12h" if caches_half_a_day(settings) else "1h",
            audio=audio,
        )
    cached = set(_cached_for(given, settings))
    write: Literal["no", "5m", "1h"] = "no" if not cached else "5m" if cached == {"5m"} else "1h"
    fast = settings.get("anthropic_speed") == "fast"
    return PriceConditions(
        service_tiers=tiers,
        fast=fast,
        cache_write=write,
        audio=audio,
        inference_geo=asked_geography(settings),
    )


def _possible_tiers(host: Host, settings: Mapping[str, object]) -> frozenset[str] | None:
    """Return the service tiers that a request can be billed at; `None` if it can be any."""
    asked = settings.get("openai_service_tier") or settings.get("service_tier")
    tier = host.service_tier if asked in (None, "auto") else asked
    tiers = None if host.rules is None else host.rules.service_tiers
    if tiers is not None and tiers.are_kept and tier in tiers.standard:
        return tiers.standard
    # The owner of a host states the tier of requests that name none. How others are billed, nobody states.
    owned = host.service_tier
    is_standard = any(owned in one.standard for one in service_tiers())
    return frozenset({owned}) if owned is not None and is_standard and tier == owned else None


def _cached_for(given: Iterable[Piece], settings: Mapping[str, object]) -> Iterator[str]:
    """Yield the cache lifetime of each part that a request to Anthropic asks to cache, or may ask to cache.

    PydanticAI has already translated its own `cache` setting into Anthropic's settings.
    """
    for setting, value in settings.items():
        if setting.startswith("anthropic_cache") and setting != "anthropic_cache_diagnostics" and value:
            yield "1h" if value == "1h" else "5m"
    for piece in given:
        if isinstance(piece.item, CachePoint):
            yield piece.item.ttl
        elif piece.kind == "unknown":
            yield "unknown"


def _sum(tokens: int | None, more: int) -> int | None:
    return None if tokens is None else tokens + more


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
