"""What runs next: a pure state machine, `event -> commands`.

No clock, no I/O, no coroutine. The live run, and any replay of its events, get the same commands. It changes
its own state and touches only what depends on the event, so a run is linear in steps and dependencies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from fastroai.pipelines.plan import Plan

# Events and commands are values and nobody changes them; they are not frozen because making a frozen one
# costs a step that does nothing a tenth of its time.

# --- events ---


@dataclass(slots=True)
class Started:
    """The run begins."""


@dataclass(slots=True)
class Succeeded:
    """A step gave its output; `incomplete` if it asks to stop the run for now."""

    step_id: str
    incomplete: bool = False
    reused: bool = False
    """Whether its output was there already, so that it did not run and nothing waited for it."""


@dataclass(slots=True)
class Failed:
    """A step failed for good; `fatal` if that stops the run whatever its configuration says."""

    step_id: str
    fatal: bool = False


@dataclass(slots=True)
class Cancelled:
    """A step ended because it was cancelled."""

    step_id: str


Event: TypeAlias = Started | Succeeded | Failed | Cancelled

# --- commands ---


@dataclass(slots=True)
class StartStep:
    """Run a step."""

    step_id: str
    after: str | None
    """The last step that it waited for; `None` if it needs no other."""
    made_room: str | None = None
    """The step whose end it waited for then, where `max_concurrency` had no place for it before."""

    @property
    def due(self) -> str:
        """Why it may start."""
        if self.after is None:
            return "it needs no other step"
        return f"{self.after!r} was the last that it needed"

    @property
    def cause(self) -> str:
        """Why it starts now."""
        if self.made_room is None:
            return self.due
        return f"{self.due}; it waited for a place until {self.made_room!r} ended"


@dataclass(slots=True)
class SkipStep:
    """A step will not run."""

    step_id: str
    cause: str


@dataclass(slots=True)
class CancelSteps:
    """Cancel what is running."""

    cause: str


@dataclass(slots=True)
class Finish:
    """Nothing is running and nothing will."""

    cause: str


Command: TypeAlias = StartStep | SkipStep | CancelSteps | Finish


class PipelineMachine:
    """The state of one run. `exempt` steps may fail without stopping it."""

    def __init__(
        self, plan: Plan, *, exempt: Collection[str] = (), max_concurrency: int | None = None
    ) -> None:
        self.plan, self.exempt, self.max_concurrency = plan, exempt, max_concurrency
        self.journal: list[tuple[Event, list[Command]]] = []
        """Every event with the commands that it led to."""
        self._missing = {step_id: len(befores) for step_id, befores in plan.dependencies.items()}
        self._ready: deque[StartStep] = deque()
        self._running = 0
        self._ended: str | None = None
        """The last step that ended and had run; what is reused since then had a place for no time."""
        self._skipped: set[str] = set()
        self._stopped_because: str | None = None
        self._failed = False

    def handle(self, event: Event) -> list[Command]:
        """Take in what happened; say what to do."""
        commands: list[Command] = []
        if isinstance(event, Succeeded):
            self._make_room(event.step_id, event.reused)
            self._on_success(event)
        elif isinstance(event, Started):
            self._ready.extend(
                StartStep(step_id, None) for step_id, missing in self._missing.items() if not missing
            )
        else:
            self._make_room(event.step_id)
            if isinstance(event, Failed):
                self._on_failure(event, commands.append)
        self._start_ready(commands.append)
        if self._running == 0:
            commands.append(Finish(self._stopped_because or "every step has run"))
        self.journal.append((event, commands))
        return commands

    def _make_room(self, step_id: str, reused: bool = False) -> None:
        """There is one place more, which the first in line gets: it was full, or there would be no line."""
        self._running -= 1
        if not reused:
            self._ended = step_id
        if self._ready and self._ready[0].after != self._ended:
            self._ready[0].made_room = self._ended

    def _on_success(self, event: Succeeded) -> None:
        if event.incomplete and self._stopped_because is None:
            self._stopped_because = f"{event.step_id!r} needs more from the user"
        missing = self._missing
        for after in self.plan.dependents[event.step_id]:
            missing[after] -= 1
            if not missing[after]:
                self._ready.append(StartStep(after, event.step_id))

    def _on_failure(self, event: Failed, command: Callable[[Command], None]) -> None:
        if self._failed:
            return
        if event.fatal or event.step_id not in self.exempt:
            self._failed = True  # also after an early stop, whose running steps would have finished
            self._stopped_because = f"{event.step_id!r} failed"
            if self._running:
                command(CancelSteps(self._stopped_because))
            return
        waiting = [event.step_id]
        while waiting:
            for after in self.plan.dependents[waiting.pop()]:
                if after not in self._skipped:
                    self._skipped.add(after)
                    command(SkipStep(after, f"it needs {event.step_id!r}, which failed"))
                    waiting.append(after)

    def _start_ready(self, command: Callable[[Command], None]) -> None:
        if self._stopped_because is not None:
            return
        ready, limit = self._ready, self.max_concurrency
        while ready and (limit is None or self._running < limit):
            self._running += 1
            command(ready.popleft())
