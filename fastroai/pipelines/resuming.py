"""A pipeline run taken up where its log ends: what has finished is told to a new machine."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastroai.pipelines.machine import PipelineMachine
from fastroai.runs.machine import Decision
from fastroai.runs.units import Past
from fastroai.runtime.facts import Part, RunResumed, RunStarted, StepFinished, StepStarted
from fastroai.steps.durability import stored_output
from fastroai.store.payloads import PayloadCodec
from fastroai.store.recorded import RecordedRun


@dataclass(slots=True)
class TakenUp:
    """What the machine came to, and what is to be done then."""

    outputs: dict[str, object] = field(default_factory=dict)
    past: list[Past] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


def take_up(
    machine: PipelineMachine,
    recorded: RecordedRun,
    part: Part,
    declared: Mapping[str, Any],
    codec: PayloadCodec | None,
) -> TakenUp:
    """Tell the machine what has finished, in the order in which it did; the rest starts anew.

    Raises:
        RunCorrupt: an output is not of the type that its step declares now.
    """
    taken, due = TakenUp(), list[tuple[int, str]]()
    known = {
        entry.step_id: (number, entry)
        for number, entry in enumerate(recorded.outputs.values())
        if entry.part.place == part.place and entry.step_id in machine.plan.dependencies
    }

    def note(decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, StepStarted) and decision.step_id in known:
                heapq.heappush(due, (known[decision.step_id][0], decision.step_id))
            elif not isinstance(decision, StepStarted):
                taken.decisions.append(decision)

    note(machine.handle(RunStarted(part=part)))
    while due:
        _, entry = known[heapq.heappop(due)[1]]
        taken.past.append(_past(machine, entry))
        taken.outputs[entry.step_id] = output = _output(recorded, entry, declared, codec)
        note(machine.handle(replace(entry, output=output)))
    taken.decisions += machine.handle(RunResumed(part=part))
    return taken


def _past(machine: PipelineMachine, entry: StepFinished) -> Past:
    started = machine.running[entry.step_id]
    return Past(started, entry.timestamp, entry.duration_ms, degraded=entry.degraded)


def _output(
    recorded: RecordedRun, entry: StepFinished, declared: Mapping[str, Any], codec: PayloadCodec | None
) -> object:
    if entry.place in recorded.values:
        return recorded.values[entry.place]
    return stored_output(recorded, entry, declared.get(entry.step_id), codec)
