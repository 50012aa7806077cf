"""The interface of a meter that requests and runs need."""

from __future__ import annotations

from typing import Protocol

from pydantic_ai.models import Model

from fastroai.agent.quotes.learned import PastRequests
from fastroai.usage import CostCalculator, ModelFallback


class Meter(Protocol):
    """A `Metered`, as its runs and requests see it."""

    calculator: CostCalculator
    past_requests: PastRequests
    """The past requests of its agent."""

    def fallback_model(self, fallback: ModelFallback) -> Model:
        """Return the model to step down to when the budget runs low."""
        ...
