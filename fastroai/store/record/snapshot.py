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
    """How far a recorded run was when its record was read: `await pipeline.get_state(run_id)`.

    Any process can read it from the store, whichever process runs the run. A snapshot does not change later.
    Inputs and outputs are JSON values, not objects of your classes.

    `status` is `running`, `paused`, `finished`, `failed` or `cancelled`; `queued` if the run waits for a
    worker; `interrupted` if the process that ran it has died, so that it can be resumed; or `set_aside` if
    too many workers died with it.
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
        """Number of entries in the log of the run, which is the position of the last one.

        To see later entries, use `pipeline.follow(run_id, after=position)`.
        """
        return len(self.trace.entries)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs of the run by name, as JSON values. If `resume` replaced some, the new ones."""
        return self.trace.inputs

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The latest output of each step or node that has given one, by its id, as JSON values.

        Steps of nested pipelines are not included.
        """
        return self.trace.outputs

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the steps or nodes that have started and not ended, each once; empty if there is none.

        If the process of the run has died, they are run again when the run is resumed. Steps of nested
        pipelines are not included.
        """
        return tuple(
            dict.fromkeys(one.step for one in self.trace.steps if one.depth == 0 and one.status == "running")
        )

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What a paused run waits for, and until when: an answer, a message or a time, for example.

        Empty if the run is not paused, or is paused for another reason, such as a request to pause it.
        """
        return () if self.finish is None else self.finish.waits

    @property
    def waits_until(self) -> datetime | None:
        """Time, in UTC, from which `wake` resumes a paused run, if no answer or message comes earlier.

        It is the earliest `until` of its `waits`; `None` if there is no wait that ends by itself.
        """
        return first_until(self.waits)

    @property
    def finish(self) -> RunFinished | None:
        """The recorded end or pause of the run, with its status, reason, failure and waits.

        `None` while the run is running, also again after it was resumed, and if its process died.
        """
        return self.trace.ended
