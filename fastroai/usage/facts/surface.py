"""The public surface of PydanticAI 2.62 to 2.68 that the account understands.

Other names are of a newer PydanticAI, or of somebody else. They count as a whole context window, make a cost
incomplete, or are refused in runs with a budget: see `fastroai.usage.bounding.surface`. A name in these lists
is counted by the account, or adds nothing to the bill.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final

from fastroai.usage.facts.source import NamePattern, Names, Source

_CHECKED: Final = date(2026, 11, 23)
_PYDANTIC_AI: Final = "https://github.com/pydantic/pydantic-ai/blob/main/pydantic_ai_slim/pydantic_ai"


def _fields(page: str, fields: Mapping[str, str]) -> dict[str, Names]:
    """Return the public fields of some classes, by the kind of the class, from PydanticAI's page on them."""
    source = Source(f"https://ai.pydantic.dev/api/{page}/", _CHECKED)
    return {kind: Names.of(names, source) for kind, names in fields.items()}


_COMPACTION: Final = "content id metadata part_kind provider_details provider_name"
_SPEECH: Final = (
    "audio id interrupted_at_ms part_kind provider_details provider_name speaker timestamps transcript"
)
_CALL: Final = "args id part_kind provider_details provider_name tool_call_id tool_kind tool_name"
_RETURN: Final = "content metadata outcome part_kind retry timestamp tool_call_id tool_kind tool_name"

REQUEST_PARTS: Final = _fields(
    "messages",
    {
        "system-prompt": "content context_id dynamic_ref metadata part_kind scope timestamp",
        "user-prompt": "content part_kind timestamp",
        "tool-return": _RETURN,
        "retry-prompt": "content part_kind timestamp tool_call_id tool_name",
        "retry-feedback": "content part_kind retry timestamp",
        "tool-availability-delta": "part_kind tool_call_id tools_added",
        "capability-load-delta": "loaded part_kind tool_call_id",
        "model-settings-delta": "part_kind settings top_level",
        "instruction-delta": "base_hash content id part_kind",
        "instruction-baseline": "instructions part_kind",
        "compaction": _COMPACTION,
        "speech": _SPEECH,
    },
)
"""Fields of the parts of a request, by `part_kind`."""

RESPONSE_PARTS: Final = _fields(
    "messages",
    {
        "text": "citations content id part_kind provider_details provider_name",
        "thinking": "content id part_kind provider_details provider_name signature",
        "tool-call": _CALL,
        "builtin-tool-call": _CALL,
        "builtin-tool-return": f"{_RETURN} provider_details provider_name",
        "file": "content id part_kind provider_details provider_name",
        "compaction": _COMPACTION,
        "speech": _SPEECH,
    },
)
"""Fields of the parts of a response, by `part_kind`."""

_URL: Final = "force_download kind url vendor_metadata"
CONTENTS: Final = _fields(
    "messages",
    {
        "text-content": "content kind metadata",
        "structured-content": "content description kind metadata tag value",
        "image-url": _URL,
        "audio-url": _URL,
        "document-url": _URL,
        "video-url": _URL,
        "binary": "data kind media_type vendor_metadata",
        "uploaded-file": "file_id kind provider_name vendor_metadata",
        "cache-point": "kind ttl",
    },
)
"""Fields of the contents of a prompt besides plain texts, by `kind`."""

MESSAGES: Final = _fields(
    "messages",
    {
        "request": "conversation_id instructions kind metadata parts run_id state timestamp",
        "response": "canonical_system conversation_id failed_attempts finish_reason history_digest kind "
        "metadata model_id model_name parts provider_details provider_name provider_response_id "
        "provider_url run_id state timestamp usage workspace_ref",
    },
)
"""Fields of messages, by `kind`."""

PARAMETERS: Final = _fields(
    "models/base",
    {
        "ModelRequestParameters": "allow_image_output allow_text_output cache deferred_capability_ids "
        "function_tools instruction_parts instruction_visibility introduced_tool_names native_tools "
        "output_mode output_object output_tools prompted_output_template revealed_tool_names thinking "
        "tool_visibility",
        "ToolDefinition": "capability_id defer_loading description include_return_schema kind metadata name "
        "outer_typed_dict_key parameters_json_schema return_schema sequential strict timeout tool_kind "
        "toolset_id unless_native unless_tool_kind with_native",
        "InstructionPart": "content dynamic id name on_change part_kind",
        "OutputObjectDefinition": "description json_schema name strict",
    },
)
"""Fields of the parameters of a request, and of the objects in them, by the name of the class."""

NATIVE_TOOLS: Final = _fields(
    "native_tools",
    {
        "web_search": "allowed_domains blocked_domains external_web_access kind max_uses optional "
        "search_context_size user_location",
        "x_search": "allowed_x_handles enable_image_understanding enable_video_understanding "
        "excluded_x_handles from_date include_output kind optional to_date",
        "code_execution": "files kind optional",
        "web_fetch": "allowed_domains blocked_domains enable_citations kind max_content_tokens max_uses "
        "optional provider_settings",
        "image_generation": "action aspect_ratio background input_fidelity kind model moderation optional "
        "output_compression output_format partial_images provider_settings quality size",
        "memory": "kind optional",
        "mcp_server": "allowed_tools authorization_token description headers id kind optional url",
        "file_search": "file_store_ids instructions kind max_num_results optional provider_settings "
        "retrieval_mode",
        "advisor": "caching kind max_tokens max_uses model optional provider_settings",
    },
)
"""Fields of the tools of providers, by `kind`. `provider_settings` of a search can be anything; elsewhere
calls of the tool are billed by their number whatever they say.
"""

USAGE_FIELDS: Final = Names.of(
    "cost details unmeasured_requests", Source("https://ai.pydantic.dev/api/usage/", _CHECKED)
)
"""Fields of the usage of a request that are no units. Its other fields have the names of genai-prices."""


FREE_DETAILS: Final = (
    Names.of(
        "accepted_prediction_tokens cached_tokens is_byok reasoning_tokens rejected_prediction_tokens "
        "text_tokens web_search_requests",
        Source(f"{_PYDANTIC_AI}/models/openai/_response_fields.py", _CHECKED, "map_usage"),
        Source(f"{_PYDANTIC_AI}/models/groq.py", _CHECKED, "_map_usage"),
        Source(f"{_PYDANTIC_AI}/models/xai.py", _CHECKED, "_extract_usage"),
    ),
    Names.of(
        "num_cached_tokens prompt_cache_hit_tokens prompt_cache_miss_tokens",
        Source("https://api-docs.deepseek.com/api/create-chat-completion", _CHECKED),
        Source(f"{_PYDANTIC_AI}/models/mistral.py", _CHECKED, "_map_usage"),
    ),
    Names.of(
        "advisor_cache_creation_input_tokens advisor_cache_read_input_tokens advisor_input_tokens "
        "advisor_output_tokens cache_creation_input_tokens cache_read_input_tokens "
        "compaction_cache_creation_input_tokens compaction_cache_read_input_tokens "
        "compaction_ephemeral_1h_input_tokens compaction_input_tokens compaction_iterations "
        "compaction_output_tokens ephemeral_1h_input_tokens input_tokens message_iterations output_tokens "
        "thinking_tokens",
        Source(
            f"{_PYDANTIC_AI}/models/anthropic/_response.py",
            _CHECKED,
            "the totals include all but the advisor's, which are billed by its iterations",
        ),
    ),
    Names.of(
        "cached_content_tokens thoughts_tokens tool_use_prompt_tokens",
        Source(f"{_PYDANTIC_AI}/models/google.py", _CHECKED, "_usage_metadata_as_usage"),
    ),
)
"""Details of usage that add nothing to a bill: the counts that are priced include them, or repeat them."""

MODALITY_DETAILS: Final = NamePattern.of(
    "(text|image|video|audio|document|modality_unspecified)"
    "_(prompt|cache|candidates|response|tool_use_prompt)_tokens",
    Source(f"{_PYDANTIC_AI}/models/google.py", _CHECKED, "_usage_metadata_as_usage"),
)
"""Google's details that divide its tokens by modality. Those with a price of their own are counts as well."""

MODEL_CALLS: Final = _fields(
    "models/base",
    {
        "Model": "batch_cancel batch_create batch_decode batch_encode batch_results batch_status "
        "cancel_suspended_response compact_messages count_tokens request request_stream",
        "DecisionModel": "decide",
        "EmbeddingModel": "count_tokens embed max_input_tokens",
        "ImageGenerationModel": "generate",
    },
)
"""Methods of models that send something, by their class. Meters override those that are billed."""
