"""What a run is asked for with, and the scope that it gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Generic

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError
from fastroai.runs.inputs import check_mapping
from fastroai.runs.openings import Opening, RunKeeper, store_of
from fastroai.runtime import Listener, Scope, current_scope
from fastroai.runtime.events import (
    both,
)
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
    tags: Collection[str] = ()
    tenant: str | None = None

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
            provider_limits=config.provider_limits,
            run_id=self.run_id if opening is None else opening.run_id,
            seconds_before=0.0 if opening is None else opening.seconds_before,
        )

    def begun(
        self, store: object, configured: object, keeper: Callable[[RunStore], RunKeeper]
    ) -> RunRequest[DepsT]:
        """Of a new run, checked: on record where there is a store, of the call or configured, unless the run
        around it has one, which it shares.

        Raises:
            ConfigurationError: inputs or an id that cannot be meant, or a store that is none.
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
        """Return a keeper that begins runs with the tags and the tenant of this request.

        Raises:
            ConfigurationError: a tag, or the tenant, that is no name.
        """
        if isinstance(self.tags, str):
            raise ConfigurationError("tags", self.tags, f"several tags, such as [{self.tags!r}]")
        for option, name in (("tenant", self.tenant), *(("tags", tag) for tag in self.tags)):
            if name is not None and not (
                isinstance(name, str) and name.isprintable() and 0 < len(name) <= 200
            ):
                raise ConfigurationError(option, name, "printable text of 1 to 200 characters")
        return replace(keeper, tags=tuple(dict.fromkeys(self.tags)), tenant=self.tenant)
