"""What an agent call costs, told before it is made: `FastroAgent.estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

from fastroai.agent.input_tokens import least_input_tokens, likely_input_tokens
from fastroai.agent.learned import Learned, UsualCall
from fastroai.agent.metering import Metered, MeteredModel
from fastroai.agent.probe import FirstRequest, first_request
from fastroai.errors import ScopeClosedError
from fastroai.records import Tokens
from fastroai.steps.estimating import budgets_around, nothing_paid
from fastroai.usage import CostCalculator, Quote, RequestBound, base_url_of, format_cost, request_bound

if TYPE_CHECKING:
    from fastroai.agent.dispatch import Dispatcher
    from fastroai.steps.call import AgentCall

ASSUMED_OUTPUT_TOKENS: Final = 500
"""What an answer is expected to be as long as nothing is known of an agent's answers; less where `max_tokens`
is less."""
ASSUMED_PROMPT_TOKENS: Final = 1_000
"""What a prompt is expected to be that is not known."""
SHORTEST_ANSWER: Final = 1
"""Tokens."""

_ZERO: Final = Decimal(0)


async def estimate_call(
    dispatcher: Dispatcher[..., ...], call: AgentCall, unknown_prompt: str | None = None
) -> Quote:
    """The quote for one attempt at a call."""
    if unknown_prompt is not None:
        call = replace(call, prompt="?")
    limits = call.limits or dispatcher.limits
    async with nothing_paid(limits):
        try:
            first = await first_request(dispatcher.agent, call, dispatcher.arguments(call))
        except ScopeClosedError:
            first = "code that prepares its first request calls a model"
        if isinstance(first, str):
            quote = Quote.unknown(first, name=dispatcher.name)
        else:
            retries = dispatcher.request_retries if call.request_retries is None else call.request_retries
            quote = _Estimate(
                dispatcher.name, first, dispatcher.meter, dispatcher.learned, 1 + retries, unknown_prompt
            ).quote()
    return quote.within(limits.budget if limits is not None else None)
