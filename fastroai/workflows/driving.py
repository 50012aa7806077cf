"""The state of a workflow that is driven from outside, rebuilt from its log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from pydantic import JsonValue

from fastroai.errors import RunCorrupt
from fastroai.runs.openings import RunKeeper
from fastroai.runtime import facts
from fastroai.store.record.definitions import kind_of
from fastroai.store.record.memo import Memo
from fastroai.store.record.unsealing import seal_payloads
from fastroai.workflows.checks import Checks
from fastroai.workflows.definition import spec_in, width_in
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.facts import OfWorkflow
from fastroai.workflows.machine.machine import WorkflowMachine
from fastroai.workflows.plan import WorkflowPlan, plan_of
from fastroai.workflows.replay import WorkflowReplay, replayed
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.spec.reading import load_spec

Reported: TypeAlias = (
    facts.StepFinished
    | facts.StepFailed
    | facts.QuestionAsked
    | facts.AnswerGiven
    | facts.SpendingRecorded
    | OfWorkflow
)
"""Facts of a workflow that calls report."""

MOST_SPECS: Final = 32
"""Number of specs that are kept after they were read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A spec that was read, ready to be run."""

    plan: WorkflowPlan
    checks: Checks


class Specs:
    """Specs that were read, by their text. Those used last are kept."""

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._kept: OrderedDict[tuple[str, str | None], Loaded] = OrderedDict()

    def load(self, text: str, flow: str | None) -> Loaded:
        """Read a spec that begins with `flow`, by default with its entry flow, and return it ready to be run.

        Raises:
            WorkflowValidationError: the spec cannot run.
            KeyError: the spec has no such flow.
        """
        loaded = self._kept.pop((text, flow), None)
        if loaded is None:
            spec = load_spec(text)
            loaded = Loaded(plan_of(spec, flow), Checks(spec, self._workspace))
        self._kept[text, flow] = loaded
        while len(self._kept) > MOST_SPECS:
            self._kept.popitem(last=False)
        return loaded


class DrivenWorkflow:
    """A workflow whose steps are done outside of FastroAI."""

    def __init__(
        self,
        loaded: Loaded,
        recorded: Memo,
        keeper: RunKeeper,
    ) -> None:
        """Replay the log in a new state machine. Raises `RunCorrupt` if the log cannot be replayed."""
        self.loaded, self.plan, self.checks = loaded, loaded.plan, loaded.checks
        self._codec = keeper.codec
        inputs = keeper.restored(recorded.opened.run_id, recorded.inputs)
        given = cast("Mapping[str, JsonValue]", inputs)
        width = width_in(recorded.definition)
        self.replay: WorkflowReplay = replayed(
            loaded.plan, given, recorded, codec=keeper.codec, width=width, fits=loaded.checks.fits
        )

    @property
    def machine(self) -> WorkflowMachine:
        """The state machine of the workflow."""
        return self.replay.machine

    @property
    def waits(self) -> tuple[facts.Wait, ...]:
        """The waits of the run, if it is paused."""
        return self.machine.waits

    def stored(self, fact: Reported) -> Sequence[facts.PlanFact]:
        """Return a fact in the form in which the log stores it."""
        return (seal_payloads(fact, self._codec),)


class NotAWorkflow(Exception):
    """The run is not one of a workflow, but of a pipeline or graph."""


def driven_workflow(specs: Specs, recorded: Memo, keeper: RunKeeper) -> DrivenWorkflow:
    """Rebuild a workflow from its log.

    Raises:
        NotAWorkflow: the run is not one of a workflow.
        RunCorrupt: the log cannot be replayed.
    """
    text = spec_in(recorded.definition)
    if text is None or kind_of(recorded.definition) != "workflow":
        raise NotAWorkflow
    try:
        loaded = specs.load(text, recorded.opened.pipeline)
    except (KeyError, WorkflowValidationError) as error:
        reason = f"its spec cannot be read: {error}"
        raise RunCorrupt(recorded.opened.run_id, 1, reason) from error
    return DrivenWorkflow(loaded, recorded, keeper)
