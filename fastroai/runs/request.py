"""What a run is asked for with, and the scope that it gets."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from fastroai.records import first_given
from fastroai.runs.openings import Opening
from fastroai.runtime import Listener, Scope, current_scope
from fastroai.runtime.events import both
from fastroai.runtime.scope import ScopeKind
from fastroai.steps import PipelineConfig
from fastroai.steps.hooks import RunHooks
from fastroai.tracing import NoOpTracer, Tracer
from fastroai.usage.limits import Limits

DepsT = TypeVar("DepsT", default=Any)


@dataclass(frozen=True, slots=True)
class RunRequest(Generic[DepsT]):
    """Made by `execute`, `stream`, `resume` and `fork`."""

    inputs: Mapping[str, Any] | None
    deps: DepsT | None
    tracer: Tracer | None
    context: MutableMapping[str, Any] | None = None
    listener: Listener | None = None
    opening: Opening | None = None
    run_id: str | None = None

    def tracer_of(self, parent: Scope | None) -> Tracer | None:
        """That of the run around this one, unless one was given."""
        return self.tracer if self.tracer is not None or parent is None else parent.tracer

    def scope(
        self, kind: ScopeKind, name: str, config: PipelineConfig, limits: Limits | None, hooks: RunHooks
    ) -> Scope:
        """The scope of the run, under the current one; not entered yet."""
        parent, opening = current_scope(), self.opening
        return Scope(
            kind,
            name,
            parent=parent,
            limits=limits,
            deps=self.deps,
            tracer=self.tracer_of(parent) if first_given(config.trace, default=True) else NoOpTracer(),
            listener=both(hooks.listener(name, around=parent), self.listener),
            provider_limits=config.provider_limits,
            run_id=self.run_id if opening is None else opening.run_id,
            seconds_before=0.0 if opening is None else opening.seconds_before,
        )
