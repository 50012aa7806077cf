"""Hooks: functions that are told of events of steps. They cannot change the outcome."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, get_args

from fastroai.errors import ConfigurationError
from fastroai.places import attempt_around, step_name
from fastroai.records import NotGiven
from fastroai.runtime import Scope
from fastroai.runtime.concurrency.isolation import is_of_task, noting_cancellations
from fastroai.runtime.events import Listener
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.facts import StepFailed, StepFinished, StepRetried, StepStarted

logger = logging.getLogger("fastroai.steps")

Nullary: TypeAlias = Callable[[], Awaitable[None] | None]
"""A hook that takes no argument."""


class OfError(Protocol):
    """A hook that takes the exception of the event, by a parameter named `error`."""

    def __call__(self, error: Exception) -> Awaitable[None] | None:
        """Look at the exception."""
        ...


OnStepStart: TypeAlias = Callable[[StepStarted], Awaitable[None] | None] | Nullary
OnStepSuccess: TypeAlias = Callable[[StepFinished], Awaitable[None] | None] | Nullary
OnStepFailure: TypeAlias = Callable[[StepFailed], Awaitable[None] | None] | OfError | Nullary
OnRetry: TypeAlias = Callable[[StepRetried], Awaitable[None] | None] | OfError | Nullary

_EVENTS: Mapping[str, type[RunEvent]] = {  # by the option of `ExecutionConfig`
    "on_step_start": StepStarted,
    "on_step_success": StepFinished,
    "on_step_failure": StepFailed,
    "on_retry": StepRetried,
}


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of some configurations, each with its type of event, in the order in which they run."""

    functions: tuple[tuple[type[RunEvent], _Hook], ...] = ()

    @classmethod
    def of(cls, *configs: object) -> Hooks:
        """Return the hooks of configurations, by the options in `_EVENTS`. All of them are called."""
        return cls(
            tuple(
                (event_type, _Hook(function, _takes(function)))
                for option, event_type in _EVENTS.items()
                for config in configs
                if not isinstance(function := getattr(config, option), NotGiven) and function is not None
            )
        )

    def listener(self, step_id: str) -> Listener | None:
        """Return a listener that calls the hooks for events of one step; `None` without hooks."""
        if not self.functions:
            return None

        async def tell(event: RunEvent) -> None:
            if getattr(event, "step_id", None) == step_id:
                await self.tell(event)

        return tell

    async def tell(self, event: RunEvent) -> None:
        """Call the hooks for this event, one after the other."""
        for event_type, hook in self.functions:
            if isinstance(event, event_type):
                await hook.call(event)


def _takes(function: Callable[..., object]) -> Literal["nothing", "event", "error"]:
    """Return the kind of argument that a hook takes. Some built-ins do not say, and get the event."""
    try:
        signature = inspect.signature(function)
        signature.bind("event")
    except TypeError:
        return "nothing"
    except ValueError:
        return "event"
    if next(iter(signature.parameters)) == "error":
        return "error"
    try:
        (parameter, *_) = inspect.signature(function, eval_str=True).parameters.values()
    except Exception:  # the text of an annotation is any code, such as a name that only type checkers know
        return "event"
    kinds = get_args(parameter.annotation) or (parameter.annotation,)
    is_error = any(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds)
    return "error" if is_error else "event"


@dataclass(frozen=True, slots=True)
class _Hook:
    function: Callable[..., Awaitable[None] | None]
    takes: Literal["nothing", "event", "error"]

    async def call(self, event: RunEvent) -> None:
        """Call the hook. Its failure is logged; only a cancellation from outside is raised."""
        try:
            result = self._called(event)
            if inspect.isawaitable(result):
                await noting_cancellations(result)
        except asyncio.CancelledError as error:
            if is_of_task(error):
                raise
            logger.exception("hook %r was cancelled by itself; the run is not affected", self.function)
        except Exception:
            logger.exception("hook %r failed; the run is not affected", self.function)

    def _called(self, event: RunEvent) -> Awaitable[None] | None:
        if self.takes == "nothing":
            return self.function()
        if self.takes == "error" and isinstance(event, StepFailed | StepRetried):
            return self.function(event.error)
        return self.function(event)


def check_hooks(config: object) -> None:
    """Refuse hooks that cannot be called. Raises `ConfigurationError`."""
    for option in _EVENTS:
        function = getattr(config, option)
        if not isinstance(function, NotGiven) and function is not None and not callable(function):
            raise ConfigurationError(
                option, function, "a function that takes the event, the exception or nothing, or None"
            )


@dataclass(frozen=True, slots=True)
class RunHooks:
    """The hooks for the steps of one pipeline."""

    pipeline: Hooks = Hooks()
    steps: Mapping[str, Hooks] = field(default_factory=dict)
    """Hooks of single steps, by step id. Steps without hooks are missing."""

    @classmethod
    def of(cls, pipeline: Hooks, steps: Mapping[str, Hooks]) -> RunHooks:
        """Return the hooks of a pipeline and of its steps."""
        return cls(pipeline, {step_id: hooks for step_id, hooks in steps.items() if hooks.functions})

    def listener(self, name: str, *, around: Scope | None) -> Listener | None:
        """Return a listener that calls the hooks for a run of the pipeline `name`; `None` without hooks.

        A pipeline that is nested in it has hooks of its own, so these are not called for its steps.
        """
        if not self.steps and not self.pipeline.functions:
            return None
        path = (*(() if around is None else around.path), name)

        async def tell(event: RunEvent) -> None:
            if event.path != path:
                return
            step_id = _step_of(event)
            if step_id is not None and step_id in self.steps:
                await self.steps[step_id].tell(event)
            await self.pipeline.tell(event)

        return tell


def _step_of(event: RunEvent) -> str | None:
    """Return the id of the step that an event is about; for a typed function, of the step that calls it."""
    if isinstance(event, StepRetried):
        place = event.place
        while "#" in place.rpartition("/")[2]:  # the call of a function, which has a hash of its arguments
            place = attempt_around(place) or ""
        return step_name(place)
    step_id: object = getattr(event, "step_id", None)
    return step_id if isinstance(step_id, str) else None
