"""Checks of an answer: whether its usage is complete, and whether it broke off."""

from __future__ import annotations

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from fastroai.records import Tokens
from fastroai.usage.bounding.pieces import pieces
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS, has_ended
from fastroai.usage.prices.bought import cached_tokens


def is_measured(response: ModelResponse, *, streamed: bool, system: str) -> bool:
    """Return whether the usage of a response is complete.

    A response that does not say why it ended was cut: the provider may have counted more than it said. This
    also holds if it is not streamed: PydanticAI streams long answers of Anthropic and Bedrock behind
    `request`, too. A turn that Claude pauses has ended for the bill: it states `pause_turn` and its usage.
    """
    if not has_counts(response):
        return False
    if system in LOCAL_PROVIDERS:
        return response.state == "complete"
    if not streamed and response.state not in ("complete", "suspended"):
        return False
    # A reason counts also if PydanticAI has no name for it, such as Google's OTHER, or if the table of
    # `usage.facts` does not have it.
    given = _given_reason(response)
    return response.finish_reason is not None if given is None else has_ended(system, given)


def has_counts(response: ModelResponse) -> bool:
    """Return whether the usage of an answer has anything that can be priced.

    Details alone do not count: PydanticAI passes on only these when it cannot interpret the usage.
    """
    usage = response.usage
    if usage.unmeasured_requests:
        return False
    if usage.input_tokens or usage.output_tokens:
        return True
    return any(count for name, count in vars(usage).items() if name != "details")


def uncounted(response: ModelResponse, *, system: str) -> str | None:
    """Say which part of an answer its usage leaves out, if no bill is stated; `None` if there is none."""
    if system in LOCAL_PROVIDERS:
        return None
    if response.provider_name == "openrouter" and (response.provider_details or {}).get("is_byok"):
        return "no upstream_inference_cost, although the key is your own"
    if not response.usage.input_tokens:
        return "no tokens for the prompt"
    if not response.usage.output_tokens and any(piece.text or piece.is_file for piece in pieces([response])):
        return "no tokens for the answer"
    return None


def _given_reason(response: ModelResponse) -> str | None:
    """Return the finish reason in the words of the provider, if PydanticAI passes it on."""
    given = (response.provider_details or {}).get("finish_reason")
    return str(given) if given else None


def is_cut(response: ModelResponse, *, streamed: bool, model: Model) -> bool:
    """Return whether an answer broke off before its end, as far as its provider lets one know.

    PydanticAI's own models of providers that stream give a finish reason; other models may have none to
    give. For Chat Completions PydanticAI makes a reason up, as some compatible providers send none. OpenAI
    sends one, and after it the usage: so without usage, the reason is made up.
    """
    if response.state != "complete":
        return response.state != "suspended"
    if (
        not streamed
        or model.system in LOCAL_PROVIDERS
        or not type(model).__module__.startswith("pydantic_ai.")
    ):
        return False
    if (given := _given_reason(response)) is not None:
        return not has_ended(model.system, given)
    made_up = model.system == "openai" and not has_counts(response)
    return response.finish_reason is None or made_up


def tokens_of(response: ModelResponse) -> Tokens:
    """Return the tokens of a response."""
    usage = response.usage
    return Tokens(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=cached_tokens(response),
        cache_write_tokens=usage.cache_write_tokens,
        input_audio_tokens=usage.input_audio_tokens,
        cache_audio_read_tokens=usage.cache_audio_read_tokens,
        output_audio_tokens=usage.output_audio_tokens,
        reasoning_tokens=usage.output_reasoning_tokens,
    )
