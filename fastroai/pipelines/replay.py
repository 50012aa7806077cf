"""Decides a recorded run again, on its recorded outcomes, and says where that differs from the record."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fastroai.pipelines.machine import (
    CancelSteps,
    Command,
    Event,
    Failed,
    Finish,
    PipelineMachine,
    SkipStep,
    Started,
    StartStep,
    Succeeded,
)
from fastroai.pipelines.plan import Plan
from fastroai.places import attempt_around, quoted, step_name
from fastroai.runtime.facts import (
    AnyFact,
    RunFinished,
    RunResumed,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from fastroai.store.explanation import in_short
from fastroai.store.trace import Divergence

Numbered: TypeAlias = tuple[int, AnyFact]
"""An entry and its position in the log, from 1."""

_STOPS: Final = ("BudgetExceeded", "SpendLimitExceeded", "CancelledError")
"""How the names of errors end that can stop a run whatever the configuration of the step says."""


@dataclass(frozen=True, slots=True)
class Orchestration:
    """What decides a run: the shape of a pipeline, and of those nested in it."""

    name: str
    plan: Plan
    exempt: frozenset[str]
    max_concurrency: int | None
    nested: Mapping[str, Orchestration]
    """By the id of the step that runs it."""


def first_divergence(orchestration: Orchestration, entries: Sequence[AnyFact]) -> Divergence | None:
    """The first entry that a machine would not have decided, or the place where one is missing."""
    numbered = list(enumerate(entries, 1))
    found = [_replay(orchestration, _of_pipeline(numbered, "")), *_of_nested(orchestration, numbered, "")]
    return min(filter(None, found), key=lambda one: one.position, default=None)


def _of_nested(
    orchestration: Orchestration, entries: Sequence[Numbered], pipeline: str
) -> Iterator[Divergence | None]:
    """Every run of a nested pipeline, which is one for each attempt at its step."""
    waiting = [(orchestration, pipeline)]
    around = _pipelines_around(entries)
    while waiting:
        outer, place = waiting.pop()
        for inner in around.get(place, ()):
            attempt, _, name = inner.rpartition("/")
            nested = outer.nested.get(step_name(attempt))
            if nested is not None and name.partition("#")[0] == quoted(nested.name):
                yield _replay(nested, _of_pipeline(entries, inner))
                waiting.append((nested, inner))


def _pipelines_around(entries: Iterable[Numbered]) -> Mapping[str, dict[str, None]]:
    """The places of nested pipelines, by that of the pipeline around them."""
    around: dict[str, dict[str, None]] = {}
    for _, entry in entries:
        if isinstance(entry, StepStarted | StepSkipped | StepFinished) and (pipeline := _pipeline_of(entry.place)):
            attempt = attempt_around(entry.place) or ""
            around.setdefault(_pipeline_of(attempt), {})[pipeline] = None
    return around


def _pipeline_of(place: str) -> str:
    return place.rpartition("/")[0]


def _of_pipeline(entries: Iterable[Numbered], pipeline: str) -> list[Numbered]:
    """The decisions and outcomes of one pipeline; how the run ended is about the outermost alone."""
    return [
        (position, entry)
        for position, entry in entries
        if isinstance(entry, RunResumed)
        or (isinstance(entry, RunFinished) and not pipeline)
        or (
            isinstance(entry, StepStarted | StepSkipped | StepFinished | StepFailed)
            and _pipeline_of(entry.place) == pipeline
        )
    ]


def _replay(orchestration: Orchestration, entries: Sequence[Numbered]) -> Divergence | None:
    """Process by process: each decides anew, with the outputs that those before have left."""
    kept: dict[str, StepFinished] = {}
    part: list[Numbered] = []
    for numbered in [*entries, None]:
        if numbered is None or isinstance(numbered[1], RunResumed):
            found = _Process(orchestration, part, kept).divergence()
            if found is not None:
                return found
            kept |= _outputs(part)
            part = []
        else:
            part.append(numbered)
    return None


def _outputs(entries: Iterable[Numbered]) -> dict[str, StepFinished]:
    return {
        step_name(entry.place): entry
        for _, entry in entries
        if isinstance(entry, StepFinished) and entry.conversation != "incomplete"
    }


class _Process:
    """What one process did of a run."""

    def __init__(
        self, orchestration: Orchestration, entries: Sequence[Numbered], kept: Mapping[str, StepFinished]
    ) -> None:
        self._orchestration, self._entries = orchestration, entries
        started = {step_name(entry.place) for _, entry in entries if isinstance(entry, StepStarted)}
        found = {step: output for step, output in _outputs(entries).items() if step not in started}
        self._reused = {step: number for number, step in enumerate({**kept, **found})}
        """Outputs of steps that were not run here: of an earlier process, or of the run this is a fork of."""
        self._ended = next((entry for _, entry in entries if isinstance(entry, RunFinished)), None)
        self._machine = PipelineMachine(
            orchestration.plan, exempt=orchestration.exempt, max_concurrency=orchestration.max_concurrency
        )
        self._to_start: dict[str, StartStep] = {}
        self._running: set[str] = set()
        self._to_skip: dict[str, SkipStep] = {}
        self._incomplete = False
        self._failed: str | None = None
        """The last step that failed."""
        self._stopped_by: str | None = None
        """The first whose failure stops the run."""
        self._finish: Finish | None = None

    def divergence(self) -> Divergence | None:
        """The first one."""
        self._decide(Started())
        for position, entry in self._entries:
            expected = self._check(entry)
            if expected is not None:
                return Divergence(position, expected, in_short(entry))
        return None

    def _check(self, entry: AnyFact) -> str | None:
        """Compare an entry with what was decided, and take in what it brings; what is expected instead."""
        match entry:
            case StepStarted(place=place, cause=cause):
                return self._check_start(step_name(place), cause)
            case StepSkipped(place=place, cause=cause):
                return self._check_skip(step_name(place), cause)
            case StepFinished(place=place):
                step = step_name(place)
                return None if step in self._reused else self._take_in(step, _success(entry))
            case StepFailed(place=place):
                step = step_name(place)
                return self._take_in(step, Failed(step, fatal=self._is_fatal(step, entry)))
            case RunFinished():
                return self._check_end(entry)
            case _:
                return None

    # --- deciding ---

    def _decide(self, event: Event) -> None:
        """Let the machine decide. What was not run here finishes at once, in the order in which it did."""
        due: list[tuple[int, str]] = []
        while True:
            for command in self._machine.handle(event):
                if isinstance(command, StartStep) and command.step_id in self._reused:
                    heapq.heappush(due, (self._reused[command.step_id], command.step_id))
                else:
                    self._note(command)
            if not due:
                return
            event = Succeeded(heapq.heappop(due)[1], reused=True)

    def _note(self, command: Command) -> None:
        match command:
            case StartStep():
                self._to_start[command.step_id] = command
            case SkipStep():
                self._to_skip[command.step_id] = command
            case Finish():
                self._finish = command
            case CancelSteps():
                pass  # nothing runs here that could be cancelled

    # --- comparing ---

    def _check_start(self, step: str, cause: str) -> str | None:
        command = self._to_start.get(step)
        if command is None:
            return f"no start of {step!r}"
        # Which step made room is not compared. The machine hears of an output when it is stored and of a
        # failure at once, so the log can have two that end together in the other order.
        if not cause.startswith(command.due):
            return f"{step!r} started, because {command.due}"
        del self._to_start[step]
        self._running.add(step)
        return None

    def _check_skip(self, step: str, cause: str) -> str | None:
        command = self._to_skip.pop(step, None)
        decided = command.cause if command is not None else self._finish and self._finish.cause
        if decided is None:
            return f"no skip of {step!r}"
        return None if cause == decided else f"{step!r} skipped, because {decided}"

    def _take_in(self, step: str, event: Succeeded | Failed) -> str | None:
        if step not in self._running:
            return f"{step!r} not running"
        self._running.discard(step)
        if isinstance(event, Succeeded):
            self._incomplete |= event.incomplete
        else:
            self._failed = step
            if event.fatal or step not in self._orchestration.exempt:
                self._stopped_by = self._stopped_by or step
        self._decide(event)
        return None

    def _is_fatal(self, step: str, entry: StepFailed) -> bool:
        """Whether what stopped the step was the run's: then the run ended of the same."""
        ended = None if self._ended is None else self._ended.failure
        error_type = entry.failure.error_type
        return ended is not None and ended.error_type == error_type and error_type.endswith(_STOPS)

    def _check_end(self, entry: RunFinished) -> str | None:
        if entry.status == "cancelled":
            return None
        for skip in self._to_skip.values():
            return f"{skip.step_id!r} skipped, because {skip.cause}"
        if self._stopped_by is not None:
            failed = f"the run failed, because {self._stopped_by!r} failed"
            return None if entry.status == "failed" else failed
        if entry.status == "failed":
            # By no step: by what is around them all, such as a time limit of the run.
            return f"the run not stopped by {self._failed!r}" if self._failed else None
        if self._finish is not None:
            status = "waiting" if self._incomplete else "finished"
            return None if entry.status == status else f"the run {status}, because {self._finish.cause}"
        for start in self._to_start.values():
            return f"{start.step_id!r} started, because {start.cause}"
        return f"the run waiting for {', '.join(map(repr, sorted(self._running)))}"


def _success(entry: StepFinished) -> Succeeded:
    return Succeeded(step_name(entry.place), entry.conversation == "incomplete")
