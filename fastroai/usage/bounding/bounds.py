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
from functools import cached_property, partial
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_ai.messages import BinaryContent, CachePoint, FileUrl
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import WebSearchTool

from fastroai.pydantic_ai_private import sent_instructions
from fastroai.records import EXACT
from fastroai.usage.bounding.input_bounds import InputBound, InputRules, hears, most_input, unknown_input
from fastroai.usage.bounding.input_parts import InputPart, input_parts
from fastroai.usage.bounding.known_inputs import KNOWN_INPUTS, beginnings, separated
from fastroai.usage.bounding.output_bounds import output_limit, thinks_besides
from fastroai.usage.bounding.pdf_sizes import PDF_SIZES
from fastroai.usage.bounding.pieces import Piece, pieces
from fastroai.usage.bounding.request_bounds import RequestBound
from fastroai.usage.bounding.sent_input import NOTHING_UNSEEN, Unseen, unseen_input
from fastroai.usage.bounding.tokenizers import (
    Count,
    bytes_of,
    in_bounding_thread,
    load_tokenizer,
    loaded_tokenizer,
)
from fastroai.usage.facts.allowances import OTHER
from fastroai.usage.facts.documented import service_tiers
from fastroai.usage.facts.regions import asked_geography
from fastroai.usage.facts.settings import (
    HARMLESS_IN_BODY,
    HARMLESS_SETTINGS,
    HARMLESS_VALUES,
    SERVER_SIDE_INPUT_SETTINGS,
)
from fastroai.usage.prices.asked_prices import asked_tier, caches_half_a_day
from fastroai.usage.prices.flat_prices import FlatPrices, PriceConditions
from fastroai.usage.prices.hosts import base_url_of
from fastroai.usage.prices.list_prices import is_local
from fastroai.usage.prices.tested_version import refusal, untested_version

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from fastroai.usage.bounding.known_inputs import KnownBeginning
    from fastroai.usage.prices.hosts import Host
    from fastroai.usage.prices.pricing import CostCalculator

__all__ = ["AskedRequest", "base_url_of", "prepare_bound", "request_bound"]


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
    """Return the most tokens and US dollars that a request to a model can use, before it is sent.

    Nothing is sent. `calculator` has the prices; the other arguments are those of `Model.request`. The model
    must be of one provider; models that wrap another one are unwrapped.

    `added_input` is for a later request, whose input has at most so many tokens more than these arguments.
    `besides` is the most input tokens that the model itself adds to this request. `most_counted` is the most
    input tokens by the provider's own count (`AskedRequest.most_by_count`).

    Most native tools, `extra_body`, beta headers and unusual settings have no bound: their bill can exceed
    any count of tokens. Then the amounts are `None`, and `why` of the result says it. Text is counted, and so
    is an image or a PDF if the provider documents how many tokens it is. With any other input, the context
    window of the model is the bound, if that is known. Without a known price, only `cost_usd` is `None`.
    `TestModel` and `FunctionModel` cost 0. If you call `prepare_bound` before, the bound can be lower.
    """
    asked = AskedRequest(calculator, model, messages, settings, parameters)
    return asked.bound(added_input=added_input, besides=besides, most_counted=most_counted)


async def prepare_bound(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters,
) -> None:
    """Do the slow work for `request_bound` in a thread, so that bounds are lower and the loop is not blocked.

    It returns nothing: this process remembers what was counted. For models of OpenAI, it loads the tokenizer
    (`bpe-openai`, the extra `tokenizers`), if that is installed, and tokenizes long texts; for other models,
    texts always count as one token for each byte. It reads PDFs if `pypdf` is installed (the extra `pdf`).
    Nothing is sent or downloaded.

    Without this call, bounds hold as well, but are larger: texts count as bytes (all of them before the
    tokenizer is loaded, then the long ones that it has not seen), and a PDF counts as the largest that the
    provider takes.
    """
    await AskedRequest(calculator, model, messages, None, parameters).prepare()


class AskedRequest:
    """A request to a model of one provider, and what its bounds are made of: each is found once, when read.

    Takes the arguments of `Model.request`, which must not change as long as it is used.
    """

    def __init__(
        self,
        calculator: CostCalculator,
        model: Model,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> None:
        self.calculator, self.model = calculator, _leaf(model)
        self.messages, self.settings, self.parameters = messages, settings, parameters

    @cached_property
    def host(self) -> Host:
        """The host that serves the model."""
        return self.calculator.host(self.model)

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """The pieces of its messages."""
        return tuple(pieces(self.messages))

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Names of the parts of the request that this version of FastroAI does not know, each once."""
        return unknown_input(self.pieces, self.parameters)

    @cached_property
    def _sent(self) -> tuple[dict[str, object], ModelRequestParameters]:
        """The settings and parameters that PydanticAI makes of its own before it sends it."""
        prepared, parameters = self.model.prepare_request(self.settings, self.parameters)
        if (instructions := sent_instructions(self.model, self.messages, parameters)) is not None:
            parameters = replace(parameters, instruction_parts=instructions)
        return {name: value for name, value in (prepared or {}).items() if value is not None}, parameters

    @property
    def _rules(self) -> InputRules:
        """The rules that count its input: by the tokenizer if `prepare` has loaded it, else by bytes."""
        return InputRules.of(self.host, _count_of(self.host), self._sent[0])

    @cached_property
    def _beginnings(self) -> Sequence[bytes]:
        return tuple(beginnings(self.host, self.model, self.messages, self.settings, self.parameters))

    @cached_property
    def _counted(self) -> _Counted:
        """What is counted of its input."""
        texts, rendered = _Collected(), _Collected()
        rules = InputRules.of(self.host, texts.add, self._sent[0])
        most = self._most_input(replace(rules, render=rendered.add))
        return _Counted(texts, rendered, is_all=most.tokens is not None)

    def _most_input(self, rules: InputRules, known: KnownBeginning | None = None) -> InputBound:
        """Return the bound of its input; after the beginning that is `known`, only the rest is counted."""
        given, parameters = self._sent
        messages = self.messages if known is None else separated(self.messages)
        return most_input(rules, messages, given, parameters, known, unknown=self._unknown_as_sent)

    @cached_property
    def _unknown_as_sent(self) -> tuple[str, ...]:
        return unknown_input(self.pieces, self._sent[1])

    async def prepare(self) -> None:
        """Do in a thread the work that would block the event loop in `bound`, as `prepare_bound` says."""
        if self.host.facts is not None and self.host.facts.pdf is not None:
            for piece in self.pieces:
                if isinstance(piece.item, BinaryContent) and piece.item.media_type == "application/pdf":
                    await _read(piece.item.data)
        if self.host.encoded_model is not None:
            await load_tokenizer(self.host.encoded_model)
        tokenizer = loaded_tokenizer(self.host.encoded_model)
        if tokenizer is not None and tokenizer.is_long(self._counted.texts):
            await in_bounding_thread(partial(tokenizer.prepare, self._counted.texts))

    def bound(
        self, *, added_input: int = 0, besides: int = 0, most_counted: int | None = None
    ) -> RequestBound:
        """Return the most that the request can use and cost, as `request_bound` says."""
        host = self.host
        name, provider = self.model.model_name, host.provider
        if is_local(name, provider) and self.calculator.upper_prices(name, provider) == FlatPrices():
            return RequestBound(input_tokens=None, output_tokens=None, cost_usd=Decimal(0))
        refused = refusal() or _more_than_tokens(provider, self._sent[0])
        if refused is not None:
            return RequestBound(input_tokens=None, output_tokens=None, cost_usd=None, why=refused)
        given, parameters = self._sent
        rules = self._rules
        counted = self._most_input(rules)
        if parameters.native_tools:
            return self._bound_of_searches(_least(_sum(counted.tokens, besides), host.window))
        known = KNOWN_INPUTS.longest(self._beginnings) if KNOWN_INPUTS else None
        if known is not None and not added_input:
            continued = self._most_input(rules, known)
            if counted.tokens is None or (continued.tokens or counted.tokens) < counted.tokens:
                counted = continued
        if most_counted is not None and (counted.tokens is None or most_counted < counted.tokens):
            counted = InputBound(most_counted)
        input_tokens = _least(_sum(counted.tokens, added_input + besides), host.window)
        limit = output_limit(host, self.model, given, parameters)
        prices = self.calculator.upper_prices(name, provider, host.url, input_tokens, self._conditions)
        cost = prices.cost(input_tokens, limit.tokens) if prices is not None else None
        return RequestBound(
            input_tokens=input_tokens,
            output_tokens=limit.tokens,
            cost_usd=cost,
            prices=prices,
            least_output_tokens=limit.floor,
            most_output_tokens=host.longest_answer_by_name,
            why=self._why(counted, limit.tokens, prices),
        )

    def _bound_of_searches(self, input_tokens: int | None) -> RequestBound:
        """Return the bound with native tools: only Anthropic's web search with `max_uses` has one."""
        host, (given, parameters) = self.host, self._sent
        window, rounds = host.window, None if host.rules is None else host.rules.search_rounds
        searches = _most_searches(parameters)
        if rounds is None or window is None or searches is None:
            tools = ", ".join(tool.kind for tool in parameters.native_tools)
            return RequestBound(
                input_tokens=None,
                output_tokens=None,
                cost_usd=None,
                lacks_only_searches=all(isinstance(tool, WebSearchTool) for tool in parameters.native_tools),
                why=_UNBOUNDED_TOOLS % tools,
            )
        # In the first round the model reads the request, and in later rounds the search results as well.
        # Prices for large inputs depend on the input of one round.
        output = output_limit(host, self.model, given, parameters).tokens
        conditions = self._conditions
        if conditions.cache_write == "no":
            conditions = replace(conditions, cache_write="5m")
        prices = self.calculator.upper_prices(
            self.model.model_name, host.provider, host.url, window, conditions
        )
        total = (input_tokens or window) + (rounds - 1) * window
        output_tokens = None if output is None else rounds * output
        cost = None if prices is None else prices.cost(total, output_tokens)
        if cost is not None and prices is not None:
            fee = None if prices.per_web_search is None else EXACT.multiply(searches, prices.per_web_search)
            cost = None if fee is None else EXACT.add(cost, fee)
        return RequestBound(
            input_tokens=total,
            output_tokens=output_tokens,
            cost_usd=cost,
            why=f"with web search, the model may be asked {rounds} times in one request, and may read a "
            f"whole context window of {window:,} tokens each time",
        )

    @property
    def _conditions(self) -> PriceConditions:
        """The conditions with which the request and the owner of the host rule out prices of the model."""
        host, given = self.host, self._sent[0]
        audio, tiers = hears(self.pieces, given), _possible_tiers(host, given)
        if host.rules is None or host.rules.cache_writes is None:
            return PriceConditions(
                service_tiers=tiers,
                asked_tier=asked_tier(host.provider, given),
                cache_write="12h" if caches_half_a_day(given) else "1h",
                audio=audio,
            )
        cached = set(_cached_for(self.pieces, given))
        return PriceConditions(
            service_tiers=tiers,
            fast=given.get("anthropic_speed") == "fast",
            cache_write="no" if not cached else "5m" if cached == {"5m"} else "1h",
            audio=audio,
            inference_geo=asked_geography(given),
        )

    def _why(self, counted: InputBound, output_tokens: int | None, prices: FlatPrices | None) -> str | None:
        """Return why a bound is large, or missing, and how to lower it; `None` if it is neither."""
        given, parameters = self._sent
        reasons = []
        if prices is None and (tier := asked_tier(self.host.provider, given)) is not None:
            reasons.append(
                f"no price is known for service tier {tier!r}: add it to service_tiers in pricing_overrides, "
                "or ask for another tier"
            )
        elif prices is None:
            reasons.append(
                "the provider may bill more than tokens (searches, for example), or a price is not known "
                "(that of the region, for example): give prices of your own with pricing_overrides"
            )
        if counted.why is not None:
            window = self.host.window
            size = "which is not known" if window is None else f"of {window:,} tokens"
            reasons.append(
                f"{counted.why}, so the input of the request counts as a whole context window, {size}"
            )
        if thinks_besides(self.model, given, parameters):
            limit = "without a limit" if output_tokens is None else f"up to {output_tokens:,} tokens"
            reasons.append(
                f"{self.model.model_name} can think beyond max_tokens, {limit}: set thinking=False if the "
                "model accepts it"
            )
        elif output_tokens is None:
            reasons.append("nothing limits the answer: set max_tokens")
        return "; ".join(reasons) or None

    def input_besides(self, body: object) -> Unseen:
        """Return the input in the decoded body of the request that `bound` has not counted.

        If the context window bounds the request, all that fits into it is counted.
        """
        if not self._counted.is_all:
            return NOTHING_UNSEEN
        sizes: list[int | None] = []
        urls: list[str] = []
        for piece in self.pieces:
            if isinstance(piece.item, BinaryContent):
                sizes.append(len(piece.item.data))
            elif isinstance(piece.item, FileUrl):
                sizes.append(None)
                urls.append(piece.item.url)
        return unseen_input(
            body,
            [*self._counted.texts, *urls],
            self._counted.rendered,
            sizes,
            _count_of(self.host),
            self.host.allowances.message,
        )

    @property
    def input_parts(self) -> Sequence[InputPart]:
        """What its input consists of: what is asked, largest first, and what is added, by whom."""
        host, parameters = self.host, self._sent[1]
        parts = [*input_parts(self._rules, self.messages, parameters)]
        most = host.allowances.request
        if untested_version() is not None:
            parts.append(InputPart(kind="added", tokens=OTHER.request, added_by="untested version"))
            most -= OTHER.request
        is_known = host.rules is not None or host.allowance is not None
        parts.append(InputPart(kind="added", tokens=most, added_by="provider" if is_known else "host"))
        if parameters.native_tools:
            parts.append(InputPart(kind="searches", tokens=None))
        return parts

    def most_by_count(self, counted: int, parts: Sequence[InputPart]) -> int | None:
        """Return the most input tokens, as the provider has counted so many, with a margin.

        The count is an estimate by some providers' own words, so a margin is added (`CountEndpoint.margin`),
        and the bounds of those parts that the endpoint does not count. `None` if such a part has no bound, or
        if the host has no endpoint whose counts are documented.
        """
        endpoint = self.host.count_endpoint
        if endpoint is None:
            return None
        most = ceil(EXACT.multiply(counted, endpoint.margin)) + self.host.allowances.request
        for part in parts:
            if part.kind in endpoint.leaves_out:
                if part.tokens is None:
                    return None
                most += part.tokens
        return most

    def note_input(self, input_tokens: int) -> None:
        """Remember the input tokens that the provider reported: they bound requests that begin alike."""
        KNOWN_INPUTS.note(self.messages, self._beginnings, input_tokens)


class _Counted(NamedTuple):
    """The texts of a request that are counted."""

    texts: Sequence[str]
    rendered: Sequence[str]
    """The texts that PydanticAI renders in its own way, or whose tokens are not known."""
    is_all: bool
    """Whether everything is counted; else the context window bounds the request."""


class _Collected(list[str]):
    """Texts that were to be counted."""

    def add(self, text: str) -> int:
        """Collect a text in place of counting it."""
        self.append(text)
        return 0


async def _read(pdf: bytes) -> None:
    if not PDF_SIZES.is_read(pdf):
        await in_bounding_thread(partial(PDF_SIZES.prepare, pdf))


def _leaf(model: Model) -> Model:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _count_of(host: Host) -> Count:
    """Return the tokenizer's `count` if it is loaded (`prepare_bound` does that), else `bytes_of`."""
    tokenizer = loaded_tokenizer(host.encoded_model)
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
