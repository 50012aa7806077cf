"""Settings of model requests, sorted by what they can add to the bill.

Those that change prices are harmless where `bounds` takes the price that they lead to: service tiers, cache
writes, Claude's fast mode. So is a prediction, whose rejected tokens are billed as output: `output_bounds`.

`openai_background` is, too: the work goes on after the request has returned, and so does its reservation.

Not here, on purpose, with what each can do:

- `extra_body`, but for the keys below, `openai_native_tools`, `openrouter_preset`: anything, as several
  answers (`n`), or tools of the provider's own.
- `anthropic_betas`: more than `max_tokens` (interleaved thinking), or a larger window at a price of its own.
- `anthropic_context_management`, `openai_context_management`: further passes of the model over the input.
- `openrouter_models`, `openrouter_provider`: another model, or a dearer provider of it.
- `openai_reasoning_mode`, `openai_moderation`, `google_model_armor_config`: work that is billed apart.
- `anthropic_container`, `anthropic_task_budget`, `citations`: input that nothing documents the size of.
"""

from __future__ import annotations

from typing import Final

HARMLESS_SETTINGS: Final = frozenset(
    {
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "timeout",
        "request_timeout",
        "max_retries",
        "parallel_tool_calls",
        "tool_choice",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "stop_sequences",
        "thinking",
        "cache",
        "service_tier",
        "extra_headers",
        "openai_background",
        "openai_reasoning_effort",
        "openai_logprobs",
        "openai_top_logprobs",
        "openai_store",
        "openai_user",
        "openai_text_verbosity",
        "openai_service_tier",
        "openai_prediction",
        "openai_prompt_cache_key",
        "openai_prompt_cache_retention",
        "openai_prompt_cache_options",
        "openai_cache_instructions",
        "openai_continuous_usage_stats",
        "openai_include_raw_annotations",
        "openai_reasoning_summary",
        "openai_reasoning_context",
        "openai_send_reasoning_ids",
        "openai_truncation",
        "openai_prompt_cache_diagnostics",
        "anthropic_metadata",
        "anthropic_thinking",
        "anthropic_cache_tool_definitions",
        "anthropic_service_tier",
        "anthropic_cache_instructions",
        "anthropic_cache_messages",
        "anthropic_cache",
        "anthropic_cache_diagnostics",
        "anthropic_effort",
        "anthropic_eager_input_streaming",
        "anthropic_speed",
        "google_safety_settings",
        "google_thinking_config",
        "google_labels",
        "google_video_resolution",
        "google_logprobs",
        "google_top_logprobs",
        "google_cloud_service_tier",
        "bedrock_request_metadata",
        "bedrock_cache_tool_definitions",
        "bedrock_cache_instructions",
        "bedrock_cache_messages",
        "bedrock_service_tier",
        "openrouter_transforms",
        "openrouter_reasoning",
        "openrouter_usage",
        "openrouter_cache_instructions",
        "openrouter_cache_messages",
        "openrouter_cache_tool_definitions",
        "groq_reasoning_format",
        "groq_reasoning_effort",
        "mistral_prompt_cache_key",
        "cerebras_disable_reasoning",
        "cerebras_clear_thinking",
        "zai_clear_thinking",
        "xai_logprobs",
        "xai_top_logprobs",
        "xai_user",
        "xai_store_messages",
        "xai_include_encrypted_content",
        "xai_reasoning_effort",
    }
)
"""Settings that add nothing but tokens of the body and of the answer, at prices that the bound takes into
account. Names that are not here might.
"""

SERVER_SIDE_INPUT_SETTINGS: Final = frozenset(
    {
        "google_cached_content",
        "openai_conversation_id",
        "openai_previous_response_id",
        "xai_previous_response_id",
    }
)
"""Settings that add input which is at the provider already, and not in the body."""

HARMLESS_IN_BODY: Final = {
    "anthropic": frozenset({"inference_geo"}),
    "cerebras": frozenset({"clear_thinking"}),
    "openrouter": frozenset({"reasoning", "transforms", "usage"}),
    "snowflake": frozenset({"reasoning"}),
    "zai": frozenset({"reasoning_effort", "thinking"}),
}
"""Keys of `extra_body` that add nothing but tokens of the answer, by provider; PydanticAI puts most of them
there itself. `inference_geo` changes the price (`regions`).
"""
