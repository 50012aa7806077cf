"""What requests and runs need to know of the meter that they are counted by."""

from __future__ import annotations

from typing import Protocol

from pydantic_ai.models import Model

from fastroai.usage import CostCalculator, ModelFallback


class Meter(Protocol):
    """A `Metered`, which makes the runs and the requests that have it."""

    calculator: CostCalculator

    def fallback_model(self, fallback: ModelFallback) -> Model:
        """The model to step down to."""
        ...
