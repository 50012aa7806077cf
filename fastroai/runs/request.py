"""The request for a run, and the scope that it makes for the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Generic

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError
from fastroai.runs.inputs import check_mapping
from fastroai.runs.openings import Opening, RunKeeper, needed_store
from fastroai.runs.own_limits import limits_on_record, limits_to_json
from fastroai.runs.progress.showing import Watching
from fastroai.runs.quoting import Reserve, check_reserve
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.events import (
    Listener,
    both,
)
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.store.record.declarations import OnChanged, check_on_changed
from fastroai.store.record.headers import check_run_id
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.tracing import Tracer
from fastroai.usage.limits import Limits

DepsT = TypeVar("DepsT", default=Any)


@dataclass(slots=True)
class RunRequest(Generic[DepsT]):
    """The arguments of a run, from `execute`, `stream`, `resume` or `fork`.

    Nobody changes them. Not frozen, because that takes longer to make.
    """

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
    """Key that distinguishes the run from others of its name in the run around it, whatever their order."""
    in_line: bool = False
    """Whether the flow around asks for the run in its own task, so that its calls keep their order."""
    reserve: Reserve | None = None
    """The money to set aside for the run before it begins."""
    limits: Limits | None = None
    """The limits that the caller gives this run, beside those of the config and of everything around."""
    on_changed: OnChanged | None = None
    """What to do with answers on record whose calls are declared differently now; by default, what the config
    says."""
    watching: Watching | None = None
    """How the caller watches the progress of the run."""
    is_handed_over: bool = False
    """Whether another process goes on with the run if its task is cancelled, as that of a service is."""

    def __post_init__(self) -> None:
        check_reserve(self.reserve)
        if self.on_changed is not None:
            check_on_changed(self.on_changed)

    def opened_by(self, opening: Opening) -> RunRequest[DepsT]:
        """Return the request with an opening, and with the inputs of that opening."""
        return replace(self, inputs=opening.inputs, opening=opening)

    def heard_by(self, listener: Listener | None) -> RunRequest[DepsT]:
        """Return the request with another listener to its events, beside the one that it has."""
        return self if listener is None else replace(self, listener=both(self.listener, listener))

    def tracer_of(self, parent: Scope | None) -> Tracer | None:
        """Return the tracer of the request, else that of the run around."""
        return self.tracer if self.tracer is not None or parent is None else parent.tracer

    @property
    def own_limits(self) -> Limits | None:
        """The limits that the caller gives the run; else those that an earlier caller gave it, on record."""
        recorded = None if self.opening is None else self.opening.recorded
        return limits_on_record(recorded) if self.limits is None and recorded is not None else self.limits

    def begun(
        self,
        store: RunStoreLike | None,
        configured: RunStoreLike | None,
        keeper: Callable[[RunStore], RunKeeper],
    ) -> RunRequest[DepsT]:
        """Return the checked request for a new run, which is on record if the call or the config has a store.

        A run inside of a run on record gets no record of its own: it shares that of the run around.

        Raises:
            ConfigurationError: invalid inputs, an invalid id, or an invalid store.
        """
        check_mapping(self.inputs)
        if self.run_id is not None:
            check_run_id(self.run_id)
        if (store is None and configured is None) or run_of(current_scope()) is not None:
            return self
        found = needed_store(store, configured)
        opening = self.labelling(keeper(found)).begin(self.run_id, dict(self.inputs or {}))
        return replace(self, opening=opening)

    def labelling(self, keeper: RunKeeper) -> RunKeeper:
        """Return a keeper whose runs have its labels, those of this request, and those of scopes around.

        It also puts the budgets of this request on record.
        """
        around, labels = current_scope(), self.labels.inside(keeper.labels)
        labels = labels if around is None else labels.inside(around.bounds.labels)
        return replace(self.limiting(keeper), labels=labels)

    def limiting(self, keeper: RunKeeper) -> RunKeeper:
        """Return a keeper with the budgets of this request, and with what it says of changed calls.

        Raises:
            ConfigurationError: the caller, or a scope around, gives a spend limit that lets runs wait.
        """
        around = current_scope()
        waiting = [] if self.limits is None else [*self.limits.spend_limits]
        if around is not None:
            waiting += (limit for ceiling in around.bounds.all_ceilings for limit in ceiling.limits)
        if any(limit.on_limit == "wait" for limit in waiting):
            expected = (
                "to be without a SpendLimit(on_limit='wait'), because a store keeps this run: limits of a "
                "call, or of a budget_scope around it, are not stored, so the process that wakes the run "
                "would not know them. Set it in the config of the pipeline or graph, or of a step or agent "
                "in it"
            )
            raise ConfigurationError("budget", ..., expected)
        on_changed = keeper.on_changed if self.on_changed is None else self.on_changed
        return replace(keeper, budgets=limits_to_json(self.limits), on_changed=on_changed)
