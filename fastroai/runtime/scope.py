"""The tree of scopes: budget, tracer, deadline and run id flow down, usage and errors flow up.

A scope opens as a child of the current scope, which a `ContextVar` holds. So an agent that a tool calls
inside a step is under that step, and no argument is passed for that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from fastroai.errors import ForkedScopeError, StoppedRun, TimeBudgetExceeded, attach_usage
from fastroai.places import quoted
from fastroai.records import AgentCallUsage, RequestRecord, RequestUse, Usage
from fastroai.runtime.clock import Clock, WorkClock
from fastroai.runtime.events import BudgetWarning, Listener, both, of_warnings, on_this_loop
from fastroai.runtime.facts import Fact, Part, RunEvent
from fastroai.runtime.flow import Flow, read_by_this_task
from fastroai.runtime.in_flight import AgentCharges, Charge, InFlight, SetAside, usage_of_calls
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.runtime.ledger import Account, Claim, wake
from fastroai.runtime.process import THIS_PROCESS
from fastroai.runtime.wakeup import no_running_loop, running_loop
from fastroai.usage.limits import ceilings_for

if TYPE_CHECKING:
    from fastroai.runtime.provider_limits import ProviderLimits
    from fastroai.tracing import Tracer, TraceSpan
    from fastroai.usage import Budget
    from fastroai.usage.limits import Ceiling, Limits
    from fastroai.usage.spend_store import SpendAccount, SpendStore

ScopeKind = Literal["pipeline", "graph", "flow", "workflow", "router", "step", "call", "agent", "budget"]

RUNS: Final = ("pipeline", "graph", "flow", "workflow")
"""Kinds of scopes that run steps: events name the innermost one, and places are within them."""

_AROUND_CALLS: Final = ("budget", "call", "router")
"""Kinds that are no calls of a function, an agent or a run by themselves, but can be around calls."""

_PLACES: Final = ("step", *RUNS)
"""Kinds that are part of a place."""

Closer = Callable[[], Awaitable[None]]

_current: Final[ContextVar[Scope | None]] = ContextVar("fastroai_scope", default=None)


make_current: Final = _current.set
"""Make a scope the current one of the running context, where that context ends with the scope."""


class ToolCalls(NamedTuple):
    """The calls of tools, visits to nodes of LangGraph, and effects of `once` that the running code is in.

    They are known in runs on record, and are the same in every process.
    """

    key: str = ""
    """Key of the innermost call or visit, which differs from those of others; empty outside of any."""
    names: tuple[str, ...] = ()
    """Names of the tool calls, outermost first."""
    effect: str = ""
    """Names of the effects, outermost first."""

    @property
    def key_of_runs(self) -> str:
        """Key of the runs that are begun here.

        A resumed step does not repeat an effect, so runs inside of effects are counted apart from others.
        """
        return ".".join(filter(None, (self.key, self.effect)))

    def inside_effect(self, name: str) -> ToolCalls:
        """Return these calls, and an effect inside of them."""
        return self._replace(effect=".".join(filter(None, (self.effect, f"once:{quoted(name)}"))))


_NO_CALLS: Final = ToolCalls()
current_tool_calls: Final[ContextVar[ToolCalls]] = ContextVar("fastroai_tool_calls", default=_NO_CALLS)
"""The tool calls around the running task. Not kept in a scope: several tool calls run at once under one."""


def current_scope() -> Scope | None:
    """Return the innermost open scope of this task or thread; `None` outside of any run.

    A process that was forked inside of a run gets a new scope: see `Scope.in_this_process`.
    """
    scope = _current.get()
    if scope is None or scope.process == THIS_PROCESS.id:
        return scope
    inherited = scope.in_this_process()
    _current.set(inherited)
    return inherited


class FactLog(Protocol):
    """A log that keeps the facts of a run."""

    scope: Scope
    """The scope of the run."""

    def note(self, fact: Fact) -> None:
        """Add a fact. Works from any thread."""
        ...


class Route(NamedTuple):
    """A variant that a router has tried."""

    name: str
    """The name under which the variant is registered."""
    variant: str
    """The name after the names of the variants around it: `long/formal`."""


class LeftBehind(NamedTuple):
    """The budget or run on record that a forked process cannot use, because its parent process has it."""

    left: Literal["budget", "run"]
    """A budget, which counts in one process only; or a run on record, whose log has one writer."""
    path: tuple[str, ...]
    """Path of the scope with the innermost budget, else of the innermost scope."""
    process: int
    """Id of the process that has the budget or the run."""


class Scope:
    """One node of the tree: a run of a pipeline or graph, a step, an agent call, a budget in code.

    Entered with `async with`. Its `usage` is the sum of all requests made inside, at any depth.
    """

    __slots__ = (
        "_above",
        "_agent_calls",
        "_charges",
        "_children",
        "_clocks",
        "_events",
        "_in_flight",
        "_part",
        "_slot",
        "_stopped_runs",
        "_token",
        "_unsure",
        "_usage",
        "_when_handed_on",
        "account",
        "agent_run",
        "all_ceilings",
        "answers",
        "attempt",
        "budgets",
        "calls_at_once",
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
        "routes",
        "run_id",
        "seconds_before",
        "span",
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
        """Open a scope under `parent`. Without a `tracer` it has that of its parent.

        Events go to `listener` and to that of the parent. `deps` are for spend limits whose key depends on
        them. `key`, such as a hash of inputs, distinguishes the scope from others of its name in the same
        attempt of the parent, whatever their order. `ordinal` distinguishes scopes with the same key; by
        default it is counted for pipelines, graphs and scopes with a key. `provider_limits` and `labels` are
        added to those of the parent. `seconds_before` are the seconds of its time budget that earlier
        processes have used.
        """
        self.kind: ScopeKind = kind
        self.name = name
        self.parent = parent
        self._above: tuple[Scope, ...] = () if parent is None else (parent, *parent._above)
        self.attempt = 1
        self._children: dict[tuple[str, int], int] | None = None
        is_counted = kind in RUNS or bool(key)
        self.key: str = ""
        """The key that distinguishes this scope from others of its name, whatever their order."""
        if is_counted:  # a key, not an order: which tool calls run first differs from process to process
            calls = current_tool_calls.get()
            around = calls.key_of_runs if kind in RUNS else calls.key
            self.key = ".".join(filter(None, (around, key)))
        self.ordinal: int = ordinal or (
            parent.count_inside(name, self.key) if parent is not None and is_counted else 1
        )
        self.span: TraceSpan | None = None
        """The span of this scope itself, if a tracer has made one."""
        self._usage: Usage | None = None
        self._agent_calls: list[AgentCharges] | None = None
        self._charges: list[Charge] | None = None
        self._in_flight: dict[InFlight, bool] | None = None
        """Requests that have not ended, each with whether its bound was already charged here."""
        self._stopped_runs: list[StoppedRun] | None = None
        self.receiving = 0
        """Number of answers not in use yet: 0 or 1 for an agent run; for a step, those of its agent runs."""
        self._when_handed_on: Callable[[], None] | None = None
        self.reading: tuple[Flow, ...] = ()
        """Streams that the maker of this scope is reading, and that go on after this scope has ended."""
        self.time: Clock | None = None
        """The clock of the time budget, once it runs."""
        self.seconds_before = seconds_before
        self.budgets: tuple[Budget, ...] = ()
        """The budgets of this scope itself, the most specific one first."""
        self.labels: Labels = NO_LABELS if parent is None else parent.labels
        """The tags and the tenant of spending in this scope."""
        self.account: Account | None = None if parent is None else parent.account
        """The account of this scope's first budget, else of the nearest budget above; `None` without one."""
        self.all_ceilings: tuple[Ceiling, ...] = () if parent is None else parent.all_ceilings
        """The spend limits of this scope and of those above, also those for tags that this scope lacks."""
        self.ceilings: tuple[Ceiling, ...] = () if parent is None else parent.ceilings
        """The spend limits that apply in this scope."""
        if labels is not NO_LABELS:
            self.labels = labels.inside(self.labels)
            self.ceilings = ceilings_for(self.labels.tags, self.all_ceilings)
        self.reserves: tuple[SetAside, ...] = () if parent is None else parent.reserves
        """The money that is set aside for the runs around this scope, innermost first."""
        self.provider_limits: tuple[ProviderLimits, ...] = () if parent is None else parent.provider_limits
        """The provider limits that apply in this scope, all of them at once."""
        self.closed = False
        self.degraded = False
        """Whether a pipeline nested in this scope was degraded, although it did not fail."""
        self.calls_at_once: asyncio.Semaphore | None = None
        """Bounds how many functions, agents and runs that the code in this scope calls run at once."""
        if parent is not None and kind in _AROUND_CALLS:
            self.calls_at_once = parent.calls_at_once
        self._slot: asyncio.Semaphore | None = None
        self.routes: tuple[Route, ...] = ()
        """The variants that routers in this scope have tried in this process, in order."""
        self.open_inside: list[Closer] | None = None
        """Functions that end streams and calls inside, which must end before this scope can close."""
        self._clocks: list[Clock] | None = None
        self.log: FactLog | None = None if parent is None else parent.log
        """The log of the run that this scope is a part of."""
        self._unsure: set[tuple[SpendStore, SpendAccount]] | None = None
        self._part: Part | None = None
        self.on_record: bool = parent is not None and parent.on_record
        """Whether a store keeps the run that this scope is a part of."""
        self.once: object = None if parent is None else parent.once
        """The register of side effects of the run that this scope is a part of."""
        self.answers: object = None if parent is None else parent.answers
        """The answers to questions that a test has prepared for this scope."""
        self.agent_run: object = None if parent is None else parent.agent_run
        """The meter's data of the innermost agent run that this scope is a part of."""
        self.flow_run: object = None if parent is None else parent.flow_run
        """The run of the innermost flow that this scope is a part of."""
        self.estimated: tuple[Budget, ...] | None = None if parent is None else parent.estimated
        """The budgets around an estimate that is made in this scope; `None` if the scope is of a real run."""
        self.forked: LeftBehind | None = None if parent is None else parent.forked
        """Why nothing may be spent here: the budget or run is in the process that forked this one."""
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
        if limits.spend_limits:
            for ceiling in limits.ceilings(deps, self.labels.tenant):
                if ceiling not in self.all_ceilings:
                    self.all_ceilings += (ceiling,)
            self.ceilings = ceilings_for(self.labels.tags, self.all_ceilings)
        self.budgets = limits.budgets
        if limits.budgets:
            call = self.parent if self.parent is not None and self.parent.kind == "call" else None
            with self.lock:
                for budget in reversed(limits.budgets):
                    self.account = Account(budget, self.usage, self.account, self.path)
                    if call is not None and any(budget is one for one in call.budgets):
                        # The scope of the call warns, for all its attempts.
                        self.account.warnings_told = len(budget.warn_at)
        self._alert(limits)

    @property
    def _own_accounts(self) -> Iterable[Account]:
        """The accounts of the budgets of this scope itself."""
        return () if self.account is None else islice(self.account.lineage(), len(self.budgets))

    def _alert(self, limits: Limits) -> None:
        """Have handlers called with the warnings of these limits."""
        for budget in self.budgets:
            if budget.on_warning is not None:
                self._hear(of_warnings(budget.on_warning, self._warnings_of(budget)))
        known = () if self.parent is None else self.parent.all_ceilings
        for ceiling in self.all_ceilings[len(known) :]:
            if ceiling.limit.on_warning is not None:
                self._hear(of_warnings(ceiling.limit.on_warning, _warnings_of(ceiling)))

    def _warnings_of(self, budget: Budget) -> Callable[[BudgetWarning], bool]:
        """Return a function that says whether a warning is one of this budget of the scope."""
        path = self.path
        return lambda one: one.budget is budget and one.scope_path == path

    def _hear(self, listener: Listener) -> None:
        self.listener = both(on_this_loop(listener), self.listener)

    def __repr__(self) -> str:
        return f"Scope({' / '.join(self.path)})"

    @property
    def root(self) -> Scope:
        """The outermost scope: this one, or the last of its ancestors."""
        # Not an attribute: a scope that refers to itself is a reference cycle. It would stay in memory, with
        # everything that was made inside, until Python's next collection of cycles.
        return self._above[-1] if self._above else self

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the scopes from the outermost to this one."""
        names = [scope.name for scope in self.lineage()]
        return tuple(reversed(names))

    def is_within(self, path: tuple[str, ...]) -> bool:
        """Return whether `path` is the path of this scope or of a scope around it."""
        return self.path[: len(path)] == path

    def lineage(self) -> tuple[Scope, ...]:
        """Return this scope and its ancestors, innermost first."""
        return (self, *self._above)

    def place_within(self, outer: Scope | None) -> str:
        """Return the place of this scope within `outer`, such as `write@1/inner/check@2`.

        It names the steps (with their attempts), pipelines and graphs between `outer` and this scope, and is
        the same in every process that takes up the run.
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
        """The name of this scope in its place, which no other scope in the same attempt around it has."""
        name = quoted(self.name)
        number = "" if self.ordinal == 1 else str(self.ordinal)
        which = ".".join(filter(None, (self.key, number)))
        return f"{name}#{which}" if which else name

    def count_inside(self, name: str, key: str) -> int:
        """Count a new scope of this name and key in the attempt at the step around. Returns its number."""
        around = next((scope for scope in self.lineage() if scope.kind in _PLACES), self.root)
        return around.count_child(f"{name}#{key}")

    def count_child(self, name: str) -> int:
        """Count a new scope of this name in the present attempt. Returns its number, from 1."""
        if self._children is None:
            self._children = {}
        key = (name, self.attempt)
        self._children[key] = self._children.get(key, 0) + 1
        return self._children[key]

    # --- up: usage ---

    @property
    def usage(self) -> Usage:
        """The usage of this scope and all below, which goes on counting; `spent()` returns a snapshot."""
        if self._usage is None:  # made when first needed: most steps of a large pipeline spend nothing
            self._usage = Usage()
        return self._usage

    @property
    def has_spent(self) -> bool:
        """Whether anything may have been spent here or below. Closed scopes do not change."""
        return self._usage is not None

    @property
    def charges(self) -> list[Charge]:
        """Charges of all requests made here and below, in the order in which the requests ended."""
        if self._charges is None:
            self._charges = []
        return self._charges

    @property
    def charge_count(self) -> int:
        """Number of charges here and below."""
        return len(self._charges or ())

    @property
    def records(self) -> list[RequestRecord]:
        """The records of `charges`, as they are now."""
        return [charge.record for charge in self._charges or ()]

    def charge(self, record: RequestRecord) -> Charge:
        """Count spending here and in every ancestor.

        A closed scope does not count it, but the open ones above do. If all are closed, the root still counts
        it, so that no payment is lost.
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
        """Add a request that was admitted: this scope and its ancestors wait for its cost.

        The caller holds the lock, as for `end_in_flight`. Returns the claims that this changes.
        """
        changed: list[Claim] = []
        for scope in (self, *self._above):
            if not scope.closed:
                if scope._in_flight is None:
                    scope._in_flight = {}
                scope._in_flight[request] = False
            else:  # another thread has just closed it
                for account in scope._own_accounts:
                    changed += request.leave(account)
        return changed

    def end_in_flight(self, request: InFlight, charge: Charge | None) -> None:
        """Remove a request that has ended, and count its charge, if any, in this scope and its ancestors.

        A scope that closed meanwhile has charged the bound, and does not count the request again.
        """
        for scope in (self, *self._above):
            if scope._in_flight and not scope._in_flight.pop(request, True) and charge is not None:
                scope._count(charge)

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        """Requests here and below that have not ended. The caller holds the lock."""
        return tuple(self._in_flight or ())

    def write_off_in_flight(self) -> None:
        """Charge the bounds of the requests in flight, because this scope will not learn their costs.

        The requests go on, and the scopes around this one still count their real costs.
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
        for account in self._own_accounts:
            for request in requests:
                changed += request.leave(account)
        return changed

    @property
    def unsure(self) -> set[tuple[SpendStore, SpendAccount]]:
        """Accounts of spend limits that may be crossed, so that their stores are asked before a step begins.

        Their stores have said so after a charge in this tree of scopes, or the run was resumed.
        """
        root = self.root
        if root._unsure is None:
            root._unsure = set()
        return root._unsure

    def take_route(self, name: str) -> None:
        """Note here and above that a router tries a variant. From now on, requests in this scope name it."""
        around = None if self.parent is None else self.parent.variant
        self.variant = name if around is None else f"{around}/{name}"
        with self.lock:
            for scope in self.lineage():
                scope.routes = (*scope.routes, Route(name, self.variant))

    def restore(self, charges: Iterable[Charge], agent_calls: Sequence[AgentCharges] = ()) -> None:
        """Count the spending of an earlier process in the same place, in this scope only."""
        with self.lock:
            self._count_known(charges, agent_calls)
        if self._charges:
            self.unsure.update(ceiling.place for ceiling in self.ceilings)

    def recount(self, charges: Iterable[Charge], agent_calls: Sequence[AgentCharges] = ()) -> None:
        """Count the spending of an earlier process here and up to the step around; there, `restore` does."""
        with self.lock:
            for scope in self.lineage():
                if scope.kind in _PLACES:
                    break
                scope._count_known(charges, agent_calls)

    def _count_known(self, charges: Iterable[Charge], agent_calls: Sequence[AgentCharges]) -> None:
        self._count_agent_calls(agent_calls)
        for charge in charges:
            self.usage.add(charge.record)
            self.charges.append(charge)
        for account in self._own_accounts:
            account.new_warnings()  # the earlier process has told listeners of these

    def mark(self, use: RequestUse, *, since: int = 0, was: RequestUse | None = None) -> None:
        """Set the use of the charges from index `since` on; with `was`, only of those that have this use."""
        with self.lock:
            for charge in self._charges[since:] if self._charges else ():
                # An answer that was thrown away for a retry stays `retried`.
                if charge.record.use != "retried" and was in (None, charge.record.use):
                    charge.mark(use)

    def mark_records(self, records: Iterable[RequestRecord], use: RequestUse) -> None:
        """Set the use of those requests made here whose records are in `records`, by identity."""
        marked = set(map(id, records))
        with self.lock:
            for charge in self._charges or ():
                if id(charge.record) in marked and charge.record.use != "retried":
                    charge.mark(use)

    def count_agent_call(self) -> None:
        """Count the start of the agent run of this scope, here and in every ancestor."""
        call = AgentCharges(self.name)
        call.add(self.charges)
        with self.lock:
            for scope in self.lineage():
                scope._count_agent_calls((call,))

    def count_known_agent_call(self, call: AgentCharges) -> None:
        """Count the agent run of this scope, which goes on with one that is on record in the steps around."""
        call.add(self.charges)
        self.recount((), (call,))

    def _count_agent_calls(self, calls: Sequence[AgentCharges]) -> None:
        self.usage.agent_call_count += len(calls)
        if self._agent_calls is None:
            self._agent_calls = []
        self._agent_calls.extend(calls)

    @property
    def agent_calls(self) -> tuple[AgentCallUsage, ...]:
        """The agent runs here and below, in the order of their starts. The caller holds the lock."""
        return usage_of_calls(self._agent_calls or ())

    def spent(self) -> Usage:
        """Return a consistent snapshot of the usage so far."""
        with self.lock:
            return self.usage.copy()

    # --- answers on their way ---

    def note_answer(self) -> None:
        """Note that the agent run of this scope has paid for an answer that is not in use yet."""
        if not self.receiving:
            self.receiving = 1
            for scope in self._above:
                if scope.kind == "step":
                    scope.receiving += 1

    def hand_on(self) -> None:
        """Note that the answer is in use: the caller has it, or the agent run asks again or calls a tool."""
        if self.receiving and self.kind == "agent":
            self.receiving = 0
            for scope in self._above:
                if scope.kind == "step":
                    scope.receiving -= 1
                    if not scope.receiving and scope._when_handed_on is not None:
                        scope._when_handed_on()

    def when_handed_on(self, then: Callable[[], None]) -> None:
        """Have `then` called when no answer of this step is left that is paid for and not in use."""
        self._when_handed_on = then

    # --- down: time ---

    def add_clock(self, clock: Clock) -> None:
        """Add a clock of this scope, whose deadline retries below must see."""
        if self._clocks is None:
            self._clocks = []
        self._clocks.append(clock)

    def remove_clock(self, clock: Clock) -> None:
        """Remove a clock that was left."""
        if self._clocks is not None:
            self._clocks.remove(clock)

    @contextmanager
    def in_line(self) -> Iterator[None]:
        """Stop the clocks of attempts at calls and at the step while a request waits in line here."""
        with ExitStack() as stack:
            stack.enter_context(self.at_rest())
            for scope in self.lineage():
                for clock in scope._clocks or ():
                    if clock.of_attempt:
                        stack.enter_context(clock.paused())
                if scope.kind == "step":
                    break  # clocks around the step bound more than this request
            yield

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Stop all clocks around, while the process loads something that it loads once, such as an SDK."""
        with ExitStack() as stack:
            stack.enter_context(self.at_rest())
            for scope in self.lineage():
                for clock in scope._clocks or ():
                    if not isinstance(clock, WorkClock):
                        stack.enter_context(clock.paused())
            yield

    @contextmanager
    def nesting(self) -> Iterator[None]:
        """Stop the clock of the attempt at the step around a nested run, which has time limits of its own."""
        step = next((scope for scope in self.lineage() if scope.kind == "step"), None)
        with ExitStack() as stack:
            for clock in (() if step is None else step._clocks) or ():
                if clock.of_attempt:
                    stack.enter_context(clock.paused())
            yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Let this scope rest on all `WorkClock`s around, while it waits for something before it goes on."""
        with ExitStack() as stack:
            for scope in self.lineage():
                for clock in scope._clocks or ():
                    if isinstance(clock, WorkClock):
                        stack.enter_context(clock.at_rest(scope))
            yield

    @property
    def attempt_ran_out(self) -> bool:
        """Whether the time of an attempt at a call or a step around this scope has run out."""
        clocks = (clock for scope in self.lineage() for clock in scope._clocks or ())
        return any(clock.of_attempt and clock.ran_out for clock in clocks)

    def time_left(self) -> float | None:
        """Seconds until the nearest deadline of this scope and its ancestors; `None` without one."""
        return min((left for left, _ in self._deadlines()), default=None)

    def deadline_before(self, seconds: float) -> tuple[str, float] | None:
        """Return the nearest deadline, if it ends within `seconds`: its name, and the seconds left."""
        left, clock = min(self._deadlines(), key=lambda deadline: deadline[0], default=(None, None))
        return None if left is None or clock is None or seconds < left else (clock.what, left)

    @property
    def out_of_time(self) -> BaseException | None:
        """The error that a time limit of this scope is about to raise; `None` if none has run out."""
        return next((clock.exceeded() for clock in self._clocks or () if clock.ran_out), None)

    @property
    def is_cancelled_by_time(self) -> bool:
        """Whether a time limit of this scope or around it has run out, and so cancelled the code inside."""
        return any(clock.ran_out for scope in self.lineage() for clock in scope._clocks or ())

    def _deadlines(self) -> Iterator[tuple[float, Clock]]:
        for scope in self.lineage():
            for clock in scope._clocks or ():
                if (left := clock.remaining()) is not None:
                    yield left, clock

    # --- events ---

    async def emit(self, event: RunEvent) -> None:
        """Tell an event to the listeners of this run, after the events that were noted before."""
        await self.tell()
        if self.listener is not None:
            await self.listener(event)

    def note(self, event: RunEvent) -> None:
        """Have an event told at the next `emit` or `tell`, for code that cannot await the listener."""
        if self.listener is not None:
            self._events.append((self.listener, event))

    async def tell(self) -> None:
        """Tell listeners the events that were noted anywhere in the run."""
        while self._events:
            listener, event = self._events.popleft()
            await listener(event)

    @property
    def part(self) -> Part:
        """The part in which events of this scope happen: the innermost pipeline or graph, else the root."""
        if self._part is not None:
            return self._part
        for run in self.lineage():
            if run.kind in RUNS:
                break
        else:
            return Part(self.run_id, "", (self.root.name,))
        if run._part is None:
            outer = run if run.log is None else run.log.scope
            # The same as in a part read from a log, which has only places: routers have no place there.
            run._part = Part(run.run_id, outer.name, (outer.name,)).inside(run.place_within(outer))
        return run._part

    # --- life ---

    def on_close(self, closer: Closer) -> None:
        """Have `closer` called when this scope ends, to end a stream or call inside that is still open."""
        if self.open_inside is None:
            self.open_inside = []
        self.open_inside.append(closer)

    def forget_closer(self, closer: Closer) -> None:
        """Remove a closer, because its stream or call has ended by itself."""
        if self.open_inside is not None and closer in self.open_inside:
            self.open_inside.remove(closer)

    async def end_inside(self) -> None:
        """End everything that is still open inside: abandoned streams, and calls of abandoned threads."""
        cancelled: asyncio.CancelledError | None = None
        while self.open_inside:
            try:
                await self.open_inside.pop()()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def close(self, error: BaseException | None = None) -> None:
        """Close the scope, and attach its usage to `error`.

        The scope charges requests in flight at their bounds; they go on under the scopes around it. The end
        of the outermost scope ends them: each raises `ScopeClosedError` where it was made.
        """
        if self.process != THIS_PROCESS.id:
            self.closed = (
                True  # the requests and the holder of the lock are in the process that forked this one
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
            for account in self._own_accounts if self.budgets else ():
                changed += account.close()
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
        """Return this scope; in a process that was forked inside of it, a new outermost scope in its place.

        Spend limits apply in both processes, because a store keeps them. A budget counts in one process, and
        the log of a run has one writer. So under a budget or in a run on record, the new scope lets nothing
        be spent.
        """
        if self.process == THIS_PROCESS.id:
            return self
        scope = Scope("budget", self.root.name, parent=None, tracer=self.tracer, run_id=self.run_id)
        scope.step_id, scope.variant = self.step_id, self.variant
        scope.all_ceilings, scope.ceilings = self.all_ceilings, self.ceilings
        scope.provider_limits = self.provider_limits
        scope.agent_run, scope.labels = self.agent_run, self.labels
        if self.account is not None or self.on_record:
            path = self.path if self.account is None else self.account.path
            scope.forked = LeftBehind("run" if self.on_record else "budget", path, self.process)
        return scope

    def count_for_itself(self) -> None:
        """Let money be spent here again although the process was forked: this scope opens a new budget."""
        if self.forked is not None and self.forked.left == "budget":
            self.forked = None

    def check_process(self) -> None:
        """Raise `ForkedScopeError` if nothing may be spent here: the budget is in the parent process."""
        if self.forked is not None:
            raise ForkedScopeError(*self.forked, THIS_PROCESS.id)

    def time_budget(self) -> Clock | None:
        """Make and return the clock for the milliseconds of this scope's budgets; `None` if it has none."""
        ms = min((budget.ms for budget in self.budgets if budget.ms is not None), default=None)
        if ms is None:
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
        """Keep a stopped agent run in the scopes around whose time budget has run out, for their errors."""
        for scope in self.lineage():
            if scope.time is not None and scope.time.ran_out:
                scope._stopped_runs = [*(scope._stopped_runs or ()), run]

    def enter(self) -> None:
        """Make this the current scope until `leave`, in code that is not async."""
        self._token = _current.set(self)

    def leave(self, error: BaseException | None = None) -> None:
        """Close this scope, and make the scope before it current again."""
        self.close(error)
        _current.reset(self._token)

    async def __aenter__(self) -> Scope:
        if self.loop is None and running_loop() is None:
            raise no_running_loop()
        if self.parent is not None and self.parent.calls_at_once is not None:
            await self._take_slot(self.parent.calls_at_once)
        self._token = _current.set(self)
        if self.budgets and (time := self.time_budget()) is not None:
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
            if self._slot is not None:
                self._slot.release()

    async def _take_slot(self, slots: asyncio.Semaphore) -> None:
        """Wait until this call may run beside the others in its parent.

        While the caller reads a stream there, the call does not wait: the stream may have the slot, and it
        goes on only when the caller reads on.
        """
        if self.kind not in _AROUND_CALLS and not read_by_this_task():
            await slots.acquire()
            self._slot = slots


def _warnings_of(ceiling: Ceiling) -> Callable[[BudgetWarning], bool]:
    """Return a function that says whether a warning is one of this spend limit."""
    key, window = ceiling.account.key, ceiling.account.window
    return lambda warning: (
        (warning.key, warning.window) == (key, window)
        and (callable(ceiling.limit.usd) or (warning.coded_usd or warning.limit_usd) == ceiling.limit.usd)
    )
