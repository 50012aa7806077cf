"""The replay of a pipeline: its log, told to a new state machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.setup import PipelineSetup
from fastroai.places import attempt_around, quoted, step_name
from fastroai.runs.decoding import OnRecord, ValuesOnRecord, output_on_record
from fastroai.runs.running.machine import Changed
from fastroai.runs.running.replay import Replay, divergence_of, other_run, replay_log
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Part, PlanFact
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec


class PipelineReplay(Replay):
    """The replay of one pipeline of a run."""

    machine: PipelineMachine  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, setup: PipelineSetup, part: Part) -> None:
        self.finished: dict[str, facts.StepFinished] = {}
        """Facts of the steps that have finished, by step id."""
        super().__init__(setup.machine(part), facts.RunStarted(part=part))

    def _read(self, position: int, entry: PlanFact) -> None:
        """See `Replay`. Outputs stay on record, and are decoded when they are read."""
        match entry:
            case facts.StepFinished() | facts.StepFailed() | facts.StepCancelled() | facts.StepHalted():
                if entry.step_id in self.machine.plan.dependencies:  # which may have changed, by force
                    if isinstance(entry, facts.StepFinished):
                        self.finished[entry.step_id] = entry
                    self.over(entry, entry)
            case facts.PauseRequested() | facts.StopRequested():
                self.tell(entry)
            case (
                _
            ):  # the machine decides it, too; a step asks again for it; or it is of a graph that was here
                pass

    def resumed(self, entry: facts.RunResumed) -> None:
        """See `Replay`. Skips are decided anew."""
        self.pending.clear()
        super().resumed(entry)
        is_done = self.machine.over
        self.past = {unit: past for unit, past in self.past.items() if is_done.get(unit[0])}
        self.finished = {step_id: one for step_id, one in self.finished.items() if is_done.get(step_id)}

    def follow(self, change: Changed) -> None:
        """Do nothing: a pipeline has no forks."""

    def outputs(self, setup: PipelineSetup, recorded: Memo, codec: PayloadCodec | None) -> ValuesOnRecord:
        """Return the outputs of the steps that have finished, by step id."""
        held: dict[str, object] = {}

        def read(entry: facts.StepFinished) -> object:
            return output_on_record(recorded, entry, setup.declared.get(entry.step_id), codec)

        for step_id, entry in self.finished.items():
            output = OnRecord(read, entry)
            # An incomplete conversation is read at once, as it decides how the run ends.
            held[step_id] = output.value if entry.conversation == "incomplete" else output
        return ValuesOnRecord(held)


def replayed(setup: PipelineSetup, recorded: Memo, part: Part) -> PipelineReplay:
    """Return a pipeline of a run as the log has it."""
    return replay_log(PipelineReplay(setup, part), recorded, part.place)


@dataclass(frozen=True, slots=True)
class Orchestration:
    """The setup that decides a run of a pipeline, and those of the pipelines nested in it."""

    setup: PipelineSetup
    nested: Mapping[str, tuple[Orchestration, ...]]
    """By step id, the pipelines that the step may run: a single one, or the variants of a router."""


@runtime_checkable
class Orchestrated(Protocol):
    """A pipeline or a router, as a step that runs it sees it."""

    def orchestrations(self) -> tuple[Orchestration, ...]:
        """Return each setup that may decide a run of it: for a router, one for each variant."""
        ...


def first_divergence(orchestration: Orchestration, trace: RunTrace) -> Divergence | None:
    """Return the first entry that a machine would not have decided, or the place where one is missing.

    Raises:
        ConfigurationError: the trace is that of a run of a graph.
    """
    if (other := other_run(trace, "pipeline", orchestration.setup.name)) is not None:
        return other
    recorded = Memo(trace.run_id, trace.entries)
    part, around = recorded.opened.part, _places_inside(trace)
    found: list[Divergence] = []
    waiting = [("", [orchestration])]
    while waiting:
        place, candidates = waiting.pop()
        judged = [
            (one, divergence_of(PipelineReplay(one.setup, part.inside(place)), recorded, place))
            for one in candidates
        ]
        # Variants of a router may have the same name. Only those that fit say what is nested in them.
        fitting = [one for one, divergence in judged if divergence is None]
        if not fitting:
            found.append(max(filter(None, (each for _, each in judged)), key=lambda each: each.position))
        for inner in around.get(place, ()):
            if nested := _nested_at(inner, fitting or candidates):
                waiting.append((inner, nested))
    return min(found, key=lambda one: one.position, default=None)


def _places_inside(trace: RunTrace) -> dict[str, dict[str, None]]:
    """Return the places of nested runs, by the place around them. There is one for each attempt at a step."""
    around: dict[str, dict[str, None]] = {}
    for entry in trace.entries:
        if isinstance(entry, facts.StepStarted | facts.StepSkipped | facts.StepFinished) and (
            place := entry.part.place
        ):
            outer = (attempt_around(entry.place) or "").rpartition("/")[0]
            around.setdefault(outer, {})[place] = None
    return around


def _nested_at(place: str, outer: Sequence[Orchestration]) -> list[Orchestration]:
    """Return the pipelines, nested in one of `outer`, of which the run at a place may be a run.

    There are none if it may be a run of something else, such as a graph.
    """
    attempt, _, name = place.rpartition("/")
    step_id, name = step_name(attempt), name.partition("#")[0]
    if any(step_id not in each.nested for each in outer):
        return []
    return [one for each in outer for one in each.nested.get(step_id, ()) if quoted(one.setup.name) == name]
