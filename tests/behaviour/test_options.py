"""Every option of every method that runs something makes a difference, for each kind of run, or is refused."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.agents import paid_agent
from support.doors import door
from support.tracing import RecordingTracer
from support.virtual_time import in_virtual_time

from fastroai import StepContext
from fastroai.errors import ConfigurationError, FastroAIError
from fastroai.functions import HumanReviewContext, await_human
from fastroai.human import Inbox
from fastroai.runtime import current_scope
from fastroai.runs.door import FrontDoor
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.usage import Budget, SpendLimit

KINDS = ("pipeline", "graph", "router", "flow", "workflow")


@dataclass
class Stage:
    """One run, what its body does, and what it has seen."""

    kind: str
    store: MemoryRunStore = field(default_factory=MemoryRunStore)
    texts: list[str] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)
    told: list[object] = field(default_factory=list)
    does: str = ""
    """What the body does: nothing, `ask`, `break`, `pay` or `wait`."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def door(self) -> Any:
        return door(self.kind, self.body, {})

    async def body(self, ctx: StepContext[Any] | None, text: str) -> str:
        scope = current_scope()
        assert scope is not None
        self.texts.append(text)
        self.seen.append((scope.run_id, None if ctx is None else (ctx.deps, dict(ctx.shared))))
        match self.does:
            case "ask" if ctx is None:
                return str((await await_human(HumanReviewContext("Go on?"), bool)).value)
            case "ask":
                return str(await ctx.ask("Go on?", bool))
            case "break":
                raise ValueError("broken")
            case "pay":
                await paid_agent(100).run("hello")
            case "wait":
                self.arrived.set()
                await self.leave.wait()
        return f"said {text}"

    def tell(self, event: object) -> None:
        self.told.append(event)

    async def attempt(self, method: str, *args: Any, **options: Any) -> str:
        """How a call ends: "ended", or the name of the error, which a result may have."""
        self.seen.clear(), self.texts.clear(), self.told.clear()
        try:
            made = getattr(self.door, method)(*args, **options)
            if method.endswith("stream"):
                async with made as stream:
                    async for _ in stream:
                        pass
                result = stream.result
            else:
                result = await made
        except FastroAIError as error:
            return type(error).__name__
        if isinstance(result, dict):
            result = next(iter(result.values()), None)
        if isinstance(result, FastroAIError):
            return type(result).__name__
        error = getattr(result, "error", None)
        return str(getattr(result, "status", "ended")) if error is None else type(error).__name__
