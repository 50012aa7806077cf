"""Specs that were read, ready to be run. Those used last are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fastroai.errors import RunCorrupt
from fastroai.store.record.definitions import kind_of
from fastroai.store.record.memo import Memo
from fastroai.workflows.checks import Checks
from fastroai.workflows.definition import spec_in
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.plan import WorkflowPlan, plan_of
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.spec.reading import load_spec

MOST_SPECS: Final = 32
"""Number of specs that are kept after they were read."""


class NotAWorkflow(Exception):
    """The run is not one of a workflow, but of a pipeline or graph."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A spec that was read, ready to be run."""

    plan: WorkflowPlan
    checks: Checks


class Specs:
    """Specs that were read, by their text."""

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._kept = lru_cache(maxsize=MOST_SPECS)(self._read)

    def load(self, text: str, flow: str | None) -> Loaded:
        """Read a spec that begins with `flow`, by default with its entry flow, and return it ready to be run.

        Raises:
            WorkflowValidationError: the spec cannot run.
            KeyError: the spec has no such flow.
        """
        return self._kept(text, flow)

    def _read(self, text: str, flow: str | None) -> Loaded:
        spec = load_spec(text)
        return Loaded(plan_of(spec, flow), Checks(spec, self._workspace))

    def of_run(self, recorded: Memo) -> Loaded:
        """Return the spec of a run on record.

        Raises:
            NotAWorkflow: the run is not one of a workflow.
            RunCorrupt: its spec cannot be read.
        """
        text = spec_in(recorded.definition)
        if text is None or kind_of(recorded.definition) != "workflow":
            raise NotAWorkflow
        try:
            return self.load(text, recorded.opened.pipeline)
        except (KeyError, WorkflowValidationError) as error:
            reason = f"its spec cannot be read: {error}"
            raise RunCorrupt(recorded.opened.run_id, 1, reason) from error
