"""A run of a pipeline as its log has it: what that is to the state machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never, runtime_checkable

from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.setup import PipelineSetup
from fastroai.places import attempt_around, quoted, step_name
from fastroai.runs.decoding import OnRecord, ValuesOnRecord, output_on_record
from fastroai.runs.machine import Changed
from fastroai.runs.replay import Replay, divergence_of, other_run, retold
from fastroai.runtime import facts
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import PartEntry, RecordedRun, Stretch
from fastroai.store.trace import Divergence, RunTrace


class PipelineReplay(Replay):
    """A pipeline of a run. Its machine undoes itself what a resumption undoes."""

    machine: PipelineMachine  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, setup: PipelineSetup, part: facts.Part) -> None:
        self.finished: dict[str, facts.StepFinished] = {}
        """What has finished, by step id."""
        super().__init__(setup.machine(part), facts.RunStarted(part=part))

    def read(self, position: int, entry: PartEntry) -> None:
        """See `Replay`. Whoever needs an output reads it from the record."""
        match entry:
            case facts.StepFinished() | facts.StepFailed() | facts.StepCancelled() | facts.StepHalted():
                if entry.step_id in self.machine.plan.dependencies:  # which may have changed, by force
                    if isinstance(entry, facts.StepFinished):
                        self.finished[entry.step_id] = entry
                    self.over(entry, entry)
            case facts.PauseRequested() | facts.StopRequested():
                self.tell(entry)
            case facts.StepStarted() | facts.StepSkipped() | facts.RunFinished():
                pass  # decided here, too
            case facts.QuestionAsked() | facts.AnswerGiven():
                pass  # the step asks anew when the run is resumed, and finds the answer
            case facts.BranchTimedOut() | facts.EdgesResolved():
                pass  # of a graph: the place may have been that of one, which was replaced by force
            case facts.ValueWritten() | facts.MessagesAdded() | facts.SpendingRecorded():
                pass
            case (
                facts.SkipRequested()
                | facts.IterationStarted()
                | facts.IterationReported()
                | facts.IterationAborted()
                | facts.CheckpointSet()
                | facts.CheckpointRestored()
            ):
                pass  # of a workflow, likewise
            case _:
                assert_never(entry)

    def resumed(self) -> Collection[int]:
        """See `Replay`."""
        self.due.clear()
        self.decided.clear()
        self.tell(facts.RunResumed(part=self.machine.part))
        return ()

    def follow(self, change: Changed) -> None:
        """Do nothing: a pipeline has no forks."""

    def go_on(self, stretches: Iterable[Stretch]) -> None:
        """See `Replay`: `RunResumed` was told after each of them."""
        is_done = self.machine.over
        self.past = {unit: past for unit, past in self.past.items() if is_done.get(unit[0])}
        self.finished = {step_id: one for step_id, one in self.finished.items() if is_done.get(step_id)}

    def outputs(
        self, setup: PipelineSetup, recorded: RecordedRun, codec: PayloadCodec | None
    ) -> ValuesOnRecord:
        """Return what has finished, by step id."""
        held: dict[str, object] = {}
        for step_id, entry in self.finished.items():
            declared = setup.declared.get(step_id)
            output = OnRecord(partial(output_on_record, recorded, entry, declared, codec))
            # One that asks for more is read at once, as it decides how the run ends.
            held[step_id] = output.value if entry.conversation == "incomplete" else output
        return ValuesOnRecord(held)


def replayed(setup: PipelineSetup, recorded: RecordedRun, part: facts.Part) -> PipelineReplay:
    """Return a pipeline of a run as the log has it."""
    return retold(partial(PipelineReplay, setup, part), recorded, part.place)


@dataclass(frozen=True, slots=True)
class Orchestration:
    """What decides a run: a pipeline, and those nested in it."""

    setup: PipelineSetup
    nested: Mapping[str, tuple[Orchestration, ...]]
    """By the id of a step, what it may run: a pipeline, or one of the variants of a router."""


@runtime_checkable
class Orchestrated(Protocol):
    """A pipeline or a router, as a step that runs it sees it."""

    def orchestrations(self) -> tuple[Orchestration, ...]:
        """Return what may decide a run of it: of a router, each variant."""
        ...


def first_divergence(orchestration: Orchestration, trace: RunTrace) -> Divergence | None:
    """Return the first entry that a machine would not have decided, or the place where one is missing.

    Raises:
        ConfigurationError: it is the trace of a run of a graph.
    """
    if (other := other_run(trace, "pipeline", orchestration.setup.name)) is not None:
        return other
    recorded = RecordedRun(trace.run_id, trace.entries)
    part = recorded.opened.part
    found = (
        _least(
            divergence_of(partial(PipelineReplay, one.setup, part.inside(place)), recorded, place)
            for one in candidates
        )
        for place, candidates in _pipelines_of(orchestration, trace)
    )
    return min(filter(None, found), key=lambda one: one.position, default=None)


def _least(found: Iterable[Divergence | None]) -> Divergence | None:
    """Return the divergence of the pipeline that fits best; variants of a router may have the same name."""
    divergences = list(found)
    return None if None in divergences else max(filter(None, divergences), key=lambda one: one.position)


def _pipelines_of(
    orchestration: Orchestration, trace: RunTrace
) -> Iterator[tuple[str, Sequence[Orchestration]]]:
    """Every run of a pipeline, by its place, with the pipelines that it can be one of.

    Of a nested one, there is a run for each attempt at its step.
    """
    around: dict[str, dict[str, None]] = {}
    for entry in trace.entries:
        if isinstance(entry, facts.StepStarted | facts.StepSkipped | facts.StepFinished) and (
            place := entry.part.place
        ):
            outer = (attempt_around(entry.place) or "").rpartition("/")[0]
            around.setdefault(outer, {})[place] = None
    waiting = [("", [orchestration])]
    while waiting:
        place, candidates = waiting.pop()
        yield place, candidates
        for inner in around.get(place, ()):
            attempt, _, name = inner.rpartition("/")
            step_id, name = step_name(attempt), name.partition("#")[0]
            nested = [
                one
                for outer in candidates
                for one in outer.nested.get(step_id, ())
                if quoted(one.setup.name) == name
            ]
            if nested:
                waiting.append((inner, nested))
