"""Settings of model requests, sorted by how they can add to the bill.

Settings that change prices are harmless where `bounds` takes the changed price: service tiers, cache writes,
Claude's fast mode. So is a prediction, whose rejected tokens are billed as output: see `output_bounds`.

`openai_background` is harmless, too: the reservation lasts as long as the work, beyond the request.
`framing_announcement` chooses when PydanticAI explains its `<system>` tags; `input_bounds` counts that text.
`openai_transport` is harmless as `"http"`: over a websocket, the input of earlier requests stays at OpenAI,
and nothing sees the attempts.

These settings are left out on purpose, because of their effects:

- `extra_body` (except for the keys below), `openai_native_tools`, `openrouter_preset`: anything, such as
  several answers (`n`), or tools of the provider's own.
- `anthropic_betas`: more than `max_tokens` (interleaved thinking), or a larger window at a price of its own.
- `anthropic_context_management`, `openai_context_management`: further passes of the model over the input.
- `openrouter_models`, `openrouter_provider`: another model, or a dearer provider of it.
- `openai_reasoning_mode`, `openai_moderation`, `google_model_armor_config`: work that is billed separately.
- `anthropic_container`, `anthropic_task_budget`, `citations`: input of a size that nothing documents.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from fastroai.usage.facts.source import Names, Source

_CHECKED: Final = date(2026, 11, 22)
_DOCUMENTED: Final = "says what each does, and links the pages of the API that it is sent to"
_OF_ALL_MODELS: Final = Source("https://ai.pydantic.dev/api/settings/", _CHECKED, _DOCUMENTED)


def _settings(names: str, of: str | Source) -> Names:
    """Return settings that one page documents: `of`, or PydanticAI's page about a provider's models."""
    if isinstance(of, str):
        of = Source(f"https://ai.pydantic.dev/api/models/{of}/", _CHECKED, _DOCUMENTED)
    return Names.of(names, of)


_HARMLESS: Final = (
    _settings(
        "cache extra_headers first_event_timeout framing_announcement frequency_penalty logit_bias "
        "max_retries max_tokens parallel_tool_calls presence_penalty request_timeout seed service_tier "
        "stop_sequences temperature thinking timeout tool_choice top_k top_p",
        _OF_ALL_MODELS,
    ),
    _settings(
        "openai_background openai_cache_instructions openai_continuous_usage_stats "
        "openai_include_raw_annotations openai_logprobs openai_prediction openai_prompt_cache_diagnostics "
        "openai_prompt_cache_key openai_prompt_cache_options openai_prompt_cache_retention "
        "openai_reasoning_context openai_reasoning_effort openai_reasoning_summary "
        "openai_send_reasoning_ids openai_service_tier openai_store openai_text_verbosity "
        "openai_top_logprobs openai_truncation openai_user",
        "openai",
    ),
    _settings(
        "anthropic_cache anthropic_cache_diagnostics anthropic_cache_instructions "
        "anthropic_cache_messages anthropic_cache_tool_definitions anthropic_eager_input_streaming "
        "anthropic_effort anthropic_metadata anthropic_service_tier anthropic_speed anthropic_thinking",
        "anthropic",
    ),
    _settings(
        "google_cloud_service_tier google_labels google_logprobs google_safety_settings "
        "google_thinking_config google_top_logprobs google_video_resolution",
        "google",
    ),
    _settings(
        "bedrock_cache_instructions bedrock_cache_messages bedrock_cache_tool_definitions "
        "bedrock_request_metadata bedrock_service_tier",
        "bedrock",
    ),
    _settings(
        "openrouter_cache_instructions openrouter_cache_messages openrouter_cache_tool_definitions "
        "openrouter_reasoning openrouter_transforms openrouter_usage",
        "openrouter",
    ),
    _settings("groq_reasoning_effort groq_reasoning_format", "groq"),
    _settings("mistral_prompt_cache_key", "mistral"),
    _settings("cerebras_clear_thinking cerebras_disable_reasoning", "cerebras"),
    _settings("zai_clear_thinking", "zai"),
    _settings(
        "xai_include_encrypted_content xai_logprobs xai_reasoning_effort xai_store_messages "
        "xai_top_logprobs xai_user",
        "xai",
    ),
)
_SERVER_SIDE_INPUT: Final = (
    _settings("openai_conversation_id openai_previous_response_id", "openai"),
    _settings("google_cached_content", "google"),
    _settings("xai_previous_response_id", "xai"),
)

HARMLESS_SETTINGS: Final = frozenset[str]().union(*(group.names for group in _HARMLESS))
"""Settings that add nothing but tokens of the body and of the answer, at prices that the bound takes into
account. A setting that is not here might add more.
"""

SERVER_SIDE_INPUT_SETTINGS: Final = frozenset[str]().union(*(group.names for group in _SERVER_SIDE_INPUT))
"""Settings that add input which is at the provider already, and not in the body."""

HARMLESS_IN_BODY: Final = {
    "anthropic": _settings(
        "inference_geo", Source("https://platform.claude.com/docs/en/manage-claude/data-residency", _CHECKED)
    ),
    "cerebras": _settings("clear_thinking", "cerebras"),
    "openrouter": _settings("reasoning transforms usage", "openrouter"),
    "snowflake": _settings("reasoning", "snowflake"),
    "zai": _settings("reasoning_effort thinking", "zai"),
}
"""Keys of `extra_body` that add nothing but tokens of the answer, by provider; PydanticAI puts most of them
there itself. `inference_geo` changes the price (`regions`).
"""

HARMLESS_VALUES: Final = {"openai_transport": _settings("http", "openai")}
"""Settings that are harmless only with some values, and these values."""

SAY_NO_INPUT: Final = _settings("max_tokens timeout temperature top_p seed", _OF_ALL_MODELS)
"""Settings that change nothing about the input."""

DROP_INPUT: Final = _settings("openai_truncation", "openai")
"""Settings with which a provider may read less input than it is sent."""
