"""A run as server-sent events: its facts with their positions, the text that it is writing, and its state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import anyio
from pydantic import BaseModel, JsonValue
from pydantic_core import to_json

from fastroai.errors import FastroAIError, MissingExtraError, RunNotFound, StoreUnavailable
from fastroai.graphs.machine.events import decision_name
from fastroai.runtime.fact_base import Fact, RunFact
from fastroai.runtime.facts import StepEnds, StepFact, StepFinished, StepStarted
from fastroai.store import fact_to_json
from fastroai.web.caller import Caller
from fastroai.web.host import RunsHost
from fastroai.web.models import PartialText, RunState

try:
    from sse_starlette import EventSourceResponse, ServerSentEvent
except ImportError as error:
    raise MissingExtraError("fastroai.web", "web", "sse-starlette") from error

SOON: Final = 0.25
"""Seconds between two looks for new text, and for a paused run that goes on."""
LATER: Final = 1.0
"""The same while nothing has come for a while."""
HEARTBEAT: Final = 15
"""Seconds of silence after which a comment keeps the connection open."""
COME_BACK: Final = 300
"""Milliseconds after which a client comes back when this process ends."""
SLOWEST: Final = 30.0
"""Seconds that a client may take for one event before its connection is closed."""

Show: TypeAlias = Callable[[Fact], Mapping[str, JsonValue] | None]
"""Returns a fact as clients see it; `None` for one that they do not see."""


def shown_to_clients(fact: Fact) -> Mapping[str, JsonValue] | None:
    """Return a fact of a run as clients may see it, as JSON data, or `None` for one that they may not see.

    It is the default of `show` in `runs_router` and `runs_routes`. What happens to the run and its steps is
    shown, with inputs and outputs. Questions and answers are shown, with the reviewer and the rationale.

    Requests, messages, tool calls, budgets, ids of the store and the definition of the pipeline are not
    shown, and neither are the texts of exceptions, nor why a step was skipped or cancelled, why it waits, or
    why an edge was taken: they are for the people who run the service. In a workflow, the `violations` of a
    result that was not accepted are shown.
    """
    if not isinstance(fact, RunFact | StepFact):
        return None
    hidden = _INTERNAL if isinstance(fact, StepStarted) else _INTERNAL | {"cause"}
    shown = {name: value for name, value in fact_to_json(fact).items() if name not in hidden}
    for name in _SAY_WHY & shown.keys():
        shown[name] = _without("why", shown[name])
    if isinstance(fact, StepFinished) and fact.step_id.startswith(decision_name("")[:-1]):  # why a fallback
        shown["output"] = _without("failure", shown["output"])
    return shown


_INTERNAL: Final = frozenset(
    {
        "definition",
        "budgets",
        "failure",
        "reason",
        "agent_calls",
        "failed_calls",
        "value",  # that of a message
        "value_schema",
        "run_id",
        "forked_from",  # an id of the store, with the tenant in it
        "format",
    }
)
_SAY_WHY: Final = frozenset({"edges", "wait", "waits"})


def _without(hidden: str, value: JsonValue) -> JsonValue:
    """Return an object, or a list of objects, without a field."""
    if isinstance(value, list):
        return [_without(hidden, one) for one in value]
    return {name: one for name, one in value.items() if name != hidden} if isinstance(value, dict) else value


class RunEvents:
    """The events of one run for one client."""

    def __init__(
        self,
        host: RunsHost[Any],
        run_id: str,
        caller: Caller[Any],
        *,
        after: int = 0,
        show: Show = shown_to_clients,
        cancel_on_disconnect: bool = False,
    ) -> None:
        self._host, self._run_id, self._caller, self._show = host, run_id, caller, show
        self._cancels = cancel_on_disconnect
        self._followed = host.door.follow(run_id, after=after, store=host.store)
        self._texts: dict[str, str] = {}
        self._ended: set[str] = set()
        """Places of steps that have ended, whose text another process may not have removed yet."""
        self._pause = SOON
        self._closing = anyio.Event()

    def response(self) -> EventSourceResponse:
        """Return the stream as a response. It ends when the run has, or when this process does."""
        return EventSourceResponse(
            self._events(),
            ping=HEARTBEAT,
            send_timeout=SLOWEST,
            shutdown_event=self._closing,
            shutdown_grace_period=2,
        )

    async def _events(self) -> AsyncGenerator[ServerSentEvent]:
        has_ended = False
        try:
            async for event in self._told():
                yield event
            has_ended = True
        except FastroAIError as error:  # the status was sent, so an event must say it
            has_ended = True
            kind = "gone" if isinstance(error, RunNotFound) else "unavailable"
            retry = None if kind == "gone" else 5_000
            yield ServerSentEvent(data="{}", event=kind, retry=retry)
        finally:
            if self._cancels and not has_ended and not self._closing.is_set():
                self._host.cancel_soon(self._run_id)

    async def _told(self) -> AsyncGenerator[ServerSentEvent]:
        closing = asyncio.create_task(self._closing.wait())
        next_fact = asyncio.create_task(self._next_fact())
        try:
            while True:
                await asyncio.wait(
                    [next_fact, closing], timeout=self._pause, return_when=asyncio.FIRST_COMPLETED
                )
                if closing.done():
                    yield ServerSentEvent(data="{}", event="reconnect", retry=COME_BACK)
                    return
                if not next_fact.done():
                    for event in await self._new_text():
                        yield event
                    continue
                found = next_fact.result()
                if found is not None:
                    next_fact = asyncio.create_task(self._next_fact())
                    position, fact = found
                    self._note(fact)
                    if (shown := self._show(fact)) is not None:
                        yield _event("fact", {"position": position, **shown}, position)
                    continue
                state = RunState.of(await self._host.history.state(self._run_id), self._caller)
                yield _event("state", state)
                if state.has_ended:
                    return
                if not await self._goes_on(closing):
                    yield ServerSentEvent(data="{}", event="reconnect", retry=COME_BACK)
                    return
                next_fact = asyncio.create_task(self._next_fact())
        finally:
            for task in (next_fact, closing):
                task.cancel()
                with suppress(asyncio.CancelledError, FastroAIError):
                    await task

    async def _next_fact(self) -> tuple[int, Fact] | None:
        return await anext(self._followed, None)

    def _note(self, fact: Fact) -> None:
        if isinstance(fact, StepStarted):
            self._ended.discard(fact.part.prefix + fact.step_id)
        elif isinstance(fact, StepEnds):
            self._ended.add(fact.part.prefix + fact.step_id)

    async def _goes_on(self, closing: asyncio.Task[None]) -> bool:
        """Wait until a paused run goes on; `False` if this process ends before."""
        pause = SOON
        while True:
            await asyncio.wait([closing], timeout=pause)
            if closing.done():
                return False
            pause = min(pause * 1.5, LATER)
            run = await self._host.history.summary(self._run_id)
            if run.status != "paused":
                position = self._followed.position
                self._followed = self._host.door.follow(self._run_id, after=position, store=self._host.store)
                return True

    async def _new_text(self) -> list[ServerSentEvent]:
        """Return what steps have written since the last look; all of it for a client that has just come."""
        try:
            texts = await self._host.texts(self._run_id)
        except StoreUnavailable:
            return []
        told: list[ServerSentEvent] = []
        for step, text in texts.items():
            before = self._texts.get(step, "")
            if text != before and step not in self._ended:
                at = len(before) if text.startswith(before) else 0
                told.append(_event("text", PartialText(step=step, at=at, text=text[at:])))
        self._texts = dict(texts)
        self._pause = SOON if told else min(self._pause * 1.5, LATER)
        return told


def _event(
    name: str, data: BaseModel | Mapping[str, JsonValue], position: int | None = None
) -> ServerSentEvent:
    shown = data.model_dump(mode="json") if isinstance(data, BaseModel) else data
    return ServerSentEvent(
        data=to_json(shown).decode(), event=name, id=None if position is None else str(position)
    )
