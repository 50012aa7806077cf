"""Requests that a provider works on after they have returned: background responses, requests in batches.

Each request keeps its reservation until its answer is collected. If a run ends before that, the request is
charged at its bound.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model

from fastroai.agent.requests.request_attempt import RequestAttempt

current_plain_run: Final[ContextVar[object | None]] = ContextVar("fastroai_plain_run", default=None)
"""An object that stands for the run of a plain agent with a meter; a `FastroAgent` run has its `AgentRun`.

The run of a plain agent opens no scope that could hold this object."""


def works_on(model: Model, response: ModelResponse) -> bool:
    """Return whether the provider still works on the answer that a response begins.

    A turn that the model has paused (`pause_turn`) is billed, and another request goes on with it.
    """
    return response.state == "suspended" and model.continuation_delay(response) is not None


def continued_job(messages: Sequence[ModelMessage]) -> str | None:
    """Return the id of the job that a request asks about, if it goes on with a suspended response."""
    last = messages[-1] if messages else None
    if last is not None and last.kind == "response" and last.state == "suspended":
        return last.provider_response_id
    return None


class Unanswered:
    """The unanswered requests of one meter."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, list[RequestAttempt]] = {}

    def keep(self, attempt: RequestAttempt, run: object) -> None:
        """Keep an attempt for its run until it has ended, as it does with its scope at the latest."""
        if attempt.on_end is not None:
            return
        self._of.setdefault(id(run), []).append(attempt)
        attempt.scope.on_close(attempt.leave)
        attempt.on_end = functools.partial(self._forget, attempt, run)

    def find(self, run: object, job: str) -> RequestAttempt | None:
        """Return the attempt of a run for which the provider works on a job."""
        return next((attempt for attempt in self._of.get(id(run), ()) if attempt.job == job), None)

    def _forget(self, attempt: RequestAttempt, run: object) -> None:
        of_run = self._of[id(run)]
        of_run.remove(attempt)
        if not of_run:
            del self._of[id(run)]
        attempt.scope.forget_closer(attempt.leave)
        attempt.on_end = None

    async def give_up(self, run: object) -> None:
        """End the attempts of a run whose answers did not come: the requests are sent again."""
        for attempt in list(self._of.get(id(run), ())):
            await attempt.give_up()

    async def leave(self, run: object) -> None:
        """End the attempts of a run that ends or gives up waiting: charge what they can have cost."""
        for attempt in list(self._of.get(id(run), ())):
            await attempt.leave()
