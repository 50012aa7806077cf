"""Endpoints with which providers count the input of a request for free, and a margin for their counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from fastroai.usage.facts.source import NamePattern, Source

_CHECKED: Final = date(2026, 11, 23)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountEndpoint:
    """The endpoint of a provider that counts input tokens, as PydanticAI's `count_tokens` asks it."""

    leaves_out: frozenset[str] = frozenset()
    """The kinds of input (`InputPart.kind`) that are not in its count, as they are not sent to it."""
    margin: Decimal = Decimal("1.1")
    """The factor on a count. With it, and with the tokens that the provider may add to each request
    (`Allowances.request`), a count stands for a bound.

    Providers document smaller differences: none (OpenAI, Bedrock), or "a small amount" (Anthropic). A tenth
    is more than any difference that was seen, and leaves a bound that is still near the bill.
    """
    sources: tuple[Source, ...]


_GOOGLE: Final = Source(
    "https://firebase.google.com/docs/vertex-ai/count-tokens",
    _CHECKED,
    "no charge for using the CountTokens API; it gives an estimate, which reflects all files",
)
COUNT_ENDPOINTS: Final = {
    "anthropic": CountEndpoint(
        sources=(
            Source(
                "https://platform.claude.com/docs/en/build-with-claude/token-counting",
                _CHECKED,
                "free to use; the count is an estimate, which might differ by a small amount",
            ),
            Source(
                "https://github.com/pydantic/pydantic-ai/blob/main/pydantic_ai_slim/pydantic_ai/models/anthropic",
                _CHECKED,
                "_messages_count_tokens: it equals the input_tokens of the request, verified 2026-10-27",
            ),
        )
    ),
    "bedrock": CountEndpoint(
        sources=(
            Source(
                "https://docs.aws.amazon.com/bedrock/latest/userguide/count-tokens.html",
                _CHECKED,
                "no charge; the count matches the token count that would be charged for the same input",
            ),
        )
    ),
    "google": CountEndpoint(
        leaves_out=frozenset({"instructions", "tools"}),
        sources=(
            _GOOGLE,
            Source(
                "https://github.com/pydantic/pydantic-ai/blob/main/pydantic_ai_slim/pydantic_ai/models/google.py",
                _CHECKED,
                "count_tokens: the Gemini API takes only the contents",
            ),
        ),
    ),
    "google-cloud": CountEndpoint(sources=(_GOOGLE,)),
    "openai": CountEndpoint(
        sources=(
            Source(
                "https://developers.openai.com/api/docs/guides/token-counting",
                _CHECKED,
                "the exact count that the model will receive, of text, images, files and tools",
            ),
            Source(
                "https://community.openai.com/t/does-post-responses-input-tokens-cost-money/1380071",
                _CHECKED,
                "it is free; OpenAI's pages of prices name no price for it",
            ),
        )
    ),
}
"""The endpoints by the provider whose documented rules hold at the host; only the Responses API of OpenAI has
one."""

BEDROCK_HOSTS: Final = NamePattern(
    re.compile(r"bedrock-runtime(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"),
    (Source("https://docs.aws.amazon.com/general/latest/gr/bedrock.html", _CHECKED),),
)
"""The hosts of Bedrock's own API."""
