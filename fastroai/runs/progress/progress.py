"""How far a run is, counted from its events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from threading import Lock
from time import perf_counter
from typing import Final, TypeAlias

from fastroai.records import EXACT
from fastroai.runtime import Scope
from fastroai.runtime.fact_base import Ends, Fact, RunEvent
from fastroai.runtime.facts import RunFinished, RunStarted, RunStatus, StepStarted
from fastroai.store.record.definitions import is_flow, kind_of, steps_in

_IN_PROGRESS: Final = ("retried", "incomplete", "cancelled")
"""Outcomes after which the same thing begins again, or would if the run went on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run: its status, its steps, its cost and its time so far.

    The function that is given as `on_progress=` is called with a new `Progress` when the run starts, when a
    step starts or ends, when money is spent, and when the run ends. `noun` says what is counted: the steps of
    a pipeline or graph, the calls of a flow, or the rows of `map`.
    """

    run_id: str
    name: str
    """The name of the pipeline, graph, router, flow or workflow."""
    status: RunStatus = "running"
    noun: str = "step"
    """The noun for `done`, `failed` and `total`: a `step`, in a flow a `call`, in a run of rows a `row`."""
    done: int = 0
    """How many have ended well, or were skipped; in a resumed run, those of earlier processes too."""
    failed: int = 0
    total: int | None = None
    """How many there are; `None` if that is unknown, as in a graph, which may run a node again."""
    running: tuple[str, ...] = ()
    """The ids of the steps that run now, first started first."""
    requests: int = 0
    """Requests to models so far."""
    cost_usd: Decimal = Decimal(0)
    """Known cost so far, in US dollars."""
    cost_complete: bool = True
    """Whether `cost_usd` is the whole cost so far: no request is unpriced or unmeasured."""
    left_usd: Decimal | None = None
    """The rest of the tightest budget of this run or around it, in US dollars; `None` without a budget."""
    seconds: float = 0.0
    """Seconds since the run began in this process."""
    rate: float | None = None
    """How many have ended each second in this process; `None` before the first has."""

    @property
    def ended(self) -> int:
        """Number of steps (or calls, or rows; see `noun`) that have ended, well or not: `done + failed`."""
        return self.done + self.failed

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end, at the average rate so far in this process.

        `None` if `total` is unknown, as in a graph or flow, or if nothing has ended in this process yet.
        """
        if self.total is None or not self.rate:
            return None
        return max(self.total - self.ended, 0) / self.rate


OnProgress: TypeAlias = Callable[[Progress], Awaitable[None] | None]
"""Function of a user that is told how far a run is. It may be async. Its exceptions are logged."""


def what_counts(started: RunStarted) -> tuple[str, int | None]:
    """Return what progress counts in a run that starts so, and how many there are, if that is known."""
    definition = started.definition
    if is_flow(definition):
        return "call", None
    if kind_of(definition) == "rows":
        total = started.inputs.get("total")
        return "row", total if isinstance(total, int) else None
    return "step", len(steps_in(definition)) if kind_of(definition) == "pipeline" else None


class RunProgress:
    """Counts the events of one run.

    It counts facts that say what they count as (`Fact.counted_as`), in the pipeline or graph of the scope
    itself; if that has one step only, in the one that runs inside of the step.
    """

    def __init__(self, scope: Scope, noun: str = "step", total: int | None = None) -> None:
        self.label = scope.name
        """The name of the run on a display, which no other run there has."""
        self._scope, self._noun, self._total = scope, noun, total
        self._place = scope.part.place
        self._running: dict[str, str] = {}
        """The ids of the running steps, by place."""
        self._failed: set[str] = set()
        self._skipped: set[str] = set()
        """The places of what has failed or was skipped, and did not begin again."""
        self._done = self._before = 0
        self._earlier: Sequence[Fact] = ()
        self._began, self._took = perf_counter(), 0.0
        self._status: RunStatus = "running"
        self._lock = Lock()

    def count_earlier(self, facts: Sequence[Fact]) -> None:
        """Count what is on record of earlier processes, which does not make the rate better."""
        self._earlier = facts
        with self._lock:
            self._count_earlier()

    def _count_earlier(self) -> None:
        for fact in self._earlier:
            self._count(fact)
        self._running.clear()
        self._status, self._before = "running", self._ended

    def count(self, event: RunEvent) -> bool:
        """Count an event. Return whether it changes what there is to show. From any thread."""
        with self._lock:
            return self._count(event)

    def _count(self, event: RunEvent) -> bool:
        if event.part.place != self._place:
            return isinstance(event, RunStarted) and self._goes_inside(event)
        if isinstance(event, RunFinished):
            self._end(event.status)
            return True
        if event.counted_as != self._noun:
            return isinstance(event, RunStarted)
        if not isinstance(event, Fact):  # it was done before this process
            self._done += 1
            self._before += 1
            return True
        place = event.where or " ".join(event.about)
        if isinstance(event, StepStarted):
            self._running[place] = event.step_id
            self._failed.discard(place)
            self._skipped.discard(place)
        elif isinstance(event, Ends):
            self._running.pop(place, None)
            self._failed.discard(place)  # of a call that is made again, the end is all that there is
            if event.outcome == "failed":
                self._failed.add(place)
            elif event.outcome == "skipped":
                self._skipped.add(place)
            elif event.outcome not in _IN_PROGRESS:
                self._done += 1
        return True

    def _goes_inside(self, started: RunStarted) -> bool:
        """Count in a run that begins inside of the only step, from now on."""
        is_inside = started.part.place.startswith(f"{self._place}/" if self._place else "")
        if self._total != 1 or not is_inside:
            return False
        self._place = started.part.place
        self._noun, self._total = what_counts(started)
        self._done = 0
        self._failed.clear()
        self._skipped.clear()
        self._count_earlier()
        return True

    @property
    def _ended(self) -> int:
        return self._done + len(self._failed) + len(self._skipped)

    def end(self, status: RunStatus) -> None:
        """Note that the run has ended, unless an event has said so."""
        with self._lock:
            if self._status == "running":
                self._end(status)

    def _end(self, status: RunStatus) -> None:
        self._status, self._took = status, perf_counter() - self._began
        self._running.clear()

    def now(self) -> Progress:
        """Return how far the run is."""
        usage = self._scope.spent()
        left = [
            EXACT.subtract(account.budget.usd, account.usage.committed_usd)
            for account in self._scope.bounds.accounts
            if account.budget.usd is not None
        ]
        with self._lock:
            here = self._ended - self._before
            seconds = self._took or perf_counter() - self._began
            return Progress(
                run_id=self._scope.run_id,
                name=self._scope.name,
                status=self._status,
                noun=self._noun,
                done=self._ended - len(self._failed),
                failed=len(self._failed),
                total=self._total,
                running=tuple(self._running.values()),
                requests=usage.request_count,
                cost_usd=usage.cost_usd,
                cost_complete=usage.cost_complete,
                left_usd=max(min(left), Decimal(0)) if left else None,
                seconds=seconds,
                rate=here / seconds if here > 0 and seconds else None,
            )
