"""Decides a recorded run of a graph again, on its recorded outcomes, and says where the record differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from fastroai.errors import RunCorrupt
from fastroai.graphs.machine.replay import LogReader, Replay
from fastroai.graphs.setup import GraphSetup
from fastroai.runs.machine import Unit, unit_of
from fastroai.runtime.facts import (
    AnyFact,
    EdgesResolved,
    StepFailed,
    StepSkipped,
    StepStarted,
)
from fastroai.store.explanation import followed_by, in_short
from fastroai.store.recorded import GraphEntry, RecordedRun
from fastroai.store.trace import Divergence, RunTrace
from fastroai.store.unsealing import seal_payloads
from fastroai.store.values import value_from_json


def divergence_of(setup: GraphSetup, input_types: Mapping[str, Any], trace: RunTrace) -> Divergence | None:
    """The first one, in the outermost graph. `input_types` are those that are declared, by name.

    Raises:
        RunCorrupt: the inputs are not what the graph accepts.
    """
    recorded = RecordedRun(trace.run_id, [seal_payloads(entry) for entry in trace.entries])
    try:
        inputs = {name: value_from_json(value, input_types.get(name)) for name, value in trace.inputs.items()}
    except ValueError as error:
        raise RunCorrupt(trace.run_id, 1, f"its inputs are not what the graph accepts: {error}") from error
    dropped: set[int] = set()
    while True:
        reader = _Comparison(setup, inputs, recorded, dropped)
        try:
            lost = reader.read_all("", dropped, goes_on=False)
        except _Different as found:
            return found.divergence
        except RunCorrupt as error:
            got = in_short(trace.entries[error.position - 1])
            return Divergence(error.position, f"nothing like it, because {error.reason}", got)
        if lost is None:
            return reader.at_end(trace)
        dropped |= lost


class _Different(Exception):  # nothing is wrong
    def __init__(self, position: int, expected: str, got: AnyFact) -> None:
        self.divergence = Divergence(position, expected, in_short(got))


class _Comparison(LogReader):
    """Compares what was decided after each entry with those that follow."""

    def __init__(
        self,
        setup: GraphSetup,
        inputs: Mapping[str, object],
        recorded: RecordedRun,
        dropped: Collection[int],
    ) -> None:
        super().__init__(Replay(setup, inputs, recorded.opened.part, {}), recorded, None, forgiving=False)
        self._again = Counter(
            entry.place
            for position, entry in recorded.of_graph("")
            if position in dropped and isinstance(entry, StepFailed)
        )
        """How often each visit failed and was tried again: its edges were decided each time."""
        self._skips: dict[Unit, StepSkipped] = {}
        self._routes: dict[Unit, EdgesResolved] = {}
        self._read = 0

    def read(self, entry: GraphEntry) -> None:
        """Compare, or take in what it brings."""
        self._note_decisions()
        match entry:
            case StepStarted(step_id=step_id):
                visit, is_decision = self.located(entry)
                due = "decision" if is_decision else "outcome"
                if self.replay.machine.awaits(visit) != due:
                    raise _Different(self.position, f"no start of {step_id!r}", entry)
                super().read(entry)
            case StepSkipped(step_id=step_id):
                if self._skips.pop(unit_of(entry), None) is None:
                    raise _Different(self.position, f"no skip of {step_id!r}", entry)
            case EdgesResolved():
                self._compare(entry)
            case _:
                super().read(entry)

    def _note_decisions(self) -> None:
        decided = self.replay.decided
        for decision in decided[self._read :]:
            match decision:
                case StepSkipped():
                    self._skips[unit_of(decision)] = decision
                case EdgesResolved():
                    self._routes[unit_of(decision)] = decision
                case _:
                    pass
        self._read = len(decided)

    def _compare(self, entry: EdgesResolved) -> None:
        route = self._routes.pop(unit_of(entry), None)
        if route is None:
            if not self._again[entry.place]:
                raise _Different(self.position, f"no end of {entry.step_id!r}", entry)
            self._again[entry.place] -= 1
        elif [(one.target, one.taken) for one in route.edges] != [
            (one.target, one.taken) for one in entry.edges
        ]:
            targets = [one.target for one in route.edges if one.taken]
            raise _Different(self.position, followed_by(entry.place, targets), entry)

    def at_end(self, trace: RunTrace) -> Divergence | None:
        """Whether the run ended as it would have; where it was stopped from outside, nobody can say."""
        self._note_decisions()
        ended, finish = trace.ended, self.replay.finish
        last = len(trace.entries)
        if ended is None or ended.status in ("cancelled", "failed"):
            if ended is not None and finish is not None and finish.status == "finished":
                return Divergence(last, f"the run finished, because it {finish.reason}", in_short(ended))
            return None
        for node, _ in (*self._skips, *self._routes):
            return Divergence(last, f"a decision on {node!r}", in_short(ended))
        status = None if finish is None else finish.status
        if ended.status == "finished" and status != "finished":
            going_on = ", ".join(repr(node) for node, _ in self.replay.starts)
            return Divergence(last, f"the run {status or f'going on with {going_on}'}", in_short(ended))
        return None
