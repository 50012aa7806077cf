"""Models whose requests go out in batches, as agent runs see them: a run on record repeats no request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from fastroai.agent.other_models.unanswered import continued_job
from fastroai.errors import ConfigurationError
from fastroai.pydantic_ai_private import id_in_batch

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
                f"a model with a batch API for {name!r}, such as those of OpenAI's Responses API, Anthropic "
                "and Gemini; or leave batch= out"
            )
            raise ConfigurationError("batch", asked, expected)


class BatchedOnRecord(WrapperModel):
    """A model that sends its requests in batches, and none again that is on record as sent in one."""

    def __init__(
        self,
        wrapped: Model,
        find: Callable[
            [list[ModelMessage], ModelSettings | None, ModelRequestParameters],
            Awaitable[ModelResponse | None],
        ],
        note: Callable[[ModelResponse], Awaitable[None]],
        is_left_running: Callable[[ModelResponse], bool],
    ) -> None:
        """Wrap a model of `BatchModelRequests`.

        Args:
            wrapped: The model.
            find: Function that returns the answer to a request which is on record, or the pending response
                that says which batch the request is in; `None` if nothing is on record.
            note: Function that puts a pending response on record.
            is_left_running: Function that returns whether the run can be continued, and then collects the
                answer for which a pending response stands.
        """
        super().__init__(wrapped)
        self._find, self._note, self._is_left_running = find, note, is_left_running

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request in a batch, or ask about the batch that it is in. One on record is asked about."""
        if continued_job(messages) is None:
            known = await self._find(messages, model_settings, model_request_parameters)
            if known is not None and id_in_batch(known) is None:
                return known
            if known is not None:
                messages = [*messages, known]
        response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        await self._note(response)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Do `request`, and stream its answer, which comes as a whole."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )

    async def cancel_suspended_response(self, response: ModelResponse) -> None:
        """Cancel the batch of a request, unless the run can be continued and then collects the answer."""
        if not self._is_left_running(response):
            await self.wrapped.cancel_suspended_response(response)
