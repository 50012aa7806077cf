"""What requests usually use: expectations of a first request, until an agent's own requests are known.

None of these numbers is part of a bound. Each is documented, or the mean of answers on record.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from fastroai.usage.facts.documented import all_facts
from fastroai.usage.facts.source import Source, TokenCount
from fastroai.usage.prices.references import first_party_provider

if TYPE_CHECKING:
    from fastroai.usage.facts.provider import Prior

_CHECKED: Final = date(2026, 11, 23)
_RECORDED: Final = "https://github.com/pydantic/pydantic-ai/tree/main/tests/models/cassettes"


@cache
def _other() -> Prior:
    from fastroai.usage.facts.provider import Prior  # late: models for tests have no facts

    return Prior(
        names=re.compile(""),
        bytes_per_token=Decimal(4),
        page=1_000,
        sources=(
            Source(
                "https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them",
                _CHECKED,
                "a token is about 4 characters of English",
            ),
        ),
    )


@lru_cache(maxsize=256)
def prior_of(model: str) -> Prior:
    """Return the prior of a model, by its name at its maker, or at a gateway (`anthropic/claude-opus-5`)."""
    name = model.rpartition("/")[2]
    known = name.replace(".", "-") if first_party_provider(name) == "anthropic" else name
    priors = (prior for facts in all_facts().values() for prior in facts.priors)
    return next((prior for prior in priors if prior.names.fullmatch(known)), None) or _other()


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
