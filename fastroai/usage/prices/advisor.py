"""The usage of Claude's advisor: a second model that a request consults, at prices of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic_ai.usage import RequestUsage

from fastroai.usage.facts.billing import ADVISOR_PRICE_IS_FLAT_TO, UNITS_OF_TOOLS

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

ADVISOR_MODEL: Final = "advisor_model"
"""Name of the condition that says which model the advisor of a request is."""

ADVISOR_UNIT: Final = UNITS_OF_TOOLS.of["advisor"]
"""The unit of the advisor's tokens among those that a response reports."""


def usage_of_advisor(response: ModelResponse) -> RequestUsage | None:
    """Return the usage of the advisor; `None` if there is none, or its price is not sure.

    PydanticAI passes on sums over all consultations. They cannot be priced where the price depends on more
    than the sums: on how long the advisor's cache keeps what is written to it, on the size of each
    consultation, or on a service tier or speed, of which nothing says that it holds for the advisor.
    """
    details = response.usage.details
    consultations = details.get("advisor_iterations", 0)
    if not consultations or details.get("advisor_cache_creation_input_tokens") or _is_special(response):
        return None
    read = details.get("advisor_cache_read_input_tokens", 0)
    sent = details.get("advisor_input_tokens", 0) + read
    if consultations > 1 and sent > ADVISOR_PRICE_IS_FLAT_TO.tokens:
        return None
    return RequestUsage(
        input_tokens=sent,
        cache_read_tokens=read,
        output_tokens=details.get("advisor_output_tokens", 0),
    )


def _is_special(response: ModelResponse) -> bool:
    told = response.provider_details or {}
    return told.get("speed") not in (None, "standard") or told.get("service_tier") not in (None, "standard")
