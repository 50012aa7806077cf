"""Batches in which the requests of agents go out, and runs that wait for them."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from typing_extensions import override

from fastroai.errors import ConfigurationError
from fastroai.human.asking import Halted
from fastroai.human.waiting import Awaited, StepWait, end_wait, state_of
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
