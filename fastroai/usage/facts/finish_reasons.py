"""Finish reasons of answers that have not ended, by provider, and the providers that PydanticAI asks.

The usage of an answer is its bill only once the answer has ended. A reason that is not here counts as an end:
APIs send new reasons before anybody documents them, and the usage in that answer is what the API counted. The
same holds for other providers, such as your own. `tests/versions/test_finish_reasons.py` has the reasons that
are known to be an end, so that a new one of PydanticAI or an SDK is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Final

from fastroai.usage.facts.source import Names, Source

_CHECKED: Final = date(2026, 11, 22)

LOCAL_PROVIDERS: Final = frozenset({"test", "function"})
"""PydanticAI's models that send nothing anywhere: they bill nothing, and give no finish reason."""

_RESPONSES: Final = Names.of(
    "in_progress queued",
    Source(
        "https://developers.openai.com/api/docs/api-reference/responses/object",
        _CHECKED,
        "the reason of incomplete_details, else the status",
    ),
)
_ASKED_LIKE_OPENAI: Final = (
    "alibaba azure bedrock-mantle cerebras crusoe deepseek fireworks github github-copilot heroku litellm "
    "meta moonshotai nebius ollama openai openai-chatgpt openai-codex openai-compatible openrouter "
    "ovhcloud sambanova snowflake together vercel vllm zai"
)
"""Providers that PydanticAI asks through OpenAI's Responses API, or can ask through it."""
_GOOGLE: Final = Names.of(
    "FINISH_REASON_UNSPECIFIED",
    Source(
        "https://ai.google.dev/api/generate-content#FinishReason",
        _CHECKED,
        "an empty reason means that the model has not stopped; the unspecified one is an empty field",
    ),
)
_XAI: Final = Names.of(
    "REASON_INVALID",
    Source(
        "https://github.com/xai-org/xai-proto/blob/main/proto/xai/api/v1/sample.proto",
        _CHECKED,
        "PydanticAI passes on its own names of them; the invalid one is what an empty field says",
    ),
)

GOES_ON: Final[Mapping[str, tuple[Names, ...]]] = {
    **dict.fromkeys(_ASKED_LIKE_OPENAI.split(), (_RESPONSES,)),
    "google": (_GOOGLE,),
    "google-cloud": (_GOOGLE,),
    "xai": (_XAI, _RESPONSES),
}
"""Reasons of answers that have not ended, in the words of the APIs: their usage, if any, is not complete."""

_OTHERS: Final = (
    "anthropic bedrock cohere elevenlabs groq huggingface mistral openai-decisions sentence-transformers "
    "system-one typesafe voyageai"
)
PROVIDERS: Final = frozenset(GOES_ON).union(_OTHERS.split())
"""PydanticAI's names of all providers that it knows."""


@lru_cache(maxsize=1_024)
def has_ended(provider: str, reason: str) -> bool:
    """Return whether an answer with this finish reason has ended, so that its usage is complete.

    `reason` is in the words of the provider's API.
    """
    return not any(reason in api.names for api in GOES_ON.get(provider, ()))
