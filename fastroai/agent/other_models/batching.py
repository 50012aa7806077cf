"""The batches in which requests of agents are sent, and models that have them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel

from fastroai.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_ai.capabilities import BatchModelRequests

current_batching: Final[ContextVar[BatchModelRequests | None]] = ContextVar("fastroai_batching", default=None)
"""The batches in which the requests of agents are sent here, besides those that the agents declare."""


def check_batches(model: Model | None, name: str) -> None:
    """Check that a model, that of the agent or function with this name, has a batch API.

    Raises:
        ConfigurationError: it has none.
    """
    for one in model.models if isinstance(model, FallbackModel) else [model]:
        if one is None or one.batch_max_requests is None:
            asked = None if one is None else one.model_id
            expected = (
                f"{name!r} to have a model with a batch API, such as those of OpenAI's Responses API, "
                "Anthropic and Gemini; give it one, or leave batch= out"
            )
            raise ConfigurationError("batch", asked, expected)
