"""Decides a recorded run again, on its recorded outcomes, and says where that differs from the record."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fastroai.pipelines.setup import PipelineSetup
from fastroai.places import attempt_around, quoted, step_name
from fastroai.runs.machine import Told
from fastroai.runtime.facts import (
    AnyFact,
    PauseRequested,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
    StopRequested,
)
from fastroai.store.explanation import in_short
from fastroai.store.trace import Divergence

Numbered: TypeAlias = tuple[int, AnyFact]
"""An entry and its position in the log, from 1."""


@dataclass(frozen=True, slots=True)
class Orchestration:
    """What decides a run: a pipeline, and those nested in it."""

    setup: PipelineSetup
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
            if nested is not None and name.partition("#")[0] == quoted(nested.setup.name):
                yield _replay(nested, _of_pipeline(entries, inner))
                waiting.append((nested, inner))


def _pipelines_around(entries: Iterable[Numbered]) -> Mapping[str, dict[str, None]]:
    """The places of nested pipelines, by that of the pipeline around them."""
    around: dict[str, dict[str, None]] = {}
    for _, entry in entries:
        if isinstance(entry, StepStarted | StepSkipped | StepFinished) and (
            pipeline := _pipeline_of(entry.place)
        ):
            attempt = attempt_around(entry.place) or ""
            around.setdefault(_pipeline_of(attempt), {})[pipeline] = None
    return around


def _pipeline_of(place: str) -> str:
    return place.rpartition("/")[0]


def _of_pipeline(entries: Iterable[Numbered], pipeline: str) -> list[Numbered]:
    """The decisions and outcomes of one pipeline; what is asked of a run, and its end, is the outermost's."""
    return [
        (position, entry)
        for position, entry in entries
        if isinstance(entry, RunResumed)
        or (isinstance(entry, RunFinished | PauseRequested | StopRequested) and not pipeline)
        or (
            isinstance(entry, StepStarted | StepSkipped | StepFinished | StepFailed | StepCancelled)
            and entry.part.place == pipeline
        )
    ]


def _replay(orchestration: Orchestration, entries: Sequence[Numbered]) -> Divergence | None:
    """Process by process: each decides anew, with the outputs that those before have left."""
    kept: dict[str, StepFinished] = {}
    part: list[Numbered] = []
    for numbered in [*entries, None]:
        if numbered is None or isinstance(numbered[1], RunResumed):
            found = _Process(orchestration.setup, part, kept).divergence()
            if found is not None:
                return found
            kept |= _outputs(part)
            part = []
        else:
            part.append(numbered)
    return None


def _outputs(entries: Iterable[Numbered]) -> dict[str, StepFinished]:
    return {
        entry.step_id: entry
        for _, entry in entries
        if isinstance(entry, StepFinished) and entry.conversation != "incomplete"
    }


class _Process:
    """What one process did of a run."""

    def __init__(
        self, setup: PipelineSetup, entries: Sequence[Numbered], kept: Mapping[str, StepFinished]
    ) -> None:
        self._entries = entries
        started = {entry.step_id for _, entry in entries if isinstance(entry, StepStarted)}
        found = {step: output for step, output in _outputs(entries).items() if step not in started}
        self._reused = {**kept, **found}
        """Outputs of steps that were not run here: of an earlier process, or of the run this is a fork of."""
        self._order = {step: number for number, step in enumerate(self._reused)}
        self._machine = setup.machine(resumes=bool(self._reused))
        self._to_start: dict[str, StepStarted] = {}
        self._to_skip: dict[str, StepSkipped] = {}
        self._finish: RunFinished | None = None
        self._stopped = False
        """Whether somebody asked it to stop, which time limits and cancelled tasks do as well."""

    def divergence(self) -> Divergence | None:
        """The first one."""
        self._decide(RunStarted())
        if self._reused:
            self._to_start.clear()
            self._decide(RunResumed())
        for position, entry in self._entries:
            expected = self._check(entry)
            if expected is not None:
                return Divergence(position, expected, in_short(entry))
        return None

    def _check(self, entry: AnyFact) -> str | None:
        """Compare a fact with what was decided, and take in what it brings; what is expected instead."""
        match entry:
            case StepStarted():
                return self._check_start(entry)
            case StepSkipped():
                return self._check_skip(entry)
            case StepFinished(step_id=step) if step in self._reused:
                return None
            case StepFinished() | StepFailed() | StepCancelled():
                return self._take_in(entry)
            case PauseRequested():
                self._decide(entry)
            case StopRequested():
                self._stopped = True
                self._decide(entry)
            case RunFinished():
                return self._check_end(entry)
            case _:
                pass
        return None

    # --- deciding ---

    def _decide(self, fact: Told) -> None:
        """Let the machine decide. What was not run here finishes at once, in the order in which it did."""
        due: list[tuple[int, str]] = []
        while True:
            for decision in self._machine.handle(fact):
                match decision:
                    case StepStarted(step_id=step) if step in self._reused:
                        heapq.heappush(due, (self._order[step], step))
                    case StepStarted(step_id=step):
                        self._to_start[step] = decision
                    case StepSkipped(step_id=step):
                        self._to_skip[step] = decision
                    case RunFinished():
                        self._finish = decision
                    case _:
                        pass  # nothing runs here that could be cancelled
            if not due:
                return
            fact = self._reused[heapq.heappop(due)[1]]

    # --- comparing ---

    def _check_start(self, entry: StepStarted) -> str | None:
        decided = self._to_start.pop(entry.step_id, None)
        if decided is None:
            return f"no start of {entry.step_id!r}"
        # A resumed run learns no more for whose place a step once waited.
        if not entry.cause.startswith(decided.cause) and not decided.cause.startswith(entry.cause):
            return f"{entry.step_id!r} started, because {decided.cause}"
        return None

    def _check_skip(self, entry: StepSkipped) -> str | None:
        decided = self._to_skip.pop(entry.step_id, None)
        if decided is None:
            return f"no skip of {entry.step_id!r}"
        return None if entry.cause == decided.cause else f"{entry.step_id!r} skipped, because {decided.cause}"

    def _take_in(self, entry: StepFinished | StepFailed | StepCancelled) -> str | None:
        if entry.step_id not in self._machine.running or entry.step_id in self._to_start:
            return f"{entry.step_id!r} not running"
        self._decide(entry)
        return None

    def _check_end(self, entry: RunFinished) -> str | None:
        if entry.status == "cancelled" or (entry.status == "failed" and self._stopped):
            return None  # by what is around all steps, such as a time limit of the run
        for skip in self._to_skip.values():
            return f"{skip.step_id!r} skipped, because {skip.cause}"
        for start in self._to_start.values():
            return f"{start.step_id!r} started, because {start.cause}"
        if self._finish is None:
            return f"the run waiting for {', '.join(map(repr, sorted(self._machine.running)))}"
        if self._finish.status != entry.status:
            return f"the run {self._finish.status}, because {self._finish.reason}"
        return None
