"""Runs as drawings: the shape that is on record, and what the run did with it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final

from pydantic import JsonValue

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, NodeKind, NodeState
from fastroai.places import quoted, without_visit
from fastroai.records import Usage
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Fact
from fastroai.store.reading.step_summaries import StepStatus
from fastroai.store.reading.timeline_rows import TimelineRow
from fastroai.store.record.definitions import (
    GATE_WAYS,
    Way,
    is_flow,
    kind_of,
    needs_of,
    nested_definition,
    pause_nodes_in,
    steps_in,
    ways_from,
)
from fastroai.usage import format_cost

_STATES: Final[Mapping[StepStatus, NodeState]] = {
    "not started": "plain",
    "skipped": "skipped",
    "running": "running",
    "retried": "running",
    "succeeded": "succeeded",
    "reused": "succeeded",
    "incomplete": "waiting",
    "failed": "failed",
    "interrupted": "cancelled",
    "cancelled": "cancelled",
}
_LABELS: Final[Mapping[str, str | None]] = {
    "on_success": None,
    "on_fail": "on fail",
    "on_approve": "approve",
    "on_revise": "revise",
    "on_kill": "kill",
}
_UNUSUAL: Final = frozenset({"on_failure", "on_fail", "on_revise", "on_kill"})
_SAID: Final[Mapping[str, str]] = {
    "next": "its next leads here",
    "on_fail": "its on_fail leads here",
    "on_approve": "was approved",
    "on_revise": "asks for another round",
    "on_kill": "was killed",
}
"""What the cause of a start says if a workflow has come to the step by such a way."""


def draw_shape(definition: JsonValue) -> Drawing:
    """Return the drawing of a shape, without a run."""
    return RunDrawing(definition, (), ()).of_run()


class RunDrawing:
    """What the drawing of a run is made of.

    `rows` is its timeline, and `waiting` has the ids of the steps with which it goes on. A node is a place
    without visits. Nodes in `opened` are drawn with what is inside of them.
    """

    def __init__(
        self,
        definition: JsonValue,
        rows: Sequence[TimelineRow],
        entries: Iterable[Fact],
        waiting: Collection[str] = (),
        opened: Collection[str] = (),
    ) -> None:
        self._definition, self._waiting, self._opened = definition, waiting, opened
        self._rows: defaultdict[str, list[TimelineRow]] = defaultdict(list)
        """The rows by node: visits to it, first started first."""
        self._inside: defaultdict[str | None, list[TimelineRow]] = defaultdict(list)
        """The rows by the id of the row around them."""
        around: list[str] = []
        for row in rows:
            del around[row.depth :]
            self._inside[around[-1] if around else None].append(row)
            self._rows[_node_of(row)].append(row)
            around.append(row.id)
        self._taken: Counter[tuple[str, str, str]] = Counter()
        """How often a way was taken: from a node, to a step, with its `when`."""
        self._causes: defaultdict[str, list[str]] = defaultdict(list)
        """Why the visits to a node were started."""
        for entry in entries:
            if isinstance(entry, facts.DecidedAfter):
                self._taken.update((without_visit(entry.place), *way) for way in entry.ways_taken)
            elif isinstance(entry, facts.StepStarted):
                self._causes[without_visit(entry.place)].append(entry.cause)

    def of_run(self) -> Drawing:
        """Return the drawing of the whole run."""
        definition = self._definition
        name = definition.get("name") if isinstance(definition, dict) else None
        rows = self._inside[None]
        if is_flow(definition) and rows and self._inside[rows[-1].id]:
            return self._of_rows(self._inside[rows[-1].id], str(name))
        if kind_of(definition) == "rows":  # the rows of a table have no order
            return self._of_rows(rows, str(name), in_order=False)
        if not steps_in(definition):  # it is sealed
            return self._of_rows(rows, "run")
        return self._of_shape("", definition, str(name))

    # --- shapes ---

    def _of_shape(self, part: str, definition: JsonValue, title: str) -> Drawing:
        """Return the drawing of a pipeline, graph or workflow; `part` is its place."""
        prefix = f"{part}/" if part else ""
        nodes = {step_id: f"{prefix}{quoted(step_id)}" for step_id in steps_in(definition)}
        edges = [
            edge
            for step_id, node in nodes.items()
            for edge in (*self._needs(step_id, nodes, definition), *self._ways(step_id, nodes, definition))
        ]
        known = definition if isinstance(definition, dict) else {}
        reached = {edge.target for edge in edges if edge.source != edge.target}
        left = {edge.source for edge in edges if edge.style == "solid"}
        entry, terminals = known.get("entry"), known.get("terminals")
        starts = [node for node in nodes.values() if node not in reached] or [*nodes.values()][:1]
        ends = [node for node in nodes.values() if node not in left]
        if isinstance(terminals, list):
            ends = [nodes[str(one)] for one in terminals]
        return Drawing(
            nodes=[self._step(step_id, node, definition) for step_id, node in nodes.items()],
            edges=edges,
            starts=starts if entry is None else [nodes[str(entry)]],
            ends=ends,
            title=title,
        )

    def _needs(self, step_id: str, nodes: Mapping[str, str], definition: JsonValue) -> Iterator[DrawnEdge]:
        """Yield an edge from each step that a step needs, unless a way leads along there."""
        for need in needs_of(definition, step_id):
            if need in nodes and all(way.target != step_id for way in ways_from(definition, need)):
                went = any(row.status in ("succeeded", "reused") for row in self._rows[nodes[need]])
                began = any(row.bars for row in self._rows[nodes[step_id]])
                yield DrawnEdge(nodes[need], nodes[step_id], taken=int(went and began))

    def _ways(self, step_id: str, nodes: Mapping[str, str], definition: JsonValue) -> Iterator[DrawnEdge]:
        for way in ways_from(definition, step_id):
            if way.target in nodes:
                yield DrawnEdge(
                    nodes[step_id],
                    nodes[way.target],
                    label=_label(way),
                    style="dashed" if way.when in _UNUSUAL or way.is_fallback else "solid",
                    taken=self._times(step_id, way, nodes),
                )

    def _times(self, step_id: str, way: Way, nodes: Mapping[str, str]) -> int:
        if (said := _SAID.get(way.when)) is None:
            return self._taken[nodes[step_id], way.target, way.when]
        name = repr(step_id.rpartition(".")[2])  # steps of flows in a workflow have the names of those before
        return sum(name in cause and said in cause for cause in self._causes[nodes[way.target]])

    def _step(self, step_id: str, node: str, definition: JsonValue) -> DrawnNode:
        step = steps_in(definition).get(step_id)
        runs = step.get("runs") if isinstance(step, dict) else None
        kind: NodeKind = "step" if runs is None else "graph"
        if step_id in pause_nodes_in(definition) or any(
            way.when in GATE_WAYS for way in ways_from(definition, step_id)
        ):
            kind = "pause"
        label = None if step_id == node else step_id
        rows = self._rows[node]
        return DrawnNode(
            node,
            label,
            note=_note(rows),
            state="waiting" if node in self._waiting else _state(rows),
            kind=kind,
            inside=self._opened_inside(node, rows, step),
        )

    # --- what is inside of nodes ---

    def _opened_inside(
        self, node: str, rows: Sequence[TimelineRow], step: JsonValue = None
    ) -> Drawing | None:
        if node not in self._opened:
            return None
        for row in reversed(rows):
            for bar in reversed(row.bars or ()):
                attempt = f"{row.place}@{bar.attempt}"
                found = [one for one in self._inside[row.id] if _is_in(one, attempt)]
                if found:
                    return self._of_attempt(attempt, found, step)
            if self._inside[row.id]:  # the calls of an agent, in its tools
                return self._of_rows(self._inside[row.id], row.name)
        runs = step.get("runs") if isinstance(step, dict) else None
        if not steps_in(runs):
            return None
        name = str(runs.get("name")) if isinstance(runs, dict) else ""
        return self._of_shape(f"{node}@1/{quoted(name)}", runs, name)

    def _of_attempt(self, attempt: str, rows: Sequence[TimelineRow], step: JsonValue) -> Drawing:
        """Return what ran inside an attempt: pipelines and graphs by their shapes, and calls as they came."""
        parts: defaultdict[str, list[TimelineRow]] = defaultdict(list)
        for row in rows:
            parts[row.place.rpartition("/")[0] if row.kind == "step" else ""].append(row)
        drawings = []
        for part, inner in parts.items():
            definition = nested_definition(step, part.removeprefix(f"{attempt}/")) if part else None
            body = self._inside[inner[-1].id]
            if is_flow(definition) and body:
                drawings.append(self._of_rows(body, inner[-1].name))
            elif steps_in(definition):
                drawings.append(self._of_shape(part, definition, part))
            else:
                drawings.append(self._of_rows(inner, attempt))
        return Drawing(
            nodes=[node for one in drawings for node in one.nodes],
            edges=[edge for one in drawings for edge in one.edges],
            starts=[start for one in drawings for start in one.starts],
            title=attempt,
        )

    def _of_rows(self, rows: Sequence[TimelineRow], title: str, *, in_order: bool = True) -> Drawing:
        """Return the drawing of calls; if they have an order, each after those that had ended before it."""
        shown = [row for row in rows if row.bars]
        return Drawing(
            nodes=[
                DrawnNode(
                    row.id,
                    row.name,
                    note=_note([row]),
                    state=_state([row]),
                    inside=self._opened_inside(row.id, [row]),
                )
                for row in shown
            ],
            edges=[*_one_after_another(shown)] if in_order else [],
            title=title,
        )


def _node_of(row: TimelineRow) -> str:
    return without_visit(row.place) if row.kind == "step" else row.id


def _is_in(row: TimelineRow, attempt: str) -> bool:
    return row.place == attempt or row.place.startswith(f"{attempt}/")


def _one_after_another(rows: Sequence[TimelineRow]) -> Iterator[DrawnEdge]:
    """Yield an edge from each row to those that began after its end, if no other row was between them."""
    times = [
        (row.started_at.timestamp(), _end_of(row), number)
        for number, row in enumerate(rows)
        if row.started_at is not None
    ]
    by_end = sorted(times, key=itemgetter(1))
    ends = [ended for _, ended, _ in by_end]
    last_starts = list(accumulate((started for started, _, _ in by_end), max))
    for started, ended, row in times:
        # Of rows that took no time, none comes before another one at the same time.
        before = bisect_left(ends, started) if started == ended else bisect_right(ends, started)
        if before:
            last = by_end[bisect_right(ends, last_starts[before - 1], hi=before) : before]
            for other in sorted(number for _, _, number in last):  # not by which of them ended first
                yield DrawnEdge(rows[other].id, rows[row].id, taken=1)


def _end_of(row: TimelineRow) -> float:
    return float("inf") if row.ended_at is None else row.ended_at.timestamp()


def _label(way: Way) -> str | None:
    if way.is_fallback:
        return "llm_decide (fallback)"
    return way.condition if way.when == "conditional" else _LABELS.get(way.when, way.when)


def _state(rows: Sequence[TimelineRow]) -> NodeState:
    states: list[NodeState] = [_STATES[row.status] for row in rows]
    return "running" if "running" in states else states[-1] if states else "plain"


def _note(rows: Sequence[TimelineRow]) -> str | None:
    """Return the visits or attempts of a node, if there were several, and its cost."""
    visits = [row for row in rows if row.bars]
    attempts = {bar.attempt for row in visits for bar in row.bars}
    parts = [f"{len(visits)} visits"] if len(visits) > 1 else []
    if len(visits) == 1 and len(attempts) > 1:
        parts.append(f"{len(attempts)} attempts")
    usage = sum((row.usage for row in visits), Usage())
    if usage.request_count:
        parts.append(format_cost(usage))
    return " · ".join(parts) or None
