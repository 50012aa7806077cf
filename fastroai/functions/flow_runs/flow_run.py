"""One run of a flow: its id, its session, and whether its bodies repeat the calls that are on record."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic import JsonValue

from fastroai.functions.errors import FlowDiverged
from fastroai.functions.flow_runs.on_record import CallsOnRecord
from fastroai.places import is_in, outwards, step_name
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import CallEnded, OnceStarted, StepStarted
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.record.payloads import unseal
from fastroai.store.record.runs import DurableRun

IN_ORDER: Final = 0.25
"""Seconds for which a call on record waits for calls that ended before it.

Those come at once, unless the body waits for something else before it makes them.
"""

BODY: Final = "body"
"""The id of a flow's only step."""

_SHOWN: Final = 200
"""Most characters of a call in an error."""
_BY_HASH: Final = re.compile(r"[^/]*#[0-9a-f]{12}(\.\d{1,9})?")
"""The last part of a place of a call or flow that no tool makes. Models decide which tools run."""


class FlowRun:
    """The run of a flow, which all scopes inside of it know."""

    def __init__(self, name: str, signature: object, scope: Scope) -> None:
        """`scope` is the scope of the flow's step, which is its body."""
        self.name, self.signature = name, signature
        self.outer: FlowRun | None = flow_run_of(scope)
        place = scope.part.place
        self.id = f"{scope.run_id}:{place}" if place else scope.run_id
        """The id of the run. For a flow inside of a run: the id of that run, and the place in it."""
        self.session: dict[str, Any] = {}
        """Objects that live as long as the flow, by name."""
        self._bodies: dict[Scope, CallsOfBody] = {}

    @property
    def outermost(self) -> FlowRun:
        """The run of the outermost flow around, which may be this one."""
        return self if self.outer is None else self.outer.outermost

    @contextmanager
    def following(self, scope: Scope) -> Generator[None]:
        """Follow the calls of a body: that of the flow, or of a function that is called in it.

        Raises:
            FlowDiverged: the body has returned, and its calls differ from those on record.
        """
        self._bodies[scope] = calls = CallsOfBody(self.name, scope)
        try:
            yield
            calls.check()
        finally:
            del self._bodies[scope]

    def calls_in(self, scope: Scope | None) -> CallsOfBody | None:
        """Return the calls of the body with this scope; `None` if no body has it."""
        return None if scope is None else self._bodies.get(scope)


def flow_run_of(scope: Scope | None) -> FlowRun | None:
    """Return the run of the innermost flow that a scope is in; `None` outside of flows."""
    run = None if scope is None else scope.flow_run
    return run if isinstance(run, FlowRun) else None


def members_were_cancelled() -> None:
    """Note that the running body has cancelled calls that it did not need.

    Such calls may be on record, and may not come again.
    """
    scope = current_scope()
    flow = flow_run_of(scope)
    calls = None if flow is None else flow.calls_in(scope)
    if calls is not None:
        calls.were_cancelled = True


class CallsOfBody:
    """The calls that one body makes, compared with the calls that are on record for it."""

    def __init__(self, flow: str, scope: Scope) -> None:
        self._flow, self._place = flow, ""
        self._task = asyncio.current_task()
        self._run: DurableRun | None = run_of(scope)
        self._known: dict[str, CallEnded] = {}
        self._left: dict[str, CallEnded | StepStarted] = {}
        """Calls on record that were not repeated yet: nested flows, then calls in the order of their ends."""
        self._new: tuple[str, Mapping[str, JsonValue]] | None = None
        """The last call that is not on record."""
        self._moved = asyncio.Event()
        """Set when the next of the calls that are left has come."""
        self.were_cancelled = False
        """Whether the body cancelled calls that it did not need, so that calls on record may be missing."""
        self._diverged: FlowDiverged | None = None
        self._excused: set[str] = set()
        """Calls on record that need not come again, because an answer was asked anew since they were made."""
        self._excused_until = 0
        """The position in the log before which such calls were made."""
        self._compared = 0
        """Number of answers that were asked anew anywhere in the run, as far as this has looked at them."""
        if self._run is not None:
            self._place = self._run.place(scope)
            within = self._run.recorded.within(self._place)
            runs = {one.part.place: one for one in within if isinstance(one, StepStarted)}
            last = {one.place: one for one in reversed(within) if isinstance(one, CallEnded)}
            self._known = dict(reversed(last.items()))
            unsure = CallsOnRecord.of(self._run.recorded).unsure
            on_record: dict[str, CallEnded | StepStarted] = {**runs, **self._known}
            self._left = {
                one: fact
                for one, fact in on_record.items()
                if _is_by_hash(one) and one not in unsure and not _was_cancelled(fact)
            }

    def is_in_line(self) -> bool:
        """Return whether the running code is the body itself, whose calls come in this order each time."""
        return asyncio.current_task() is self._task

    def make(self, place: str, name: str, inputs: Mapping[str, JsonValue]) -> None:
        """Compare a call or flow that begins with the record. `inputs` are shown in errors.

        Raises:
            FlowDiverged: it is not on record, and the body made another call in its place before.
        """
        if self._diverged is not None:
            raise self._diverged
        if place in self._known or place in self._left or place in self._excused:
            return
        self._new = name, inputs
        self._excuse()
        if self.is_in_line():
            for known, fact in self._left.items():
                if fact.in_line:
                    raise self._divergence(known, fact, self._new)

    def made(self, place: str) -> None:
        """Note that a call or flow on record has come again."""
        if place in self._left:
            del self._left[place]
            self._moved.set()
            self._moved = asyncio.Event()

    async def turn(self, place: str) -> None:
        """Wait until the calls that ended before this one have come again, so that outputs keep their order.

        A call that was cancelled waits for all of them, because one of them may be the cause.
        """
        if self.is_in_line():
            return
        try:
            async with asyncio.timeout(IN_ORDER):
                while any(True for _ in self._before(place)):
                    await self._moved.wait()
        except TimeoutError:
            pass

    def _before(self, place: str) -> Iterator[str]:
        for left, fact in self._left.items():
            if left == place:
                return
            if isinstance(fact, CallEnded) and not fact.in_line:
                yield left

    def check(self) -> None:
        """Raise `FlowDiverged` if calls on record were not made, and others were made instead."""
        if self._diverged is not None:
            raise self._diverged
        self._excuse()
        if self._new is not None and self._left and not self.were_cancelled:
            raise self._divergence(*next(iter(self._left.items())), self._new)

    def _excuse(self) -> None:
        """Expect those calls on record no more that were made before an answer was asked anew.

        Calls that have done something in the world must come again: those of `@compute` functions, and runs
        that have made such calls or have other code.
        """
        if self._run is None or not self._left:
            return
        memo = self._run.recorded
        new, self._compared = memo.asked_anew[self._compared :], len(memo.asked_anew)
        until = max((position for position, place in new if is_in(place, self._place)), default=0)
        if until <= self._excused_until:
            return
        self._excused_until = until
        made = {id(entry): position for position, entry in enumerate(memo.entries, 1)}
        working = {place for entry in memo.entries if _does_work(entry) for place in outwards(entry.where)}
        for place, fact in [*self._left.items()]:
            if made[id(fact)] < until and place not in working:
                del self._left[place]
                self._excused.add(place)

    def _divergence(
        self, place: str, recorded: CallEnded | StepStarted, called: tuple[str, Mapping[str, JsonValue]]
    ) -> FlowDiverged:
        codec = None if self._run is None else self._run.codec
        inputs = _inputs_of(unseal(recorded.call, codec)) if isinstance(recorded, CallEnded) else None
        self._diverged = FlowDiverged(self._flow, _shown(step_name(place), inputs), _shown(*called))
        return self._diverged


def _shown(name: str, inputs: Mapping[str, JsonValue] | None) -> str:
    """Return a call as errors show it."""
    arguments = (
        ", ".join(f"{key}={value!r}" for key, value in inputs.items()) if inputs is not None else "..."
    )
    shown = f"{name}({arguments})"
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"


def _inputs_of(record: JsonValue) -> Any:
    inputs = record.get("inputs") if isinstance(record, dict) else None
    return inputs if isinstance(inputs, dict) else None


def _is_by_hash(place: str) -> bool:
    return _BY_HASH.fullmatch(place.rpartition("/")[2]) is not None


def _does_work(entry: Fact) -> bool:
    """Return whether a fact shows that code has run which may have done something in the world."""
    match entry:
        case CallEnded():
            return entry.is_code
        case StepStarted():
            return entry.step_id != BODY
        case _:
            return isinstance(entry, OnceStarted)


def _was_cancelled(fact: CallEnded | StepStarted) -> bool:
    failure = fact.failure if isinstance(fact, CallEnded) and fact.goes_on else None
    return failure is not None and failure.error_type.endswith("CancelledError")
