"""The interface of a meter that requests and runs need."""

from __future__ import annotations

from typing import Protocol

from pydantic_ai.models import Model

from fastroai.agent.learned import PastRequests
from fastroai.usage import CostCalculator, ModelFallback


class Meter(Protocol):
    """A `Metered`, as the runs and requests that it makes see it."""

    calculator: CostCalculator
    past_requests: PastRequests
    """What the requests of its agent were like."""

    def fallback_model(self, fallback: ModelFallback) -> Model:
        """The model to step down to when the budget runs low."""
        ...
