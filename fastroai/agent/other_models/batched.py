"""Models whose requests go out in batches, as agent runs see them: a run on record repeats no request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from typing_extensions import override

from fastroai.agent.other_models.unanswered import continued_job
from fastroai.errors import ConfigurationError
from fastroai.human.asking import Halted
from fastroai.human.waiting import Awaited, StepWait, end_wait, state_of
from fastroai.pydantic_ai_private import id_in_batch
from fastroai.runtime import Scope
from fastroai.runtime.facts import WaitEnded
from fastroai.runtime.scope import RUNS
from fastroai.steps.durability import step_place
from fastroai.store.record.log import log_of

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
        wait: Callable[[str, ModelResponse | None], Awaitable[None]],
    ) -> None:
        """Wrap a model of `BatchModelRequests`.

        Args:
            wrapped: The model.
            find: Function that returns the answer to a request which is on record, or the pending response
                that says which batch the request is in; `None` if nothing is on record.
            note: Function that puts a pending response on record.
            is_left_running: Function that returns whether the run can be continued, and then collects the
                answer for which a pending response stands.
            wait: Function that is called with the id of a request in its batch, and with the pending response
                if the answer is not there yet. It halts a run with which another process goes on.
        """
        super().__init__(wrapped)
        self._find, self._note, self._is_left_running = find, note, is_left_running
        self._wait = wait

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
        pending = response if id_in_batch(response) is not None else None
        if (sent := pending or _pending_in(messages)) is not None and (job := id_in_batch(sent)):
            await self._wait(job, pending)
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


def _pending_in(messages: list[ModelMessage]) -> ModelResponse | None:
    """Return the pending response about which a request asks, if there is one."""
    last = messages[-1] if messages else None
    return last if isinstance(last, ModelResponse) else None


async def wait_for_batch(scope: Scope, batch: str, delay: float | None) -> None:
    """Halt a run until its batch is asked about again. Without a delay, the wait is over.

    A run that only this process goes on with waits here, in the task of the request.

    Raises:
        Halted: another stretch of the run asks about the batch.
    """
    log = log_of(scope)
    if log is None or log.run is None or not log.is_carried:
        return
    if log.scope.kind == "rows":  # a row has nothing on record but its request: there can be thousands
        if delay is not None:
            raise Halted(log.run.now + delay)
        return
    step = next((one for one in scope.lineage() if one.parent is not None and one.parent.kind in RUNS), None)
    if step is None:
        return
    awaited, place = BatchEnds(name=batch, delay=delay or 0.0), step_place(step)
    if delay is not None:
        await awaited.waited(step, place, step.ordinal, batch)
    elif state_of(awaited, step, place, batch) == "open":
        end_wait(awaited, step, place, batch)


@dataclass(frozen=True, kw_only=True)
class BatchEnds(Awaited[None]):
    """A wait for the answers of a batch."""

    what = "batch"
    name: str
    delay: float

    @override
    async def look(self, wait: StepWait) -> WaitEnded | None:
        """Wait for the next look at the batch."""
        wait.look_again(self.delay)
        return None
