"""Documented facts about the length of answers: what `max_tokens` limits, and how low it can be.

It limits everything that is billed as output, by these pages, which were read on 22 November 2026:

- Anthropic: https://platform.claude.com/docs/en/build-with-claude/extended-thinking says that `max_tokens` is
  a strict limit, and includes thinking.
- Google: https://github.com/googleapis/python-genai/issues/2062 says that `max_output_tokens` limits thoughts
  and the visible answer together.
- OpenAI: https://developers.openai.com/api/docs/api-reference/responses/create#max_output_tokens says that it
  is an upper bound for visible output tokens and reasoning tokens.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from fastroai.usage.facts.source import NamePattern, Names, Source, TokenCount

_CHECKED: Final = date(2026, 11, 22)
_THINKING: Final = "https://platform.claude.com/docs/en/build-with-claude/extended-thinking"
_PYDANTIC_AI: Final = Source(
    "https://github.com/pydantic/pydantic-ai/blob/main/pydantic_ai_slim/pydantic_ai/models/anthropic/__init__.py",
    _CHECKED,
    "Anthropic requires max_tokens, so PydanticAI sends one",
)

THINKS_BESIDES: Final = NamePattern.of(
    r"(?:.*/)?grok-",
    Source(
        "https://docs.x.ai/developers/rest-api-reference/inference/chat",
        _CHECKED,
        "max_completion_tokens only applies to visible output tokens; max_output_tokens of Responses "
        "includes reasoning; there is no limit on the length of an answer",
    ),
)
"""Models whose thinking may exceed `max_tokens`, which limits only the visible answer."""

EXCLUDES_MAX_TOKENS: Final = Names.of(
    "openai_prediction",
    Source(
        "https://developers.openai.com/api/docs/guides/predicted-outputs#limitations",
        _CHECKED,
        "max_completion_tokens is refused, and what is rejected of the prediction is billed as output; "
        "like other output, it is part of the context window",
    ),
)
"""Settings with which `max_tokens` cannot be sent, or does not limit all output."""

LEAST_OF_RESPONSES: Final = TokenCount(
    16,
    Source(
        "https://github.com/earendil-works/pi/issues/6265",
        _CHECKED,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16",
    ),
)
"""The smallest `max_tokens` that OpenAI's Responses API accepts. Other APIs take any positive number."""

BEYOND_THINKING: Final = TokenCount(
    1,
    Source(
        f"{_THINKING}#working-with-thinking-budgets",
        _CHECKED,
        "max_tokens must be greater than thinking.budget_tokens",
    ),
)
"""Tokens by which `max_tokens` must at least exceed Claude's budget for thinking."""

CLAUDE_DEFAULT: Final = TokenCount(16_384, _PYDANTIC_AI)
"""The `max_tokens` that PydanticAI sends Anthropic by default, where the model's limit is not known."""

CLAUDE_DEFAULT_BEYOND_THINKING: Final = TokenCount(4_096, _PYDANTIC_AI)
"""Tokens by which this default at least exceeds a budget for thinking."""
