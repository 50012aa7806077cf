"""The tree of scopes: what flows down (budget, tracer, deadline, run id) and up (usage, errors).

A scope opens as a child of the one that is current, through a `ContextVar`, so that an agent which a tool
calls inside a step is under that step without anyone passing anything.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from fastroai.errors import ForkedScopeError, StoppedRun, TimeBudgetExceeded, attach_usage
from fastroai.places import quoted
from fastroai.records import RequestRecord, RequestUse, Usage
from fastroai.runtime.clock import Clock, WorkClock
from fastroai.runtime.events import BudgetWarning, Listener, both, of_warnings, on_this_loop
from fastroai.runtime.facts import AnyFact, Part, RunEvent
from fastroai.runtime.in_flight import Charge, InFlight, SetAside
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.runtime.ledger import Account, Claim, wake
from fastroai.runtime.process import THIS_PROCESS
from fastroai.runtime.wakeup import no_running_loop, running_loop

if TYPE_CHECKING:
    from fastroai.runtime.flow import Flow
    from fastroai.runtime.provider_limits import ProviderLimits
    from fastroai.tracing import Tracer
    from fastroai.usage import Budget
    from fastroai.usage.limits import Ceiling, Limits

ScopeKind = Literal["pipeline", "graph", "flow", "workflow", "router", "step", "call", "agent", "budget"]

RUNS: Final = ("pipeline", "graph", "flow", "workflow")
"""Kinds of scopes that run steps: events name the innermost one, and places are within them."""

_PLACES: Final = ("step", *RUNS)
"""Kinds that are part of a place."""

Closer = Callable[[], Awaitable[None]]

_current: Final[ContextVar[Scope | None]] = ContextVar("fastroai_scope", default=None)


make_current: Final = _current.set
"""Make a scope the current one of the running context, for a context that ends with it."""


class ToolCalls(NamedTuple):
    """The calls of tools, and visits to nodes of LangGraph, that the running code is in.

    They are known where the run is on record, and are the same in every process.
    """

    key: str = ""
    """What tells the innermost from others; empty outside of any."""
    names: tuple[str, ...] = ()
    """Those of tools, outermost first."""


_NO_CALLS: Final = ToolCalls()
current_tool_calls: Final[ContextVar[ToolCalls]] = ContextVar("fastroai_tool_calls", default=_NO_CALLS)
"""Of a task, not of a scope: several calls of tools go on at once under one."""


def current_scope() -> Scope | None:
    """The innermost open scope of this task or thread; `None` outside of any run.

    In a process that was forked inside of a run, it is a new one: see `Scope.in_this_process`.
    """
    scope = _current.get()
    if scope is None or scope.process == THIS_PROCESS.id:
        return scope
    inherited = scope.in_this_process()
    _current.set(inherited)
    return inherited


class FactLog(Protocol):
    """Keeps the facts of a run."""

    scope: Scope
    """That of the run."""

    def note(self, fact: AnyFact) -> None:
        """Keep one more. From any thread."""
        ...


class LeftBehind(NamedTuple):
    """What a process that was forked inside of a run has left behind."""

    left: Literal["budget", "run"]
    """A budget, which counts in one process; or a run on record, whose record has one writer."""
    path: tuple[str, ...]
    """The scope with the innermost budget, else the innermost scope."""
    process: int
    """The process that has it."""


class Scope:
    """One unit of a run: a run of a pipeline or graph, a step, an agent run.

    Entered with `async with`. Its `usage` is that of every request made inside, at any depth.
    """

    __slots__ = (
        "_above",
        "_charges",
        "_children",
        "_clocks",
        "_events",
        "_in_flight",
        "_part",
        "_stopped_runs",
        "_token",
        "_usage",
        "_when_handed_on",
        "account",
        "agent_run",
        "attempt",
        "budget",
        "ceilings",
        "closed",
        "degraded",
        "estimated",
        "flow_run",
        "forked",
        "key",
        "kind",
        "labels",
        "listener",
        "lock",
        "log",
        "loop",
        "name",
        "on_record",
        "once",
        "open_inside",
        "ordinal",
        "parent",
        "process",
        "provider_limits",
        "reading",
        "receiving",
        "reserves",
        "run_id",
        "seconds_before",
        "step_id",
        "time",
        "tracer",
        "variant",
    )

    def __init__(
        self,
        kind: ScopeKind,
        name: str,
        *,
        parent: Scope | None,
        limits: Limits | None = None,
        deps: object = None,
        tracer: Tracer | None = None,
        run_id: str | None = None,
        listener: Listener | None = None,
        ordinal: int | None = None,
        key: str = "",
        provider_limits: ProviderLimits | None = None,
        seconds_before: float = 0.0,
        labels: Labels = NO_LABELS,
    ) -> None:
        """Open a scope under `parent`, whose tracer it inherits, unless it is given one, and whose listener.

        `deps` are for spend limits whose key depends on them. `key`, such as a hash of inputs, tells it from
        others of this name in the same attempt of its parent, whatever their order. `ordinal` tells it from
        those that have the same key; by default pipelines and graphs, and scopes that are given a key, are
        counted. `provider_limits` come on top of the parent's. `seconds_before` are what it has taken in
        earlier processes of the time of its budget. `labels` come on top of the parent's, too.
        """
        self.kind: ScopeKind = kind
        self.name = name
        self.parent = parent
        self._above: tuple[Scope, ...] = () if parent is None else (parent, *parent._above)
        self.attempt = 1
        self._children: dict[tuple[str, int], int] | None = None
        is_counted = kind in RUNS or bool(key)
        # Which tools ran before it differs from process to process.
        self.key: str = ".".join(filter(None, (current_tool_calls.get().key, key))) if is_counted else ""
        """What tells it from others of this name, whatever their order."""
        self.ordinal: int = ordinal or (
            parent.count_inside(name, self.key) if parent is not None and is_counted else 1
        )
        self._usage: Usage | None = None
        self._charges: list[Charge] | None = None
        self._in_flight: dict[InFlight, bool] | None = None
        """Requests that have not ended, and whether their bounds were charged here."""
        self._stopped_runs: list[StoppedRun] | None = None
        self.receiving = 0
        """Of an agent run: whether it has an answer that is not in use yet. Of a step: how many of these."""
        self._when_handed_on: Callable[[], None] | None = None
        self.reading: tuple[Flow, ...] = ()
        """Streams that whoever made it is reading, which go on after it has ended."""
        self.time: Clock | None = None
        """The clock of its budget, once it runs."""
        self.seconds_before = seconds_before
        self.budget: Budget | None = None
        self.labels: Labels = NO_LABELS if parent is None else parent.labels
        """The tags and the tenant of spending in this scope."""
        if labels is not NO_LABELS:
            self.labels = labels.inside(self.labels)
        self.account: Account | None = None if parent is None else parent.account
        """The nearest account: of this scope's budget, else of the nearest one above."""
        self.ceilings: tuple[Ceiling, ...] = () if parent is None else parent.ceilings
        """The spend limits that hold here."""
        self.reserves: tuple[SetAside, ...] = () if parent is None else parent.reserves
        """What is set aside for the runs that it is in, innermost first."""
        self.provider_limits: tuple[ProviderLimits, ...] = () if parent is None else parent.provider_limits
        """What limits the requests to each provider here: all of these do."""
        self.closed = False
        self.degraded = False
        """Whether a pipeline that is nested here was, although it did not fail."""
        self.open_inside: list[Closer] | None = None
        """What ends what is open inside, which must end before this scope can close."""
        self._clocks: list[Clock] | None = None
        self.log: FactLog | None = None if parent is None else parent.log
        """The log of the run that it is a part of."""
        self._part: Part | None = None
        self.on_record: bool = parent is not None and parent.on_record
        """Whether a store keeps the run that it is a part of."""
        self.once: object = None if parent is None else parent.once
        """The register of side effects of the run that it is a part of."""
        self.agent_run: object = None if parent is None else parent.agent_run
        """What the meter knows of the innermost run of an agent that it is a part of."""
        self.flow_run: object = None if parent is None else parent.flow_run
        """The run of the innermost flow that it is a part of."""
        self.estimated: tuple[Budget, ...] | None = None if parent is None else parent.estimated
        """The budgets around what is only estimated here; `None` where something runs."""
        self.forked: LeftBehind | None = None if parent is None else parent.forked
        """Why nothing may be spent here: what it counts against is in the process that forked this one."""
        self.loop: asyncio.AbstractEventLoop | None
        self.lock: threading.Lock
        self.process: int
        self._events: deque[tuple[Listener, RunEvent]]
        if parent is None:
            self.process = THIS_PROCESS.id
            self._events = deque()
            self.lock = threading.Lock()
            self.loop = running_loop()
            self.run_id = run_id or os.urandom(16).hex()
            self.tracer = tracer
            self.listener = None if listener is None else on_this_loop(listener)
            self.step_id = name if kind == "step" else None
            self.variant: str | None = None
        else:
            self.process = parent.process
            self._events = parent._events
            self.lock = parent.lock
            self.loop = parent.loop
            self.run_id = run_id or parent.run_id
            self.tracer = parent.tracer if tracer is None else tracer
            self.listener = (
                parent.listener if listener is None else both(on_this_loop(listener), parent.listener)
            )
            self.step_id = name if kind == "step" else parent.step_id
            self.variant = parent.variant
        if limits is not None:
            self._limit(limits, deps)
        if provider_limits:
            self.provider_limits = (*self.provider_limits, provider_limits)

    def _limit(self, limits: Limits, deps: object) -> None:
        self.ceilings = limits.ceilings(deps, self.labels.tenant, within=self.ceilings)
        self.budget = limits.budget
        if limits.budget is not None:
            with self.lock:
                self.account = Account(limits.budget, self.usage, self.account, self.path)
            if self.parent is not None and self.parent.kind == "call" and self.parent.budget is limits.budget:
                self.account.warnings_told = len(limits.budget.warn_at)  # the call tells, of all its attempts
        self._alert(limits)

    def _alert(self, limits: Limits) -> None:
        """Have handlers called with the warnings of these limits."""
        path = self.path
        if self.budget is not None and self.budget.on_warning is not None:
            handler = self.budget.on_warning
            self._hear(of_warnings(handler, lambda one: one.key is None and one.scope_path == path))
        known = () if self.parent is None else self.parent.ceilings
        for ceiling in self.ceilings if limits.spend_limits else ():
            if ceiling.limit.on_warning is not None and ceiling not in known:
                self._hear(of_warnings(ceiling.limit.on_warning, _warnings_of(ceiling)))

    def _hear(self, listener: Listener) -> None:
        self.listener = both(on_this_loop(listener), self.listener)

    def __repr__(self) -> str:
        return f"Scope({' / '.join(self.path)})"

    @property
    def root(self) -> Scope:
        """The outermost scope: this one, or the last of its ancestors."""
        # Not an attribute: a scope that refers to itself stays in memory, with all that was made inside,
        # until Python next looks for circles.
        return self._above[-1] if self._above else self

    @property
    def path(self) -> tuple[str, ...]:
        """Names from the outermost scope to this one."""
        names = [scope.name for scope in self.lineage()]
        return tuple(reversed(names))

    def is_within(self, path: tuple[str, ...]) -> bool:
        """Whether the scope of this path is this one or around it, and not one of another run."""
        return self.path[: len(path)] == path

    def lineage(self) -> tuple[Scope, ...]:
        """This scope and its ancestors, innermost first."""
        return (self, *self._above)

    def place_within(self, outer: Scope | None) -> str:
        """Which steps, pipelines and graphs this is in, with their attempts, as in `write@1/inner/check@2`.

        The same in every process that runs the same thing. `outer` is around all of them.
        """
        names: list[str] = []
        for scope in self.lineage():
            if scope is outer:
                break
            if scope.kind in _PLACES:
                names.append(scope.own_place + (f"@{scope.attempt}" if scope.kind == "step" else ""))
        return "/".join(reversed(names))

    @property
    def own_place(self) -> str:
        """What tells it from others in the same attempt of what is around it."""
        name = quoted(self.name)
        number = "" if self.ordinal == 1 else str(self.ordinal)
        which = ".".join(filter(None, (self.key, number)))
        return f"{name}#{which}" if which else name

    def count_inside(self, name: str, key: str) -> int:
        """How many of this name and key were opened in this attempt at the step around."""
        around = next((scope for scope in self.lineage() if scope.kind in _PLACES), self.root)
        return around.count_child(f"{name}#{key}")

    def count_child(self, name: str) -> int:
        """How many of this name were opened in this attempt, with this one."""
        if self._children is None:
            self._children = {}
        key = (name, self.attempt)
        self._children[key] = self._children.get(key, 0) + 1
        return self._children[key]

    # --- up: usage ---

    @property
    def usage(self) -> Usage:
        """What was spent here and below. It goes on counting; `spent()` is a snapshot."""
        if self._usage is None:  # made when first needed: most steps of a large pipeline spend nothing
            self._usage = Usage()
        return self._usage

    @property
    def has_spent(self) -> bool:
        """Whether anything may have been spent here or below; once it is closed, that does not change."""
        return self._usage is not None

    @property
    def charges(self) -> list[Charge]:
        """Every request made here and below, in the order in which they ended."""
        if self._charges is None:
            self._charges = []
        return self._charges

    @property
    def charge_count(self) -> int:
        """How many requests were made here and below."""
        return len(self._charges or ())

    @property
    def records(self) -> list[RequestRecord]:
        """What `charges` hold, now."""
        return [charge.record for charge in self._charges or ()]

    def charge(self, record: RequestRecord) -> Charge:
        """Count spending here and in every ancestor.

        A scope that is closed is passed over: the nearest open ancestor counts it. When all are closed the
        root still counts it, so that nothing that was paid for is lost.
        """
        charge = Charge(record)
        counted = False
        with self.lock:
            for scope in self.lineage():
                if scope.closed and not (scope.parent is None and not counted):
                    continue
                counted = True
                scope._count(charge)
        return charge

    def _count(self, charge: Charge) -> None:
        if self._usage is None:
            self._usage = Usage()
        if self._charges is None:
            self._charges = []
        self._usage.add(charge.record)
        self._charges.append(charge)

    # --- requests in flight ---

    def add_in_flight(self, request: InFlight) -> list[Claim]:
        """A request was admitted: this scope and its ancestors wait for what it costs.

        For callers that hold the lock, as for `end_in_flight`. Returns the claims that this changes.
        """
        changed: list[Claim] = []
        for scope in (self, *self._above):
            if not scope.closed:
                if scope._in_flight is None:
                    scope._in_flight = {}
                scope._in_flight[request] = False
            elif scope.budget is not None and scope.account is not None:  # closed by another thread just now
                changed += request.leave(scope.account)
        return changed

    def end_in_flight(self, request: InFlight, charge: Charge | None) -> None:
        """A request has ended: count what it is charged, if anything, wherever it was waited for.

        A scope that has closed meanwhile has charged its bound, and does not count it again.
        """
        for scope in (self, *self._above):
            if scope._in_flight and not scope._in_flight.pop(request, True) and charge is not None:
                scope._count(charge)

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        """Requests here and below that have not ended. The lock is held."""
        return tuple(self._in_flight or ())

    def write_off_in_flight(self) -> None:
        """Charge the bounds of the requests in flight: this scope will not learn what they cost.

        They go on, and the scopes around this one still count what they really cost.
        """
        if self._in_flight:
            with self.lock:
                changed = self._write_off(self._in_flight)
            wake(changed)

    def _write_off(self, in_flight: dict[InFlight, bool]) -> list[Claim]:
        requests = [request for request, is_charged in in_flight.items() if not is_charged]
        changed: list[Claim] = []
        for request in requests:
            in_flight[request] = True
            self._count(request.write_off())
        if self.budget is not None and self.account is not None:
            for request in requests:
                changed += request.leave(self.account)
        return changed

    def restore(self, charges: Iterable[Charge], agent_calls: int = 0) -> None:
        """Count what an earlier process has spent in the same place: here, and nowhere else."""
        with self.lock:
            self._count_known(charges, agent_calls)

    def recount(self, charges: Iterable[Charge], agent_calls: int = 0) -> None:
        """Count what an earlier process has spent, up to the step, which has it from `restore`."""
        with self.lock:
            for scope in self.lineage():
                if scope.kind in _PLACES:
                    break
                scope._count_known(charges, agent_calls)

    def _count_known(self, charges: Iterable[Charge], agent_calls: int) -> None:
        self.usage.agent_calls += agent_calls
        for charge in charges:
            self.usage.add(charge.record)
            self.charges.append(charge)
        if self.budget is not None and self.account is not None:
            self.account.new_warnings()  # that process has told of these

    def mark(self, use: RequestUse, *, since: int = 0, was: RequestUse | None = None) -> None:
        """Note what became of the requests made here: of those from index `since` on, and marked `was`."""
        with self.lock:
            for charge in self._charges[since:] if self._charges else ():
                # What was thrown away before stays so.
                if charge.record.use != "retried" and was in (None, charge.record.use):
                    charge.mark(use)

    def mark_records(self, records: Iterable[RequestRecord], use: RequestUse) -> None:
        """Note what became of some of the requests made here, whose records `records` gave."""
        marked = set(map(id, records))
        with self.lock:
            for charge in self._charges or ():
                if id(charge.record) in marked and charge.record.use != "retried":
                    charge.mark(use)

    def count_agent_call(self) -> None:
        """Count the start of an agent run here and in every ancestor."""
        with self.lock:
            self.usage.agent_calls += 1
            for scope in self._above:
                scope.usage.agent_calls += 1

    def spent(self) -> Usage:
        """A consistent snapshot of the usage so far."""
        with self.lock:
            return self.usage.copy()

    # --- answers on their way ---

    def note_answer(self) -> None:
        """An answer was paid for, of the agent run that this scope is of, and is not in use yet."""
        if not self.receiving:
            self.receiving = 1
            for scope in self._above:
                if scope.kind == "step":
                    scope.receiving += 1

    def hand_on(self) -> None:
        """Whoever asked has the answer, or the run goes on with it: asks again, or calls a tool."""
        if self.receiving and self.kind == "agent":
            self.receiving = 0
            for scope in self._above:
                if scope.kind == "step":
                    scope.receiving -= 1
                    if not scope.receiving and scope._when_handed_on is not None:
                        scope._when_handed_on()

    def when_handed_on(self, then: Callable[[], None]) -> None:
        """Have something done when no answer is on its way in this step any more."""
        self._when_handed_on = then

    # --- down: time ---

    def add_clock(self, clock: Clock) -> None:
        """Let retries below see a deadline of this scope."""
        if self._clocks is None:
            self._clocks = []
        self._clocks.append(clock)

    def remove_clock(self, clock: Clock) -> None:
        """Forget a deadline that has been left."""
        if self._clocks is not None:
            self._clocks.remove(clock)

    @contextmanager
    def in_line(self) -> Iterator[None]:
        """A request waits for others here: attempts at a call and at a step lose no time by that."""
        with ExitStack() as stack:
            stack.enter_context(self.at_rest())
            for scope in self.lineage():
                for clock in scope._clocks or ():
                    if clock.of_attempt:
                        stack.enter_context(clock.paused())
                if scope.kind == "step":
                    break  # what is around it is for more than this request
            yield

    @contextmanager
    def nesting(self) -> Iterator[None]:
        """This is a run, with time limits of its own: the attempt at the step around it loses no time."""
        step = next((scope for scope in self.lineage() if scope.kind == "step"), None)
        with ExitStack() as stack:
            for clock in (() if step is None else step._clocks) or ():
                if clock.of_attempt:
                    stack.enter_context(clock.paused())
            yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Something waits here before it goes on: limits of work lose no time by that."""
        with ExitStack() as stack:
            for scope in self.lineage():
                for clock in scope._clocks or ():
                    if isinstance(clock, WorkClock):
                        stack.enter_context(clock.at_rest(scope))
            yield

    @property
    def attempt_ran_out(self) -> bool:
        """Whether the time of an attempt at a call or at a step has run out here."""
        clocks = (clock for scope in self.lineage() for clock in scope._clocks or ())
        return any(clock.of_attempt and clock.ran_out for clock in clocks)

    def time_left(self) -> float | None:
        """Seconds until the nearest deadline of this scope and its ancestors; `None` without one."""
        return min((left for left, _ in self._deadlines()), default=None)

    def deadline_before(self, seconds: float) -> tuple[str, float] | None:
        """What would run out during a wait of so many seconds, if anything, and what it has left."""
        left, clock = min(self._deadlines(), key=lambda deadline: deadline[0], default=(None, None))
        return None if left is None or clock is None or seconds < left else (clock.what, left)

    @property
    def out_of_time(self) -> BaseException | None:
        """What is about to be raised where a time limit of this scope has cancelled what is inside."""
        return next((clock.exceeded() for clock in self._clocks or () if clock.ran_out), None)

    @property
    def is_cancelled_by_time(self) -> bool:
        """Whether a time limit of this scope or around it has cancelled what is inside."""
        return any(clock.ran_out for scope in self.lineage() for clock in scope._clocks or ())

    def _deadlines(self) -> Iterator[tuple[float, Clock]]:
        for scope in self.lineage():
            for clock in scope._clocks or ():
                if (left := clock.remaining()) is not None:
                    yield left, clock

    # --- events ---

    async def emit(self, event: RunEvent) -> None:
        """Tell whoever listens to this run, after what was noted before."""
        await self.tell()
        if self.listener is not None:
            await self.listener(event)

    def note(self, event: RunEvent) -> None:
        """Have an event told as soon as somebody can wait for the listener: at the next `emit` or `tell`."""
        if self.listener is not None:
            self._events.append((self.listener, event))

    async def tell(self) -> None:
        """Tell what was noted anywhere in the run."""
        while self._events:
            listener, event = self._events.popleft()
            await listener(event)

    @property
    def part(self) -> Part:
        """Where events of this scope happen: in the innermost pipeline or graph, else the outermost scope."""
        if self._part is not None:
            return self._part
        for run in self.lineage():
            if run.kind in RUNS:
                break
        else:
            return Part(self.run_id, "", (self.root.name,))
        if run._part is None:
            outer = run if run.log is None else run.log.scope
            # As a log has it, where only places are on record: routers have no place of their own.
            run._part = Part(run.run_id, outer.name, (outer.name,)).inside(run.place_within(outer))
        return run._part

    # --- life ---

    def on_close(self, closer: Closer) -> None:
        """Have something ended when this scope ends, at the latest."""
        if self.open_inside is None:
            self.open_inside = []
        self.open_inside.append(closer)

    def forget_closer(self, closer: Closer) -> None:
        """It has ended by itself."""
        if self.open_inside is not None and closer in self.open_inside:
            self.open_inside.remove(closer)

    async def end_inside(self) -> None:
        """End what is still open inside, all of it: abandoned streams, calls of abandoned threads."""
        cancelled: asyncio.CancelledError | None = None
        while self.open_inside:
            try:
                await self.open_inside.pop()()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def close(self, error: BaseException | None = None) -> None:
        """Close, and note on `error` what was spent.

        Requests that are in flight are charged at their bounds here and go on under the scopes around this
        one. At the end of the outermost scope they are ended: each raises `ScopeClosedError` where it was
        made.
        """
        if self.process != THIS_PROCESS.id:
            self.closed = (
                True  # its requests, and who holds its lock, are in the process that forked this one
            )
            return
        if self.receiving:
            self.hand_on()
        with self.lock:
            self.closed = True
            changed: list[Claim] = []
            if in_flight := self._in_flight:
                changed = self._write_off(in_flight)
                self._in_flight = None
            if self.budget is not None and self.account is not None:
                changed += self.account.close()
        if changed:
            wake(changed)
        if self.parent is None and in_flight:
            for request in in_flight:
                request.interrupt()
        if error is not None:
            self.mark("failed")
            attach_usage(error, self.spent(), self.records)

    # --- other processes ---

    def in_this_process(self) -> Scope:
        """This scope; in a process that was forked inside of it, a new outermost one in its place.

        Spend limits hold in both, as a store keeps them. A budget cannot, and a run's record has one writer,
        so under these the new scope lets nothing be spent.
        """
        if self.process == THIS_PROCESS.id:
            return self
        scope = Scope("budget", self.root.name, parent=None, tracer=self.tracer, run_id=self.run_id)
        scope.step_id, scope.variant = self.step_id, self.variant
        scope.ceilings, scope.provider_limits = self.ceilings, self.provider_limits
        scope.agent_run, scope.labels = self.agent_run, self.labels
        if self.account is not None or self.on_record:
            path = self.path if self.account is None else self.account.path
            scope.forked = LeftBehind("run" if self.on_record else "budget", path, self.process)
        return scope

    def count_for_itself(self) -> None:
        """A budget is opened here: one of the process that forked this one is no longer in the way."""
        if self.forked is not None and self.forked.left == "budget":
            self.forked = None

    def check_process(self) -> None:
        """Raise `ForkedScopeError` where nothing may be spent, as what it counts against is elsewhere."""
        if self.forked is not None:
            raise ForkedScopeError(*self.forked, THIS_PROCESS.id)

    def time_budget(self) -> Clock | None:
        """The clock for the milliseconds of this scope's budget, if it has any."""
        if self.budget is None or (ms := self.budget.ms) is None:
            return None
        self.time = Clock(
            max(ms / 1000 - self.seconds_before, 0.0),
            f"{self.kind} {self.name!r}",
            error=lambda: self._out_of_time(ms),
        )
        return self.time

    def _out_of_time(self, ms: int) -> TimeBudgetExceeded:
        error = TimeBudgetExceeded(ms, ms, self.step_id, None, self.path)
        error.stopped_runs = self._stopped_runs or []
        return error

    def keep_stopped(self, run: StoppedRun) -> None:
        """Keep what an agent run can go on from that was cancelled here, for those whose time has run out."""
        for scope in self.lineage():
            if scope.time is not None and scope.time.ran_out:
                scope._stopped_runs = [*(scope._stopped_runs or ()), run]

    def enter(self) -> None:
        """Make this the current scope, until `leave`; for code that is not async."""
        self._token = _current.set(self)

    def leave(self, error: BaseException | None = None) -> None:
        """Close, and make current what was before."""
        self.close(error)
        _current.reset(self._token)

    async def __aenter__(self) -> Scope:
        if self.loop is None and running_loop() is None:
            raise no_running_loop()
        self._token = _current.set(self)
        if self.budget is not None and (time := self.time_budget()) is not None:
            await time.__aenter__()
            self.add_clock(time)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            try:
                if self.open_inside:
                    await self.end_inside()
            except BaseException as error:
                exc_type, exc, traceback = type(error), error, error.__traceback__
                raise
            finally:
                if self.time is not None:
                    await self.time.__aexit__(exc_type, exc, traceback)
        except BaseException as raised:
            exc = raised
            raise
        finally:
            self.close(exc)
            _current.reset(self._token)


def _warnings_of(ceiling: Ceiling) -> Callable[[BudgetWarning], bool]:
    """Return what tells the warnings of a spend limit from others."""
    own = ceiling.account.key, ceiling.account.window, ceiling.limit.usd
    return lambda warning: (warning.key, warning.window, warning.coded_usd or warning.limit_usd) == own
