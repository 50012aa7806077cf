"""The tree of scopes: budget, tracer, deadline and run id flow down, usage and errors flow up.

A scope opens as a child of the current scope, which a `ContextVar` holds. So an agent that a tool calls
inside a step is under that step, and no argument is passed for that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar, Token
from dataclasses import replace
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, get_args
from weakref import ref

from fastroai.errors import ForkedScopeError, attach_usage
from fastroai.places import quoted
from fastroai.records import RequestRecord, RunKind, Usage
from fastroai.runtime.budgets.bounds import NO_BOUNDS, LeftBehind
from fastroai.runtime.budgets.in_flight import AgentCharges, Charge, InFlight, Spending
from fastroai.runtime.budgets.ledger import Account, Claim, wake
from fastroai.runtime.concurrency.clock import Clock
from fastroai.runtime.concurrency.flow import Flow, read_by_this_task
from fastroai.runtime.concurrency.wakeup import no_running_loop, running_loop
from fastroai.runtime.events import Listener, both, on_this_loop
from fastroai.runtime.fact_base import Fact, Part, RunEvent
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.runtime.time_limits import BudgetClock, TimeLimits
from fastroai.runtime.tree import THIS_PROCESS, Tree

if TYPE_CHECKING:
    from fastroai.runtime.providers.provider_limits import ProviderLimits
    from fastroai.tracing import Tracer, TraceSpan
    from fastroai.usage.limits import Limits

ScopeKind = Literal[RunKind, "router", "step", "call", "agent", "budget"]

RUNS: Final = get_args(RunKind)
"""Kinds of scopes that run steps: events name the innermost one, and places are within them."""

_AROUND_CALLS: Final = ("budget", "call", "router")
"""Kinds that are no calls of a function, an agent or a run by themselves, but can be around calls."""

_PLACES: Final = ("step", *RUNS)
"""Kinds that are part of a place."""

Closer = Callable[[], Awaitable[None]]


class Scoped(Protocol):
    """A scope, or a step whose scope opens when somebody first asks for it: most steps need none."""

    @property
    def name(self) -> str:
        """Name of the scope."""
        ...

    attempt: int
    """Number of the present attempt."""

    @property
    def scope(self) -> Scope:
        """The scope, which is opened now if it is not open."""
        ...

    @property
    def opened(self) -> Scope | None:
        """The scope, if somebody has asked for it."""
        ...


_NOTHING_SPENT: Final = Spending()

_current: Final[ContextVar[Scoped | None]] = ContextVar("fastroai_scope", default=None)


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
    effects: tuple[str, ...] = ()
    """Keys of the effects, outermost first: the place of the step and the name of the effect."""
    agent_call: str = ""
    """The agent call that makes the innermost tool call, as requests on record name it."""
    attempt: int = 0
    """Number of the attempt at that agent call."""

    @property
    def key_of_runs(self) -> str:
        """Key of the runs that are begun here.

        A resumed step does not repeat an effect, so runs inside of effects are counted apart from others.
        """
        effects = (f"once:{key.rpartition('/')[2]}" for key in self.effects)
        return ".".join(filter(None, (self.key, *effects)))

    def inside_effect(self, key: str) -> ToolCalls:
        """Return these calls, and an effect inside of them."""
        return self._replace(effects=(*self.effects, key))


_NO_CALLS: Final = ToolCalls()
current_tool_calls: Final[ContextVar[ToolCalls]] = ContextVar("fastroai_tool_calls", default=_NO_CALLS)
"""The tool calls around the running task. Not kept in a scope: several tool calls run at once under one."""


def current_scope() -> Scope | None:
    """Return the innermost open scope of this task or thread; `None` outside of any run.

    A process that was forked inside of a run gets a new scope: see `Scope.in_this_process`.
    """
    current = _current.get()
    if current is None:
        return None
    scope = current.scope
    if scope.tree.process == THIS_PROCESS.id:
        return scope
    inherited = scope.in_this_process()
    _current.set(inherited)
    return inherited


class FactLog(Protocol):
    """A log that keeps the facts of a run."""

    scope: Scope
    """The scope of the run."""

    @property
    def run(self) -> object | None:
        """The run, if a store keeps it."""
        ...

    def note(self, fact: Fact) -> None:
        """Add a fact. Works from any thread."""
        ...


def _no_log() -> None:
    return None


class Route(NamedTuple):
    """A variant that a router has tried."""

    name: str
    """The name under which the variant is registered."""
    variant: str
    """The name after the names of the variants around it: `long/formal`."""


class Scope:
    """One node of the tree: a run of a pipeline or graph, a step, an agent call, a budget in code.

    Entered with `async with`. Its `spending` is the sum of all requests made inside, at any depth.
    """

    __slots__ = (
        "__weakref__",
        "_children",
        "_log",
        "_part",
        "_slot",
        "_spending",
        "_token",
        "agent_run",
        "attempt",
        "bounds",
        "calls_at_once",
        "clocks",
        "closed",
        "degraded",
        "flow_run",
        "key",
        "kind",
        "listener",
        "name",
        "open_inside",
        "ordinal",
        "parent",
        "reading",
        "receiving",
        "routes",
        "run_id",
        "span",
        "tracer",
        "tree",
        "variant",
        "when_handed_on",
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
        self.calls_at_once: asyncio.Semaphore | None = None
        """Bounds how many functions, agents and runs that the code in this scope calls run at once."""
        if parent is None:
            self.tree, self.bounds = Tree(), NO_BOUNDS
            self.run_id = run_id or os.urandom(16).hex()
            self.tracer = tracer
            self.listener: Listener | None = None
            self.variant: str | None = None
            self._log: Callable[[], FactLog | None] = _no_log
            self.agent_run: object = None
            """The meter's data of the innermost agent run that this scope is a part of."""
            self.flow_run: object = None
            """The run of the innermost flow that this scope is a part of."""
        else:
            self.tree, self.bounds = parent.tree, parent.bounds
            self.run_id = run_id or parent.run_id
            self.tracer, self.listener = parent.tracer if tracer is None else tracer, parent.listener
            self._log, self.variant = parent._log, parent.variant
            self.agent_run, self.flow_run = parent.agent_run, parent.flow_run
            if kind in _AROUND_CALLS:
                self.calls_at_once = parent.calls_at_once
        if listener is not None:
            self._hear(listener)
        self.key: str = ""
        """The key that distinguishes this scope from others of its name, whatever their order."""
        is_counted = kind in RUNS or bool(key)
        if is_counted:  # a key, not an order: which tool calls run first differs from process to process
            calls = current_tool_calls.get()
            if calls is _NO_CALLS:
                self.key = key
            else:
                around = calls.key_of_runs if kind in RUNS else calls.key
                self.key = ".".join(filter(None, (around, key)))
        self.ordinal: int = ordinal or (
            parent.count_inside(name, self.key) if parent is not None and is_counted else 1
        )
        self.attempt = 1
        self._children: dict[tuple[str, int], int] | None = None
        self._part: Part | None = None
        self._spending: Spending | None = None
        self.clocks: tuple[Clock, ...] = ()
        """The clocks of the time limits of this scope, whose deadlines retries inside must see."""
        self.span: TraceSpan | None = None
        """The span of this scope itself, if a tracer has made one."""
        self.receiving = 0
        """Number of answers not in use yet: 0 or 1 for an agent run; for a step, those of its agent runs."""
        self.when_handed_on: Callable[[], None] | None = None
        """Called when no answer of this step is left that is paid for and not in use."""
        self.reading: tuple[Flow, ...] = ()
        """Streams that the maker of this scope is reading, and that go on after this scope has ended."""
        self.closed = False
        self.degraded = False
        """Whether a pipeline nested in this scope was degraded, although it did not fail."""
        self._slot: asyncio.Semaphore | None = None
        self._token: Token[Scoped | None]
        self.routes: tuple[Route, ...] = ()
        """The variants that routers in this scope have tried in this process, in order."""
        self.open_inside: list[Closer] | None = None
        """Functions that end streams and calls inside, which must end before this scope can close."""
        if labels is not NO_LABELS:
            self.bounds = self.bounds.labelled(labels)
        if limits is not None:
            self._limit(limits, deps, seconds_before)
        if provider_limits:
            limits_above = self.bounds.provider_limits
            self.bounds = self.bounds._replace(provider_limits=(*limits_above, provider_limits))

    def _limit(self, limits: Limits, deps: object, seconds_before: float) -> None:
        around = bounds = self.bounds
        if limits.spend_limits:
            bounds = bounds.under(limits.ceilings(deps, bounds.labels.tenant))
        call = self.parent.own_accounts if self.parent is not None and self.parent.kind == "call" else ()
        told = {id(account.budget) for account in call}
        for budget in reversed(limits.budgets):
            account = Account(budget, self.spending.usage, bounds.account, self.path)
            if id(budget) in told:  # the scope of the call warns, for all its attempts
                account.warnings_told = len(budget.warn_at)
            bounds = bounds._replace(account=account)
        ms = min((budget.ms for budget in limits.budgets if budget.ms is not None), default=None)
        if ms is not None:
            what = f"{self.kind} {self.name!r}"
            self.clocks = (BudgetClock(what, ms, seconds_before, self.step_id, self.path),)
        self.bounds = bounds
        for alert in bounds.alerts(self.own_accounts, around):
            self._hear(alert)

    @property
    def own_accounts(self) -> Iterator[Account]:
        """The accounts of the budgets of this scope itself, the most specific one first."""
        above = None if self.parent is None else self.parent.bounds.account
        return takewhile(lambda account: account is not above, self.bounds.accounts)

    def _hear(self, listener: Listener) -> None:
        self.listener = both(on_this_loop(listener), self.listener)

    def __repr__(self) -> str:
        return f"Scope({' / '.join(self.path)})"

    @property
    def scope(self) -> Scope:
        """This scope itself."""
        return self

    @property
    def log(self) -> FactLog | None:
        """The log of the run that this scope is a part of; `None` outside of runs, and after their end."""
        return self._log()

    @log.setter
    def log(self, log: FactLog | None) -> None:
        # A weak reference, because facts in the log refer to scopes: as a cycle, they would stay in memory,
        # with the outputs of all steps, until Python's next collection of cycles. The run keeps the log.
        self._log = _no_log if log is None else ref(log)

    @property
    def opened(self) -> Scope:
        """This scope itself."""
        return self

    @property
    def root(self) -> Scope:
        """The outermost scope: this one, or the last of its ancestors."""
        # Not an attribute: a scope that refers to itself is a reference cycle. It would stay in memory, with
        # everything that was made inside, until Python's next collection of cycles.
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
    def time(self) -> TimeLimits:
        """The time limits of this scope and of those around it."""
        return TimeLimits(self)

    @property
    def step(self) -> Scope | None:
        """The innermost step: this one, or one around; `None` outside of steps."""
        scope: Scope | None = self
        while scope is not None and scope.kind != "step":
            scope = scope.parent
        return scope

    @property
    def step_id(self) -> str | None:
        """The id of the innermost step; `None` outside of steps."""
        return None if (step := self.step) is None else step.name

    def labelled(self, record: RequestRecord) -> RequestRecord:
        """Return the record of a request that was made here, with the names and labels of this scope."""
        agent, (tags, tenant) = self.name if self.kind == "agent" else None, self.bounds.labels
        return replace(
            record, agent=agent, step_id=self.step_id, variant=self.variant, tags=tags, tenant=tenant
        )

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
        scopes: list[Scope] = [self]
        while (around := scopes[-1].parent) is not None:
            scopes.append(around)
        return tuple(scopes)

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
        return self.place_scope.count_child(f"{name}#{key}")

    @property
    def place_scope(self) -> Scope:
        """The innermost step or run: this one, or one around; outside of both, the outermost scope."""
        lineage = self.lineage()
        return next((scope for scope in lineage if scope.kind in _PLACES), lineage[-1])

    def count_child(self, name: str) -> int:
        """Count a new scope of this name in the present attempt. Returns its number, from 1."""
        if self._children is None:
            self._children = {}
        key = (name, self.attempt)
        self._children[key] = self._children.get(key, 0) + 1
        return self._children[key]

    # --- up: usage ---

    @property
    def spending(self) -> Spending:
        """The spending here and below, which goes on; `spent()` returns a snapshot."""
        if self._spending is None:  # made when first needed: most steps of a large pipeline spend nothing
            self._spending = Spending()
        return self._spending

    @property
    def has_spent(self) -> bool:
        """Whether anything may have been spent here or below. Closed scopes do not change."""
        return self._spending is not None

    @property
    def known_spending(self) -> Spending:
        """The spending here and below, only to be read: that of a scope that spends nothing is shared."""
        return _NOTHING_SPENT if self._spending is None else self._spending

    def spent(self) -> Usage:
        """Return a consistent snapshot of the usage so far."""
        with self.tree.lock:
            return self.known_spending.usage.copy()

    def charge(self, record: RequestRecord) -> Charge:
        """Count spending here and in every ancestor.

        A closed scope does not count it, but the open ones above do. If all are closed, the root still counts
        it, so that no payment is lost.
        """
        charge = Charge(record)
        with self.tree.lock:
            still_open = [scope for scope in self.lineage() if not scope.closed]
            for scope in still_open or [self.root]:
                scope.spending.count(charge)
        return charge

    def add_in_flight(self, request: InFlight) -> list[Claim]:
        """Add a request that was admitted: this scope and its ancestors wait for its cost.

        The caller holds the lock, as for `end_in_flight`. Returns the claims that this changes.
        """
        changed: list[Claim] = []
        for scope in self.lineage():
            if not scope.closed:
                scope.spending.in_flight[request] = False
            else:  # another thread has just closed it
                for account in scope.own_accounts:
                    changed += request.leave(account)
        return changed

    def end_in_flight(self, request: InFlight, charge: Charge | None) -> None:
        """Remove a request that has ended, and count its charge, if any, in this scope and its ancestors.

        A scope that closed meanwhile has charged the bound, and does not count the request again.
        """
        for scope in self.lineage():
            spending = scope._spending
            if spending is not None and not spending.in_flight.pop(request, True) and charge is not None:
                spending.count(charge)

    def write_off_in_flight(self) -> None:
        """Charge the bounds of the requests in flight, because this scope will not learn their costs.

        The requests go on, and the scopes around this one still count their real costs.
        """
        if self._spending is not None and self._spending.in_flight:
            with self.tree.lock:
                changed = self._spending.write_off(self.own_accounts)
            wake(changed)

    def take_route(self, name: str) -> None:
        """Note here and above that a router tries a variant. From now on, requests in this scope name it."""
        around = None if self.parent is None else self.parent.variant
        self.variant = name if around is None else f"{around}/{name}"
        with self.tree.lock:
            for scope in self.lineage():
                scope.routes = (*scope.routes, Route(name, self.variant))

    def restore(self, charges: Iterable[Charge], agent_calls: Sequence[AgentCharges] = ()) -> None:
        """Count the spending of an earlier process in the same place, in this scope only."""
        with self.tree.lock:
            self._count_known(charges, agent_calls)
        if self.spending.charges:
            self.tree.unsure.update(ceiling.place for ceiling in self.bounds.ceilings)

    def recount(self, charges: Iterable[Charge], agent_calls: Sequence[AgentCharges] = ()) -> None:
        """Count the spending of an earlier process here and up to the step around; there, `restore` does."""
        with self.tree.lock:
            for scope in self.lineage():
                if scope.kind in _PLACES:
                    break
                scope._count_known(charges, agent_calls)

    def _count_known(self, charges: Iterable[Charge], agent_calls: Sequence[AgentCharges]) -> None:
        self.spending.count_agent_calls(agent_calls)
        for charge in charges:
            self.spending.count(charge)
        for account in self.own_accounts:
            account.new_warnings()  # the earlier process has told listeners of these

    def count_agent_call(self) -> None:
        """Count the start of the agent run of this scope, here and in every ancestor."""
        call = AgentCharges(self.name)
        call.add(self.spending.charges)
        with self.tree.lock:
            for scope in self.lineage():
                scope.spending.count_agent_calls((call,))

    # --- answers on their way ---

    def note_answer(self) -> None:
        """Note that the agent run of this scope has paid for an answer that is not in use yet."""
        if not self.receiving:
            self.receiving, scope = 1, self.parent
            while scope is not None:
                if scope.kind == "step":
                    scope.receiving += 1
                scope = scope.parent

    def hand_on(self) -> None:
        """Note that the answer is in use: the caller has it, or the agent run asks again or calls a tool."""
        if self.receiving and self.kind == "agent":
            self.receiving, scope = 0, self.parent
            while scope is not None:
                if scope.kind == "step":
                    scope.receiving -= 1
                    if not scope.receiving and scope.when_handed_on is not None:
                        scope.when_handed_on()
                scope = scope.parent

    # --- events ---

    async def emit(self, event: RunEvent) -> None:
        """Tell an event to the listeners of this run, after the events that were noted before."""
        await self.tree.tell()
        if self.listener is not None:
            await self.listener(event)

    def note(self, event: RunEvent) -> None:
        """Have an event told at the next `emit` or `tell`, for code that cannot await the listener."""
        if self.listener is not None:
            self.tree.events.append((self.listener, event))

    @property
    def part(self) -> Part:
        """The part in which events of this scope happen: the innermost pipeline or graph, else the root."""
        if self._part is not None:
            return self._part
        run = self
        while run.kind not in RUNS:
            if run.parent is None:
                return Part(self.run_id, "", (run.name,))
            run = run.parent
        if run._part is None:
            log = run.log
            outer = run if log is None else log.scope
            # The same as in a part read from a log, which has only places: routers have no place there.
            place = "" if outer is run else run.place_within(outer)
            run._part = Part(run.run_id, outer.name, (outer.name,)).inside(place)
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
        if self.tree.process != THIS_PROCESS.id:
            self.closed = True
            return  # the requests and the holder of the lock are in the process that forked this one
        if self.receiving:
            self.hand_on()
        changed: Sequence[Claim] = ()
        in_flight: Iterable[InFlight] = ()
        with self.tree.lock:
            self.closed = True
            if (spending := self._spending) is not None:
                changed = spending.write_off(self.own_accounts) if spending.in_flight else []
                in_flight, spending.in_flight = spending.in_flight, {}
                for account in self.own_accounts if self.bounds.account is not None else ():
                    changed += account.close()
        if changed:
            wake(changed)
        for request in in_flight if self.parent is None else ():
            request.interrupt()
        if error is not None:
            with self.tree.lock:
                self.spending.mark("failed")
            attach_usage(error, self.spent(), self.spending.records)

    # --- other processes ---

    def in_this_process(self) -> Scope:
        """Return this scope; in a process that was forked inside of it, a new outermost scope in its place.

        Spend limits apply in both processes, because a store keeps them. A budget counts in one process, and
        the log of a run has one writer. So under a budget or in a run on record, the new scope lets nothing
        be spent.
        """
        if self.tree.process == THIS_PROCESS.id:
            return self
        bounds, left, step_id = self.bounds, self.bounds.forked, self.step_id
        is_on_record = self.log is not None and self.log.run is not None
        if bounds.account is not None or is_on_record:
            path = self.path if bounds.account is None else bounds.account.path
            left = LeftBehind("run" if is_on_record else "budget", path, self.tree.process)
        scope = Scope("budget", self.root.name, parent=None, tracer=self.tracer, run_id=self.run_id)
        if step_id is not None:
            scope = Scope("step", step_id, parent=scope)
        scope.bounds = bounds._replace(account=None, reserves=(), estimated=None, forked=left)
        scope.variant, scope.agent_run = self.variant, self.agent_run
        return scope

    def count_for_itself(self) -> None:
        """Let money be spent here again although the process was forked: this scope opens a new budget."""
        forked = self.bounds.forked
        if forked is not None and forked.left == "budget":
            self.bounds = self.bounds._replace(forked=None)

    def check_process(self) -> None:
        """Raise `ForkedScopeError` if nothing may be spent here: the budget is in the parent process."""
        if self.bounds.forked is not None:
            raise ForkedScopeError(*self.bounds.forked, THIS_PROCESS.id)

    def enter(self) -> None:
        """Make this the current scope until `leave`, in code that is not async."""
        self._token = _current.set(self)

    def leave(self, error: BaseException | None = None) -> None:
        """Close this scope, and make the scope before it current again."""
        self.close(error)
        _current.reset(self._token)

    async def __aenter__(self) -> Scope:
        if self.tree.loop is None and running_loop() is None:
            raise no_running_loop()
        if self.parent is not None and self.parent.calls_at_once is not None:
            await self._take_slot(self.parent.calls_at_once)
        self._token = _current.set(self)
        if self.clocks and (clock := self.time.of_budgets) is not None:
            await clock.__aenter__()
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
                if self.clocks and (clock := self.time.of_budgets) is not None:
                    await clock.__aexit__(exc_type, exc, traceback)
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
