"""The most that a request of a test can cost."""

from __future__ import annotations

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters

from fastroai import CostCalculator
from fastroai.usage import RequestBound, request_bound


def bound_of(model: Model, prompt: str, max_tokens: int) -> RequestBound:
    """The bound of a question without instructions, tools or history."""
    messages = [ModelRequest(parts=[UserPromptPart(prompt)])]
    return request_bound(
        CostCalculator(), model, messages, {"max_tokens": max_tokens}, ModelRequestParameters()
    )
