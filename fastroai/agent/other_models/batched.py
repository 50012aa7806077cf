"""Runs that wait for the batches in which their requests are."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from fastroai.human.halting import Halted
from fastroai.human.waiting import Awaited, StepWait, end_wait, state_of
from fastroai.runtime import Scope
from fastroai.runtime.facts import WaitEnded
from fastroai.runtime.scope import RUNS
from fastroai.steps.durability import step_place
from fastroai.store.record.log_of_scope import log_of


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
