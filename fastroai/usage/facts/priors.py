"""What requests usually use: expectations of a first request, until an agent's own requests are known.

None of these numbers is part of a bound. Each is documented, or the mean of answers on record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Final

from fastroai.usage.facts.source import NamePattern, Source, TokenCount
from fastroai.usage.references import first_party_provider

_CHECKED: Final = date(2026, 11, 23)
_RECORDED: Final = "https://github.com/pydantic/pydantic-ai/tree/main/tests/models/cassettes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The usual size of what is sent to some models."""

    names: NamePattern
    bytes_per_token: Decimal
    """Bytes of English text, or of JSON, for one token."""
    tools: int = 0
    """Tokens of the prompt that explains tools, once for each request that has any."""
    page: TokenCount
    """Tokens of a page of a PDF that is full of text."""
    sources: tuple[Source, ...] = field(default=())


_CLAUDE_TOKENS: Final = Source(
    "https://platform.claude.com/docs/en/about-claude/glossary#tokens",
    _CHECKED,
    "a token is about 3.5 English characters",
)
_CLAUDE_NEWER: Final = Source(
    "https://platform.claude.com/docs/en/build-with-claude/token-counting",
    _CHECKED,
    "from Opus 4.7 on, the same text has approximately 30 percent more tokens",
)
_CLAUDE_TOOLS: Final = Source(
    "https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing",
    _CHECKED,
    "346 for Claude 4.5 with tool_choice auto",
)
_CLAUDE_PAGE: Final = TokenCount(
    2_250,
    Source(
        "https://platform.claude.com/docs/en/build-with-claude/pdf-support#estimate-your-costs",
        _CHECKED,
        "1,500 to 3,000 tokens a page, typically: the middle",
    ),
)
_GOOGLE_PDFS: Final = "https://ai.google.dev/gemini-api/docs/document-processing#technical-details"
_FOUR: Final = Source(
    "https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them",
    _CHECKED,
    "a token is about 4 characters of English",
)
_PRIORS: Final = (
    Prior(
        names=NamePattern(
            re.compile(r"claude-(opus-4-[78]|(opus|sonnet|fable|mythos)-5|haiku-5-5|mythos-preview).*"),
            (_CLAUDE_NEWER,),
        ),
        bytes_per_token=Decimal("2.7"),
        tools=346,
        page=_CLAUDE_PAGE,
        sources=(_CLAUDE_TOKENS, _CLAUDE_TOOLS),
    ),
    Prior(
        names=NamePattern(re.compile(r"claude-.*"), (_CLAUDE_TOKENS,)),
        bytes_per_token=Decimal("3.5"),
        tools=346,
        page=_CLAUDE_PAGE,
        sources=(_CLAUDE_TOOLS,),
    ),
    Prior(
        names=NamePattern(re.compile(r"gemini-[12]\..*"), ()),
        bytes_per_token=Decimal(4),
        page=TokenCount(
            258,
            Source(_GOOGLE_PDFS, _CHECKED),
        ),
        sources=(Source("https://ai.google.dev/gemini-api/docs/tokens", _CHECKED, "about 4 characters"),),
    ),
    Prior(
        names=NamePattern(re.compile(r"gemini-.*"), ()),
        bytes_per_token=Decimal(4),
        page=TokenCount(
            560,
            Source(_GOOGLE_PDFS, _CHECKED),
        ),
        sources=(Source("https://ai.google.dev/gemini-api/docs/tokens", _CHECKED, "about 4 characters"),),
    ),
    Prior(
        names=NamePattern(re.compile(r".*"), (_FOUR,)),
        bytes_per_token=Decimal(4),
        page=TokenCount(1_000),
    ),
)


@lru_cache(maxsize=256)
def prior_of(model: str) -> Prior:
    """Return the prior of a model, by its name at its maker, or at a gateway (`anthropic/claude-opus-5`)."""
    name = model.rpartition("/")[2]
    known = name.replace(".", "-") if first_party_provider(name) == "anthropic" else name
    return next(prior for prior in _PRIORS if prior.names.names.fullmatch(known))


USUAL_ANSWER: Final = TokenCount(
    200,
    Source(_RECORDED, _CHECKED, "184 is the mean of 337 answers, thinking included; half have 44 or fewer"),
)
"""Tokens of a usual answer, thinking included."""

TOKENS_OF_SEARCH: Final = TokenCount(
    8_000,
    Source(
        "https://developers.openai.com/api/docs/pricing#web-search",
        _CHECKED,
        "what a search finds is a fixed block of 8,000 input tokens for models that are billed so",
    ),
)
"""Input tokens that a web search adds."""
