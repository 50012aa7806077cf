"""The interface of what carries out the decisions of a machine, as a run that has begun needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from fastroai.runtime import Scope
from fastroai.runtime.facts import PauseRequested, RunFinished, StopRequested

DecisionT_contra = TypeVar("DecisionT_contra", contravariant=True)


class Performer(Protocol[DecisionT_contra]):
    """Carries out the decisions of one machine: the runner of steps, or that of rows."""

    scope: Scope
    is_told: bool
    """Whether listeners were told of the end of the run."""
    finish: RunFinished | None
    """The decision of the machine that ended or paused the run."""

    @property
    def milliseconds(self) -> float:
        """Milliseconds that the run has taken so far in this process."""
        ...

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps, nodes or rows with which the run goes on if it is resumed."""
        ...

    async def run(self, decisions: Sequence[DecisionT_contra]) -> None:
        """Carry out decisions, and those that follow, to the end."""
        ...

    def heed(self, request: PauseRequested | StopRequested) -> None:
        """Pause the run when the running steps, nodes or rows end, or stop it. Works from any thread."""
        ...
