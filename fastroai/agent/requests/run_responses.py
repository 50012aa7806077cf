"""Responses of an agent's run, compared with those that its meter has returned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelResponse

from fastroai.agent.answer_checks import has_counts, tokens_of
from fastroai.agent.requests.stated_cost import stated_cost
from fastroai.records import RequestRecord
from fastroai.runtime import Scope, record_spending
from fastroai.runtime.budgets.shared_reservation import charge_shared
from fastroai.usage import CostCalculator
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS

logger = logging.getLogger("fastroai.agent")

_FREE: Final = (None, *LOCAL_PROVIDERS)


class RunResponses:
    """The responses that the meter has returned in a run of an agent, and in runs inside of it.

    PydanticAI copies responses, but keeps the id that the provider gave them, and their time.
    """

    __slots__ = ("_around", "_began", "_metered", "messages")

    def __init__(self, around: RunResponses | None) -> None:
        self._around, self._began = around, datetime.now(UTC)
        self._metered: set[object] = set()
        self.messages: list[ModelMessage] = []
        """Messages of the run so far: PydanticAI's own list, which grows with the run."""

    def note(self, response: ModelResponse) -> None:
        """Note a response that the meter returns, for this run and the runs around it."""
        key, run = _key(response), self
        run._metered.add(key)
        while run._around is not None:
            run = run._around
            run._metered.add(key)

    def unmetered(self, run_id: str | None) -> Iterator[ModelResponse]:
        """Yield the new responses of the run that a model gave for a request that no meter saw.

        A response is free if it names no provider, has no usage, or is older than the run: code of the user
        has made it, or has it from a cache.
        """
        for message in reversed(self.messages):
            if message.run_id is not None and message.run_id != run_id:
                return
            if (
                isinstance(message, ModelResponse)
                and _key(message) not in self._metered
                and message.provider_name not in _FREE
                and has_counts(message)
                and _aware(message.timestamp) >= self._began
            ):
                yield message


current_responses: Final[ContextVar[RunResponses | None]] = ContextVar("fastroai_run_responses", default=None)
"""The responses of the innermost run of an agent with a meter."""


def note_metered(response: ModelResponse) -> None:
    """Note a response that a meter returns."""
    if (run := current_responses.get()) is not None:
        run.note(response)


def charge_unmetered(scope: Scope, response: ModelResponse, calculator: CostCalculator) -> None:
    """Charge a response that no meter has seen as unmeasured, with the price of its usage as the bound.

    Budgets stop later requests, but nothing stops here: the response is paid for.
    """
    model, provider = response.model_name or "", response.provider_name or ""
    cost = calculator.cost_of(response, model=model, provider=provider, stated_usd=stated_cost(response))
    known = cost.cost_usd if cost.complete else cost.most_usd
    record = RequestRecord(
        model=model,
        provider=provider,
        outcome="unmeasured",
        bound_usd=known,
        bound_tokens=tokens_of(response).total_tokens,
        response_model=response.model_name,
        response_id=response.provider_response_id,
        finish_reason=response.finish_reason,
        error="its request was sent without the meter of its run",
    )
    record = scope.labelled(record)
    logger.warning(
        "%s: a response of %s came from a request that FastroAI did not see, so the cost is incomplete; "
        "give the code that has sent it Metered().model(...), or ctx.model",
        " / ".join(scope.path),
        model,
    )
    record_spending(scope, record)
    charge_shared(scope, record)


def _key(response: ModelResponse) -> object:
    return response.provider_response_id or _aware(response.timestamp)


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
