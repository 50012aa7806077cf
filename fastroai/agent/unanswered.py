"""Requests that a provider still works on after it has returned: background responses, requests in batches.

Each keeps its reservation until its answer is collected. A run that ends without collecting it leaves it, and
is charged its bound.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model

from fastroai.agent.request_attempt import RequestAttempt

current_plain_run: Final[ContextVar[object | None]] = ContextVar("fastroai_plain_run", default=None)
"""What stands for the run of a plain agent with a meter; a `FastroAgent` run has its `AgentRun`.

It opens no scope that this could hang on."""


def works_on(model: Model, response: ModelResponse) -> bool:
    """Whether the provider still works on the answer that this response begins.

    A turn that the model has paused (`pause_turn`) is billed, and another request goes on with it.
    """
    return response.state == "suspended" and model.continuation_delay(response) is not None


def continued_job(messages: Sequence[ModelMessage]) -> str | None:
    """The id of the job that a request asks about, if it goes on with a suspended response."""
    last = messages[-1] if messages else None
    if last is not None and last.kind == "response" and last.state == "suspended":
        return last.provider_response_id
    return None


class Unanswered:
    """Those of one meter."""

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
        """The attempt of a run for which its provider works on this job."""
        return next((attempt for attempt in self._of.get(id(run), ()) if attempt.job == job), None)

    def _forget(self, attempt: RequestAttempt, run: object) -> None:
        of_run = self._of[id(run)]
        of_run.remove(attempt)
        if not of_run:
            del self._of[id(run)]
        attempt.scope.forget_closer(attempt.leave)
        attempt.on_end = None

    async def leave(self, run: object) -> None:
        """A run ends, or gives up on what it waits for: charge what that can have cost."""
        for attempt in list(self._of.get(id(run), ())):
            await attempt.leave()
