"""Hooks that users can run around each attempt at an agent call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from fastroai.calls.call import Prompt
    from fastroai.calls.response import ChatResponse


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """One attempt at an agent call, as the hooks `on_before_dispatch` and `on_after_dispatch` see it.

    Before the attempt, `response` and `error` are both `None`. After it, one of them is set. `run_id` is the
    id of the run around the call; `step_id` is that of the step, or `None` outside of steps.
    """

    agent_name: str
    model: str | None
    """The model asked for, if it is known before the run."""
    prompt: Prompt
    deps: object
    attempt: int
    """The number of the attempt, from 1."""
    run_id: str
    step_id: str | None
    response: ChatResponse[Any] | None = None
    """The response after the attempt, if it gave one."""
    error: BaseException | None = None
    """The error after the attempt, if it failed."""


BeforeDispatch: TypeAlias = Callable[[Dispatch], Awaitable[None] | None]
"""Runs before an attempt. Raise `DispatchSkippedError` to fail the call at once, without a retry."""

AfterDispatch: TypeAlias = Callable[[Dispatch], Awaitable[None] | None]
"""Runs after an attempt, with its `response` or `error`."""


async def call_hook(hook: BeforeDispatch | AfterDispatch, dispatch: Dispatch) -> None:
    """Run a hook, sync or async."""
    result = hook(dispatch)
    if inspect.isawaitable(result):
        await result
