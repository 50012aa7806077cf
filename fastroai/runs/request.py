"""What a run is asked for with, and the scope that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Generic

from typing_extensions import TypeVar

from fastroai.runs.inputs import check_mapping
from fastroai.runs.openings import Opening, RunKeeper, store_of
from fastroai.runs.quoting import Reserve, check_reserve
from fastroai.runtime import Listener, Scope, current_scope
from fastroai.runtime.events import (
    both,
)
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.runtime.scope import ScopeKind
from fastroai.steps import PipelineConfig
from fastroai.steps.hooks import RunHooks
from fastroai.store.headers import check_run_id
from fastroai.store.log import run_of
from fastroai.store.run_store import RunStore
from fastroai.tracing import NoOpTracer, SimpleTracer, Tracer
from fastroai.usage.limits import Limits

DepsT = TypeVar("DepsT", default=Any)


@dataclass(frozen=True, slots=True)
class RunRequest(Generic[DepsT]):
    """Made by `execute`, `stream`, `resume` and `fork`."""

    inputs: Mapping[str, Any] | None = None
    deps: DepsT | None = None
    tracer: Tracer | None = None
    context: MutableMapping[str, Any] | None = None
    listener: Listener | None = None
    opening: Opening | None = None
    run_id: str | None = None
    is_step: bool = False
    """Whether the run is a step of the run around it, or a variant of a router that is."""
    labels: Labels = NO_LABELS
    key: str = ""
    """Tells the run from others of its name in the run around it, whatever their order."""
    in_line: bool = False
    """Whether the flow around it asks for it in its own task, so that it comes in this order each time."""
    reserve: Reserve | None = None
    """US dollars to set aside for it before it begins."""

    def __post_init__(self) -> None:
        check_reserve(self.reserve)

    def opened_by(self, opening: Opening) -> RunRequest[DepsT]:
        """Return the request for a run that has an opening, whose inputs it gets."""
        return replace(self, inputs=opening.inputs, opening=opening)

    def tracer_of(self, parent: Scope | None) -> Tracer | None:
        """That of the run around this one, unless one was given."""
        return self.tracer if self.tracer is not None or parent is None else parent.tracer

    def scope(
        self, kind: ScopeKind, name: str, config: PipelineConfig, limits: Limits | None, hooks: RunHooks
    ) -> Scope:
        """The scope of the run, under the current one; not entered yet."""
        parent, opening = current_scope(), self.opening
        tracer = self.tracer_of(parent)
        if config.trace is False:
            tracer = NoOpTracer()
        elif config.trace is True and tracer is None:
            tracer = SimpleTracer()
        return Scope(
            kind,
            name,
            parent=parent,
            limits=limits,
            deps=self.deps,
            tracer=tracer,
            listener=both(hooks.listener(name, around=parent), self.listener),
            key=self.key,
            provider_limits=config.provider_limits,
            run_id=self.run_id if opening is None else opening.run_id,
            seconds_before=0.0 if opening is None else opening.seconds_before,
            labels=self.labels if opening is None else opening.labels,
        )

    def begun(
        self, store: object, configured: object, keeper: Callable[[RunStore], RunKeeper]
    ) -> RunRequest[DepsT]:
        """Of a new run, checked: on record where there is a store, of the call or configured, unless the run
        around it has one, which it shares.

        Raises:
            ConfigurationError: invalid inputs, an invalid id, or a store that is none.
        """
        check_mapping(self.inputs)
        if self.run_id is not None:
            check_run_id(self.run_id)
        found = store_of(store, configured) if run_of(current_scope()) is None else None
        if found is None:
            return self
        opening = self.labelling(keeper(found)).begin(self.run_id, dict(self.inputs or {}))
        return replace(self, opening=opening)

    def labelling(self, keeper: RunKeeper) -> RunKeeper:
        """Return a keeper that begins runs with its labels and this request's, inside of those around it."""
        around, labels = current_scope(), self.labels.inside(keeper.labels)
        return replace(keeper, labels=labels if around is None else labels.inside(around.labels))
