"""A snapshot of a run: how far it is, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fastroai.runtime.facts import RunFinished, Wait, first_until
from fastroai.store.record.entries import RunState

if TYPE_CHECKING:
    from fastroai.store.open_questions import Question
    from fastroai.store.reading.trace import RunTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """How far a run is, in any process: `await pipeline.get_state(run_id)`.

    Values are JSON, as they are stored.
    """

    status: RunState
    trace: RunTrace = field(repr=False)
    """The trace of the run so far, with its cost: `trace.usage`."""
    questions: tuple[Question, ...] = ()
    """Questions that wait for an answer, in the order in which they were asked."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.trace.run_id

    @property
    def position(self) -> int:
        """Position of the last fact. To see what follows: `pipeline.follow(run_id, after=position)`."""
        return len(self.trace.entries)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs, including the values that `resume` has replaced."""
        return self.trace.inputs

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The latest output of each step or node that has one, by id."""
        return self.trace.outputs

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the steps or nodes that have started and not ended. An interrupted run starts them again."""
        return tuple(
            dict.fromkeys(one.step for one in self.trace.steps if one.depth == 0 and one.status == "running")
        )

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The waits of a paused run: what it waits for, and until when."""
        return () if self.finish is None else self.finish.waits

    @property
    def waits_until(self) -> datetime | None:
        """When `wake` resumes a paused run, unless an answer or message comes earlier.

        It is the first end of its `waits`; `None` if none of them ends by itself.
        """
        return first_until(self.waits)

    @property
    def finish(self) -> RunFinished | None:
        """How the run ended or why it paused; `None` while it runs, and if its process died."""
        return self.trace.ended
