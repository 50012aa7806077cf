"""Finish reasons that providers document: the reasons of each API, and their meaning for the bill.

The usage of an answer is its bill only once the answer has ended. So each reason is in one of two groups: the
answer has ended and its usage is complete, or it still goes on.

A reason without a line counts as an end: APIs send new reasons before anybody documents them, and the
usage in that answer is what the API counted. The same holds for providers without a line, such as your own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

from fastroai.usage.facts.source import Source

_CHECKED: Final = date(2026, 11, 22)

LOCAL_PROVIDERS: Final = frozenset({"test", "function"})
"""PydanticAI's models that send nothing anywhere: they bill nothing, and give no finish reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishReasons:
    """The reasons why answers of an API end, in the words of the API."""

    ended: frozenset[str]
    """Reasons of an answer that has ended, or was cut off: its usage is complete, and is billed."""
    goes_on: frozenset[str] = frozenset()
    """Reasons of an answer that has not ended: its usage, if there is any, is not complete."""
    source: Source


def _reasons(source: Source, ended: str, goes_on: str = "") -> FinishReasons:
    return FinishReasons(ended=frozenset(ended.split()), goes_on=frozenset(goes_on.split()), source=source)


_CHAT_REASONS: Final = "stop length tool_calls content_filter function_call"

ANTHROPIC_MESSAGES: Final = _reasons(
    Source(
        "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons",
        _CHECKED,
        "a turn that pauses (pause_turn) has ended for the bill; a refusal has usage for billing, and output "
        "up to the refusal is billed",
    ),
    "end_turn max_tokens stop_sequence tool_use pause_turn compaction refusal model_context_window_exceeded",
)
BEDROCK_CONVERSE: Final = _reasons(
    Source(
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html", _CHECKED
    ),
    "end_turn tool_use max_tokens stop_sequence guardrail_intervened content_filtered malformed_model_output "
    "malformed_tool_use model_context_window_exceeded",
)
COHERE_CHAT: Final = _reasons(
    Source(
        "https://github.com/cohere-ai/cohere-python/blob/main/src/cohere/types/chat_finish_reason.py",
        _CHECKED,
    ),
    "COMPLETE STOP_SEQUENCE MAX_TOKENS TOOL_CALL ERROR TIMEOUT",
)
GOOGLE_GENERATE_CONTENT: Final = _reasons(
    Source(
        "https://ai.google.dev/api/generate-content#FinishReason",
        _CHECKED,
        "with those of Vertex AI, as google-genai lists them; if the reason is empty, the model has not "
        "stopped, and the unspecified one is what an empty field says",
    ),
    "STOP MAX_TOKENS SAFETY RECITATION LANGUAGE OTHER BLOCKLIST PROHIBITED_CONTENT SPII "
    "MALFORMED_FUNCTION_CALL IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_OTHER NO_IMAGE IMAGE_RECITATION "
    "UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE ESCALATION "
    "PUP_LIMITED_DISABLED CONTINUATION MODEL_ARMOR",
    goes_on="FINISH_REASON_UNSPECIFIED",
)
GROQ_CHAT: Final = _reasons(
    Source(
        "https://github.com/groq/groq-python/blob/main/src/groq/types/chat/chat_completion.py",
        _CHECKED,
        "and content_filter, which PydanticAI knows of",
    ),
    _CHAT_REASONS,
)
HUGGINGFACE_CHAT: Final = _reasons(
    Source(
        "https://github.com/huggingface/huggingface_hub/blob/main/src/huggingface_hub/inference/_generated/"
        "types/text_generation.py",
        _CHECKED,
        "any text is possible, as many providers answer; those of text generation, and of Chat Completions",
    ),
    f"{_CHAT_REASONS} eos_token stop_sequence",
)
MISTRAL_CHAT: Final = _reasons(
    Source("https://docs.mistral.ai/api/endpoint/chat", _CHECKED, "as its SDK lists them"),
    "stop length model_length error tool_calls",
)
OPENAI_CHAT: Final = _reasons(
    Source("https://developers.openai.com/api/docs/api-reference/chat/object", _CHECKED), _CHAT_REASONS
)
OPENAI_RESPONSES: Final = _reasons(
    Source(
        "https://developers.openai.com/api/docs/api-reference/responses/object",
        _CHECKED,
        "the reason of incomplete_details, else the status",
    ),
    "completed failed cancelled incomplete max_output_tokens max_messages content_filter steered",
    goes_on="in_progress queued",
)
OPENROUTER_CHAT: Final = _reasons(
    Source(
        "https://openrouter.ai/docs/client-sdks/python/components/finishreason",
        _CHECKED,
        "and error, which PydanticAI knows of; PydanticAI passes on the reason of the model's provider",
    ),
    f"{_CHAT_REASONS} error",
)
XAI_CHAT: Final = _reasons(
    Source(
        "https://github.com/xai-org/xai-proto/blob/main/proto/xai/api/v1/sample.proto",
        _CHECKED,
        "PydanticAI passes on its own names of them; the invalid one is what an empty field says",
    ),
    "REASON_MAX_LEN REASON_MAX_CONTEXT REASON_STOP REASON_TOOL_CALLS REASON_TIME_LIMIT",
    goes_on="REASON_INVALID",
)
ZAI_CHAT: Final = _reasons(
    Source(
        "https://docs.z.ai/api-reference/llm/chat-completion",
        _CHECKED,
        "and those of OpenAI that PydanticAI accepts; network_error ends the answer early",
    ),
    f"{_CHAT_REASONS} sensitive model_context_window_exceeded network_error",
)

_OPENAI: Final = (OPENAI_CHAT, OPENAI_RESPONSES)
FINISH_REASONS: Final = {
    "alibaba": _OPENAI,
    "anthropic": (ANTHROPIC_MESSAGES,),
    "azure": _OPENAI,
    "bedrock": (BEDROCK_CONVERSE, ANTHROPIC_MESSAGES),
    "bedrock-mantle": _OPENAI,
    "cerebras": _OPENAI,
    "cohere": (COHERE_CHAT,),
    "crusoe": _OPENAI,
    "deepseek": _OPENAI,
    "fireworks": _OPENAI,
    "github": _OPENAI,
    "github-copilot": _OPENAI,
    "google": (GOOGLE_GENERATE_CONTENT,),
    "google-cloud": (GOOGLE_GENERATE_CONTENT, ANTHROPIC_MESSAGES),
    "groq": (GROQ_CHAT,),
    "heroku": _OPENAI,
    "huggingface": (HUGGINGFACE_CHAT,),
    "litellm": _OPENAI,
    "meta": _OPENAI,
    "mistral": (MISTRAL_CHAT,),
    "moonshotai": _OPENAI,
    "nebius": _OPENAI,
    "ollama": _OPENAI,
    "openai": _OPENAI,
    "openai-chatgpt": (OPENAI_RESPONSES,),
    "openai-codex": (OPENAI_RESPONSES,),
    "openai-compatible": _OPENAI,
    "openrouter": (OPENROUTER_CHAT, OPENAI_RESPONSES),
    "ovhcloud": _OPENAI,
    "sambanova": _OPENAI,
    "snowflake": _OPENAI,
    "together": _OPENAI,
    "vercel": _OPENAI,
    "vllm": _OPENAI,
    "xai": (XAI_CHAT, *_OPENAI),
    "zai": (ZAI_CHAT, OPENAI_RESPONSES),
}
"""The APIs through which PydanticAI asks each provider: OpenAI's also for providers compatible with them."""

WITHOUT_FINISH_REASONS: Final = {
    "elevenlabs": "answers with speech",
    "openai-decisions": "PydanticAI names the reason itself: its answers are decisions",
    "sentence-transformers": "answers with embeddings",
    "system-one": "PydanticAI names the reason itself: its answers are decisions",
    "typesafe": "PydanticAI names the reason itself: its answers are decisions",
    "voyageai": "answers with embeddings",
}
"""Providers whose API gives no finish reasons, and why."""


@lru_cache(maxsize=1_024)
def has_ended(provider: str, reason: str) -> bool:
    """Return whether an answer with this finish reason has ended, so that its usage is complete.

    `reason` is in the words of the provider's API. A reason without a line counts as an end.
    """
    return not any(reason in api.goes_on for api in FINISH_REASONS.get(provider, ()))
