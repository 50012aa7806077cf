"""The most that one request can cost, told before it is sent.

A bound must hold, so what is not known to be harmless has none. It stands on this:

- A token is at least one byte of text: of the text that is sent, and of the text that the provider may
  normalise it to. Around it, providers add text of their own: `HIDDEN_INPUT_TOKENS`.
- What models thought earlier comes back as input in a form whose size says nothing (encrypted, or by
  reference), but it was billed as output once, so it is no more tokens than that.
- `max_tokens` limits everything that is billed as output, thinking included.
- No request is larger than the model's context window, for providers refuse it.
- Of all prices that can apply to a token, the highest is taken: `CostCalculator.upper_prices`.

It does not hold for a model that is answered by a more expensive one under the same name, nor for a
provider or gateway that bills more than the prices that are known here.

Bytes are several times as many as tokens. Exact tokenizers will go into `_text_tokens`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import CachePoint, ModelMessagesTypeAdapter, ModelRequest, TextContent
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_core import PydanticSerializationError, to_json

from fastroai.usage.list_prices import is_local
from fastroai.usage.settings import HARMLESS_SETTINGS, SERVER_SIDE_INPUT_SETTINGS
from fastroai.usage.upper_prices import UpperPrices

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from fastroai.usage.pricing import CostCalculator

HIDDEN_INPUT_TOKENS: Final[Mapping[str, int]] = {"openai": 1_024, "anthropic": 2_048, "google": 1_024}
"""Input tokens by provider that are billed without being in the body: what delimits messages and tools, and
prompts of the provider's own. The largest that is documented is Anthropic's for tool use, of 530 tokens:
https://docs.anthropic.com/en/docs/tool-use-pricing-and-tokens
"""
OTHER_HIDDEN_INPUT_TOKENS: Final = 4_096
"""The same for every other provider, whose chat templates can hold a default system prompt."""

_TEXT_OF_REQUESTS: Final = frozenset(
    {
        "compaction",
        "instruction-baseline",
        "instruction-delta",
        "model-settings-delta",
        "retry-feedback",
        "retry-prompt",
        "system-prompt",
        "tool-availability-delta",
    }
)
_TEXT_OF_RESPONSES: Final = frozenset({"text", "thinking", "tool-call"})
"""Kinds of parts that are always text. Others can stand for more input than their size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBound:
    """What one request can use and cost at most; `None` where nothing bounds it."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    """In US dollars."""
    prices: UpperPrices | None = None
    """Upper prices of its tokens, where its answer can be made shorter."""

    @property
    def tokens(self) -> int | None:
        """Input and output together."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> RequestBound | None:
        """Interim."""
        if self.prices is None or self.input_tokens is None or self.output_tokens is None:
            return None
        most = self.output_tokens
        if usd is not None:
            rest = usd - (self.prices.cost(self.input_tokens, 0) or 0)
            if rest < 0:
                return None
            if self.prices.output_per_mtok:
                most = min(most, int(rest * 1_000_000 / self.prices.output_per_mtok))
        if tokens is not None:
            most = min(most, tokens - self.input_tokens)
        if most < 16:
            return None
        return RequestBound(
            input_tokens=self.input_tokens,
            output_tokens=most,
            cost_usd=self.prices.cost(self.input_tokens, most),
            prices=self.prices,
        )


def request_bound(
    calculator: CostCalculator,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> RequestBound:
    """The most that a request can use and cost. Takes what `Model.request` takes, of a model of one provider.

    Native tools are billed in ways that tokens do not bound, and so may be what `extra_body`, beta headers
    and unusual settings ask for: no bound. Where the input is not only text that is in the body, the
    model's context window bounds it, if that is known.
    """
    while isinstance(model, WrapperModel):
        model = model.wrapped
    name, provider, url = model.model_name, model.system, base_url_of(model)
    if is_local(name, provider) and calculator.upper_prices(name, provider) == UpperPrices():
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=Decimal(0))
    prepared, parameters = model.prepare_request(settings, parameters)
    given = {setting: value for setting, value in (prepared or {}).items() if value is not None}
    if parameters.native_tools or not _only_tokens_are_billed(given):
        return RequestBound(input_tokens=None, output_tokens=None, cost_usd=None)
    input_tokens = _least(_text_tokens(provider, messages, given, parameters), model.context_window)
    output_tokens = _output_tokens(model, given)
    prices = calculator.upper_prices(name, provider, url, input_tokens)
    return RequestBound(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=prices.cost(input_tokens, output_tokens) if prices is not None else None,
        prices=prices,
    )


def _only_tokens_are_billed(settings: Mapping[str, object]) -> bool:
    headers = settings.get("extra_headers", {})
    beta = isinstance(headers, Mapping) and any("beta" in str(header).lower() for header in headers)
    return not beta and settings.keys() <= HARMLESS_SETTINGS | SERVER_SIDE_INPUT_SETTINGS


def _output_tokens(model: Model, settings: Mapping[str, object]) -> int | None:
    """The most output that the request asks for, or that the model gives."""
    profile: Mapping[str, object] = model.profile
    limits = [profile.get("anthropic_max_output_tokens"), model.context_window]
    ignored = {*model.unsupported_settings, *_strings(profile.get("openai_unsupported_model_settings"))}
    if "max_tokens" not in ignored:
        limits.append(settings.get("max_tokens"))
    return _least(*(limit for limit in limits if isinstance(limit, int) and limit > 0))


def _strings(value: object) -> Sequence[str]:
    return [str(item) for item in value] if isinstance(value, Sequence) else []


def _text_tokens(
    provider: str,
    messages: Sequence[ModelMessage],
    settings: Mapping[str, object],
    parameters: ModelRequestParameters,
) -> int | None:
    """No fewer tokens than the body can have; `None` if it refers to input that is not in it."""
    thoughts = [_thoughts(message) for message in messages]
    if not SERVER_SIDE_INPUT_SETTINGS.isdisjoint(settings) or any(tokens is None for tokens in thoughts):
        return None
    try:
        bytes_sent = sum(map(_bytes, _body(messages, settings, parameters)))
    except (PydanticSerializationError, UnicodeError):
        return None  # nor can it be sent
    hidden = HIDDEN_INPUT_TOKENS.get(provider, OTHER_HIDDEN_INPUT_TOKENS)
    return bytes_sent + sum(tokens or 0 for tokens in thoughts) + hidden


def _thoughts(message: ModelMessage) -> int | None:
    """Tokens that come with a message besides its text; `None` if there is no telling."""
    if isinstance(message, ModelRequest):
        return 0 if all(map(_is_text, message.parts)) else None
    if any(part.part_kind not in _TEXT_OF_RESPONSES for part in message.parts):
        return None
    if all(part.part_kind != "thinking" and not part.provider_details for part in message.parts):
        return 0
    return message.usage.output_tokens or None


def _is_text(part: ModelRequestPart) -> bool:
    if part.part_kind == "user-prompt":
        content = [part.content] if isinstance(part.content, str) else part.content
        return all(isinstance(item, str | TextContent | CachePoint) for item in content)
    if part.part_kind == "tool-return":
        return not part.files
    return part.part_kind in _TEXT_OF_REQUESTS


def _body(
    messages: Sequence[ModelMessage], settings: Mapping[str, object], parameters: ModelRequestParameters
) -> Iterator[bytes]:
    """Everything that goes into the body, at least as long as it is there."""
    # Each request of a history has the instructions of its time; only the latest are sent.
    without = {"__all__": {"instructions"}}
    yield ModelMessagesTypeAdapter.dump_json(list(messages), by_alias=True, exclude=without)
    if parameters.instruction_parts is None:
        earlier = [message.instructions or "" for message in messages if isinstance(message, ModelRequest)]
        yield max(earlier, key=len, default="").encode()
    yield to_json(parameters, serialize_unknown=True)
    yield to_json(settings, serialize_unknown=True)


def _bytes(text: bytes) -> int:
    """Bytes of a text, or of what a tokenizer may normalise it to, if that is more."""
    if text.isascii():
        return len(text)
    return max(len(text), len(unicodedata.normalize("NFKD", text.decode()).encode()))


def base_url_of(model: Model) -> str | None:
    """The URL that a model sends to, if it has one."""
    try:
        return model.base_url
    except (AttributeError, UserError):  # what PydanticAI's models raise that have none
        return None


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
