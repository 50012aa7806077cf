"""The tree of scopes: what flows down (budget, tracer, deadline, run id) and up (usage, errors).

A scope opens as a child of the one that is current, through a `ContextVar`, so that an agent which a tool
calls inside a step is under that step without anyone passing anything.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal

from fastroai.errors import attach_usage
from fastroai.records import RequestRecord, Usage
from fastroai.runtime.clock import Clock
from fastroai.runtime.events import Listener, RunEvent

if TYPE_CHECKING:
    from fastroai.tracing import Tracer
    from fastroai.usage import Budget

ScopeKind = Literal["pipeline", "router", "step", "call", "agent"]
Closer = Callable[[], Awaitable[None]]

_current: Final[ContextVar[Scope | None]] = ContextVar("fastroai_scope", default=None)


def current_scope() -> Scope | None:
    """The innermost open scope of this task or thread; `None` outside of any run."""
    return _current.get()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Scope:
    """One unit of a run: a pipeline run, a step, an agent run.

    Entered with `async with`. Its `usage` is that of every request made inside, at any depth.
    """

    __slots__ = (
        "_clocks",
        "_closers",
        "_records",
        "_token",
        "_usage",
        "attempt",
        "budget",
        "closed",
        "kind",
        "listener",
        "lock",
        "loop",
        "name",
        "parent",
        "root",
        "run_id",
        "step_id",
        "tracer",
    )

    def __init__(
        self,
        kind: ScopeKind,
        name: str,
        *,
        parent: Scope | None,
        budget: Budget | None = None,
        tracer: Tracer | None = None,
        run_id: str | None = None,
        attempt: int = 1,
        listener: Listener | None = None,
    ) -> None:
        """Open a scope under `parent`; `tracer` and `listener` are inherited where they are not given."""
        self.kind: ScopeKind = kind
        self.name = name
        self.parent = parent
        self.budget = budget
        self.attempt = attempt
        self._usage: Usage | None = None
        self._records: list[RequestRecord] | None = None
        self.closed = False
        self._closers: list[Closer] | None = None
        self._clocks: list[Clock] | None = None
        self.loop: asyncio.AbstractEventLoop | None
        self.lock: threading.Lock
        if parent is None:
            self.root = self
            self.lock = threading.Lock()
            self.loop = _running_loop()
            self.run_id = run_id or uuid.uuid4().hex
            self.tracer = tracer
            self.listener = listener
            self.step_id = name if kind == "step" else None
        else:
            self.root = parent.root
            self.lock = parent.lock
            self.loop = parent.loop
            self.run_id = run_id or parent.run_id
            self.tracer = parent.tracer if tracer is None else tracer
            self.listener = parent.listener if listener is None else listener
            self.step_id = name if kind == "step" else parent.step_id

    def __repr__(self) -> str:
        return f"Scope({' / '.join(self.path)})"

    @property
    def path(self) -> tuple[str, ...]:
        """Names from the outermost scope to this one."""
        names = [scope.name for scope in self.lineage()]
        return tuple(reversed(names))

    def lineage(self) -> Iterator[Scope]:
        """This scope and its ancestors, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def is_within(self, other: Scope) -> bool:
        """Whether this scope is `other` or below it."""
        return any(scope is other for scope in self.lineage())

    # --- up: usage ---

    @property
    def usage(self) -> Usage:
        """What was spent here and below. It goes on counting; `spent()` is a snapshot."""
        if self._usage is None:  # made when first needed: most steps of a large pipeline spend nothing
            self._usage = Usage()
        return self._usage

    @property
    def records(self) -> list[RequestRecord]:
        """Every request made here and below, in the order in which they ended."""
        if self._records is None:
            self._records = []
        return self._records

    def charge(self, record: RequestRecord) -> None:
        """Count a request here and in every ancestor.

        What is already closed is passed over: the nearest open ancestor has it. When all are closed the
        root still counts it, so that nothing that was paid for is lost.
        """
        with self.lock:
            counted = False
            for scope in self.lineage():
                if scope.closed and not (scope.parent is None and not counted):
                    continue
                counted = True
                scope.usage.add(record)
                scope.records.append(record)

    def count_agent_call(self) -> None:
        """Count the start of an agent run here and in every ancestor."""
        with self.lock:
            for scope in self.lineage():
                scope.usage.agent_calls += 1

    def spent(self) -> Usage:
        """A consistent snapshot of the usage so far."""
        with self.lock:
            return self.usage.copy()

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

    def time_left(self) -> float | None:
        """Seconds until the nearest deadline of this scope and its ancestors; `None` without one."""
        left = [
            seconds
            for scope in self.lineage()
            for clock in scope._clocks or ()
            if (seconds := clock.remaining()) is not None
        ]
        return min(left, default=None)

    def has_time_for(self, seconds: float) -> bool:
        """Whether a wait would end before every deadline."""
        left = self.time_left()
        return left is None or seconds < left

    # --- events ---

    async def emit(self, event: RunEvent) -> None:
        """Tell whoever listens to this run."""
        if self.listener is not None:
            await self.listener(event)

    # --- life ---

    def on_close(self, closer: Closer) -> None:
        """Have something ended when this scope ends, at the latest."""
        if self._closers is None:
            self._closers = []
        self._closers.append(closer)

    def forget_closer(self, closer: Closer) -> None:
        """It has ended by itself."""
        if self._closers is not None and closer in self._closers:
            self._closers.remove(closer)

    def make_current(self) -> None:
        """Make this the current scope of the running context, for a context that ends with it."""
        _current.set(self)

    @property
    def is_open_inside(self) -> bool:
        """Whether something is to be ended before this scope can close."""
        return bool(self._closers)

    async def end_inside(self) -> None:
        """End what is still open inside, all of it: abandoned streams, calls of abandoned threads."""
        cancelled: asyncio.CancelledError | None = None
        while self._closers:
            try:
                await self._closers.pop()()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def close(self, error: BaseException | None = None) -> None:
        """Close, and note on `error` what was spent."""
        self.closed = True
        if error is not None:
            attach_usage(error, self.spent())

    async def __aenter__(self) -> Scope:
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.end_inside()
        finally:
            self.close(exc)
            _current.reset(self._token)
